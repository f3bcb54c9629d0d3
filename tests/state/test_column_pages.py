"""Pages of an array, written to and copied in any order: what comes out is the barrier's."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.state.world import MAX_PARALLELISM, Subtask, restored
from tests.worlds.storage import MEMORY
from tidegate.api.state import ColumnStateDescriptor
from tidegate.model.ids import CheckpointId
from tidegate.state.columns.column_pages import PAGE_ROWS, FrozenArray
from tidegate.typeinfo.key_hash import KeyHasher

COUNT = ColumnStateDescriptor("count", pa.int64())
STEP = "step"
ROWS = st.lists(st.integers(0, 3 * PAGE_ROWS + 10), max_size=5)
"""Some of them behind the end, as those of new keys are."""


@given(count=st.integers(0, 3 * PAGE_ROWS + 5), script=st.lists(st.just(STEP) | ROWS, max_size=8))
def test_the_values_are_those_of_the_barrier(count: int, script: list[Any]) -> None:
    live = np.arange(3 * PAGE_ROWS + 11)
    frozen = FrozenArray(live, count)
    steps = frozen.steps()
    for each in script:
        if each == STEP:
            next(steps, None)
        else:
            rows = np.array(each, np.int64)
            frozen.save(rows)
            live[rows] = -1
    assert all(rows <= PAGE_ROWS for rows in steps)
    live[:] = -2
    assert np.array_equal(frozen.values(), np.arange(count))


def test_freezing_copies_nothing_and_a_write_only_the_pages_it_touches() -> None:
    live = np.arange(10 * PAGE_ROWS)
    frozen = FrozenArray(live, len(live))
    frozen.save(np.array([5, 3 * PAGE_ROWS, 3 * PAGE_ROWS + 1]))
    assert sum(1 for _ in frozen.steps()) == 8


def test_what_is_given_up_is_not_copied() -> None:
    frozen = FrozenArray(np.arange(2 * PAGE_ROWS), 2 * PAGE_ROWS)
    frozen.release()
    frozen.save(np.array([1]))
    assert list(frozen.steps()) == [] and len(frozen.values()) == 0


OPERATIONS = st.tuples(
    st.sampled_from(("add", "drop", "pack", "slice", "new keys", "snapshot")),
    st.integers(0, 3),
    st.integers(0, 30),
)


class Panes:
    """Panes of counts and dicts that say the same; snapshots with the dicts of their time."""

    def __init__(self) -> None:
        self.subtask = Subtask(step_ms=1_000)
        self.panes = self.subtask.backend.keyed_panes(None)
        self.model: dict[int, dict[int, int]] = {}
        self.pending: list[tuple[Any, dict[tuple[int, int], int]]] = []

    def rows(self, keys: list[int]) -> Any:
        column = pa.array(keys, pa.int64())
        groups = KeyHasher(None, MAX_PARALLELISM).key_groups_of_column(column)
        return self.panes.index(column, groups)

    def add(self, number: int, key: int) -> None:
        pane, keys = self.panes.pane(number), [key, key + 1]
        rows = self.rows(keys)
        pane.add(rows)
        pane.column(COUNT).at(np.add, rows, 1)
        held = self.model.setdefault(number, {})
        for each in keys:
            held[each] = held.get(each, 0) + 1

    def drop(self, number: int, key: int) -> None:
        if number in self.model:
            self.panes.drop([number])
            del self.model[number]

    def pack(self, number: int, key: int) -> None:
        if number in self.model:
            self.panes.pane(number).pack()

    def new_keys(self, number: int, key: int) -> None:
        self.rows(list(range(1000 * key, 1000 * key + 2_000)))

    def slice(self, number: int, key: int) -> None:
        if self.pending:
            self.pending[-1][0].encode(0.0)

    def snapshot(self, number: int, key: int) -> None:
        model = {(n, k): count for n, held in self.model.items() for k, count in held.items()}
        pending = self.subtask.backend.snapshot(CheckpointId(len(self.pending) + 1))
        self.pending.append((pending, model))


def contents(panes: Any) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for number in panes.namespaces():
        rows = panes.pane(number).rows()
        counts = panes.pane(number).column(COUNT).get(rows).tolist()
        keys = panes.keys(rows).to_pylist()
        found |= {(number, key): count for key, count in zip(keys, counts, strict=True)}
    return found


@examples(60)
@given(script=st.lists(OPERATIONS, max_size=40))
def test_panes_are_as_at_the_barrier_whatever_comes_between(
    script: list[tuple[str, int, int]],
) -> None:
    driven = Panes()
    for operation, number, key in [*script, ("snapshot", 0, 0)]:
        getattr(driven, operation.replace(" ", "_"))(number, key)
    for pending, model in driven.pending:
        pending.finish()
        [again] = restored([pending.upload(MEMORY)])
        assert contents(again.backend.keyed_panes(None)) == model

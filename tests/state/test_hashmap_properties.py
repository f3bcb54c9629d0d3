"""One table, writes between any two pieces of its encoding: what comes out is the barrier."""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.key_groups import KeyGroupRange
from tests.properties import examples
from tidegate.loops.forms import loops
from tidegate.state.heap.hashmap import HashMapTable
from tidegate.typeinfo.copies import private_copy

GROUPS = KeyGroupRange(0, 1)
STEP = "step"
OPERATIONS = ("write", "remove", "read_and_write", "edit", "fold")
KEYS = st.integers(0, 9)
VALUES = st.integers(1, 9)
WRITE = st.tuples(st.sampled_from(OPERATIONS), KEYS, VALUES)
BEFORE = st.lists(st.tuples(st.just("write"), st.integers(0, 5), VALUES), min_size=4, max_size=20)
SCRIPT = st.lists(st.just(STEP) | WRITE | WRITE | WRITE, max_size=40)


def group_of(key: int) -> int:
    return int(key == 0)  # one group with many keys, one with few


class Driven:
    """A table and the plain dict that it must agree with. Values are lists, or numbers."""

    def __init__(self, copier: Callable[[object], object] | None) -> None:
        self.mutable = copier is not None
        self.cell = loops().key_cell()
        self.table = HashMapTable(self.cell, GROUPS, 2, copy=copier)
        self.values: Any = self.table.value_state()
        self.model: dict[int, Any] = {}

    def do(self, operation: str, key: int, value: int) -> None:
        self.cell.key, self.cell.group = key, group_of(key)
        getattr(self, operation)(key, value)
        assert self.table.peek() == self.model.get(key)

    def write(self, key: int, value: int) -> None:
        self.values.update([value] if self.mutable else value)
        self.model[key] = [value] if self.mutable else value

    def remove(self, key: int, value: int) -> None:
        self.values.clear() if value % 2 else self.values.update(None)
        self.model.pop(key, None)

    def read_and_write(self, key: int, value: int) -> None:
        held: Any = self.values.value()
        if held is None:
            return
        if self.mutable:
            held.append(value)
        else:
            held += value
        self.values.update(held)
        self.model[key] = copy.copy(held)

    def fold(self, key: int, value: int) -> None:
        group = group_of(key)
        emitted: list[object] = []
        added: Any = [value] if self.mutable else value
        self.table.fold([key], [group], [added], self.merge, emitted.append)
        held = self.model.get(key)
        self.model[key] = copy.copy(added) if held is None else held + added
        assert emitted == [self.model[key]]

    def merge(self, old: Any, new: Any) -> object:
        if self.mutable:
            old.extend(new)
            return old
        return old + new

    def edit(self, key: int, value: int) -> None:
        held: Any = self.table.edit()
        if held is not None and self.mutable:
            held.append(value)
            self.model[key] = [*self.model[key], value]

    def contents(self) -> dict[object, object]:
        return {key: value for _, key, value in self.table.scan()}

    def encode(self, groups: list[int], rows: Callable[[], int]) -> Iterator[tuple[int, bytes]]:
        for group in groups:
            for piece in self.table.pieces(group, rows):
                yield group, pickle.dumps(piece)


@pytest.mark.parametrize("copier", [None, private_copy])
@examples(300)
@given(before=BEFORE, script=SCRIPT, rows=st.integers(1, 2))
def test_the_pieces_are_the_table_at_the_barrier(
    copier: Callable[[object], object] | None,
    before: list[tuple[str, int, int]],
    script: list[Any],
    rows: int,
) -> None:
    driven = Driven(copier)
    for write in before:
        driven.do(*write)
    at_barrier = copy.deepcopy(driven.model)
    encoding = driven.encode(driven.table.freeze(), lambda: rows)
    encoded: list[tuple[int, bytes]] = []
    for each in script:
        if each == STEP:
            encoded += [piece for piece in [next(encoding, None)] if piece is not None]
        else:
            driven.do(*each)
    encoded += encoding
    again = Driven(copier)
    for group, piece in encoded:
        again.table.load(group, pickle.loads(piece))
    assert again.contents() == at_barrier
    assert driven.contents() == driven.model
    assert not driven.table.is_shared()


@given(before=BEFORE, script=SCRIPT)
def test_a_thawed_table_shares_nothing_and_can_be_frozen_again(
    before: list[tuple[str, int, int]], script: list[Any]
) -> None:
    driven = Driven(private_copy)
    for write in before:
        driven.do(*write)
    driven.table.freeze()
    for each in script:
        if each != STEP:
            driven.do(*each)
    driven.table.thaw()
    for key in range(10):
        driven.cell.key, driven.cell.group = key, group_of(key)
        assert not driven.table.is_shared()
        assert driven.table.read() is driven.table.peek()
    assert driven.contents() == driven.model
    assert set(driven.table.freeze()) == {group_of(key) for key in driven.model}

"""A reduce over columns gives what the function gives row by row, and leaves the same state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.row import Row
from tests.operators.backed import BackedJob, in_columns
from tests.operators.world import World
from tests.properties import examples
from tidegate.api.functions import ReducingStateDescriptor
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.model.elements import RowBatch
from tidegate.operators.aggregates import folded
from tidegate.operators.aggregates.reduce import STATE_NAME, ReduceOperator, RollingOperator
from tidegate.traced.folds import Fold, FoldKind, folds_of
from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Binary, Constant, Field
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.hypothesis

ROW = Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE()])
LINE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()])
STEPS: dict[str, Callable[[], ReduceOperator]] = {
    "sums": lambda: ReduceOperator(
        lambda old, new: (old[0], old[1] + new[1], new[2] + old[2]), ROW
    ),
    "last": lambda: ReduceOperator(lambda old, new: (old[0], new[1], new[2])),
    "another field": lambda: ReduceOperator(lambda old, new: (old[0], old[1] + new[0], old[2])),
    "a term": lambda: ReduceOperator(lambda old, new: (old[0], old[1] + (new[0] * 3 - 1), old[2])),
    "rows counted": lambda: ReduceOperator(lambda old, new: (old[0], old[1] + 1, new[2])),
    "crossed": lambda: ReduceOperator(lambda old, new: (new[1], new[0], old[2])),
    "of another type": lambda: ReduceOperator(lambda old, new: (old[0], new[2], old[2])),
    "no fold": lambda: ReduceOperator(lambda old, new: (old[0], old[1] * new[1], old[2])),
    "sum": lambda: RollingOperator("sum", 1, ROW),
    "sum of doubles": lambda: RollingOperator("sum", "f2", ROW),
    "min": lambda: RollingOperator("min", 1, ROW),
    "max": lambda: RollingOperator("max", "f1", ROW),
    "max of doubles": lambda: RollingOperator("max", 2, ROW),
    "max_by": lambda: RollingOperator("max_by", 1, ROW),
}
HELD = ReducingStateDescriptor(STATE_NAME, lambda old, new: new, ROW)
HELD_LINE = ReducingStateDescriptor(STATE_NAME, lambda old, new: new, LINE)

longs = st.one_of(st.integers(-9, 9), st.sampled_from([2**62, 2**63 - 1, -(2**63), 2**64]))
doubles = st.one_of(st.sampled_from([0.0, -0.0, 1.5, 1e300, math.nan, math.inf]), st.floats())
rows = st.tuples(st.integers(0, 5), st.tuples(st.integers(0, 3), longs, doubles), st.just(7))
batches = st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=6)


def run(
    step: Callable[[], ReduceOperator],
    fed: list[list[tuple[Any, Any, int]]],
    form: Callable[[RowBatch], RowBatch],
    restored_after: int,
    held: ReducingStateDescriptor = HELD,
) -> str:
    """All results and the state at the end, as text: that tells -0.0 from 0.0."""
    with World() as world:
        job = BackedJob(world, step, 2, as_fed=form)
        told: list[object] = []
        for number, batch in enumerate(fed):
            try:
                told.append(job.feed(0, *batch))
            except Exception as error:
                return repr([*told, type(error), str(error)])
            if number == restored_after:
                job = job.restored(3)
        job = job.restored(1)
        return repr((told, sorted(job.held(held).items())))


@pytest.mark.parametrize("name", STEPS)
@given(batches, st.integers(0, 5))
@examples(30)
def test_columns_come_to_what_rows_come_to(
    name: str, fed: list[list[tuple[Any, Any, int]]], restored_after: int
) -> None:
    expected = run(STEPS[name], fed, lambda batch: batch, restored_after)
    assert run(STEPS[name], fed, in_columns, restored_after) == expected


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=20), max_size=8))
@examples(30)
def test_keys_that_do_not_fit_are_written_back(many: list[list[int]]) -> None:
    fed = [[(key, (key, 1, 0.5), 0) for key in keys] for keys in many]
    expected = run(STEPS["sums"], fed, lambda batch: batch, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folded, "KEYS_MAX", 8)
        assert run(STEPS["sums"], fed, in_columns, 2) == expected


LINE_STEPS: dict[str, Callable[[], ReduceOperator]] = {
    "last text": lambda: ReduceOperator(lambda old, new: (old[0], old[1] + new[1], new[2]), LINE),
    "texts joined": lambda: ReduceOperator(
        lambda old, new: (old[0], old[1], old[2] + new[2]), LINE
    ),
    "sum beside texts": lambda: RollingOperator("sum", 1, LINE),
    "max of texts": lambda: RollingOperator("max", 2, LINE),
}
texts = st.sampled_from(["", "a", "a\0", "b", "\ud800"])
lines = st.tuples(st.integers(0, 5), st.tuples(texts, longs, texts), st.just(7))


@pytest.mark.parametrize("name", LINE_STEPS)
@given(st.lists(st.lists(lines, min_size=1, max_size=12), min_size=1, max_size=4))
@examples(30)
def test_texts_come_to_what_rows_come_to(name: str, fed: list[list[tuple[Any, Any, int]]]) -> None:
    expected = run(LINE_STEPS[name], fed, lambda batch: batch, 1, HELD_LINE)
    assert run(LINE_STEPS[name], fed, in_columns, 1, HELD_LINE) == expected


@pytest.mark.parametrize("name", ["sums", "last", "rows counted", "sum", "max"])
@given(batches, st.integers(0, 5))
@examples(30)
def test_keys_may_be_texts(
    name: str, fed: list[list[tuple[Any, Any, int]]], restored_after: int
) -> None:
    named = [[("\ud800" * (key % 2) + f"key {key}", *rest) for key, *rest in of] for of in fed]
    expected = run(STEPS[name], named, lambda batch: batch, restored_after)
    assert run(STEPS[name], named, in_columns, restored_after) == expected


@dataclass
class Sale:
    a: int
    b: int
    c: float = 0.5


class Sold(NamedTuple):
    a: int
    b: int
    c: float


RECORD_STEPS: dict[str, tuple[Callable[..., Any], Callable[[], ReduceOperator]]] = {
    "dataclass": (
        Sale,
        lambda: ReduceOperator(lambda old, new: Sale(old.a, old.b + new.b, c=new.c + old.c)),
    ),
    "dataclass, last": (Sale, lambda: ReduceOperator(lambda old, new: Sale(new.a, c=1.5, b=old.b))),
    "named tuple": (
        Sold,
        lambda: ReduceOperator(lambda old, new: Sold(old[0], old.b + new[-2], new.c)),
    ),
    "dict": (
        lambda a, b, c: {"a": a, "b": b, "c": c},
        lambda: ReduceOperator(
            lambda old, new: {"a": old["a"], "b": old["b"] + new["b"], "c": new["c"]}
        ),
    ),
    "row": (
        lambda a, b, c: Row(a=a, b=b, c=c),
        lambda: ReduceOperator(lambda old, new: Row(a=old["a"], b=old.b + new.b, c=old[2])),
    ),
    "other names": (Sale, lambda: ReduceOperator(lambda old, new: Row(a=old.a, b=new.b, c=0.5))),
    "sum of rows": (
        lambda a, b, c: Row(a=a, b=b, c=c),
        lambda: RollingOperator("sum", "b", Types.ROW_NAMED(["a", "b", "c"], ROW.children)),
    ),
    "max of a place": (
        lambda a, b, c: Row(a=a, b=b, c=c),
        lambda: RollingOperator("max", 1, Types.ROW_NAMED(["a", "b", "c"], ROW.children)),
    ),
    "max in dataclasses": (Sale, lambda: RollingOperator("max", "b", type_of_hint(Sale))),
    "sum in named tuples": (Sold, lambda: RollingOperator("sum", "b", type_of_hint(Sold))),
}


@pytest.mark.parametrize("name", RECORD_STEPS)
@given(batches, st.integers(0, 5))
@examples(30)
def test_records_come_to_what_rows_come_to(
    name: str, fed: list[list[tuple[Any, Any, int]]], restored_after: int
) -> None:
    make, step = RECORD_STEPS[name]
    made = [[(key, make(*value), group) for key, value, group in of] for of in fed]
    expected = run(step, made, lambda batch: batch, restored_after)
    assert run(step, made, in_columns, restored_after) == expected


@pytest.mark.parametrize("name", RECORD_STEPS)
def test_results_are_columns_where_records_are(name: str) -> None:
    make, step = RECORD_STEPS[name]
    rows = in_columns(RowBatch([make(1, 2, 0.5)], [3], ["a"], [5]))
    with World() as world:
        job = BackedJob(world, step, 1)
        out = job.outs[0]
        job.operators[0].process(rows, 0, out)
    (batch,) = out.batches
    folded = isinstance(rows, ColumnRows) and name != "other names"
    assert isinstance(batch, ColumnRows) == folded
    assert batch.values == [make(1, 2, 0.5)]


some = st.none() | st.integers(-9, 9)
absent = st.tuples(
    st.integers(0, 5), st.tuples(some, st.integers(-9, 9), st.none() | doubles), st.just(7)
)


@pytest.mark.parametrize(
    "name", ["sums", "last", "another field", "rows counted", "sum", "sum of doubles", "max"]
)
@given(st.lists(st.lists(absent, min_size=1, max_size=12), min_size=1, max_size=4))
@examples(30)
def test_nulls_come_to_what_rows_come_to(name: str, fed: list[list[tuple[Any, Any, int]]]) -> None:
    expected = run(STEPS[name], fed, lambda batch: batch, 1)
    assert run(STEPS[name], fed, in_columns, 1) == expected


def test_plain_numbers_are_folded() -> None:
    fed = [[(key, value, 0) for key, value in ((1, 5), (2, 7), (1, 3))], [(2, 1, 0)]]
    step = lambda: ReduceOperator(lambda old, new: old + new, Types.LONG())  # noqa: E731
    with World() as world:
        job = BackedJob(world, step, 1, as_fed=in_columns)
        values = [[value for value, _ in job.feed(0, *batch)] for batch in fed]
    assert values == [[5, 7, 8], [8]]


BY_ROW = {"of another type", "no fold", "max of doubles", "max_by"}


@pytest.mark.parametrize("name", STEPS)
def test_results_are_columns_where_the_function_is_folded(name: str) -> None:
    with World() as world:
        job = BackedJob(world, STEPS[name], 1, as_fed=in_columns)
        out = job.outs[0]
        job.operators[0].process(in_columns(RowBatch([(1, 2, 0.5)], [3], [1], [5])), 0, out)
    (batch,) = out.batches
    assert isinstance(batch, ColumnRows) == (name not in BY_ROW)
    assert (batch.values, batch.timestamps_ms, batch.keys) == ([(1, 2, 0.5)], [3], None)


def test_each_field_by_itself_is_a_fold() -> None:
    folds = folds_of(lambda old, new: (old[0], new[0] * 2, old[2] + new[1], new[3] + old[3]))
    assert folds.folds == (
        Fold(FoldKind.KEEP),
        Fold(FoldKind.LAST, Binary("mul", Field(1, 0), Constant(2))),
        Fold(FoldKind.SUM, Field(1, 1)),
        Fold(FoldKind.SUM, Field(1, 3)),
    )


def test_a_method_that_leaves_its_object_alone_is_a_fold() -> None:
    assert folds_of(Average().add, argument=0).folds == (
        Fold(FoldKind.SUM, Constant(1)),
        Fold(FoldKind.SUM, Field(0, None)),
    )


class Average:
    scale = 2

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value

    def scaled(self, value: int, accumulator: int) -> int:
        return accumulator + value * self.scale


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda old, new: (old[0], old[1] - new[1]), "field 1 of its result is neither"),
        (lambda old, new: (old[1], old[0]), "field 0 of its result is neither"),
        (lambda old, new: (old[0], old[1] + old[1]), "field 1 of its result is neither"),
        (lambda old, new: (old[0], old[1] + 1 + new[1]), "field 1 of its result is neither"),
        (lambda old, new: old * new, "its result is neither"),
        (lambda old, new: max(old, new), "calls a function"),
        (Average().scaled, "it reads its own object"),
    ],
)
def test_what_is_no_fold_says_why(function: Callable[..., object], why: str) -> None:
    with pytest.raises(NotPure, match=why):
        folds_of(function)

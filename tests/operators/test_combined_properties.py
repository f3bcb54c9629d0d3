"""Aggregates that are combined before they are sent are those of rows that are sent one by one."""

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.columnar_world import ColumnarStep
from tidegate import (
    Collect,
    Count,
    CountDistinct,
    First,
    GraphError,
    Last,
    Max,
    Mean,
    Min,
    SlidingEventTimeWindows,
    Sum,
    TumblingEventTimeWindows,
)
from tidegate.api.aggregates import Aggregate
from tidegate.api.rows.column_rows import ColumnRows, RowForm
from tidegate.api.state import KeyedPanes
from tidegate.model.elements import ArrowBatch, Batch, RowBatch
from tidegate.operators.windows.global_batches import GlobalAggregateBatchesOperator
from tidegate.operators.windows.slices import SLICES_MAX, SliceCombiner
from tidegate.operators.windows.window_batches import WindowAggregateBatchesOperator
from tidegate.state.columns.columnar import KeyedColumnStates
from tidegate.typeinfo.types import TypeInformation

END = 2**63 - 1
Step = WindowAggregateBatchesOperator | GlobalAggregateBatchesOperator
Timed = tuple[int, Any, Any]
"""Event time, key, value."""

ORDERED = (Min("x"), Max("x"))
NUMBERS = (Sum("x"), Mean("x"))
INSTANTS = st.integers(-(2**50), 2**50)

VALUES: dict[pa.DataType, tuple[st.SearchStrategy[Any], tuple[Aggregate, ...]]] = {
    pa.int8(): (st.integers(-128, 127), (*ORDERED, *NUMBERS)),
    pa.int64(): (st.integers(-(2**63), 2**63 - 1), (*ORDERED, *NUMBERS)),
    pa.uint64(): (st.integers(0, 2**64 - 1), (*ORDERED, *NUMBERS)),
    pa.bool_(): (st.booleans(), (*ORDERED, *NUMBERS)),
    pa.float32(): (st.floats(width=32), ORDERED),
    pa.float64(): (st.floats(), (*ORDERED, *NUMBERS)),
    pa.string(): (st.text(max_size=2), ORDERED),
    pa.decimal128(38, 2): (st.decimals(-(10**30), 10**30, places=2), (*ORDERED, *NUMBERS)),
    pa.timestamp("us", "UTC"): (INSTANTS, ORDERED),
    pa.date32(): (st.dates(), ORDERED),
    pa.duration("ms"): (st.timedeltas(dt.timedelta(-9), dt.timedelta(9)), (*ORDERED, Sum("x"))),
}
KEYS: dict[pa.DataType, Sequence[Any]] = {
    pa.int64(): (-1, 0, 7, 2**62),
    pa.int32(): (-1, 0, 7),
    pa.string(): ("", "a", "é"),
    pa.binary(): (b"", b"a"),
    pa.date32(): (dt.date(1960, 1, 1), dt.date(2024, 2, 29)),
    pa.float64(): (0.0, -0.0, math.nan, 1.5),
    pa.dictionary(pa.int8(), pa.string()): ("a", "b", "c"),
}
WINDOWS = st.one_of(
    st.none(),
    st.builds(lambda size: TumblingEventTimeWindows(size, 0), st.integers(1, 30)),
    st.builds(
        lambda size, slide, offset: SlidingEventTimeWindows(size, slide, offset % slide),
        st.integers(1, 12),
        st.integers(1, 12),
        st.integers(0, 20),
    ),
)


def make_step(windows: Any, aggregates: Sequence[Aggregate]) -> Step:
    if windows is None:
        return GlobalAggregateBatchesOperator(aggregates, "k")
    return WindowAggregateBatchesOperator(windows, aggregates, "k")


def opened(operator: Step, cells_max: int | None = None) -> SliceCombiner:
    combiner = operator.combiner().holding(cells_max)

    def panes(key_type: TypeInformation | None) -> KeyedPanes:
        return KeyedColumnStates("sent").keyed_panes(key_type)

    combiner.open(panes)
    return combiner


def batch_of(rows: Sequence[Timed], key: pa.DataType, value: pa.DataType) -> ArrowBatch:
    stamps, keys, values = zip(*rows, strict=True)
    columns = [pa.array(keys, key), pa.array(values, value)]
    return ArrowBatch(pa.record_batch(columns, ["k", "x"]), np.array(stamps, np.int64))


def sent_by(combiner: SliceCombiner, batches: Sequence[Batch]) -> list[Batch]:
    sent = [each for batch in batches for each in combiner.add(batch)]
    return [*sent, *combiner.flush()]


def results(step: ColumnarStep, batches: Sequence[Batch]) -> list[str]:
    for each in batches:
        assert isinstance(each, ArrowBatch)
        stamps = each.timestamps_ms
        step.process(each.batch, None if stamps is None else stamps.tolist())
    step.watermark(END)
    return sorted(map(repr, step.rows))


@pytest.mark.feature("F311")
@given(
    windows=WINDOWS,
    key=st.sampled_from(list(KEYS)),
    value=st.sampled_from(list(VALUES)),
    cells_max=st.sampled_from([1, 3, 10, None]),
    parallelism=st.integers(1, 3),
    data=st.data(),
)
def test_combined_rows_give_what_the_rows_give(
    windows: Any,
    key: pa.DataType,
    value: pa.DataType,
    cells_max: int | None,
    parallelism: int,
    data: st.DataObject,
) -> None:
    values, meant = VALUES[value]
    order = (First("x"), Last("x"), Collect("x"), CountDistinct("x"))
    chosen = st.lists(st.sampled_from([*meant, *meant, *order]), unique=True, max_size=3)
    aggregates = (Count(), Count("x"), *data.draw(chosen))
    timed = st.tuples(st.integers(-30, 60), st.sampled_from(KEYS[key]), values | st.none())
    batches = st.lists(st.lists(timed, min_size=1, max_size=12), max_size=5)
    senders = [
        [batch_of(rows, key, value) for rows in own]
        for own in data.draw(st.lists(batches, min_size=1, max_size=3))
    ]
    make = partial(make_step, windows, aggregates)
    plain = ColumnarStep(make, parallelism=parallelism)
    combined = ColumnarStep(make, parallelism=parallelism)
    sent = [sent_by(opened(make(), cells_max), own) for own in senders]
    expected = results(plain, [batch for own in senders for batch in own])
    assert results(combined, [batch for own in sent for batch in own]) == expected


ROWS = [(n, n % 4, n) for n in range(100)]


def numbers(rows: Sequence[Timed] = ROWS) -> ArrowBatch:
    return batch_of(rows, pa.int64(), pa.int64())


def rows_in(batches: Sequence[Batch]) -> int:
    return sum(map(len, batches))


@pytest.mark.feature("F311")
def test_a_row_of_each_key_and_slice_is_sent() -> None:
    windows = SlidingEventTimeWindows(50, 25, 0)
    aggregates = (Count(), Sum("x"), Min("x"), Max("x"), Mean("x"))
    assert rows_in(sent_by(opened(make_step(None, aggregates)), [numbers()] * 9)) == 4
    assert rows_in(sent_by(opened(make_step(windows, aggregates)), [numbers()] * 9)) == 16


def test_sums_whose_order_shows_are_sent_row_by_row() -> None:
    for aggregate in (First("x"), Last("x"), Collect("x"), CountDistinct("x")):
        sent = sent_by(opened(make_step(None, (Count(), aggregate))), [numbers()])
        assert rows_in(sent) == len(ROWS)
    for kind in (pa.float64(), pa.decimal128(20, 0)):
        floating = batch_of([(0, 1, Decimal(n)) for n in range(9)], pa.int64(), pa.decimal128(9, 0))
        batch = floating.batch.set_column(1, "x", floating.batch["x"].cast(kind))
        made = [ArrowBatch(batch, floating.timestamps_ms)]
        assert rows_in(sent_by(opened(make_step(None, (Sum("x"),))), made)) == 9
        assert rows_in(sent_by(opened(make_step(None, (Max("x"),))), made)) == 1


def test_what_is_held_is_bounded_and_keys_that_do_not_repeat_are_not_held() -> None:
    def of(first: int, keys: int) -> ArrowBatch:
        return numbers([(0, first + n % keys, n) for n in range(60)])

    combiner = opened(make_step(None, (Count(),)), cells_max=50)
    assert [rows_in(combiner.add(of(start, 20))) for start in (0, 100, 200)] == [0, 0, 60]
    assert [rows_in(combiner.add(of(start, 20))) for start in (0, 0, 0)] == [0, 0, 0]
    assert rows_in(combiner.flush()) == 20
    assert rows_in(combiner.flush()) == 0
    assert rows_in(combiner.add(of(0, 60))) == 60
    assert rows_in(combiner.add(of(0, 1))) == 60, "they hardly repeated, and are as they are now"


def test_slices_are_held_while_they_are_few() -> None:
    def at(times: Sequence[int]) -> ArrowBatch:
        return numbers([(10 * time, 1, 1) for time in times])

    make = partial(make_step, TumblingEventTimeWindows(10, 0), (Count(),))
    combiner = opened(make())
    in_order = [
        rows_in(combiner.add(at([first] * 50 + [first + 1] * 50))) for first in range(2_000)
    ]
    assert 0 < max(in_order) <= SLICES_MAX
    assert sum(in_order) + rows_in(combiner.flush()) == 2_001 + len(in_order) - in_order.count(0)
    assert rows_in(opened(make()).add(at(range(0, 90_000, 90)))) == 1_000


def test_rows_as_columns_are_combined_and_others_are_not() -> None:
    form = RowForm(names=("k", "x"))
    columns = ColumnRows([np.arange(100) % 4, np.arange(100)], form=form)
    sent = sent_by(opened(make_step(None, (Count(), Sum("x")))), [columns, columns])
    assert rows_in(sent) == 4
    rows = RowBatch([{"k": n % 4, "x": n} for n in range(100)])
    assert sent_by(opened(make_step(None, (Count(), Sum("x")))), [rows]) == [rows]


def test_what_cannot_be_combined_is_refused_by_the_operator_as_ever() -> None:
    def check(batches: Sequence[ArrowBatch], error: type[Exception], match: str) -> None:
        windows = TumblingEventTimeWindows(10, 0)
        make = partial(make_step, windows, (Sum("x"),))
        sent = sent_by(opened(make()), batches)
        with pytest.raises(error, match=match):
            results(ColumnarStep(make), sent)

    other = numbers().batch.set_column(1, "x", numbers().batch["x"].cast(pa.int32()))
    check([numbers(), ArrowBatch(other, numbers().timestamps_ms)], GraphError, "schema changed")
    check([ArrowBatch(other.select(["k"]), numbers().timestamps_ms)], GraphError, "no column 'x'")
    check([batch_of([(0, 1, "a")], pa.int64(), pa.string())], GraphError, "has no meaning")
    check([ArrowBatch(numbers().batch)], Exception, "without timestamps")


def test_a_key_per_row_of_a_restored_job_is_counted_once() -> None:
    """Totals stand in a snapshot, and come with the end of the input behind it."""
    step = ColumnarStep(partial(make_step, None, (Count(), Sum("x"))), parallelism=2)
    for each in sent_by(opened(make_step(None, (Count(), Sum("x")))), [numbers()]):
        assert isinstance(each, ArrowBatch)
        step.process(each.batch)
    again = step.restored(3)
    assert again.rows == []
    again.watermark(END)
    found = sorted((row["k"], row["count"], row["x_sum"]) for row in again.rows)
    assert found == [(key, 25, sum(range(key, 100, 4))) for key in range(4)]

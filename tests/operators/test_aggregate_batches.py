"""Aggregates of Arrow batches, running, against a loop over rows."""

import datetime
import math
from collections import defaultdict
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.columnar_world import ALL, ColumnarStep
from tidegate import (
    Count,
    CountDistinct,
    GraphError,
    Max,
    Mean,
    Min,
    Sum,
)
from tidegate.api.aggregates import Aggregate
from tidegate.errors import SerializerIncompatible
from tidegate.operators.aggregates.running import RunningOperator


def loop(rows: list[tuple[object, object]]) -> list[dict[str, object]]:
    """All aggregates after each of (key, value), by a loop over rows."""
    counts: dict[object, int] = defaultdict(int)
    values: dict[object, list[object]] = defaultdict(list)
    results = []
    for key, value in rows:
        counts[key] += 1
        seen = values[key]
        if value is not None:
            seen.append(value)
        results.append({"k": key, "x": value, "count": counts[key], **of_values(seen)})
    return results


def of_values(seen: list[object]) -> dict[str, object]:
    total = None
    for value in seen:
        total = value if total is None else total + value
    return {
        "x_count": len(seen),
        "x_sum": total,
        "x_min": min(seen, default=None),
        "x_max": max(seen, default=None),
        "x_mean": None if total is None else total / len(seen),
        "x_first": seen[0] if seen else None,
        "x_last": seen[-1] if seen else None,
        "x_list": list(seen),
        "x_distinct": len(set(seen)),
    }


def step(*aggregates: Aggregate, parallelism: int = 1) -> ColumnarStep:
    return ColumnarStep(lambda: RunningOperator(aggregates, "k"), parallelism=parallelism)


def batch(rows: list[tuple[object, object]], kind: pa.DataType) -> pa.RecordBatch:
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.record_batch([pa.array(keys), pa.array(values, kind)], ["k", "x"])


NUMBERS = st.integers(-(2**40), 2**40) | st.none()
FLOATS = st.floats(-1e9, 1e9, width=64) | st.none()


@given(
    keys=st.sampled_from([st.integers(0, 3), st.sampled_from("abc")]).flatmap(
        lambda of_one_kind: st.lists(of_one_kind, min_size=1, max_size=300)
    ),
    floats=st.booleans(),
    data=st.data(),
)
def test_running_aggregates_are_those_of_a_loop_over_rows(
    keys: list[object], floats: bool, data: st.DataObject
) -> None:
    values = FLOATS if floats else NUMBERS
    rows = [(key, data.draw(values)) for key in keys]
    kind = pa.float64() if floats else pa.int64()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    restore_at = data.draw(st.integers(0, len(cuts)))
    running = step(*ALL, parallelism=data.draw(st.integers(1, 3)))
    found: list[dict[str, object]] = []
    for turn, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
        if start < stop:
            running.process(batch(rows[start:stop], kind))
        if turn == restore_at:
            found += running.rows
            running = running.restored(data.draw(st.integers(1, 3)))
    found += running.rows
    assert by_key(found) == by_key(loop(rows))


def by_key(rows: list[dict[str, object]]) -> dict[object, list[dict[str, object]]]:
    """Rows of each key in their order, which is that of the input; between keys there is none."""
    found: dict[object, list[dict[str, object]]] = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row)
    return found


@pytest.mark.parametrize("keys_total", [1, 3, 70_000])
def test_many_rows_of_few_or_many_keys_run_in_their_order(keys_total: int) -> None:
    chance = np.random.default_rng(keys_total)
    keys = chance.integers(0, keys_total, 100_000)
    keys[:50_000] = keys[0]
    values = chance.random(100_000)
    running = step(Count(), Sum("x"), Max("x"))
    running.process(pa.record_batch({"k": keys[:60_000], "x": values[:60_000]}))
    running.process(pa.record_batch({"k": keys[60_000:], "x": values[60_000:]}))
    found = running.rows
    assert [row["k"] for row in found] == keys.tolist()
    sums: dict[int, float] = defaultdict(float)
    greatest: dict[int, float] = defaultdict(float)
    for row, key, value in zip(found, keys.tolist(), values.tolist(), strict=True):
        sums[key] += value
        greatest[key] = max(greatest[key], value)
        assert (row["x_sum"], row["x_max"]) == (sums[key], greatest[key])


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        (pa.int8(), [100, 100], {"sum": 200, "min": 100, "last": 100, "distinct": 1}),
        (pa.uint64(), [2**63, 1], {"sum": 2**63 + 1, "max": 2**63, "min": 1}),
        (pa.float32(), [0.5, 1.5], {"sum": 2.0, "mean": 1.0, "max": 1.5}),
        (pa.bool_(), [True, False], {"sum": 1, "min": False, "max": True, "mean": 0.5}),
        (
            pa.decimal128(10, 2),
            [Decimal("1.25"), Decimal("0.50")],
            {"sum": Decimal("1.75"), "min": Decimal("0.50"), "mean": 0.875, "distinct": 2},
        ),
        (pa.string(), ["b", "a"], {"min": "a", "max": "b", "first": "b", "list": ["b", "a"]}),
        (pa.date32(), [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)], {"distinct": 2}),
        (
            pa.timestamp("ms", "UTC"),
            [
                datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
                datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
            ],
            {
                "min": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
                "first": datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
            },
        ),
        (
            pa.duration("s"),
            [datetime.timedelta(seconds=2), datetime.timedelta(seconds=1)],
            {"sum": datetime.timedelta(seconds=3), "max": datetime.timedelta(seconds=2)},
        ),
        (pa.list_(pa.int64()), [[1], [2, 3]], {"last": [2, 3], "count": 2}),
        (pa.dictionary(pa.int8(), pa.string()), ["b", "a"], {"max": "b", "distinct": 2}),
    ],
    ids=lambda each: str(each) if isinstance(each, pa.DataType) else "",
)
def test_aggregates_of_each_type(
    kind: pa.DataType, values: list[object], wanted: dict[str, object]
) -> None:
    chosen = [each for each in ALL[1:] if each.suffix in wanted]
    running = step(*chosen)
    running.process(pa.record_batch([pa.array([1, 1]), pa.array(values, kind)], ["k", "x"]))
    found = running.restored(2)
    found.process(pa.record_batch([pa.array([1]), pa.array([None], kind)], ["k", "x"]))
    for rows in (running.rows[-1:], found.rows):
        assert [{name: row[f"x_{name}"] for name in wanted} for row in rows] == [wanted]


def test_nan_is_greater_than_all_numbers_and_one_value() -> None:
    running = step(Min("x"), Max("x"), CountDistinct("x"))
    running.process(pa.record_batch({"k": [1, 1, 1], "x": [math.nan, 1.0, math.nan]}))
    last = running.rows[-1]
    assert last["x_min"] == 1.0 and math.isnan(last["x_max"]) and last["x_distinct"] == 2


def test_rows_keep_their_timestamps_and_their_own_columns() -> None:
    running = step(Count().alias("n"))
    running.process(pa.record_batch({"k": ["b", "a", "b"], "other": [1, 2, 3]}), [5, 6, 7])
    assert running.rows == [
        {"k": "b", "other": 1, "n": 1},
        {"k": "a", "other": 2, "n": 1},
        {"k": "b", "other": 3, "n": 2},
    ]
    assert running.subtasks[0].out.stamps == [5, 6, 7]


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        (Sum("x"), pa.string()),
        (Mean("x"), pa.timestamp("s")),
        (Mean("x"), pa.duration("s")),
        (Min("x"), pa.list_(pa.int64())),
        (CountDistinct("x"), pa.list_(pa.int64())),
    ],
)
def test_an_aggregate_without_a_meaning_is_refused(aggregate: Aggregate, kind: pa.DataType) -> None:
    with pytest.raises(GraphError, match="has no meaning for a column of type") as raised:
        step(aggregate).process(batch([(1, None)], kind))
    assert raised.value.where == "operator 'totals'"


def test_an_unknown_column_is_refused_with_the_columns_there_are() -> None:
    with pytest.raises(GraphError, match="there is no column 'y'; there are k, x") as raised:
        step(Sum("y")).process(batch([(1, 1)], pa.int64()))
    assert raised.value.where == "operator 'totals'"


def test_a_schema_that_changes_in_the_middle_is_refused_by_column() -> None:
    running = step(Sum("x"))
    running.process(batch([(1, 1)], pa.int64()))
    with pytest.raises(GraphError, match=r"'x' is double, and was int64") as raised:
        running.process(batch([(1, 1.5)], pa.float64()))
    assert raised.value.where == "operator 'totals'"


def test_a_schema_that_changed_since_the_snapshot_is_refused_by_column() -> None:
    running = step(Max("x"))
    running.process(batch([(1, 1)], pa.int64()))
    with pytest.raises(SerializerIncompatible, match="was int64 and is now double") as raised:
        running.restored(1).process(batch([(1, 1.5)], pa.float64()))
    assert "column 'x_max'" in raised.value.where


def test_results_do_not_take_the_name_of_a_column() -> None:
    with pytest.raises(GraphError, match="there is a column 'x' already"):
        step(Sum("x").alias("x")).process(batch([(1, 1)], pa.int64()))


def test_a_mean_of_whole_numbers_may_be_of_a_great_sum() -> None:
    total = step(Mean("x"))
    total.process(pa.record_batch({"k": [1, 1], "x": [2**53 + 1, 2**53 + 1]}))
    assert total.rows[-1]["x_mean"] == 2.0**53


def test_extremes_of_what_is_no_number_are_taken_without_a_warning() -> None:
    total = step(Max("x"), Min("x"))
    total.process(pa.record_batch({"k": [1, 1], "x": pa.array([math.nan, 1.0], pa.float32())}))
    assert math.isnan(total.rows[-1]["x_max"]) and total.rows[-1]["x_min"] == 1.0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1_700_000_000_000_000_000] * 9),
        (pa.int64(), [-(2**63), -(2**63), -(2**63) + 4]),
        (pa.uint64(), [2**64 - 1, 2**64 - 1, 1]),
    ],
)
def test_a_mean_does_not_wrap_around(kind: pa.DataType, values: list[int]) -> None:
    running = step(Mean("x"))
    running.process(batch([("a", value) for value in values], kind))
    means = [sum(values[:n]) / n for n in range(1, len(values) + 1)]
    assert [row["x_mean"] for row in running.rows] == pytest.approx(means, rel=1e-15)
    again = running.restored(1)
    again.process(batch([("a", values[0])], kind))
    mean = (sum(values) + values[0]) / (len(values) + 1)
    assert [row["x_mean"] for row in again.rows] == pytest.approx([mean], rel=1e-15)


def test_sums_of_decimals_have_all_their_digits() -> None:
    values = [Decimal("12345678901.123456789012345678"), Decimal("1.000000000000000001")]
    running = step(Sum("x"))
    running.process(batch([("a", value) for value in values], pa.decimal128(38, 18)))
    assert running.rows[-1]["x_sum"] == Decimal("12345678902.123456789012345679")


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("ns"),
        pa.timestamp("us", "Europe/Berlin"),
        pa.timestamp("s"),
        pa.duration("ns"),
        pa.duration("ms"),
    ],
)
def test_times_are_counted_once_though_they_were_in_a_snapshot(kind: pa.DataType) -> None:
    running = step(CountDistinct("x"))
    running.process(batch([("a", 1_700_000_000), ("a", 1_700_000_001)], kind))
    again = running.restored(1)
    again.process(batch([("a", 1_700_000_001), ("a", 1_700_000_002)], kind))
    assert [row["x_distinct"] for row in again.rows] == [2, 3]

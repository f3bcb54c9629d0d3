"""Aggregates of Arrow batches by window of event time, against a model that holds all rows."""

import sys
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.columnar_world import ALL, ColumnarStep
from tidegate import (
    BadRecord,
    Count,
    GraphError,
    Max,
    SlidingEventTimeWindows,
    Sum,
    TumblingEventTimeWindows,
)
from tidegate.api.aggregates import Aggregate
from tidegate.model.elements import Watermark
from tidegate.operators.windows.global_batches import GlobalAggregateBatchesOperator
from tidegate.operators.windows.window_batches import WindowAggregateBatchesOperator

END = 2**63 - 1

Windows = TumblingEventTimeWindows | SlidingEventTimeWindows
Timed = tuple[int, object, int | None]
"""Event time, key, value."""


@dataclass
class Model:
    """Windows that hold all their rows; a row at a time."""

    windows: Windows
    lateness_ms: int
    watermark_ms: int = -(2**63)
    held: dict[tuple[int, object], list[Timed]] = field(default_factory=lambda: defaultdict(list))
    results: dict[tuple[int, object], dict[str, object]] = field(default_factory=dict)
    late: list[Timed] = field(default_factory=list)

    def add(self, row: Timed) -> None:
        windows = self.windows
        stamp, key, _ = row
        last = stamp - (stamp - windows.offset_ms) % windows.slide_ms
        starts = list(range(last, stamp - windows.size_ms, -windows.slide_ms))
        open_ones = [
            start
            for start in starts
            if start + windows.size_ms - 1 + self.lateness_ms > self.watermark_ms
        ]
        if starts and not open_ones:
            self.late.append(row)
        for start in open_ones:
            self.held[start, key].append(row)
            if start + windows.size_ms - 1 <= self.watermark_ms:
                self.fire(start, key)

    def watermark(self, ms: int) -> None:
        for start, key in sorted(self.held, key=str):
            if self.watermark_ms < start + self.windows.size_ms - 1 <= ms:
                self.fire(start, key)
        self.watermark_ms = max(self.watermark_ms, ms)

    def fire(self, start: int, key: object) -> None:
        rows = self.held[start, key]
        by_time = sorted(
            ((stamp, value) for stamp, _, value in rows if value is not None),
            key=lambda each: each[0],
        )
        values = [value for _, value in by_time]
        total = sum(values) if values else None
        self.results[start, key] = {
            "k": key,
            "window_start": start,
            "window_end": start + self.windows.size_ms,
            "count": len(rows),
            "x_count": len(values),
            "x_sum": total,
            "x_min": min(values, default=None),
            "x_max": max(values, default=None),
            "x_mean": None if total is None else total / len(values),
            "x_first": values[0] if values else None,
            "x_last": values[-1] if values else None,
            "x_list": sorted(values),
            "x_distinct": len(set(values)),
        }


def step(
    windows: Windows,
    *aggregates: Aggregate,
    parallelism: int = 1,
    rows: int = 1000,
    lateness_ms: int = 0,
    late_tag: str | None = None,
) -> ColumnarStep:
    return ColumnarStep(
        lambda: WindowAggregateBatchesOperator(
            windows, aggregates, "k", lateness_ms=lateness_ms, late_tag=late_tag
        ),
        parallelism=parallelism,
        rows=rows,
    )


def process(windowed: ColumnarStep, rows: list[Timed]) -> None:
    stamps, keys, values = zip(*rows, strict=True)
    kind = pa.int64() if isinstance(keys[0], int) else pa.string()
    columns = [pa.array(keys, kind), pa.array(values, pa.int32())]
    windowed.process(pa.record_batch(columns, ["k", "x"]), stamps)


TUMBLING = st.builds(
    lambda size, offset: TumblingEventTimeWindows(size, offset % size),
    st.integers(1, 12),
    st.integers(-20, 20),
)
SLIDING = st.builds(
    lambda size, slide, offset: SlidingEventTimeWindows(size, slide, offset % slide),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(-20, 20),
)


@pytest.mark.slow
@given(
    windows=TUMBLING | SLIDING,
    lateness_ms=st.sampled_from([0, 0, 3, 10]),
    texts=st.booleans(),
    data=st.data(),
)
def test_windows_are_those_of_a_model_that_holds_all_rows(
    windows: Windows, lateness_ms: int, texts: bool, data: st.DataObject
) -> None:
    keys = st.sampled_from(["a", "b", "cc"]) if texts else st.integers(-1, 2)
    timed = st.tuples(st.integers(-30, 60), keys, st.integers(-99, 99) | st.none())
    turns = data.draw(st.lists(st.lists(timed, min_size=1, max_size=12), max_size=8))
    model = Model(windows, lateness_ms)
    windowed = step(
        windows,
        *ALL,
        parallelism=data.draw(st.integers(1, 3)),
        rows=data.draw(st.sampled_from([1, 3, 1000])),
        lateness_ms=lateness_ms,
        late_tag="late",
    )
    restore_at = data.draw(st.integers(0, len(turns)))
    found: list[dict[str, object]] = []
    late: list[dict[str, object]] = []
    watermark_ms = data.draw(st.integers(-40, 0))
    for turn, rows in enumerate([*turns, []]):
        if turn == restore_at:
            taken(windowed, found, late)
            windowed = windowed.restored(data.draw(st.integers(1, 3)))
        if rows:
            process(windowed, rows)
        for row in rows:
            model.add(row)
        watermark_ms += data.draw(st.integers(0, 25))
        windowed.watermark(watermark_ms)
        model.watermark(watermark_ms)
    windowed.watermark(END)
    model.watermark(END)
    taken(windowed, found, late)
    last = {(row["window_start"], row["k"]): row for row in found}
    for row in last.values():
        row["x_list"] = sorted(row["x_list"])
    assert last == model.results
    assert lateness_ms or len(found) == len(last)
    assert sorted(map(str, late)) == sorted(str({"k": k, "x": x}) for _, k, x in model.late)
    assert windowed.metric("numLateRecordsDropped") == 0
    assert all(each.operator._panes.namespaces() == [] for each in windowed.subtasks)


def taken(
    windowed: ColumnarStep, found: list[dict[str, object]], late: list[dict[str, object]]
) -> None:
    found += windowed.rows
    late += [row for each in windowed.subtasks for row in each.out.sides.get("late", ())]


TEN = TumblingEventTimeWindows(10)


def test_windows_come_in_the_order_of_their_ends_with_their_last_millisecond() -> None:
    windowed = step(TEN, Sum("x"))
    process(windowed, [(25, 1, 1), (5, 1, 2), (15, 1, 4), (16, 2, 8)])
    windowed.watermark(18)
    assert [row["window_end"] for row in windowed.rows] == [10]
    windowed.watermark(19)
    windowed.watermark(END)
    out = windowed.subtasks[0].out
    assert [row["window_end"] for row in windowed.rows] == [10, 20, 20, 30]
    assert out.stamps == [9, 19, 19, 29]
    assert [each.ms for each in out.watermarks] == [18, 19, END]


def test_results_have_the_types_of_the_input() -> None:
    windowed = step(TEN, Count(), Sum("x"), Max("x"))
    schema = pa.schema([("k", pa.int16()), ("x", pa.float32())])
    windowed.process(pa.record_batch({"k": [1], "x": [0.5]}, schema=schema), [1])
    again = windowed.restored(1)
    again.watermark(END)
    found = again.subtasks[0].out.batches[0].batch.schema
    times = [("window_start", pa.int64()), ("window_end", pa.int64())]
    results = [("count", pa.int64()), ("x_sum", pa.float64()), ("x_max", pa.float32())]
    assert found == pa.schema([("k", pa.int16()), *times, *results])


def test_late_rows_are_dropped_and_counted() -> None:
    windowed = step(TEN, Count())
    process(windowed, [(5, 1, 1)])
    windowed.watermark(9)
    process(windowed, [(6, 1, 1), (9, 2, 1), (10, 2, 1)])
    assert windowed.metric("numLateRecordsDropped") == 2
    windowed.watermark(END)
    assert [row["count"] for row in windowed.rows] == [1, 1]


def test_rows_between_windows_are_in_none_and_not_late() -> None:
    windowed = step(SlidingEventTimeWindows(5, 10), Count())
    process(windowed, [(4, 1, 1), (5, 1, 1), (9, 1, 1), (10, 1, 1)])
    windowed.watermark(END)
    assert [row["window_start"] for row in windowed.rows] == [0, 10]
    assert windowed.metric("numLateRecordsDropped") == 0


def test_rows_within_the_lateness_give_their_keys_results_anew() -> None:
    windowed = step(TEN, Count(), lateness_ms=5)
    process(windowed, [(5, 1, 1), (5, 2, 1)])
    windowed.watermark(12)
    process(windowed, [(6, 2, 1), (7, 2, 1), (20, 1, 1)])
    assert [(row["k"], row["count"]) for row in windowed.rows] == [(1, 1), (2, 1), (2, 3)]
    windowed.watermark(14)
    process(windowed, [(8, 2, 1)])
    assert windowed.metric("numLateRecordsDropped") == 1


def test_a_window_that_has_fired_is_not_fired_again_after_a_restore() -> None:
    windowed = step(SlidingEventTimeWindows(10, 5), Sum("x"), parallelism=2)
    process(windowed, [(7, key, 1) for key in range(20)])
    windowed.watermark(9)
    assert {row["window_start"] for row in windowed.rows} == {0}
    again = windowed.restored(3)
    process(again, [(3, 1, 1), (8, 2, 1)])
    again.watermark(9)
    assert again.rows == []
    assert again.metric("numLateRecordsDropped") == 1
    again.watermark(END)
    assert {row["window_start"] for row in again.rows} == {5}
    assert sorted(row["x_sum"] for row in again.rows) == [1] * 19 + [2]


def test_a_snapshot_after_the_end_of_the_input_takes_rows_in_again() -> None:
    windowed = step(TEN, Count())
    process(windowed, [(5, 1, 1)])
    windowed.watermark(9)
    windowed.watermark(END)
    again = windowed.restored(1)
    process(again, [(15, 1, 1)])
    again.watermark(19)
    assert [row["window_start"] for row in again.rows] == [10]


def test_a_lateness_without_end_makes_nothing_late_after_a_restore() -> None:
    windowed = step(TEN, Count(), lateness_ms=sys.maxsize)
    process(windowed, [(1_700_000_000_005, 1, 1)])
    windowed.watermark(1_700_000_000_020)
    again = windowed.restored(1)
    process(again, [(1_700_000_000_006, 1, 1)])
    assert again.metric("numLateRecordsDropped") == 0
    assert [row["count"] for row in again.rows] == [2]


def test_results_at_the_end_of_the_input_are_not_told_again_after_a_restore() -> None:
    at_end = ColumnarStep(lambda: GlobalAggregateBatchesOperator([Count()], "k"))
    at_end.process(pa.record_batch({"k": [1, 2, 1]}))
    at_end.watermark(END)
    assert {row["k"]: row["count"] for row in at_end.rows} == {1: 2, 2: 1}
    again = at_end.restored(1)
    again.watermark(END)
    assert again.rows == []


def test_firing_waits_for_room_between_windows() -> None:
    windowed = step(TEN, Count(), rows=1)
    process(windowed, [(5, 1, 1), (15, 1, 1)])
    one = windowed.subtasks[0]
    one.out.has_room = False
    steps = one.operator.on_watermark(Watermark(END), one.out)
    assert next(steps) is None and len(one.out.batches) == 1
    assert next(steps) is None and len(one.out.batches) == 2
    assert next(steps, "done") == "done" and one.out.watermarks == [Watermark(END)]


@pytest.mark.parametrize("stamps", [None, [5, -(2**63)]])
def test_rows_without_timestamps_are_refused(stamps: list[int] | None) -> None:
    windowed = step(TEN, Count())
    with pytest.raises(BadRecord, match="rows without timestamps") as raised:
        windowed.process(pa.record_batch({"k": [1, 2]}), stamps)
    assert "operator 'totals'" in raised.value.where
    assert "watermark strategy" in raised.value.remedy


def test_an_unknown_column_and_a_changed_schema_are_refused() -> None:
    with pytest.raises(GraphError, match="there is no column 'y'; there are k, x"):
        process(step(TEN, Sum("y")), [(1, 1, 1)])
    windowed = step(TEN, Sum("x"))
    process(windowed, [(1, 1, 1)])
    with pytest.raises(GraphError, match="column 'x' is double, and was int32"):
        windowed.restored(1).process(pa.record_batch({"k": [1], "x": [0.5]}), [1])


@pytest.mark.slow
def test_many_keys_and_slices_at_once() -> None:
    chance = np.random.default_rng(5)
    keys, stamps = chance.integers(0, 3000, 50_000), chance.integers(0, 20_000, 50_000)
    windowed = step(SlidingEventTimeWindows(10_000, 1_000), Count(), Sum("x"), parallelism=2)
    windowed.process(pa.record_batch({"k": keys, "x": stamps}), stamps)
    windowed.watermark(END)
    expected: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for key, stamp in zip(keys.tolist(), stamps.tolist(), strict=True):
        for start in range(stamp // 1000 * 1000 - 9000, stamp + 1, 1000):
            expected[start, key][0] += 1
            expected[start, key][1] += stamp
    found = {(row["window_start"], row["k"]): [row["count"], row["x_sum"]] for row in windowed.rows}
    assert found == expected

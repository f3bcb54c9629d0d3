"""The example programs on windows, as jobs on the local runtime."""

from collections.abc import Iterable
from typing import Any

import pytest

from tidegate import (
    AggregateFunction,
    AllWindowedStream,
    DataStream,
    EventTimeSessionWindows,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    WatermarkGenerator,
    WatermarkStrategy,
)

Event = tuple[Any, ...]
"""Key first, event time last."""


class EachRecord(WatermarkGenerator[Event]):
    """After each record a watermark of the greatest event time so far."""

    def __init__(self) -> None:
        self._greatest = -(2**63)

    def on_event(self, value: Event, timestamp: int, output: Any) -> None:
        self._greatest = max(self._greatest, timestamp)
        output.emit_watermark(self._greatest)


def last(value: Event, _: int) -> int:
    return value[-1]


MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(last)
PER_RECORD = WatermarkStrategy.for_generator(EachRecord).with_timestamp_assigner(last)


def events(
    given: list[Event], parallelism: int = 1, strategy: WatermarkStrategy = MONOTONOUS
) -> DataStream[Event]:
    env = StreamExecutionEnvironment.local(parallelism)
    return env.from_collection(given).assign_timestamps_and_watermarks(strategy)


def first(event: Event) -> str:
    return event[0]


def collected(stream: DataStream[Any]) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return sorted(rows)


class Count(AggregateFunction[Event, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Event, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithStart(ProcessWindowFunction[int, Event, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[int]
    ) -> Iterable[Event]:
        (count,) = elements
        yield key, context.window().start, count


PARALLEL = pytest.mark.parametrize("parallelism", [1, pytest.param(2, marks=pytest.mark.slow)])


@PARALLEL
def test_page_views_per_minute(parallelism: int) -> None:
    views = [("a", 0), ("a", 30_000), ("b", 59_999), ("a", 60_000), ("b", 61_000)]
    counted = (
        events(views, parallelism)
        .key_by(first, Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .aggregate(Count(), WithStart(), Types.LONG())
    )
    assert collected(counted) == [("a", 0, 2), ("a", 60_000, 1), ("b", 0, 1), ("b", 60_000, 1)]


class Mean(AggregateFunction[Event, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Event, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def with_window(key: str, window: TimeWindow, elements: Iterable[Any]) -> Iterable[Event]:
    yield from ((key, window.start, window.end, each) for each in elements)


@PARALLEL
def test_the_sliding_average_of_a_sensor(parallelism: int) -> None:
    averages = (
        events([("s", 10, 1_000), ("s", 20, 6_000), ("s", 60, 11_000)], parallelism)
        .key_by(first)
        .window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)))
        .aggregate(Mean(), with_window)
    )
    assert collected(averages) == [
        ("s", -5_000, 5_000, 10.0),
        ("s", 0, 10_000, 15.0),
        ("s", 5_000, 15_000, 40.0),
        ("s", 10_000, 20_000, 60.0),
    ]


SHOP = [("u1", 0), ("u1", 10), ("u2", 12), ("u1", 25), ("u1", 100)]


@PARALLEL
@pytest.mark.parametrize(
    ("more", "session"),
    [([], ("u1", 0, 45, 3)), ([("u1", 60), ("u1", 45)], ("u1", 0, 80, 5))],
)
def test_sessions_of_a_web_shop(parallelism: int, more: list[Event], session: Event) -> None:
    sessions = (
        events(
            [*SHOP, *more],
            parallelism,
            WatermarkStrategy.no_watermarks().with_timestamp_assigner(last),
        )
        .key_by(first)
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(20)))
        .aggregate(Count(), with_window, Types.LONG())
    )
    assert collected(sessions) == [session, ("u1", 100, 120, 1), ("u2", 12, 32, 1)]


LATE = OutputTag[Event]("late")


@PARALLEL
def test_late_data(parallelism: int) -> None:
    given = [("k", 1), ("k", 12), ("k", 2), ("k", 14), ("k", 3), ("k", 30)]
    counted = (
        events(given, strategy=PER_RECORD)
        .key_by(first)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .allowed_lateness(5)
        .side_output_late_data(LATE)
        .aggregate(Count(), with_window)
        .set_parallelism(parallelism)
    )
    late = counted.get_side_output(LATE).map(lambda event: ("late", *event))
    assert collected(counted.union(late)) == [
        ("k", 0, 10, 1),
        ("k", 0, 10, 2),
        ("k", 10, 20, 2),
        ("k", 30, 40, 1),
        ("late", "k", 3),
    ]


def summed(windows: AllWindowedStream[int]) -> DataStream[Any]:
    return windows.reduce(lambda x, y: x + y)


def test_windows_of_the_results_of_windows() -> None:
    clicks = [("c", time) for time in (0, 1, 3, 4, 7, 8, 15, 16)]
    counts = summed(
        events(clicks, strategy=PER_RECORD)
        .map(lambda _: 1)
        .window_all(TumblingEventTimeWindows.of(Time.milliseconds(4)))
    )
    sums = summed(counts.window_all(TumblingEventTimeWindows.of(Time.milliseconds(8))))
    with sums.execute_and_collect() as rows:
        assert list(rows) == [5, 2, 1]


class TopThree(KeyedProcessFunction[Event, Event]):
    """Of the sums of a window, which it gathers until all have come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("sums", Types.STRING(), Types.LONG())
        self.sums = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> None:
        end, product, amount = value
        self.sums.put(product, amount)
        ctx.timer_service().register_event_time_timer(end + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Event]:
        ranked = sorted(self.sums.items(), key=lambda pair: (-pair[1], pair[0]))
        yield ctx.get_current_key(), ranked[:3]
        self.sums.clear()


def with_end(key: str, window: TimeWindow, elements: Iterable[Event]) -> Iterable[Event]:
    ((_, amount, _),) = elements
    yield window.end, key, amount


@PARALLEL
def test_the_top_products_of_each_window(parallelism: int) -> None:
    sold = [("p1", 5, 1), ("p2", 3, 2), ("p3", 9, 3), ("p4", 9, 4), ("p1", 7, 9), ("p2", 1, 15)]
    top = (
        events(sold, parallelism)
        .key_by(first)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .reduce(lambda x, y: (x[0], x[1] + y[1], y[2]), with_end)
        .key_by(lambda sums: sums[0], Types.LONG())
        .process(TopThree())
    )
    assert collected(top) == [(10, [("p1", 12), ("p3", 9), ("p4", 9)]), (20, [("p2", 1)])]

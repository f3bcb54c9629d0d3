"""A program with state of every kind, whose rows do not tell when or where they were made.

Slots import this module by its name, so it imports little.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.e2e.arrow_jobs import COUNTED_SCHEMA, RunningColumnCount, with_key
from tests.e2e.backpressure import Slow
from tests.e2e.jobs import same
from tests.e2e.journal import Journal, Latch
from tests.e2e.ledger import LedgerSink
from tests.e2e.probes import Holding
from tidegate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    Count,
    DataStream,
    Duration,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    RuntimeContext,
    SlidingEventTimeWindows,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Sum,
    Time,
    TimeDomain,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.connectors import FileSink

KEYS = 23
TOTAL = 6_000
EACH_MS = 250
"""Event time between two timers; a number's event time is itself."""

RULE_EVERY = 150
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())

Row = dict[str, Any]


def key_of(number: int) -> int:
    return number % KEYS


def time_of(number: int, _: int = 0) -> int:
    return number


def next_timer(number: int) -> int:
    return (number // EACH_MS + 1) * EACH_MS


def is_rule(number: int) -> bool:
    return number % RULE_EVERY == 0


def in_row(number: int) -> Row:
    return {"number": number}


def add(one: int, other: int) -> int:
    return one + other


class Span(AggregateFunction[int, "tuple[int, int]", int]):
    """The largest number less the smallest."""

    def create_accumulator(self) -> tuple[int, int]:
        return TOTAL, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return min(value, accumulator[0]), max(value, accumulator[1])

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[1] - accumulator[0]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return min(acc_a[0], acc_b[0]), max(acc_a[1], acc_b[1])


class KeyedState(KeyedProcessFunction[int, Row]):
    """All kinds of keyed state, and timers of both times.

    alarm_ms: how long after a key's first number its timer of processing time is due.
    """

    def __init__(self, alarm_ms: int) -> None:
        self._alarm_ms = alarm_ms

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        squares = MapStateDescriptor("squares", Types.LONG(), Types.LONG())
        squares.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self._squares = runtime_context.get_map_state(squares)
        self._sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", add, Types.LONG())
        )
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self._span = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("span", Span(), pair)
        )

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        self._numbers.add(value)
        self._squares.put(value, value * value)
        self._sum.add(value)
        self._span.add(value)
        timers = ctx.timer_service()
        if count == 1:
            timers.register_processing_time_timer(timers.current_processing_time() + self._alarm_ms)
        timers.register_event_time_timer(next_timer(value))
        timers.register_event_time_timer(TOTAL + EACH_MS)
        yield {"kind": "count", "key": key_of(value), "count": count}

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        key = ctx.get_current_key()
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            yield {"kind": "alarm", "key": key}
            return
        held = sorted(number for number in self._numbers.get() if number < timestamp)
        squares = sorted(each for each in self._squares.items() if each[0] < timestamp)
        yield {"kind": "timer", "key": key, "at": timestamp, "list": held, "map": squares}
        if timestamp > TOTAL:
            yield {
                "kind": "end",
                "key": key,
                "value": self._count.value(),
                "reducing": self._sum.get(),
                "aggregating": self._span.get(),
            }


class BroadcastRules(KeyedBroadcastProcessFunction[int, int, int, Row]):
    """The rules up to a time, told at that time once for each key."""

    def process_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        ctx.timer_service().register_event_time_timer(next_timer(value))

    def process_broadcast_element(
        self, value: int, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(RULES).put(value, value * value)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterator[Row]:
        rules = ctx.get_broadcast_state(RULES)
        known = sorted(each for each in rules.items() if each[0] < timestamp)
        yield {"kind": "rules", "key": ctx.get_current_key(), "at": timestamp, "rules": known}


class Numbers(ProcessWindowFunction[int, Row, int, TimeWindow]):
    """The numbers of a window."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[int]
    ) -> Iterable[Row]:
        window: TimeWindow = context.window()
        yield {"kind": "window", "key": key, "start": window.start, "numbers": sorted(elements)}


def counted(row: Row) -> Row:
    return {"kind": "column", "key": row["key"], "count": row["count"]}


def counted_in_batch(row: Row) -> Row:
    return {"kind": "running column", "key": row["key"], "count": row["count"]}


def counted_row(row: tuple[int, int]) -> Row:
    return {"kind": "running", "key": key_of(row[0]), "count": row[1]}


def summed(row: Row) -> Row:
    return {"kind": "pane", **row}


def every_state(
    env: StreamExecutionEnvironment, folder: Path, rate: float | None, alarm_ms: int
) -> None:
    """Numbers at a rate through state of every kind, into two sinks that commit.

    All but what goes to the files passes a step that is slow while the latch ``slow`` is set.
    """
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)
    numbers = env.generate(same, TOTAL, rate, Types.LONG()).uid("numbers")
    timed = numbers.assign_timestamps_and_watermarks(strategy).uid("times")
    keyed = timed.key_by(key_of, key_type=Types.LONG())
    windows = keyed.window(TumblingEventTimeWindows.of(Duration.of_millis(EACH_MS)))
    windows.process(Numbers()).uid("windows").sink_to(FileSink.json(str(folder / "files"))).uid(
        "files"
    )
    rules = timed.filter(is_rule).uid("is rule").broadcast(RULES)
    streams: list[DataStream[Row]] = [
        keyed.process(KeyedState(alarm_ms)).uid("keyed"),
        keyed.running(Count()).uid("running").map(counted_row).uid("counted row"),
        keyed.connect(rules).process(BroadcastRules()).uid("rules"),
        *in_columns(timed),
    ]
    slow = Slow[Row](Latch(folder / "slow"), 0.004)
    united = streams[0].union(*streams[1:]).rebalance().map(slow).uid("slow")
    united.sink_to(LedgerSink(folder / "ledger")).uid("ledger")
    held = timed.rebalance().map(in_row).uid("row")
    held.map(Holding(Journal(folder / "journal"))).uid("held").filter(nothing).print()


def nothing(_: object) -> bool:
    return False


def in_columns(timed: DataStream[int]) -> list[DataStream[Row]]:
    """The same numbers in Arrow batches: counts in columns, and windows in panes of columns."""
    batches = timed.map(in_row).uid("in row").map_batches(with_key).uid("with key").key_by("key")
    counts = batches.process_batches(RunningColumnCount(), COUNTED_SCHEMA).uid("columns")
    sliding = batches.window(SlidingEventTimeWindows(2 * EACH_MS, EACH_MS))
    panes = sliding.aggregate_batches(Count(), Sum("number")).uid("panes")
    running = batches.running(Count(), Sum("number").alias("total")).uid("running columns")
    return [
        counts.map(counted).uid("counted"),
        panes.map(summed).uid("summed"),
        running.map(counted_in_batch).uid("counted in batch"),
    ]

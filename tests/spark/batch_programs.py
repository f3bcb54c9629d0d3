"""Programs whose results in batch are the same wherever they run."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    DataStream,
    EventTimeSessionWindows,
    GlobalWindows,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.aggregates import Count, First, Max, Mean, Min, Sum

Program = Callable[[StreamExecutionEnvironment], DataStream[Any]]
PROGRAMS: dict[str, Program] = {}


def program(build: Program) -> Program:
    PROGRAMS[build.__name__] = build
    return build


@dataclass
class Order:
    shop: str
    amount: float | None
    at_ms: int


ORDERS = [
    Order(f"shop {n % 5}", None if n % 11 == 0 else n / 4, (n * 7919) % 10_000)
    for n in range(2_000)
]
READINGS = [(n % 13, (n * 7919) % 20_000, n) for n in range(3_000)]
"""Sensor, time in milliseconds, value; in no order of time."""


def timed(stream: DataStream[Any], time_of: Callable[[Any], int]) -> DataStream[Any]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Time.seconds(20))
    return stream.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda row, _: time_of(row))
    )


def readings(
    env: StreamExecutionEnvironment, time_of: Callable[[Any], int] = lambda row: row[1]
) -> DataStream[Any]:
    """In no order of time, and by several subtasks; at a parallelism of 1 in order."""
    if env.get_parallelism() == 1:
        return timed(env.from_collection(sorted(READINGS, key=lambda row: row[1])), time_of)
    return timed(env.from_collection(READINGS).rebalance(), time_of)


class Previous(KeyedProcessFunction[Any, Any]):
    """With each record, the value that its key had had before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield ctx.get_current_key(), ctx.timestamp(), self.last.value(), value[2]
        self.last.update(value[2])


@program
def reduced_numbers(env: StreamExecutionEnvironment) -> DataStream[Any]:
    numbers = env.from_sequence(1, 20_000).map(lambda n: (n % 97, n))
    return numbers.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


@program
def words(env: StreamExecutionEnvironment) -> DataStream[Any]:
    lines = env.from_collection(["to be or not to be", "that is", "", "to do"] * 50)
    return lines.flat_map(str.split).map(lambda word: (word, 1)).key_by(lambda p: p[0]).sum(1)


@program
def records_of_classes_with_nothing(env: StreamExecutionEnvironment) -> DataStream[Any]:
    orders = env.from_collection(ORDERS).filter(lambda order: order.amount is not None)
    by_shop = orders.map(lambda order: (order.shop, order.amount)).key_by(lambda pair: pair[0])
    return by_shop.reduce(lambda a, b: (a[0], a[1] + b[1]))


@program
def previous_by_time(env: StreamExecutionEnvironment) -> DataStream[Any]:
    return readings(env).key_by(lambda row: row[0]).process(Previous())


@program
def previous_of_texts_by_time(env: StreamExecutionEnvironment) -> DataStream[Any]:
    named = readings(env).map(lambda row: (f"sensor {row[0]}", row[1], row[2]))
    return named.key_by(lambda row: row[0]).process(Previous())


@program
def tumbling_sums(env: StreamExecutionEnvironment) -> DataStream[Any]:
    windows = TumblingEventTimeWindows.of(Time.seconds(1))
    keyed = readings(env).key_by(lambda row: row[0])
    return keyed.window(windows).reduce(lambda a, b: (a[0], max(a[1], b[1]), a[2] + b[2]))


class Contents(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    def process(
        self, key: Any, context: ProcessWindowFunction.Context, elements: Any
    ) -> Iterator[Any]:
        yield key, context.window().start, sorted(row[2] for row in elements)


@program
def contents_of_sliding_windows(env: StreamExecutionEnvironment) -> DataStream[Any]:
    windows = SlidingEventTimeWindows.of(Time.seconds(4), Time.seconds(2))
    return readings(env).key_by(lambda row: row[0]).window(windows).process(Contents())


@program
def sessions(env: StreamExecutionEnvironment) -> DataStream[Any]:
    windows = EventTimeSessionWindows.with_gap(Time.milliseconds(70))
    return readings(env).key_by(lambda row: row[0]).window(windows).process(Contents())


@program
def windows_of_windows(env: StreamExecutionEnvironment) -> DataStream[Any]:
    second, ten = (TumblingEventTimeWindows.of(Time.seconds(n)) for n in (1, 10))
    counts = readings(env).key_by(lambda row: row[0]).window(second).process(Contents())
    pairs = counts.map(lambda found: (found[0] % 2, len(found[2])))
    return pairs.key_by(lambda pair: pair[0]).window(ten).reduce(lambda a, b: (a[0], a[1] + b[1]))


class Reminders(KeyedProcessFunction[Any, Any]):
    """Timers, and what they find when they fire."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.seen.update((self.seen.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value[1] // 5_000 * 5_000)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[object, int, int | None]]:
        yield ctx.get_current_key(), timestamp, self.seen.value()


@program
def timers(env: StreamExecutionEnvironment) -> DataStream[Any]:
    return readings(env).key_by(lambda row: row[0]).process(Reminders())


class Matched(KeyedCoProcessFunction[Any, Any, Any]):
    """Each reading with the limit that holds at its time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.limit = runtime_context.get_state(ValueStateDescriptor("limit", Types.DOUBLE()))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield value, self.limit.value()

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.limit.update(value[2])


LIMITS = [(key, at, at / 8, key + at) for key in range(13) for at in range(1, 20_000, 3_000)]


def two_streams_in_one_order_of_time(env: StreamExecutionEnvironment) -> DataStream[Any]:
    # Times that no reading has: which of two at one time comes first, nobody knows.
    even = readings(env, lambda row: row[1] * 2)
    odd = timed(env.from_collection(LIMITS), lambda row: row[1] * 2 + 1)
    keyed = even.connect(odd).key_by(lambda row: row[0], lambda row: row[0])
    return keyed.process(Matched())


def with_limits() -> list[Any]:
    """What `two_streams_in_one_order_of_time` finds, by plain Python."""
    limits = {key: [(row[1], row[2]) for row in LIMITS if row[0] == key] for key in range(13)}
    return [
        (row, max((at, limit) for at, limit in [(-1, None), *limits[row[0]]] if at < row[1])[1])
        for row in READINGS
    ]


@program
def joined_in_windows(env: StreamExecutionEnvironment) -> DataStream[Any]:
    left, right = readings(env), timed(env.from_collection(READINGS[::7]), lambda row: row[1])
    windows = TumblingEventTimeWindows.of(Time.milliseconds(500))
    pairs = left.join(right).where(lambda r: r[0]).equal_to(lambda r: r[0]).window(windows)
    return pairs.apply(lambda a, b: (a[2], b[2]))


@program
def joined_in_intervals(env: StreamExecutionEnvironment) -> DataStream[Any]:
    left, right = readings(env), timed(env.from_collection(READINGS[::7]), lambda row: row[1])
    keyed = left.key_by(lambda r: r[0]).interval_join(right.key_by(lambda r: r[0]))
    return keyed.between(Time.milliseconds(-50), Time.milliseconds(50)).process(Paired())


class Paired(ProcessJoinFunction[Any, Any, Any]):
    def process_element(
        self, left: Any, right: Any, ctx: ProcessJoinFunction.Context
    ) -> Iterator[Any]:
        yield left[2], right[2]


EVEN = OutputTag("even", Types.LONG())


class Sorted(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value % 2:
            yield value
        else:
            yield EVEN, value


@program
def side_outputs_and_unions(env: StreamExecutionEnvironment) -> DataStream[Any]:
    odd = env.from_sequence(1, 1_000).process(Sorted(), Types.LONG())
    even = odd.get_side_output(EVEN)
    tens = even.rebalance().filter(lambda n: n % 10 == 0)
    return odd.union(even.map(lambda n: -n), tens.map(lambda n: n * 1_000))


@program
def ways_between_subtasks(env: StreamExecutionEnvironment) -> DataStream[Any]:
    numbers = env.from_sequence(1, 500)
    custom = numbers.partition_custom(lambda key, count: key % count, lambda n: n)
    ways = [numbers.rescale(), numbers.shuffle(), numbers.broadcast(), numbers.global_(), custom]
    first, *others = (way.map(lambda n: n + 1).set_parallelism(2) for way in ways)
    return first.union(*others)


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Ruled(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        # Which rules are there already is nobody's promise: that none is foreign is.
        known = ctx.get_broadcast_state(RULES).get("factor")
        yield value * (known or 3)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("factor", value)


@program
def broadcast_rules(env: StreamExecutionEnvironment) -> DataStream[Any]:
    rules = env.from_collection([3]).broadcast(RULES)
    return env.from_sequence(1, 300).connect(rules).process(Ruled())


class Slowly(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0.001 * (value % 5))
        return [value * value]


@program
def asynchronous_calls(env: StreamExecutionEnvironment) -> DataStream[Any]:
    numbers = env.from_sequence(1, 300)
    called = AsyncDataStream.ordered_wait(numbers, Slowly(), Time.seconds(20), 50, Types.LONG())
    return called.map(lambda n: (n % 3, n)).key_by(lambda p: p[0]).sum(1)


def table() -> pa.Table:
    return pa.table(
        {
            "shop": [f"shop {n % 7}" for n in range(5_000)],
            "number": [n % 11 for n in range(5_000)],
            "amount": [n / 8 for n in range(5_000)],
        }
    )


@program
def aggregates_of_batches(env: StreamExecutionEnvironment) -> DataStream[Any]:
    doubled = env.from_arrow(table()).map_batches(
        lambda batch: batch.set_column(2, "amount", pa.array([2 * v.as_py() for v in batch[2]]))
    )
    found = doubled.key_by("shop").running(Count(), Sum("amount"))
    totals = found.map(lambda row: (row["shop"], row["count"], row["amount_sum"]))
    return totals.key_by(lambda row: row[0]).reduce(lambda a, b: max(a, b))


@program
def totals_of_keys(env: StreamExecutionEnvironment) -> DataStream[Any]:
    windows = GlobalWindows.create_with_end_of_stream_trigger()
    keyed = (
        env.from_arrow(table()).rebalance().filter(lambda row: row["number"] != 4).key_by("shop")
    )
    totals = keyed.window(windows).aggregate_batches(Count(), Sum("number"), Max("amount"))
    return totals.map(lambda row: tuple(row.values()))


@program
def windows_of_columns(env: StreamExecutionEnvironment) -> DataStream[Any]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda row, _: int(row["amount"] * 8)
    )
    windows = SlidingEventTimeWindows.of(Time.milliseconds(300), Time.milliseconds(100))
    keyed = env.from_arrow(table(), strategy).key_by("shop").window(windows)
    sums = keyed.aggregate_batches(Count(), Sum("number"), Mean("number"), First("amount"))
    combined = env.from_arrow(table(), strategy).key_by("number").window(windows)
    found = combined.aggregate_batches(Count(), Sum("number"), Mean("number"), Min("shop"))
    return sums.union(found).map(lambda row: tuple(row.values()))


@program
def reduced_rows_of_batches(env: StreamExecutionEnvironment) -> DataStream[Any]:
    rows = env.from_arrow(table()).map(lambda row: (row["number"], row["amount"]))
    return rows.key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


@program
def nothing_at_all(env: StreamExecutionEnvironment) -> DataStream[Any]:
    none = env.from_sequence(1, 100).filter(lambda n: n > 100).map(lambda n: (n, 1))
    return none.key_by(lambda pair: pair[0]).sum(1)

"""A program whose state holds values of our own classes, pickled under the names that they have.

A savepoint of it is kept, written before classes moved: what it names has to be found for good.
Slots import this module by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate import (
    CountWindow,
    Duration,
    GlobalWindow,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    RowKind,
    RuntimeContext,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate import DataStream, StreamExecutionEnvironment

KEYS = 5
RULES = MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY())
OURS = (
    Row(id=1, name="a"),
    Row.of_kind(RowKind.DELETE, 1, "a"),
    TimeWindow(0, 10),
    CountWindow(3),
    GlobalWindow.get(),
    Time.seconds(5),
    Duration.of_minutes(2),
    Types.TUPLE([Types.LONG(), Types.STRING()]),
)
"""Values of classes of ours, as somebody may keep them in state."""


def number(index: int) -> int:
    return index


def key_of(number: int) -> int:
    return number % KEYS


def time_of(number: int, _: int = 0) -> int:
    return number * 100


class Kept(KeyedProcessFunction):
    """Keeps values of our own classes, of no declared type; tells of a key's state as it was."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.ours = runtime_context.get_state(
            ValueStateDescriptor("ours", Types.PICKLED_BYTE_ARRAY())
        )
        self.rows = runtime_context.get_list_state(
            ListStateDescriptor("rows", Types.PICKLED_BYTE_ARRAY())
        )
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int, Any, Any]]:
        count = self.count.value() or 0
        yield ctx.get_current_key(), count, self.ours.value(), list(self.rows.get() or [])
        self.count.update(count + 1)
        self.ours.update(OURS)
        self.rows.add(Row(number=value))
        ctx.timer_service().register_event_time_timer(10**15)


class Ruled(KeyedBroadcastProcessFunction):
    """Tells of the rules, which are values of our own classes too."""

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield "rules", dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: str, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value, Row(rule=value))


def totals(key: int, window: TimeWindow, numbers: Iterable[int]) -> Iterator[Any]:
    yield "window", key, window, sum(numbers)


def program(
    env: StreamExecutionEnvironment, numbers: DataStream[int], rules: list[str]
) -> DataStream[Any]:
    """numbers: where records come from, with the uid ``numbers``."""
    timed = numbers.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)
    ).uid("times")
    kept = timed.key_by(key_of, key_type=Types.LONG()).process(Kept()).uid("kept")
    windows = (
        timed.key_by(key_of, key_type=Types.LONG())
        .window(TumblingEventTimeWindows.of(Time.seconds(100)))
        .apply(totals)
        .uid("windows")
    )
    ruled = (
        timed.key_by(key_of, key_type=Types.LONG())
        .connect(env.from_collection(rules).uid("rules").broadcast(RULES))
        .process(Ruled())
        .uid("ruled")
    )
    return kept.union(windows, ruled)

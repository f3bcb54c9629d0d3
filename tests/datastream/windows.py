"""Functions and triggers of the tests of windowed streams."""

from collections.abc import Iterable
from typing import Any

from tidegate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    AllWindowFunction,
    DataStream,
    KeyedStream,
    ListStateDescriptor,
    ProcessWindowFunction,
    ReducingStateDescriptor,
    Time,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    Window,
)

TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))


def keyed(stream: DataStream[Any]) -> KeyedStream[Any]:
    return stream.key_by(lambda event: event[0], Types.STRING())


def listed(key: object, window: Window, elements: Iterable[Any]) -> list[Any]:
    return [(key, window, list(elements))]


def stamped(key: object, window: TimeWindow, elements: Iterable[Any]) -> list[Any]:
    return [(key, window.start, window.end, [n for _, n in elements])]


class Kept(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    """Counts its firings, for the window and for the key."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]:
        per_window = context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        per_key = context.global_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        for state in (per_window, per_key):
            state.update((state.value() or 0) + 1)
        yield (
            context.window().start,
            len(list(elements)),
            per_window.value(),
            per_key.value(),
            context.current_watermark(),
            context.current_processing_time(),
        )

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        state = context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        assert state.value() is not None
        state.clear()


class Whole(AllWindowFunction[Any, Any, Window]):
    def apply(self, window: Window, inputs: Iterable[Any]) -> Iterable[Any]:
        yield window, sorted(inputs)


class Longest(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return max(value, accumulator)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return max(acc_a, acc_b)


class Full(Trigger[Any, TimeWindow]):
    """Fires once a window has three records that are not all alike, whatever has merged."""

    seen = ListStateDescriptor("seen", Types.LONG())
    count = ReducingStateDescriptor("count", lambda x, y: x + y, Types.LONG())
    most = AggregatingStateDescriptor("most", Longest(), Types.LONG())

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Any
    ) -> TriggerResult:
        ctx.register_event_time_timer(timestamp)
        ctx.get_partitioned_state(self.seen).add(element[1])
        ctx.get_partitioned_state(self.count).add(1)
        ctx.get_partitioned_state(self.most).add(element[1])
        seen = sorted(ctx.get_partitioned_state(self.seen).get())
        assert len(seen) == ctx.get_partitioned_state(self.count).get()
        assert seen[-1] == ctx.get_partitioned_state(self.most).get()
        full = len(seen) >= 3 and seen[0] != seen[-1]
        return TriggerResult.FIRE_AND_PURGE if full else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        for state in (self.seen, self.count, self.most):
            ctx.merge_partitioned_state(state)

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        for state in (self.seen, self.count, self.most):
            ctx.get_partitioned_state(state).clear()

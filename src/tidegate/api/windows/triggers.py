"""Triggers decide, after each record and timer, when a window fires."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast, overload

from tidegate.api.functions.runtime_context import ReduceFunction, ReducingStateDescriptor
from tidegate.api.windows.evictors import EvictorContext
from tidegate.config.spans import millis_of
from tidegate.errors import GraphError
from tidegate.typeinfo.types import LONG

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from tidegate.api.functions.runtime_context import AggregatingStateDescriptor
    from tidegate.api.state.descriptors import (
        ListStateDescriptor,
        MapStateDescriptor,
        StateDescriptor,
        ValueStateDescriptor,
    )
    from tidegate.api.state.states import (
        AggregatingState,
        ListState,
        MapState,
        ReducingState,
        ValueState,
    )
    from tidegate.api.windows.window import Window
    from tidegate.config.spans import Span
    from tidegate.metrics import MetricGroup

    # A checker takes a trigger without an argument for one of any records.
    E = TypeVar("E", contravariant=True, default=Any)
else:
    from typing import TypeVar

    E = TypeVar("E", contravariant=True)

K = TypeVar("K")
S = TypeVar("S")
T = TypeVar("T", contravariant=True)
W = TypeVar("W", bound="Window", contravariant=True)


class TriggerResult(Enum):
    """Decision about a window; names are Flink's. FIRE: evaluate it. PURGE: empty it."""

    CONTINUE = "CONTINUE"
    FIRE = "FIRE"
    PURGE = "PURGE"
    FIRE_AND_PURGE = "FIRE_AND_PURGE"

    def is_fire(self) -> bool:
        """True if the window is evaluated."""
        return self is TriggerResult.FIRE or self is TriggerResult.FIRE_AND_PURGE

    def is_purge(self) -> bool:
        """True if its contents are dropped."""
        return self is TriggerResult.PURGE or self is TriggerResult.FIRE_AND_PURGE


class TriggerContext(EvictorContext, Protocol):
    """Time, timers and state of a trigger, for one key and window."""

    def get_metric_group(self) -> MetricGroup:
        """Metrics of the operator."""
        ...

    def register_processing_time_timer(self, time: int) -> None:
        """Registers a call of ``on_processing_time`` at a time."""
        ...

    def register_event_time_timer(self, time: int) -> None:
        """Registers a call of ``on_event_time`` at a time."""
        ...

    def delete_processing_time_timer(self, time: int) -> None:
        """Deletes a processing-time timer."""
        ...

    def delete_event_time_timer(self, time: int) -> None:
        """Deletes an event-time timer."""
        ...

    @overload
    def get_partitioned_state(self, state_descriptor: ValueStateDescriptor[S]) -> ValueState[S]: ...
    @overload
    def get_partitioned_state(self, state_descriptor: ListStateDescriptor[S]) -> ListState[S]: ...
    @overload
    def get_partitioned_state(
        self, state_descriptor: MapStateDescriptor[K, S]
    ) -> MapState[K, S]: ...
    @overload
    def get_partitioned_state(
        self, state_descriptor: ReducingStateDescriptor[S]
    ) -> ReducingState[S]: ...
    @overload
    def get_partitioned_state(
        self, state_descriptor: AggregatingStateDescriptor[K, S]
    ) -> AggregatingState[K, S]: ...
    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        """State of the trigger for this key and window."""
        ...


class OnMergeContext(TriggerContext, Protocol):
    """Context after a merge of windows: timers and state are those of the new window."""

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Moves the state of merged windows to the new one.

        For list, reducing and aggregating state.
        """
        ...


class Trigger(ABC, Generic[T, W]):
    """Decides when a window fires. Subclassable by users; one object serves all windows."""

    TriggerContext = TriggerContext
    OnMergeContext = OnMergeContext

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: TriggerContext
    ) -> TriggerResult:
        """Called after a record was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Called when a processing-time timer of the window is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Called when an event-time timer of the window is due."""

    def can_merge(self) -> bool:
        """True if the trigger may be used with merging windows."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: OnMergeContext) -> None:
        """Called after windows were merged into this one."""

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext) -> None:
        """Removes the window's state and timers, since the window ends."""


class _Mergeable(Trigger[Any, "Window"]):
    """Does nothing at timers of either kind, and may be used with merging windows."""

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True


@dataclass(frozen=True)
class EventTimeTrigger(_Mergeable):
    """Fires once the watermark passes the window's end, then at once for each late record."""

    @staticmethod
    def create() -> EventTimeTrigger:
        """A trigger that follows the watermark."""
        return EventTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        ended = time == window.max_timestamp()
        return TriggerResult.FIRE if ended else TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


@dataclass(frozen=True)
class ProcessingTimeTrigger(_Mergeable):
    """Fires once the wall clock passes the window's end."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """A trigger that follows the wall clock."""
        return ProcessingTimeTrigger()

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


@dataclass(frozen=True)
class _Continuous(_Mergeable):
    """Fires at every multiple of an interval; the next multiple is state of the window."""

    interval: int

    @staticmethod
    @abstractmethod
    def _register(ctx: TriggerContext, time: int) -> None: ...

    @staticmethod
    @abstractmethod
    def _delete(ctx: TriggerContext, time: int) -> None: ...

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_NEXT_FIRE)
        next_ms = _next_fire(ctx).get()
        if next_ms is not None:
            self._register(ctx, next_ms)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        next_fire = _next_fire(ctx)
        next_ms = next_fire.get()
        if next_ms is not None:
            self._delete(ctx, next_ms)
            next_fire.clear()

    def _begin(self, time: int, window: Window, ctx: TriggerContext) -> None:
        if _next_fire(ctx).get() is None:
            self._wait(time - time % self.interval, window, ctx)

    def _go_on(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        next_fire = _next_fire(ctx)
        if next_fire.get() != time:
            return TriggerResult.CONTINUE
        next_fire.clear()
        self._wait(time, window, ctx)
        return TriggerResult.FIRE

    def _wait(self, after_ms: int, window: Window, ctx: TriggerContext) -> None:
        next_ms = min(after_ms + self.interval, window.max_timestamp())
        _next_fire(ctx).add(next_ms)
        self._register(ctx, next_ms)


class ContinuousEventTimeTrigger(_Continuous):
    """Fires at every multiple of an interval of event time, and at the end of the window."""

    @staticmethod
    def of(interval: Span) -> ContinuousEventTimeTrigger:
        """A trigger with this interval. Raises GraphError below 1 ms."""
        return ContinuousEventTimeTrigger(_interval_ms("ContinuousEventTimeTrigger", interval))

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        self._begin(timestamp, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        return self._go_on(time, window, ctx)

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        super().on_merge(window, ctx)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        super().clear(window, ctx)
        ctx.delete_event_time_timer(window.max_timestamp())

    @staticmethod
    def _register(ctx: TriggerContext, time: int) -> None:
        ctx.register_event_time_timer(time)

    @staticmethod
    def _delete(ctx: TriggerContext, time: int) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires at every multiple of an interval of the wall clock, up to the end of the window."""

    @staticmethod
    def of(interval: Span) -> ContinuousProcessingTimeTrigger:
        """A trigger with this interval. Raises GraphError below 1 ms."""
        where = "ContinuousProcessingTimeTrigger"
        return ContinuousProcessingTimeTrigger(_interval_ms(where, interval))

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        self._begin(ctx.get_current_processing_time(), window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._go_on(time, window, ctx)

    @staticmethod
    def _register(ctx: TriggerContext, time: int) -> None:
        ctx.register_processing_time_timer(time)

    @staticmethod
    def _delete(ctx: TriggerContext, time: int) -> None:
        ctx.delete_processing_time_timer(time)


@dataclass(frozen=True)
class CountTrigger(_Mergeable, Generic[E]):
    """Fires when a number of records is reached; the contents stay unless they are purged."""

    window_size: int

    @staticmethod
    def of(window_size: int) -> CountTrigger[E]:
        """A trigger with this count. Raises GraphError below 1."""
        if window_size < 1:
            raise GraphError(
                f"A window cannot fire at each {window_size} records",
                where="CountTrigger",
                remedy="Give 1 or more.",
            )
        return CountTrigger(window_size)

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        count = self._count(ctx)
        count.add(1)
        if cast("int", count.get()) < self.window_size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._count(ctx).clear()

    @staticmethod
    def _count(ctx: TriggerContext) -> ReducingState[int]:
        return ctx.get_partitioned_state(_COUNT)


@dataclass(frozen=True)
class PurgingTrigger(Trigger[E, "Window"]):
    """Wraps another trigger, and empties its windows each time they fire."""

    nested_trigger: Trigger[Any, Any]

    @staticmethod
    def of(nested_trigger: Trigger[E, Any]) -> PurgingTrigger[E]:
        """A purging trigger around another one."""
        return PurgingTrigger(nested_trigger)

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


@dataclass(frozen=True)
class NeverTrigger(_Mergeable):
    """Leaves a window open for ever: it never fires."""

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None: ...

    def clear(self, window: Window, ctx: TriggerContext) -> None: ...


class _Min(ReduceFunction[int]):
    def reduce(self, value1: int, value2: int) -> int:
        return min(value1, value2)


class _Sum(ReduceFunction[int]):
    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


_NEXT_FIRE = ReducingStateDescriptor("fire-time", _Min(), LONG)
_COUNT = ReducingStateDescriptor("count", _Sum(), LONG)


def _next_fire(ctx: TriggerContext) -> ReducingState[int]:
    return ctx.get_partitioned_state(_NEXT_FIRE)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


def _interval_ms(where: str, interval: Span) -> int:
    interval_ms = millis_of(interval, where=where)
    if interval_ms < 1:
        raise GraphError(
            f"A window cannot fire each {interval_ms} ms",
            where=where,
            remedy="Give an interval of 1 ms or more.",
        )
    return interval_ms

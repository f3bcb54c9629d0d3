"""Contexts of triggers and evictors: time, timers, and state of a key's window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.api.functions import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    TimeDomain,
)
from tidegate.api.state import ListStateDescriptor, ValueStateDescriptor
from tidegate.errors import UserError
from tidegate.model.elements import MAX_WATERMARK_MS
from tidegate.operators.windows.firing import WindowStates
from tidegate.typeinfo.types import PICKLED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.operator import OperatorContext
    from tidegate.api.state import ListState, ReducingState, State, StateDescriptor, ValueState
    from tidegate.typeinfo.types import TypeInformation

_TIMERS: Final = "window-timers"


class WindowTimers:
    """Timers of windows, of both time domains, set and taken back for the current key.

    A timer of processing time is due once its millisecond is over, for until then records may come
    that belong to it: it is set for the next.
    """

    def __init__(self, context: OperatorContext, window_type: TypeInformation | None) -> None:
        timers = context.state.timers(_TIMERS, window_type or PICKLED, context.time.wake_at_wall)
        self.event, self.processing = timers.event, timers.processing

    def register(self, domain: TimeDomain, ms: int, namespace: object) -> None:
        """Sets a timer; without effect for the end of all time, which the clock never reaches."""
        if domain is TimeDomain.EVENT_TIME:
            self.event.register(ms, namespace)
        elif ms < MAX_WATERMARK_MS:
            self.processing.register(ms + 1, namespace)

    def delete(self, domain: TimeDomain, ms: int, namespace: object) -> None:
        if domain is TimeDomain.EVENT_TIME:
            self.event.delete(ms, namespace)
        elif ms < MAX_WATERMARK_MS:
            self.processing.delete(ms + 1, namespace)


class WindowTriggerContext:
    """The ``OnMergeContext`` of a trigger and the ``EvictorContext``, for a current key and window.

    One an operator. namespace: of the current window.
    """

    def __init__(
        self,
        context: OperatorContext,
        timers: WindowTimers,
        window_type: TypeInformation | None,
        watermark_ms: Callable[[], int],
    ) -> None:
        self.get_current_watermark = watermark_ms
        self.get_current_processing_time = context.time.processing_time
        self._metrics = context.tasks.metrics
        self._name = context.info.name
        self._cell, self._pair = context.state.cell, context.state.pair_cell
        self._timers = timers
        self._states = WindowStates(context, "trigger", window_type)
        self._merged: Sequence[object] = ()
        self.namespace: object = None

    def stand_on(self, namespace: object, merged: Sequence[object] = ()) -> None:
        """Switches to a window of the current key. merged: windows that merged into it."""
        self.namespace, self._merged = namespace, merged
        self._stand()

    def _stand(self) -> None:
        # Timers are state with a namespace as well, and leave the cell at theirs.
        self._pair.key, self._pair.group = (self._cell.key, self.namespace), self._cell.group

    def get_metric_group(self) -> Any:
        return self._metrics

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register(TimeDomain.EVENT_TIME, time, self.namespace)
        self._stand()

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register(TimeDomain.PROCESSING_TIME, time, self.namespace)
        self._stand()

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete(TimeDomain.EVENT_TIME, time, self.namespace)
        self._stand()

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete(TimeDomain.PROCESSING_TIME, time, self.namespace)
        self._stand()

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        if isinstance(state_descriptor, AggregatingStateDescriptor):
            return self._aggregating(state_descriptor)
        return self._states.state(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Moves a state of merged windows to the new one. Raises UserError."""
        here, state = self.namespace, self.get_partitioned_state(state_descriptor)
        parts: list[Any] = []
        for namespace in self._merged:
            self.namespace = namespace
            self._stand()
            parts.append(self._part(state_descriptor, state))
            state.clear()
        self.namespace = here
        self._stand()
        for part in parts:
            if isinstance(state_descriptor, ListStateDescriptor):
                cast("ListState[Any]", state).add_all(part)
            elif part is not None and isinstance(state, _Aggregating):
                state.merge(part)
            elif part is not None:
                cast("ReducingState[Any]", state).add(part)

    def _part(self, descriptor: StateDescriptor, state: State) -> object:
        match descriptor:
            case ListStateDescriptor() | ReducingStateDescriptor():
                return cast("ListState[Any] | ReducingState[Any]", state).get()
            case AggregatingStateDescriptor():
                return cast("_Aggregating", state).accumulator()
            case _:
                raise UserError(
                    f"The trigger's state '{descriptor.name}' is of a kind that cannot be merged",
                    where=f"operator '{self._name}'",
                    remedy="Use list, reducing or aggregating state if windows merge.",
                )

    def _aggregating(self, descriptor: AggregatingStateDescriptor) -> _Aggregating:
        held = ValueStateDescriptor(descriptor.name, descriptor.type_info, ttl=descriptor.ttl)
        assert descriptor.aggregate_function is not None, "its constructor wants one"
        return _Aggregating(self._states.state(held), descriptor.aggregate_function)


class _Aggregating:
    """Aggregating state with access to its accumulator."""

    def __init__(self, held: ValueState[Any], function: AggregateFunction[Any, Any, Any]) -> None:
        self.accumulator, self.clear = held.value, held.clear
        self._update = held.update
        self._function = function

    def get(self) -> object:
        accumulator = self.accumulator()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: object) -> None:
        accumulator = self.accumulator()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._update(self._function.add(value, accumulator))

    def merge(self, other: object) -> None:
        accumulator = self.accumulator()
        merged = other if accumulator is None else self._function.merge(accumulator, other)
        self._update(merged)

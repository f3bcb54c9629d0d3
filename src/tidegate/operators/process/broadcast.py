"""Process functions with a broadcast stream, which is port 1; port 0 is the main stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tidegate.errors import UserError
from tidegate.operators.process.process_functions import (
    KeyedProcessOperator,
    KeyedRowContext,
    OperatorTime,
    ProcessOperator,
    RowContext,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.state import MapStateDescriptor
    from tidegate.model.elements import Batch
    from tidegate.typeinfo.types import TypeInformation

_METHODS = ("process_element", "process_broadcast_element")


class BroadcastStates:
    """The broadcast states that a program has named, as one side of an operator sees them.

    where: names the operator in errors.
    """

    def __init__(self, states: Mapping[str, Any], where: str) -> None:
        self._states = states
        self.where = where

    def get(self, descriptor: MapStateDescriptor) -> Any:
        """The state of that name. Raises UserError if there is none."""
        found = self._states.get(descriptor.name)
        if found is None:
            named = ", ".join(f"'{name}'" for name in self._states)
            raise UserError(
                f"The broadcast state '{descriptor.name}' was not named in broadcast: only {named}",
                where=self.where,
                remedy="Give its descriptor to broadcast(...) too, or ask for one of those.",
            )
        return found


def _both_sides(
    context: OperatorContext, descriptors: Sequence[MapStateDescriptor]
) -> tuple[BroadcastStates, BroadcastStates]:
    """States of the main stream, which are read-only, and states of the broadcast stream."""
    states = {each.name: context.state.broadcast_state(each) for each in descriptors}
    views = {name: state.read_only() for name, state in states.items()}
    where = f"operator '{context.info.name}'"
    return BroadcastStates(views, where), BroadcastStates(states, where)


class _BaseContext:
    """Base of the contexts of both sides. ``states`` is set by the operator."""

    states: BroadcastStates
    _time: OperatorTime

    def current_processing_time(self) -> int:
        return self._time.current_processing_time()

    def current_watermark(self) -> int:
        return self._time.watermark_ms

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        return self.states.get(state_descriptor)


class MainContext(_BaseContext, RowContext):
    """The ``ReadOnlyContext`` of a function without keys."""


class KeyedMainContext(_BaseContext, KeyedRowContext):
    """The ``ReadOnlyContext`` and the ``OnTimerContext`` of a keyed function."""


class BroadcastContext(_BaseContext, RowContext):
    """The ``Context`` of a broadcast record."""

    def get_current_key(self) -> NoReturn:
        """Raises UserError: broadcast records have no key."""
        raise self._keyless("key")

    def timer_service(self) -> NoReturn:
        """Raises UserError: broadcast records have no timers."""
        raise self._keyless("timers")

    def _keyless(self, what: str) -> UserError:
        return UserError(
            f"A broadcast record has no {what}: every subtask gets it, whatever its keys",
            where=f"{self.states.where}, in process_broadcast_element",
            remedy="Record in broadcast state what must happen, and do it in process_element or "
            "on_timer; current_watermark() and current_processing_time() tell the time.",
        )


class BroadcastOperator(ProcessOperator):
    """A process function of a stream without keys and a broadcast stream."""

    methods = _METHODS

    def __init__(self, function: object, descriptors: Sequence[MapStateDescriptor]) -> None:
        super().__init__(function)
        self._descriptors = descriptors

    def _contexts(self, context: OperatorContext) -> Sequence[RowContext]:
        rows = MainContext(self._time), BroadcastContext(self._time)
        rows[0].states, rows[1].states = _both_sides(context, self._descriptors)
        return rows


class KeyedBroadcastOperator(KeyedProcessOperator):
    """A process function of a keyed stream and a broadcast stream."""

    methods = _METHODS

    def __init__(
        self,
        function: object,
        descriptors: Sequence[MapStateDescriptor],
        key_type: TypeInformation | None = None,
    ) -> None:
        super().__init__(function, key_type)
        self._descriptors = descriptors

    def _contexts(self, context: OperatorContext) -> Sequence[RowContext]:
        self._cell = context.state.cell
        main = self._row = KeyedMainContext(self._time, self._cell)
        broadcast = BroadcastContext(self._time)
        main.states, broadcast.states = _both_sides(context, self._descriptors)
        return main, broadcast

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        if port:
            self._cell.key, self._cell.group = None, -1  # a broadcast record has no key
        return super().process(batch, port, out)

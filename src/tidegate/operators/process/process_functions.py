"""Process functions, with and without keys: time, timers, side outputs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from tidegate.api.functions import TimeDomain
from tidegate.errors import UserError
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.operators.emit import Piece, ahead_of, in_pieces, is_due
from tidegate.operators.function import FunctionOperator, row_call
from tidegate.operators.keys import SharedKeys
from tidegate.operators.row_loop import RowLoop, owner, user_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidegate.api.operator import OperatorContext, Output, Steps, Timers
    from tidegate.api.state import MapStateDescriptor
    from tidegate.loops.calls import UserCall
    from tidegate.loops.cells import KeyCell
    from tidegate.model.elements import Batch, Watermark
    from tidegate.typeinfo.types import TypeInformation

TIMERS = "user-timers"


class OperatorTime:
    """The ``TimerService`` of a function. timers: of its keys; None without keys."""

    def __init__(self, context: OperatorContext, timers: Timers | None = None) -> None:
        self._name = context.info.name
        self._timers = timers
        self.current_processing_time = context.time.processing_time
        self.watermark_ms = MIN_TIMESTAMP_MS

    def current_watermark(self) -> int:
        return self.watermark_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        self._keyed.event.register(timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._keyed.processing.register(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._keyed.event.delete(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._keyed.processing.delete(timestamp)

    @property
    def _keyed(self) -> Timers:
        if self._timers is None:
            raise UserError(
                "Setting timers is only supported on a keyed stream",
                where=f"operator '{self._name}'",
                remedy="Call key_by before, and use the keyed form of the function.",
            )
        return self._timers


class RowContext:
    """The ``Context`` of a process function; one for each operator. cell: has the row in hand."""

    __slots__ = ("_cell", "_time")

    def __init__(self, time: OperatorTime, cell: KeyCell) -> None:
        self._time = time
        self._cell = cell

    def timestamp(self) -> int | None:
        return self._cell.timestamp_ms

    def timer_service(self) -> OperatorTime:
        return self._time


class KeyedRowContext(RowContext):
    """The ``Context`` and the ``OnTimerContext`` of a keyed process function."""

    __slots__ = ("domain",)

    def __init__(self, time: OperatorTime, cell: KeyCell) -> None:
        super().__init__(time, cell)
        self.domain = TimeDomain.EVENT_TIME

    def get_current_key(self) -> object:
        return self._cell.key

    def time_domain(self) -> TimeDomain:
        return self.domain


class ProcessOperator(FunctionOperator):
    """A process function without keys."""

    methods: tuple[str, ...] = ("process_element",)
    """The function's method for the rows of each input, by port."""

    def __init__(self, function: object) -> None:
        super().__init__(function, self.methods[0])

    def open(self, context: OperatorContext) -> None:
        self._time = OperatorTime(context)
        self._open_with(context, self._contexts(context))

    def _contexts(self, context: OperatorContext) -> Sequence[RowContext]:
        return [RowContext(self._time, context.state.cell)] * len(self.methods)

    def _open_with(self, context: OperatorContext, contexts: Sequence[RowContext]) -> None:
        super().open(context)
        self._own = owner(self._own, context)
        self._row_loops = [
            self._row_loop(self._user_call(method), row, context.state.cell)
            for method, row in zip(self.methods, contexts, strict=True)
        ]

    def _user_call(self, method: str, call_name: str = "") -> UserCall:
        call = row_call(self._function, method)
        return user_call(call, self._own, self._loops, operator=self._name, call_name=call_name)

    def _row_loop(self, user: UserCall, row: RowContext, cell: KeyCell) -> RowLoop:
        is_keyed = isinstance(row, KeyedRowContext)
        return RowLoop(user, row, cell, self._draws, is_keyed=is_keyed)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        self._time.watermark_ms = watermark.ms
        out.emit_watermark(watermark)
        return None

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        return self._row_loops[port].process(batch, out)


class KeyedProcessOperator(ProcessOperator):
    """A process function with keys and timers; what timers give comes before the watermark."""

    def __init__(self, function: object, key_type: TypeInformation | None = None) -> None:
        super().__init__(function)
        self.key_type = key_type

    def open(self, context: OperatorContext) -> None:
        cell = context.state.cell
        timers = context.state.timers(TIMERS, None, context.time.wake_at_wall)
        self._time = OperatorTime(context, timers)
        self._row = KeyedRowContext(self._time, cell)
        self._open_with(context, self._contexts(context))
        self._timers = timers
        self._timer_loop = self._row_loop(
            self._user_call("on_timer", call_name="on_timer"), self._row, cell
        )
        self._piece = Piece(context.time.monotonic_ms)

    def _contexts(self, context: OperatorContext) -> Sequence[RowContext]:
        return [self._row] * len(self.methods)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        self._time.watermark_ms = watermark.ms
        if is_due(self._timers.event, watermark.ms):
            due = self._fire(TimeDomain.EVENT_TIME, watermark.ms, out)
            return ahead_of(watermark, due, out)
        out.emit_watermark(watermark)
        return None

    def on_ready(self, out: Output) -> Steps | None:
        now_ms = self._time.current_processing_time()
        return self._fire(TimeDomain.PROCESSING_TIME, now_ms, out)

    def _fire(self, domain: TimeDomain, until_ms: int, out: Output) -> Steps:
        """Calls what is due by then, in pieces. Results of event time have the timer's time."""
        self._row.domain = domain
        by_event = domain is TimeDomain.EVENT_TIME
        timers = self._timers.event if by_event else self._timers.processing
        due = timers.due(until_ms)

        def piece() -> Steps | None:
            self._piece.begin()
            return self._timer_loop.fire(self._some(due), out, timed=by_event)

        return in_pieces(piece, partial(is_due, timers, until_ms))

    def _some(self, due: Iterator[tuple[int, object]]) -> Iterator[tuple[int, object]]:
        is_over = self._piece.is_over
        for timer in due:
            yield timer
            if is_over():
                return


class CoProcessOperator(ProcessOperator):
    """A process function of two streams without keys."""

    methods = ("process_element1", "process_element2")


class KeyedCoProcessOperator(KeyedProcessOperator):
    """A process function of two keyed streams."""

    methods = ("process_element1", "process_element2")

    def open(self, context: OperatorContext) -> None:
        self._keys = SharedKeys(context.info.name)
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        return super().process(self._keys.checked(batch, port), port, out)


_METHODS = ("process_element", "process_broadcast_element")


class BroadcastStates:
    """The broadcast states that a program has named, as one side of an operator sees them.

    where: names the operator in errors.
    """

    def __init__(self, states: Mapping[str, Any], where: str) -> None:
        self._states = states
        self.where = where

    def get(self, descriptor: MapStateDescriptor) -> Any:
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
        raise self._keyless("key")

    def timer_service(self) -> NoReturn:
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
        cell = context.state.cell
        rows = MainContext(self._time, cell), BroadcastContext(self._time, cell)
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
        cell = context.state.cell
        main = self._row = KeyedMainContext(self._time, cell)
        broadcast = BroadcastContext(self._time, cell)
        main.states, broadcast.states = _both_sides(context, self._descriptors)
        return main, broadcast

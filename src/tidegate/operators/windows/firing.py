"""Base of all window operators: contents of a window, and its results."""

from __future__ import annotations

import copy
import dis
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.frozen import frozen
from tidegate.api.functions import (
    AggregateFunction,
    KeyedStateStore,
    ReduceFunction,
    RuntimeContext,
)
from tidegate.api.functions.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from tidegate.api.rows.batches import as_rows
from tidegate.api.windows import CountWindow, GlobalWindow, TimeWindow
from tidegate.api.windows.assigners import MergingWindowAssigner
from tidegate.api.windows.triggers import (
    ContinuousProcessingTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from tidegate.errors import TidegateError, UserError
from tidegate.loops.forms import loops_with
from tidegate.loops.tables import REDUCED_TO_NONE
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, RowBatch
from tidegate.operators.aggregates.reduced_type import typed_reduce
from tidegate.operators.emit import Piece, ahead_of, emit_rows, in_pieces
from tidegate.operators.failures import ReturnedBeside, are_records, user_code_failed
from tidegate.operators.function import FunctionOperator, has_life
from tidegate.operators.keys import SharedKeys
from tidegate.typeinfo.types import LONG, PICKLED, ListTypeInfo, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.state import (
        State,
        StateDescriptor,
    )
    from tidegate.api.windows import Window
    from tidegate.api.windows.assigners import WindowAssigner
    from tidegate.api.windows.triggers import Trigger
    from tidegate.model.elements import Batch, Watermark
    from tidegate.typeinfo.types import TypeInformation

CONTENTS: Final = "window-contents"

_NOTHING: Final = object()
_KINDS: Final = (GlobalWindow, CountWindow, TimeWindow)
"""Windows of ours by the number of their fields, which are what stands for them in state."""


@frozen
class WindowPlan:
    """Plan of windows, as the program defines them.

    reduce, aggregate: how records are gathered; neither: they are kept. function: what makes
    results of a window; None for what was gathered. functions: all objects of the program among
    them, to be opened and closed. content_type: of what is gathered, or of the
    records that are kept; None for any. late_tag: id of the side output of late records; None
    drops them. paired: a record of input n becomes ``(n, record, None)``, of the second input
    ``(n, None, record)``.
    """

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    lateness_ms: int = 0
    late_tag: str | None = None
    reduce: Callable[[Any, Any], Any] | None = None
    aggregate: AggregateFunction[Any, Any, Any] | None = None
    function: object = None
    functions: tuple[object, ...] = ()
    content_type: TypeInformation | None = None
    paired: bool = False

    @property
    def can_merge(self) -> bool:
        """True if contents can be merged; where windows don't merge, nothing else asks for it."""
        return self.aggregate is None or uses_both(self.aggregate.merge)

    @property
    def gathers_by_row(self) -> bool:
        """True if a function that gathers is told of its start: it may have state of the key."""
        return any(
            isinstance(function, AggregateFunction | ReduceFunction) and has_life(function)
            for function in self.functions
        )


class WindowInput:
    """Batches of the inputs in the form that windows hold. operator: its name."""

    def __init__(self, plan: WindowPlan, operator: str) -> None:
        self._keys = SharedKeys(operator) if plan.paired else None

    def rows(self, batch: Batch, port: int) -> RowBatch:
        """Rows of a batch. Raises UnsupportedKey if two inputs have keys of two types."""
        if self._keys is None:
            return as_rows(batch)
        rows = self._keys.checked(batch, port)
        marked: list[object] = (
            [(1, None, value) for value in rows.values]
            if port
            else [(0, value, None) for value in rows.values]
        )
        return RowBatch(marked, rows.timestamps_ms, rows.keys, rows.key_groups)


class WindowContents(AggregateFunction[Any, Any, Any]):
    """Conversion of records to a window's content: an aggregate whose result is the accumulator."""

    def __init__(self, plan: WindowPlan, context: OperatorContext) -> None:
        self._reduce = None
        if plan.reduce is not None:
            name, loops = context.info.name, loops_with(context.state.cell)
            self._reduce = typed_reduce(plan.reduce, plan.content_type, name, loops)
        self._aggregate = plan.aggregate
        self.type = plan.content_type
        if plan.aggregate is not None:
            # The functions themselves: a method around them would cost a call a record.
            self.add = plan.aggregate.add
            self.create_accumulator = plan.aggregate.create_accumulator
        elif plan.reduce is None and self.type is not None:
            self.type = ListTypeInfo(self.type)

    def create_accumulator(self) -> object:
        return [] if self._reduce is None else _NOTHING

    def add(self, value: object, accumulator: Any, /) -> object:
        if self._reduce is None:
            accumulator.append(value)
            return accumulator
        return value if accumulator is _NOTHING else self._reduce(accumulator, value)

    def get_result(self, accumulator: object) -> object:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> object:
        if self._aggregate is not None:
            merged = self._aggregate.merge(acc_a, acc_b)
        elif self._reduce is not None:
            merged = self._reduce(acc_a, acc_b)
        else:
            acc_a.extend(acc_b)
            return acc_a
        if merged is None:
            raise self.missing("AggregateFunction.merge")
        return merged

    @property
    def merging(self) -> str:
        """Name of the function that merges."""
        return "reduce function" if self._aggregate is None else "merge"

    @property
    def is_single(self) -> bool:
        """True if an accumulator makes one element."""
        return self._aggregate is not None or self._reduce is not None

    @property
    def single(self) -> Callable[[Any], object] | None:
        """Makes that element; None if the accumulator is the element."""
        return None if self._aggregate is None else self._aggregate.get_result

    def elements(self, accumulator: object) -> list[object]:
        if not self.is_single:
            return cast("list[object]", accumulator).copy()
        if self._aggregate is not None:
            return [self._aggregate.get_result(accumulator)]
        return [] if accumulator is _NOTHING else [accumulator]

    def checked(self, accumulator: object) -> object:
        """The accumulator. Raises TypeError for None, which a function returned by mistake."""
        if accumulator is None:
            raise self.missing()
        return accumulator

    def missing(self, call: str = "AggregateFunction.add") -> TypeError:
        """The error for None. call: the method that returned it, where there is an aggregate."""
        if self._aggregate is None:
            return TypeError(REDUCED_TO_NONE)
        return TypeError(f"{call} has returned None; it must return the accumulated value")


class EvictedContents(WindowContents):
    """Pairs of value and event time; an evictor removes some, and the rest is aggregated."""

    def __init__(self, plan: WindowPlan, context: OperatorContext) -> None:
        record = plan.content_type if plan.aggregate is None else None
        pair = None if record is None else TupleTypeInfo([record, LONG])
        super().__init__(replace(plan, reduce=None, aggregate=None, content_type=pair), context)
        self._gathered = WindowContents(plan, context)

    @property
    def is_single(self) -> bool:
        return False

    def elements(self, accumulator: object) -> list[object]:
        gathered = self._gathered
        whole = gathered.create_accumulator()
        for value in cast("list[object]", accumulator):
            whole = gathered.checked(gathered.add(value, whole))
        return gathered.elements(whole)


def uses_both(merge: Callable[..., object]) -> bool:
    """True if the body of a merge uses both accumulators; else it is not written yet.

    docs/guides/windows.md promises that such a merge is ignored.
    """
    # A trial on two empty accumulators does not tell: `return acc_a` passes it, and would then lose
    # records in silence. And what is shared once stays shared, for a savepoint holds the panes.
    code = getattr(getattr(merge, "__func__", merge), "__code__", None)
    if code is None or code.co_argcount < 2:
        return True
    wanted = set(code.co_varnames[code.co_argcount - 2 : code.co_argcount])
    return wanted <= {each.argval for each in dis.get_instructions(code) if "LOAD" in each.opname}


def caller(function: object) -> tuple[Callable[..., object] | None, bool, bool]:
    """The call for a window; whether it is given the key, and whether the context.

    Else it is given the window, and the elements in any case. None if these are the results.
    """
    match function:
        case None:
            return None, False, False
        case ProcessWindowFunction():
            return function.process, True, True
        case ProcessAllWindowFunction():
            return function.process, False, True
        case AllWindowFunction():
            return function.apply, False, False
        case _:
            apply = function.apply if isinstance(function, WindowFunction) else function
            return cast("Callable[..., object]", apply), True, False


def clearing(function: object) -> Callable[[WindowContext], None] | None:
    """The call for a window that goes; None if its function asks for none."""
    defined = isinstance(function, ProcessWindowFunction | ProcessAllWindowFunction)
    bases = ProcessWindowFunction.clear, ProcessAllWindowFunction.clear
    return function.clear if defined and type(function).clear not in bases else None


class WindowFaults:
    """Makes the errors of window functions. missing: makes that of a window that holds nothing."""

    beside = ReturnedBeside

    def __init__(self, operator: str, missing: Callable[[], Exception]) -> None:
        self._operator = operator
        self.missing = missing

    def unfit(self, results: object, key: object, window: object) -> UserError | None:
        """The error for results that can't be drawn; None for others."""
        if are_records(results):
            return None
        return UserError(
            f"The window function has returned {results!r}, and not single results",
            where=f"operator '{self._operator}', key {key!r}, {window}",
            remedy="Yield each result, or return a list of them.",
        )

    def failed(self, error: BaseException, key: object, window: object) -> TidegateError:
        call = f"window function, for key {key!r} and {window}"
        return user_code_failed(error, operator=self._operator, call=call)


class WindowContext:
    """The ``Context`` of a process window function; one for each operator, set for each window."""

    def __init__(
        self,
        context: OperatorContext,
        assigner: WindowAssigner[Any, Any],
        watermark_ms: Callable[[], int],
    ) -> None:
        self.current = cast("Window", GlobalWindow())
        self.current_processing_time = context.time.processing_time
        self.current_watermark = watermark_ms
        self._states = WindowStates(context, "window", assigner.window_type)
        self._runtime = RuntimeContext(context.info, context.state, context.tasks.metrics)
        self._name = context.info.name
        self._merging = isinstance(assigner, MergingWindowAssigner)

    def window(self) -> Window:
        return self.current

    def window_state(self) -> KeyedStateStore:
        if self._merging:
            raise UserError(
                "Per-window state is not allowed when using merging windows",
                where=f"operator '{self._name}'",
                remedy="Use global_state, or windows that don't merge.",
            )
        return self._states

    def global_state(self) -> KeyedStateStore:
        return self._runtime


class WindowStates(KeyedStateStore):
    """Keyed state of the current pair of key and window.

    owner: goes in front of the names, for those of a window function, of its trigger and of the
    key alone have nothing to do with each other.
    """

    def __init__(
        self, context: OperatorContext, owner: str, window_type: TypeInformation | None
    ) -> None:
        self._context = context
        self._owner = owner
        self._type = window_type or PICKLED
        self._held: dict[str, tuple[StateDescriptor, State]] = {}

    def state(self, descriptor: StateDescriptor) -> Any:
        held = self._held.get(descriptor.name)
        if held is not None and held[0] is descriptor:
            return held[1]
        own = copy.copy(descriptor)
        own.name = f"{self._owner}-{descriptor.name}"
        state = self._context.state.keyed_state(own, self._type)
        self._held[descriptor.name] = descriptor, state
        return state

    def _keyed_state(self, given: StateDescriptor, kind: object, call: str) -> Any:
        return self.state(given)


class CurrentWindow:
    """The key and window that state and the context of the window function stand on.

    timestamp_ms: event time of the window's results.
    """

    __slots__ = ("_cell", "_entered", "_namespace", "_pair", "context", "timestamp_ms")

    def __init__(self, operator: OperatorContext, context: WindowContext) -> None:
        self._cell, self._pair = operator.state.cell, operator.state.pair_cell
        self._entered: Window | None = None
        self._namespace: object = None
        self.context = context
        self.timestamp_ms = MIN_TIMESTAMP_MS

    def stand_on(self, namespace: object) -> None:
        """Let state with a namespace be that of the current key."""
        self._pair.key, self._pair.group = (self._cell.key, namespace), self._cell.group

    def enter(self, window: Window) -> object:
        """Let the window be that of the context and of results; returns its namespace."""
        if window is not self._entered:  # often it is the same for many keys
            self._entered = self.context.current = window
            self._namespace = namespace_of(window)
            self.timestamp_ms = window.max_timestamp()
        return self._namespace


def _counts_on_clock(trigger: Trigger[Any, Any]) -> bool:
    if isinstance(trigger, PurgingTrigger):
        return _counts_on_clock(trigger.nested_trigger)
    return isinstance(trigger, ProcessingTimeTrigger | ContinuousProcessingTimeTrigger)


class FiringOperator(FunctionOperator):
    """Base of window operators: fires windows, and lets watermarks wait for that."""

    asks_later = True  # contexts of windows and triggers give out state

    def __init__(self, plan: WindowPlan, key_type: TypeInformation | None = None) -> None:
        self._plan = plan
        self.key_type = key_type
        self.counts_on_clock = _counts_on_clock(plan.trigger)

    @property
    def _functions(self) -> tuple[object, ...]:
        return self._plan.functions

    @property
    def by_window(self) -> Mapping[str, str]:
        if self._plan.function is not None:
            return {"window function": self._why_called()}
        return {} if self._plan.aggregate is None else {"get_result": self._why_called()}

    def _why_called(self) -> str:
        """Why results are made for each window of a key; empty if for all keys at once."""
        return "the windows are not tumbling ones of event time that fire at their end alone"

    def _open(self, context: OperatorContext, contents: WindowContents) -> None:
        """Take up time and what is called at a firing; after that come state and functions.

        contents: how records are gathered.
        """
        assigner = self._plan.assigner
        self._context = context
        self._contents = contents
        self._cell = context.state.cell
        self._event_time = assigner.is_event_time()
        self._watermark_ms = MIN_TIMESTAMP_MS
        self._piece = Piece(context.time.monotonic_ms)
        window_context = WindowContext(context, assigner, lambda: self._watermark_ms)
        self._current = CurrentWindow(context, window_context)
        self._pair = context.state.pair_cell
        self._clears = clearing(self._plan.function)
        self._late = LateRecords(context, self._plan.late_tag)
        self._rows = WindowInput(self._plan, context.info.name).rows

    def _fire(
        self, due: Callable[[], Iterator[object]], is_due: Callable[[], bool], out: Output
    ) -> Steps:
        """Fire what is due, in pieces between which a checkpoint may come.

        due: gives results of what is due, up to where the piece is over or nothing is left; called
        at least once, and asks to be woken for what is due later.
        """

        def piece() -> Steps | None:
            self._piece.begin()
            return self._emit(due(), out)

        return in_pieces(piece, is_due)

    def _fire_then(
        self,
        due: Callable[[], Iterator[object]],
        is_due: Callable[[], bool],
        watermark: Watermark,
        out: Output,
    ) -> Steps | None:
        if is_due():
            return ahead_of(watermark, self._fire(due, is_due, out), out)
        out.emit_watermark(watermark)
        return None

    def _emit(self, results: Iterator[object], out: Output) -> Steps | None:
        return emit_rows(results, self._draws, out, timed=self._current)

    def _prepare(self, context: OperatorContext) -> None:
        super()._prepare(context)
        call, with_key, with_context = caller(self._plan.function)
        contents = self._contents
        faults = WindowFaults(self._name, contents.missing)
        window_context = self._current.context if with_context else None
        result, elements = contents.single, None
        if not contents.is_single:
            result, elements = None, contents.elements
        self._window_call = self._loops.window_call(
            call,
            with_key,
            window_context,
            result,
            elements,
            self._own,
            faults,
        )

    def _evaluated(self, window: Window, gathered: object) -> Iterator[object]:
        """Results of a window of the current key; must be drawn before anything else happens."""
        cell = self._cell
        return self._evaluated_all(window, [cell.key], [cell.group], [gathered])

    def _evaluated_all(
        self,
        window: Window,
        keys: Sequence[object],
        groups: Sequence[int],
        contents: Sequence[object],
        after: Callable[[], None] | None = None,
    ) -> Iterator[object]:
        """Results of a window for these keys. after: called once those of a key are drawn."""
        namespace = self._current.enter(window)
        return self._loops.results_of_window(
            self._window_call,
            window,
            namespace,
            self._cell,
            self._pair,
            keys,
            groups,
            contents,
            after,
        )

    def _clear(self, window: Window) -> None:
        if self._clears is not None:
            self._current.stand_on(self._current.enter(window))
            self._guarded(self._clears, self._current.context)


class HeapFiringOperator(FiringOperator):
    """Base of operators whose windows need no timers, since a heap holds when each is due.

    The heap is no state: it is made again from the contents.
    """

    _due: list[Any]
    _time_ms: int = MIN_TIMESTAMP_MS

    def _due_results(self) -> Iterator[object]:
        """Results of what is due, up to where the piece is over."""
        raise NotImplementedError

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        self._watermark_ms = watermark.ms
        if self._event_time:
            self._pass_to(watermark.ms)
        return self._fire_then(self._due_results, self._is_due, watermark, out)

    def on_ready(self, out: Output) -> Steps | None:
        if self._event_time:
            return None
        self._pass_to(self._context.time.processing_time() - 1)
        return self._fire(self._due_results, self._is_due, out)

    def _is_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= self._time_ms

    def _pass_to(self, time_ms: int) -> None:
        self._time_ms = max(self._time_ms, time_ms)

    def _set_alarm(self) -> None:
        if not self._event_time and self._due:
            self._context.time.wake_at_wall(self._due[0][0] + 1)


class LateRecords:
    """Destination of records that are too late for all their windows: a side output, or nowhere."""

    def __init__(self, context: OperatorContext, tag: str | None) -> None:
        self._dropped = context.tasks.metrics.counter("numLateRecordsDropped")
        self._tag = tag

    def take(self, values: list[object], stamps: list[int], out: Output) -> None:
        if self._tag is None:
            self._dropped.inc(len(values))
        elif values:
            out.emit_side(self._tag, RowBatch(values, stamps))


def namespace_of(window: Window) -> object:
    """Namespace of a window in state: the fields of one of ours, else the window itself."""
    match window:
        case TimeWindow() if type(window) is TimeWindow:
            return window.start, window.end
        case CountWindow():
            return (window.id,)
        case GlobalWindow():
            return ()
        case _:
            return window


def window_of(namespace: object) -> Window:
    if type(namespace) is tuple:
        fields = cast("tuple[int, ...]", namespace)
        return _KINDS[len(fields)](*fields)
    return cast("Window", namespace)


def event_times(rows: RowBatch, operator: str) -> list[int]:
    """Event times of rows. Raises UserError if one is missing or invalid."""
    if rows.timestamps_ms is None or MIN_TIMESTAMP_MS in rows.timestamps_ms:
        raise UserError(
            "Records have no event time, which event-time windows need",
            where=f"operator '{operator}'",
            remedy="Give the source a WatermarkStrategy with a timestamp assigner, or call "
            "assign_timestamps_and_watermarks before the window.",
        )
    if max(rows.timestamps_ms, default=0) == MAX_WATERMARK_MS:
        raise UserError(
            "Records have the end of all time as their event time, as results of windows without"
            " an end do",
            where=f"operator '{operator}'",
            remedy="Call assign_timestamps_and_watermarks before the window.",
        )
    return rows.timestamps_ms

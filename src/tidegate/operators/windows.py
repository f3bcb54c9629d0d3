"""What all window operators share: what a window holds, and what it gives when it fires."""

from __future__ import annotations

import dis
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tidegate.api.functions import AggregateFunction
from tidegate.api.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from tidegate.api.windows import GlobalWindow, TimeWindow
from tidegate.errors import UserError
from tidegate.model.elements import RowBatch
from tidegate.typeinfo.types import PICKLED, ListTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidegate.api.functions import KeyedStateStore
    from tidegate.api.operator import KeyCell, OperatorContext, Output
    from tidegate.api.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        StateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )
    from tidegate.api.triggers import Trigger
    from tidegate.api.windows import Window, WindowAssigner
    from tidegate.typeinfo.types import TypeInformation

_NOTHING = object()


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What a program says of its windows.

    reduce, aggregate: how records are gathered; neither: they are kept. function: what makes
    results of a window; None for what was gathered. functions: all objects of the program among
    them, to be opened and closed. content_type: of what is gathered, or of the
    records that are kept; None for any. late_tag: id of the side output of late records; None
    drops them.
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


class WindowContents(AggregateFunction[Any, Any, Any]):
    """How records become what a window holds: an aggregate whose result is the accumulator."""

    def __init__(self, plan: WindowPlan) -> None:
        self._reduce = plan.reduce
        self._aggregate = plan.aggregate
        self.type = plan.content_type
        if plan.aggregate is not None:
            # The functions themselves: a method around them would cost a call a record.
            self.add = plan.aggregate.add
            self.create_accumulator = plan.aggregate.create_accumulator
        elif plan.reduce is None and self.type is not None:
            self.type = ListTypeInfo(self.type)

    def create_accumulator(self) -> object:
        """What a window begins with."""
        return [] if self._reduce is None else _NOTHING

    def add(self, value: object, accumulator: Any) -> object:
        """With one more record."""
        if self._reduce is None:
            accumulator.append(value)
            return accumulator
        return value if accumulator is _NOTHING else self._reduce(accumulator, value)

    def get_result(self, accumulator: object) -> object:
        """The accumulator."""
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> object:
        """Of two windows that are one now; may change the first."""
        if self._aggregate is not None:
            return self._aggregate.merge(acc_a, acc_b)
        if self._reduce is not None:
            return self._reduce(acc_a, acc_b)
        acc_a.extend(acc_b)
        return acc_a

    def elements(self, accumulator: object) -> list[object]:
        """What a window function is given."""
        if self._aggregate is not None:
            return [self._aggregate.get_result(accumulator)]
        if self._reduce is not None:
            return [accumulator]
        return cast("list[object]", accumulator)

    @property
    def can_merge(self) -> bool:
        """Whether ``merge`` may be counted on; where windows don't merge nobody else calls it."""
        return self._aggregate is None or uses_both(self._aggregate.merge)


def uses_both(merge: Callable[..., object]) -> bool:
    """Whether the body of a merge looks at both accumulators: else it is not written yet."""
    code = getattr(getattr(merge, "__func__", merge), "__code__", None)
    if code is None or code.co_argcount < 2:
        return True
    wanted = set(code.co_varnames[code.co_argcount - 2 : code.co_argcount])
    return wanted <= {each.argval for each in dis.get_instructions(code) if "LOAD" in each.opname}


class Evaluation:
    """Calls the window function. window_type: by which windows stand in state."""

    def __init__(
        self, function: object, contents: WindowContents, context: OperatorContext
    ) -> None:
        self._contents = contents
        self.call = _caller(function)
        clear = getattr(function, "clear", None)
        defined = isinstance(function, ProcessWindowFunction | ProcessAllWindowFunction)
        bases = ProcessWindowFunction.clear, ProcessAllWindowFunction.clear
        self.clear = (
            cast("Callable[[object], None]", clear)
            if defined and getattr(type(function), "clear", None) not in bases
            else None
        )
        self._name = context.name

    def results(
        self, key: object, window: Window, context: WindowContext, accumulator: object
    ) -> Iterable[object]:
        """The results of a window. Raises UserError where nothing was gathered."""
        if accumulator is None:
            raise UserError(
                "AggregateFunction.add has returned None for an accumulator",
                where=f"operator '{self._name}'",
                remedy="Return the accumulator, also where it was changed in place.",
            )
        elements = self._contents.elements(accumulator)
        if self.call is None:
            return elements
        return self.call(key, window, context, elements) or ()


def _caller(function: object) -> Callable[..., Iterable[object] | None] | None:
    match function:
        case None:
            return None
        case ProcessWindowFunction():
            return lambda key, _, context, elements: function.process(key, context, elements)
        case ProcessAllWindowFunction():
            return lambda _key, _, context, elements: function.process(context, elements)
        case AllWindowFunction():
            return lambda _key, window, _, elements: function.apply(window, elements)
        case _:
            apply = cast(
                "Any", function.apply if isinstance(function, WindowFunction) else function
            )
            return lambda key, window, _, elements: apply(key, window, elements)


class WindowContext:
    """The ``Context`` of a process window function; one an operator, set anew for each window."""

    def __init__(
        self,
        context: OperatorContext,
        window_type: TypeInformation | None,
        watermark_ms: Callable[[], int],
    ) -> None:
        self.current = cast("Window", GlobalWindow())
        self.current_processing_time = context.processing_time
        self.current_watermark = watermark_ms
        self._states = WindowStates(context, window_type)
        self._runtime = context.runtime
        self._name = context.name
        self.merging = False

    def window(self) -> Window:
        """The window."""
        return self.current

    def window_state(self) -> KeyedStateStore:
        """State of this key and window. Raises UserError where windows merge."""
        if self.merging:
            raise UserError(
                "Per-window state is not allowed when using merging windows",
                where=f"operator '{self._name}'",
                remedy="Use global_state, or windows that don't merge.",
            )
        return self._states

    def global_state(self) -> KeyedStateStore:
        """State of this key over all its windows."""
        return self._runtime


class WindowStates:
    """Keyed state of the current pair of key and window."""

    def __init__(self, context: OperatorContext, window_type: TypeInformation | None) -> None:
        self._context = context
        self._type = window_type or PICKLED

    def _state(self, descriptor: StateDescriptor) -> Any:
        return self._context.keyed_state(descriptor, self._type)

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Value state."""
        return self._state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """List state."""
        return self._state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Map state."""
        return self._state(state_descriptor)

    def get_reducing_state(
        self, state_descriptor: ReducingStateDescriptor[Any]
    ) -> ReducingState[Any]:
        """Reducing state."""
        return self._state(state_descriptor)

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """Aggregating state."""
        return self._state(state_descriptor)


class LateRecords:
    """Where records go that came too late for all their windows: aside, or nowhere."""

    def __init__(self, context: OperatorContext, tag: str | None) -> None:
        self._dropped = context.metrics.counter("numLateRecordsDropped")
        self._tag = tag

    def take(self, values: list[object], stamps: list[int], out: Output) -> None:
        """These have come."""
        if self._tag is None:
            self._dropped.inc(len(values))
        elif values:
            out.emit_side(self._tag, RowBatch(values, stamps))


def namespace_of(window: Window) -> object:
    """What stands for a window in state."""
    if isinstance(window, TimeWindow):
        return window.start, window.end
    return window


def stand_on(cell: KeyCell, key: object, group: int, namespace: object) -> None:
    """Let state with a namespace be that of a pair."""
    cell.key, cell.group = (key, namespace), group


def event_times(rows: RowBatch, operator: str) -> list[int]:
    """The rows' event times. Raises UserError where they have none."""
    if rows.timestamps_ms is None:
        raise UserError(
            "Records have no event time, which windows of event time go by",
            where=f"operator '{operator}'",
            remedy="Give the source a WatermarkStrategy with a timestamp assigner, or call "
            "assign_timestamps_and_watermarks before the window.",
        )
    return rows.timestamps_ms

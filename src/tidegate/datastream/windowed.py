"""Windowed streams: records gathered by windows, and what is made of them when a window fires."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from tidegate.api.functions import AggregateFunction, Function, ReduceFunction
from tidegate.api.functions.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from tidegate.api.windows.assigners import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from tidegate.api.windows.evictors import Evictor
from tidegate.api.windows.triggers import Trigger
from tidegate.config.spans import Span, millis_of
from tidegate.datastream.checking import checks, types
from tidegate.datastream.steps.batches import window_aggregates
from tidegate.datastream.told import name_of
from tidegate.errors import GraphError, with_article
from tidegate.operators.windows.aligned import AlignedWindowOperator
from tidegate.operators.windows.firing import WindowPlan
from tidegate.operators.windows.general import WindowOperator
from tidegate.operators.windows.sessions import SessionOperator
from tidegate.typeinfo.hints import declared_type
from tidegate.typeinfo.types import BYTE, PICKLED, TupleTypeInfo, is_any

if TYPE_CHECKING:
    from tidegate.api.aggregates import Aggregate
    from tidegate.api.operator import Operator
    from tidegate.api.output_tag import OutputTag
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.keyed import KeyedStream
    from tidegate.datastream.stream import DataStream
    from tidegate.typeinfo.hints import TypeHint
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")
R = TypeVar("R")
Made = TypeVar("Made")
S = TypeVar("S", bound="_Windowed[Any]")

KeyedFunction = (
    WindowFunction[T, R, Any, Any]
    | ProcessWindowFunction[T, R, Any, Any]
    | Callable[[Any, Any, Iterable[T]], Iterable[R] | None]
)
AllFunction = AllWindowFunction[T, R, Any] | ProcessAllWindowFunction[T, R, Any]


# Not what is derived from them, which may assign other windows.
_ALIGNED: Final = (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
_SESSIONS: Final = (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
)


class _Windowed(Generic[T]):
    """Base of windows of keyed and of whole streams."""

    _of_all: bool

    def __init__(
        self, keyed_stream: KeyedStream[T], window_assigner: WindowAssigner[Any, Any]
    ) -> None:
        _check_kind(window_assigner, WindowAssigner, "window")
        self._stream = keyed_stream
        self._type: TypeInformation | None = keyed_stream.get_type()
        self._others: tuple[KeyedStream[Any], ...] = ()
        self._assigner = window_assigner
        environment = keyed_stream.get_execution_environment()
        self._default_trigger = _default_trigger(window_assigner, environment)
        self._plan = WindowPlan(window_assigner, self._default_trigger)
        self._evictor: Evictor[Any, Any] | None = None

    def __repr__(self) -> str:
        name = name_of(self._stream.transformation)
        return f"<{type(self).__name__} of {name} in {self._assigner!r}>"

    def trigger(self: S, trigger: Trigger[Any, Any]) -> S:
        """Has another trigger fire the windows, in place of the assigner's own."""
        _check_kind(trigger, Trigger, "trigger")
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise GraphError(
                f"A {type(trigger).__name__} cannot be used with windows that merge",
                where="trigger",
                remedy="Use a trigger whose can_merge() is True.",
            )
        self._plan = replace(self._plan, trigger=trigger)
        return self

    def evictor(self: S, evictor: Evictor[Any, Any]) -> S:
        """Has records removed before or after a window's function; all records are kept then."""
        _check_kind(evictor, Evictor, "evictor")
        self._evictor = evictor
        return self

    def allowed_lateness(self: S, time_ms: Span) -> S:
        """Keeps windows of event time for so long after their end; late records fire them again.

        time_ms: milliseconds, or a span such as ``timedelta(seconds=5)`` or ``"5 s"``. Without
        effect for windows by the wall clock. Raises GraphError below 0.
        """
        lateness_ms = millis_of(time_ms, where="allowed_lateness")
        if lateness_ms < 0:
            raise GraphError(
                f"The allowed lateness is {lateness_ms} ms",
                where="allowed_lateness",
                remedy="Give 0 or more.",
            )
        self._plan = replace(self._plan, lateness_ms=lateness_ms)
        return self

    def side_output_late_data(self: S, output_tag: OutputTag[Any]) -> S:
        """Sends records that came too late for all their windows to a side output."""
        checks.check_tag(output_tag, "side_output_late_data")
        self._plan = replace(self._plan, late_tag=output_tag.tag_id)
        return self

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream was built on."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation | None:
        """Type of the records; None for any."""
        return self._type

    # Within

    def _reduced(
        self,
        func: ReduceFunction[T] | Callable[[T, T], T],
        function: object,
        output_type: TypeHint | None,
    ) -> DataStream[Any]:
        checks.check_function(func, ReduceFunction, "reduce")
        plan = replace(
            self._plan,
            reduce=func.reduce if isinstance(func, ReduceFunction) else func,
            content_type=self._type,
        )
        if function is None and output_type is None:
            output_type = self._type
        return self._made("WindowReduce", plan, func, function, output_type)

    def _aggregated(
        self,
        func: AggregateFunction[T, Any, Any],
        function: object,
        accumulator_type: TypeHint | None,
        output_type: TypeHint | None,
    ) -> DataStream[Any]:
        checks.check_function_object(
            func,
            AggregateFunction,
            "aggregate",
            otherwise="Derive a class from AggregateFunction.",
        )
        content_type = declared_type(accumulator_type, where="accumulator_type of aggregate")
        plan = replace(self._plan, aggregate=func, content_type=content_type)
        return self._made("WindowAggregate", plan, func, function, output_type)

    def _kept(self, name: str, function: object, output_type: TypeHint | None) -> DataStream[Any]:
        plan = replace(self._plan, content_type=self._type)
        return self._made(name, plan, None, function, output_type)

    def _made(
        self,
        name: str,
        plan: WindowPlan,
        gathers: object,
        function: object,
        output_type: TypeHint | None,
    ) -> DataStream[Any]:
        given = gathers, function, plan.assigner, plan.trigger, self._evictor
        functions = tuple(each for each in given if each is not None)
        # By the clock nobody is late.
        lateness_ms = plan.lateness_ms if plan.assigner.is_event_time() else 0
        plan = replace(plan, function=function, functions=functions, lateness_ms=lateness_ms)
        operator = window_operator(plan, self._evictor, self._stream.key_type)
        declared = declared_type(output_type, where=f"output_type of {name}")
        _check_returned(name, gathers, function, declared)
        return self._stream.windowed_by(
            name, operator, declared, alone=self._of_all, others=self._others
        )


class _PlainFunction(AllWindowFunction[T, R, Any]):
    """A plain function of window and records."""

    def __init__(self, function: Callable[[Any, Iterable[T]], Iterable[R] | None]) -> None:
        self._function = function

    def apply(self, window: Any, inputs: Iterable[T]) -> Iterable[R] | None:
        return self._function(window, inputs)


def _default_trigger(assigner: WindowAssigner[Any, Any], environment: object) -> Trigger[Any, Any]:
    """The assigner's trigger; in PyFlink it is made for an environment."""
    make: Callable[..., Trigger[Any, Any]] = assigner.get_default_trigger
    return make(environment) if signature(make).parameters else make()


def _check_kind(given: object, kind: type, call: str) -> None:
    if not isinstance(given, kind):
        found = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise GraphError(
            f"{call} takes {with_article(kind)}, not {found}",
            where=call,
            remedy=f"Give an object of a class derived from {kind.__name__}.",
        )


def _check_returned(
    name: str, gathers: object, function: object, declared: TypeInformation | None
) -> None:
    """Works as ``types.check_returned``, for the function, or the aggregate if there is none."""
    where = f"output_type of {name}"
    if function is not None:
        whole = isinstance(function, ProcessWindowFunction | ProcessAllWindowFunction)
        method = "process" if whole else "apply"
        types.check_returned(function, method, declared, where, iterable=True)
    else:
        method = "get_result" if isinstance(gathers, AggregateFunction) else "reduce"
        types.check_returned(gathers, method, declared, where)


def window_operator(
    plan: WindowPlan, evictor: Evictor[Any, Any] | None, key_type: TypeInformation | None
) -> Operator:
    """The operator for a program's windows: that for any, or one for some that is quicker."""
    if type(plan.assigner) in (*_ALIGNED, *_SESSIONS) and evictor is None:
        own_trigger = plan.trigger == plan.assigner.get_default_trigger()
        if own_trigger and type(plan.assigner) in _ALIGNED:
            return AlignedWindowOperator(plan, key_type)
        if own_trigger:
            return SessionOperator(plan, key_type)
    return WindowOperator(plan, evictor, key_type)


class WindowedStream(_Windowed[T]):
    """A keyed stream in windows; made by ``window`` and ``count_window``.

    >>> clicks.key_by(lambda c: c.page).window(TumblingEventTimeWindows.of(Time.minutes(1)))
    """

    _of_all = False

    @staticmethod
    def of_pair(
        first: KeyedStream[Any], second: KeyedStream[Any], window_assigner: WindowAssigner[Any, Any]
    ) -> WindowedStream[Any]:
        """Windows of two keyed streams, each record with the number of its stream."""
        sides = [first.get_type(), second.get_type()]
        made = WindowedStream(first, window_assigner)
        made._type = PICKLED if all(map(is_any, sides)) else TupleTypeInfo([BYTE, *sides])
        made._others = (second,)
        made._plan = replace(made._plan, paired=True)
        return made

    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[T]: ...
    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: KeyedFunction[T, R],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]: ...
    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: KeyedFunction[T, R] | None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[Any]:
        """One value of all records, made as they come; in whatever order, where windows slide.

        window_function: gets an iterable of that one value.

        >>> windowed.reduce(lambda x, y: x + y)
        """
        self._check(window_function, "reduce")
        return self._reduced(reduce_function, window_function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, Made],
        window_function: None = None,
        accumulator_type: TypeHint | None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[Made]: ...
    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, Made],
        window_function: KeyedFunction[Made, R],
        accumulator_type: TypeHint | None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[R]: ...
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, Any],
        window_function: KeyedFunction[Any, R] | None = None,
        accumulator_type: TypeHint | None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[Any]:
        """Aggregates the records as they come, by an ``AggregateFunction``.

        ``merge`` is called where windows merge, and where a sliding window is put together of
        parts: there every record is added once if ``merge`` looks at both accumulators, else
        once a window. window_function: gets an iterable of the one result.
        """
        self._check(window_function, "aggregate")
        return self._aggregated(aggregate_function, window_function, accumulator_type, output_type)

    def apply(
        self,
        window_function: WindowFunction[T, R, Any, Any]
        | Callable[[Any, Any, Iterable[T]], Iterable[R] | None],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Applies a ``WindowFunction``, or a function of key, window and records, to each window.

        >>> windowed.apply(lambda key, window, records: [(key, window.start, len(list(records)))])
        """
        checks.check_function(window_function, WindowFunction, "apply")
        return self._kept("WindowApply", window_function, output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[T, R, Any, Any],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Applies a ``ProcessWindowFunction`` to each window."""
        checks.check_function_object(
            process_window_function,
            ProcessWindowFunction,
            "process",
            otherwise="Derive a class from ProcessWindowFunction.",
        )
        return self._kept("WindowProcess", process_window_function, output_type)

    def aggregate_batches(self, *aggregates: Aggregate) -> DataStream[Any]:
        """Arrow batches with a row for each key and window, by aggregates of columns.

        Columns: the key, ``window_start`` and ``window_end`` in milliseconds (the end is excluded),
        then the aggregates. The stream must be keyed by a column, the windows be tumbling or
        sliding ones of event time with their own trigger. Each batch with rows that are late, but
        within the allowed lateness, gives the results of their keys anew.

        ``GlobalWindows.create_with_end_of_stream_trigger()`` gives a row for each key once a
        bounded input has ended, without columns of a window and without event time.

        >>> flights.key_by("carrier").window(
        ...     TumblingEventTimeWindows.of(Time.hours(1))
        ... ).aggregate_batches(Count(), Max("dep_delay"))
        """
        plan = self._plan
        if self._evictor is not None or plan.trigger != self._default_trigger:
            raise GraphError(
                "aggregate_batches keeps to the windows' own trigger and keeps no records to evict",
                where="aggregate_batches",
                remedy="Leave out trigger and evictor, or use aggregate.",
            )
        operator = window_aggregates(
            self._stream.key,
            self._assigner,
            aggregates,
            lateness_ms=plan.lateness_ms,
            late_tag=plan.late_tag,
            call="aggregate_batches",
        )
        return self._stream.windowed_by("WindowAggregateBatches", operator, None, alone=False)

    def evaluated(
        self, name: str, function: object, output_type: TypeInformation | None
    ) -> DataStream[Any]:
        """Adds a step of this name, with what a function makes of each window's records."""
        return self._kept(name, function, output_type)

    @staticmethod
    def _check(function: object, call: str) -> None:
        if function is not None and not isinstance(function, ProcessWindowFunction):
            checks.check_function(function, WindowFunction, call)


class AllWindowedStream(_Windowed[T]):
    """A whole stream in windows, in one subtask; made by ``window_all`` and ``count_window_all``.

    >>> clicks.window_all(TumblingEventTimeWindows.of(Time.minutes(1)))
    """

    _of_all = True

    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[T]: ...
    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: AllFunction[T, R],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]: ...
    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: AllFunction[T, R] | None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[Any]:
        """One value of all records, made as they come.

        window_function: gets an iterable of that one value.
        """
        self._check(window_function, "reduce")
        return self._reduced(reduce_function, window_function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, Made],
        window_function: None = None,
        accumulator_type: TypeHint | None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[Made]: ...
    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, Made],
        window_function: AllFunction[Made, R],
        accumulator_type: TypeHint | None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[R]: ...
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, Any, Any],
        window_function: AllFunction[Any, R] | None = None,
        accumulator_type: TypeHint | None = None,
        output_type: TypeHint | None = None,
    ) -> DataStream[Any]:
        """Aggregates the records as they come, by an ``AggregateFunction``.

        window_function: gets an iterable of the one result.
        """
        self._check(window_function, "aggregate")
        return self._aggregated(aggregate_function, window_function, accumulator_type, output_type)

    def apply(
        self,
        window_function: AllWindowFunction[T, R, Any]
        | Callable[[Any, Iterable[T]], Iterable[R] | None],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Applies an ``AllWindowFunction``, or a function of window and records, to each window.

        >>> minutes.apply(lambda window, records: [(window.start, len(list(records)))])
        """
        checks.check_function(window_function, AllWindowFunction, "apply")
        if not isinstance(window_function, AllWindowFunction):
            window_function = _PlainFunction(window_function)
        return self._kept("WindowApply", window_function, output_type)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[T, R, Any],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Applies a ``ProcessAllWindowFunction`` to each window."""
        self._check_all(process_window_function, ProcessAllWindowFunction, "process")
        return self._kept("WindowProcess", process_window_function, output_type)

    def _check(self, function: object, call: str) -> None:
        if function is not None and not isinstance(function, ProcessAllWindowFunction):
            self._check_all(function, AllWindowFunction, call)

    @staticmethod
    def _check_all(function: object, kind: type[Function], call: str) -> None:
        wanted = kind.__name__
        checks.check_function_object(
            function, kind, call, otherwise=f"Derive a class from {wanted}."
        )

"""Joins: of records whose event times are close to each other, and of records in one window."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from flinkformat.frozen import frozen
from tidegate.api.functions.co_functions import CoGroupFunction, JoinFunction, ProcessJoinFunction
from tidegate.api.functions.window_functions import WindowFunction
from tidegate.config.spans import Span, millis_of
from tidegate.datastream import told
from tidegate.datastream.checking import checks, types
from tidegate.datastream.steps.functions import Adapter
from tidegate.datastream.windowed import WindowedStream
from tidegate.errors import GraphError
from tidegate.operators.function import row_call
from tidegate.operators.process.interval_join import IntervalJoinOperator, IntervalPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.api.functions import KeySelector
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.windows.assigners import WindowAssigner
    from tidegate.api.windows.evictors import Evictor
    from tidegate.api.windows.triggers import Trigger
    from tidegate.datastream.keyed import KeyedStream
    from tidegate.datastream.stream import DataStream
    from tidegate.typeinfo.hints import TypeHint

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
W = TypeVar("W")
P = TypeVar("P", bound="_PairWindows[Any, Any]")


class _Unfinished:
    """Base of streams in the midst of a chain of calls. _next_call: the next one."""

    __slots__ = ()
    _next_call: ClassVar[str]

    if not TYPE_CHECKING:  # a checker should flag what is not there

        def __getattr__(self, name: str) -> object:
            raise told.unfinished(type(self), name, self._next_call)


# --- of about the same event time ---


@frozen
class IntervalJoin(_Unfinished, Generic[T, S]):
    """Two keyed streams, before it is said how far apart a pair may be; of ``interval_join``."""

    _next_call = "between"

    left: KeyedStream[T]
    right: KeyedStream[S]

    def between(self, lower_bound: Span, upper_bound: Span) -> IntervalJoined[T, S]:
        """Pairs a right record that lies that long after the left one; below 0: before it.

        Both bounds belong to it. Raises GraphError if the lower one is above the upper one.

        >>> orders.interval_join(payments).between(Time.minutes(-1), Time.minutes(5))
        """
        left, right = self.left.keys_shared_with(self.right, "interval_join")
        bounds = (
            millis_of(lower_bound, where="between, lower bound"),
            millis_of(upper_bound, where="between, upper bound"),
        )
        return IntervalJoined(left, right, IntervalPlan(*bounds))


@frozen
class IntervalJoined(Generic[T, S]):
    """Two keyed streams whose records are paired by event time; made by ``between``."""

    left: KeyedStream[T]
    right: KeyedStream[S]
    plan: IntervalPlan

    def __post_init__(self) -> None:
        if self.plan.lower_ms > self.plan.upper_ms:
            raise GraphError(
                f"The lower bound, {self.plan.lower_ms} ms, is above the upper one, "
                f"{self.plan.upper_ms} ms",
                where="between",
                remedy="Give the lower bound first; an exclusive bound is 1 ms narrower.",
            )

    def lower_bound_exclusive(self) -> IntervalJoined[T, S]:
        """Without the pairs that lie at the lower bound itself."""
        return replace(self, plan=replace(self.plan, lower_ms=self.plan.lower_ms + 1))

    def upper_bound_exclusive(self) -> IntervalJoined[T, S]:
        """Without the pairs that lie at the upper bound itself."""
        return replace(self, plan=replace(self.plan, upper_ms=self.plan.upper_ms - 1))

    def side_output_left_late_data(self, output_tag: OutputTag[T]) -> IntervalJoined[T, S]:
        """Sends left records that lie behind the watermark aside; else they are dropped."""
        tags = output_tag.tag_id, self.plan.late_tags[1]
        return replace(self, plan=replace(self.plan, late_tags=tags))

    def side_output_right_late_data(self, output_tag: OutputTag[S]) -> IntervalJoined[T, S]:
        """Sends right records that lie behind the watermark aside; else they are dropped."""
        tags = self.plan.late_tags[0], output_tag.tag_id
        return replace(self, plan=replace(self.plan, late_tags=tags))

    def process(
        self, func: ProcessJoinFunction[T, S, R], output_type: TypeHint | None = None
    ) -> DataStream[R]:
        """Any number of records for each pair, with the greater of its two event times."""
        checks.check_function_object(
            func,
            ProcessJoinFunction,
            "process",
            otherwise="Derive a class from ProcessJoinFunction.",
        )
        plan = replace(self.plan, types=(self.left.get_type(), self.right.get_type()))
        operator = IntervalJoinOperator(func, plan, self.left.key_type)
        declared = types.result_type(output_type, func, "process_element", iterable=True)
        return self.left.transform(
            "Interval Join", operator, declared, others=(self.right,), keyed=True, stateful=True
        )


# --- in one window ---


@frozen
class JoinedStreams(_Unfinished, Generic[W]):
    """Two streams, before it is said what they have in common; made by ``join``, ``co_group``.

    ending: what comes once they have windows.
    """

    _next_call = "where"

    first: DataStream[Any]
    second: DataStream[Any]
    ending: Callable[[WindowedStream[Any]], W] = field(repr=False)

    def where(
        self,
        key_selector: str | KeySelector[Any, Any] | Callable[[Any], Any],
        key_type: TypeHint | None = None,
    ) -> JoinedWhere[W]:
        """The key of the first stream's records."""
        return JoinedWhere(self.first.key_by(key_selector, key_type), self.second, self.ending)


@frozen
class JoinedWhere(_Unfinished, Generic[W]):
    """Two streams, one of them with keys; made by ``where``."""

    _next_call = "equal_to"

    first: KeyedStream[Any]
    second: DataStream[Any]
    ending: Callable[[WindowedStream[Any]], W] = field(repr=False)

    def equal_to(
        self,
        key_selector: str | KeySelector[Any, Any] | Callable[[Any], Any],
        key_type: TypeHint | None = None,
    ) -> JoinedEqualTo[W]:
        """The key of the second stream's records, of the same type as that of the first."""
        second = self.second.key_by(key_selector, key_type)
        return JoinedEqualTo(*self.first.keys_shared_with(second, "equal_to"), self.ending)


@frozen
class JoinedEqualTo(_Unfinished, Generic[W]):
    """Two streams with keys; made by ``equal_to``."""

    _next_call = "window"

    first: KeyedStream[Any]
    second: KeyedStream[Any]
    ending: Callable[[WindowedStream[Any]], W] = field(repr=False)

    def window(self, assigner: WindowAssigner[Any, Any]) -> W:
        """In which windows the records of both streams are gathered."""
        return self.ending(WindowedStream.of_pair(self.first, self.second, assigner))


class _PairWindows(Generic[T, S]):
    """Base of window joins and groups.

    Triggers, evictors and gap functions of one's own see a record of the first stream as
    ``(0, record, None)``, one of the second as ``(1, None, record)``.
    """

    def __init__(self, windows: WindowedStream[Any]) -> None:
        self._windows = windows

    def trigger(self: P, trigger: Trigger[Any, Any]) -> P:
        """Has another trigger fire the windows, in place of the assigner's own."""
        self._windows.trigger(trigger)
        return self

    def evictor(self: P, evictor: Evictor[Any, Any]) -> P:
        """Has records removed before or after a window's function."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self: P, time_ms: Span) -> P:
        """Keeps windows of event time for so long after their end; late records fire them again.

        Raises GraphError below 0.
        """
        self._windows.allowed_lateness(time_ms)
        return self


class JoinedWindows(_PairWindows[T, S]):
    """Two streams joined in windows; made by ``join(...).where(...).equal_to(...).window(...)``."""

    def apply(
        self,
        function: JoinFunction[T, S, R] | Callable[[T, S], R],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """One record for each pair in a window; none for records without a pair.

        >>> joined.apply(lambda order, payment: (order.id, payment.amount))
        """
        checks.check_function(function, JoinFunction, "apply")
        declared = types.result_type(output_type, function, "join")
        return self._windows.evaluated("Window Join", _JoinPairs(function), declared)


class CoGroupedWindows(_PairWindows[T, S]):
    """Two streams grouped in windows; made by ``co_group(...).where(...)`` and so on."""

    def apply(
        self,
        function: CoGroupFunction[T, S, R] | Callable[[list[T], list[S]], Iterable[R] | None],
        output_type: TypeHint | None = None,
    ) -> DataStream[R]:
        """Any number of records for what a window holds of a key: a list of each stream's.

        >>> grouped.apply(lambda orders, payments: [] if payments else orders)
        """
        checks.check_function(function, CoGroupFunction, "apply")
        declared = types.result_type(output_type, function, "co_group", iterable=True)
        return self._windows.evaluated("Window CoGroup", _Grouped(function), declared)


class _JoinPairs(Adapter[Any], WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: object, window: object, inputs: Iterable[Any]) -> Iterator[Any]:
        join = row_call(self._function, "join")
        firsts, seconds = _sides(inputs)
        return (join(first, second) for first in firsts for second in seconds)


class _Grouped(Adapter[Any], WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: object, window: object, inputs: Iterable[Any]) -> Any:
        return row_call(self._function, "co_group")(*_sides(inputs))


def _sides(inputs: Iterable[tuple[int, Any, Any]]) -> tuple[list[Any], list[Any]]:
    sides: tuple[list[Any], list[Any]] = [], []
    for port, first, second in inputs:
        sides[port].append(second if port else first)
    return sides

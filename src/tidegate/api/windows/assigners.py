"""How records are assigned to windows.

Times are milliseconds since 1970, spans milliseconds; the calls take ``Time`` or ``Duration``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from tidegate.api.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from tidegate.api.windows.window import CountWindow, GlobalWindow, TimeWindow, Window
from tidegate.config.spans import millis_of
from tidegate.errors import GraphError
from tidegate.typeinfo.types import LONG, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from tidegate.api.windows.triggers import Trigger
    from tidegate.api.windows.window import TypeSerializer
    from tidegate.config.spans import Span
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T", contravariant=True)
W = TypeVar("W", bound="Window")


class WindowAssignerContext(Protocol):
    """Facts that an assigner may ask for."""

    def next_number(self) -> int:
        """Number of the key's record in this operator, from 0; ask once for each record."""
        ...

    def get_current_processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        ...


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns records to windows. Subclassable by users.

    window_type: type by which windows are kept in state; None for any picklable windows, which have
    to be hashable.
    """

    window_type: ClassVar[TypeInformation | None] = None
    WindowAssignerContext = WindowAssignerContext

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[W]:
        """Windows of a record. timestamp: its event time, milliseconds."""

    @abstractmethod
    def get_default_trigger(self) -> Trigger[Any, Any]:
        """Default trigger of the windows.

        One that takes an argument is given the environment, as in PyFlink.
        """

    @abstractmethod
    def is_event_time(self) -> bool:
        """True if windows end by event time; else by the wall clock."""

    def get_window_serializer(self) -> TypeSerializer[W] | None:
        """Never called: `window_type` says how windows are kept. Exists for PyFlink programs."""
        return None


class MergeCallback(ABC, Generic[W]):
    """Receives each group of windows that merge, and the merged one; as a call or by ``merge``."""

    @abstractmethod
    def merge(self, merged: Collection[W], merge_result: W) -> None: ...

    def __call__(self, merged: Collection[W], merge_result: W) -> None:
        self.merge(merged, merge_result)


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge."""

    MergeCallback = MergeCallback

    @abstractmethod
    def merge_windows(
        self, windows: Iterable[W], callback: Callable[[Collection[W], W], None]
    ) -> None:
        """Calls back with each group of windows that merge, and with the merged one."""


class _TimeWindows(WindowAssigner[Any, TimeWindow]):
    """Windows by a clock: the records' event time or the wall clock."""

    window_type: ClassVar[TypeInformation | None] = TupleTypeInfo([LONG, LONG])

    def get_default_trigger(self, env: object = None) -> Trigger[Any, Any]:
        return EventTimeTrigger() if self.is_event_time() else ProcessingTimeTrigger()

    def _time(self, timestamp: int, context: WindowAssignerContext) -> int:
        return timestamp if self.is_event_time() else context.get_current_processing_time()


class AlignedWindows(_TimeWindows):
    """Windows of one size that start at multiples of a slide, the same for all keys."""

    size_ms: int
    slide_ms: int
    offset_ms: int

    def windows_of(self, timestamp: int) -> list[TimeWindow]:
        """Windows that contain a time, the latest first."""
        start = timestamp - (timestamp - self.offset_ms) % self.slide_ms
        starts = range(start, timestamp - self.size_ms, -self.slide_ms)
        return [TimeWindow(start, start + self.size_ms) for start in starts]

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> list[TimeWindow]:
        return self.windows_of(self._time(timestamp, context))


@dataclass(frozen=True, init=False)
class _Tumbling(AlignedWindows):
    size_ms: int
    offset_ms: int

    def __init__(self, size: int, offset: int = 0) -> None:
        object.__setattr__(self, "size_ms", size)
        object.__setattr__(self, "offset_ms", offset)

    @classmethod
    def of(cls, size: Span, offset: Span | None = None) -> Self:
        """Windows of that size, which start at multiples of it, shifted by the offset.

        Raises GraphError for a size below 1 ms or an offset that is not smaller than the size.
        """
        _, size_ms, offset_ms = _checked(cls.__name__, size, size, offset)
        return cls(size_ms, offset_ms)

    @property
    def slide_ms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.size_ms


@dataclass(frozen=True, init=False)
class _Sliding(AlignedWindows):
    size_ms: int
    slide_ms: int
    offset_ms: int

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        object.__setattr__(self, "size_ms", size)
        object.__setattr__(self, "slide_ms", slide)
        object.__setattr__(self, "offset_ms", offset)

    @classmethod
    def of(cls, size: Span, slide: Span, offset: Span | None = None) -> Self:
        """Windows of that size, which start at multiples of the slide, shifted by the offset.

        Raises GraphError for a size or slide below 1 ms or an offset not smaller than the slide.
        """
        return cls(*_checked(cls.__name__, size, slide, offset))


class TumblingEventTimeWindows(_Tumbling):
    """Windows of one size in event time, side by side.

    >>> TumblingEventTimeWindows.of(Time.seconds(10))
    """

    def is_event_time(self) -> bool:
        return True


class TumblingProcessingTimeWindows(_Tumbling):
    """Windows of one size by the wall clock, side by side."""

    def is_event_time(self) -> bool:
        return False


class SlidingEventTimeWindows(_Sliding):
    """Windows of one size in event time, one starting each slide.

    A slide that exceeds the size leaves gaps: records between windows are in none.

    >>> SlidingEventTimeWindows.of(Time.minutes(1), Time.seconds(10))
    """

    def is_event_time(self) -> bool:
        return True


class SlidingProcessingTimeWindows(_Sliding):
    """Windows of one size by the wall clock, one starting each slide."""

    def is_event_time(self) -> bool:
        return False


class SessionWindowTimeGapExtractor(ABC):
    """Extracts the gap after which a record's session ends."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """Gap in milliseconds, above 0."""


class SessionWindows(_TimeWindows, MergingWindowAssigner[Any, TimeWindow]):
    """Windows that last until nothing comes for a gap; windows that overlap or touch merge."""

    @abstractmethod
    def gap_ms(self, element: Any) -> int:
        """Gap after a record, milliseconds."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> list[TimeWindow]:
        start = self._time(timestamp, context)
        return [TimeWindow(start, start + self.gap_ms(element))]

    def merge_windows(
        self,
        windows: Iterable[TimeWindow],
        callback: Callable[[Collection[TimeWindow], TimeWindow], None],
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


@dataclass(frozen=True)
class _FixedGap(SessionWindows):
    session_gap: int

    @classmethod
    def with_gap(cls, size: Span) -> Self:
        """Sessions that end after this time without records. Raises GraphError below 1 ms."""
        return cls(_checked_gap(cls.__name__, size))

    def gap_ms(self, element: Any) -> int:
        return self.session_gap


class EventTimeSessionWindows(_FixedGap):
    """Sessions in event time.

    >>> EventTimeSessionWindows.with_gap(Time.minutes(30))
    """

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicEventTimeSessionWindows:
        """Sessions whose gap depends on the record: an extractor, or a function of the record."""
        return DynamicEventTimeSessionWindows(extractor)

    def is_event_time(self) -> bool:
        return True


class ProcessingTimeSessionWindows(_FixedGap):
    """Sessions by the wall clock."""

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> DynamicProcessingTimeSessionWindows:
        """Sessions whose gap depends on the record: an extractor, or a function of the record."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def is_event_time(self) -> bool:
        return False


class _DynamicGap(SessionWindows):
    def __init__(
        self,
        session_window_time_gap_extractor: SessionWindowTimeGapExtractor | Callable[[Any], int],
    ) -> None:
        given = session_window_time_gap_extractor
        extract = getattr(given, "extract", given)
        if not callable(extract):
            raise GraphError(
                f"{given!r} extracts no gap",
                where=type(self).__name__,
                remedy="Give a SessionWindowTimeGapExtractor or a function of the record.",
            )
        self._extract = extract

    @classmethod
    def with_dynamic_gap(
        cls, extractor: SessionWindowTimeGapExtractor | Callable[[Any], int]
    ) -> Self:
        """Sessions with the gap that the extractor, or a function, gives for a record."""
        return cls(extractor)

    def gap_ms(self, element: Any) -> int:
        """Gap from the extractor. Raises ValueError for an invalid one."""
        gap: Any = self._extract(element)
        if type(gap) is not int or gap < 1:
            raise ValueError(f"a session gap has to be an int of 1 ms or more, not {gap!r}")
        return gap


class DynamicEventTimeSessionWindows(_DynamicGap):
    """Sessions in event time whose gap depends on the record."""

    def is_event_time(self) -> bool:
        return True


class DynamicProcessingTimeSessionWindows(_DynamicGap):
    """Sessions by the wall clock whose gap depends on the record."""

    def is_event_time(self) -> bool:
        return False


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """One window for all records of a key; fires only by a trigger that the program sets.

    at_end: without one it fires once, when the input has ended.
    """

    window_type: ClassVar[TypeInformation | None] = TupleTypeInfo([])

    at_end: bool = False

    @staticmethod
    def create() -> GlobalWindows:
        """The assigner of the one window."""
        return GlobalWindows()

    @staticmethod
    def create_with_end_of_stream_trigger() -> GlobalWindows:
        """The assigner of the one window, which fires when a bounded input has ended.

        >>> sales.key_by("shop").window(
        ...     GlobalWindows.create_with_end_of_stream_trigger()
        ... ).aggregate_batches(Count(), Sum("price"))
        """
        return GlobalWindows(at_end=True)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> list[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: object = None) -> Trigger[Any, Any]:
        return EventTimeTrigger() if self.at_end else NeverTrigger()

    def is_event_time(self) -> bool:
        return False


class CountWindowAssigner(WindowAssigner[Any, CountWindow]):
    """Windows of so many records of a key; fired and dropped once they are full."""

    window_type: ClassVar[TypeInformation | None] = TupleTypeInfo([LONG])

    window_size: int
    window_slide: int

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> list[CountWindow]:
        number = context.next_number()
        first = max(0, (number - self.window_size) // self.window_slide + 1)
        return [CountWindow(k) for k in range(first, number // self.window_slide + 1)]

    def get_default_trigger(self, env: object = None) -> Trigger[Any, Any]:
        return PurgingTrigger(CountTrigger(self.window_size))

    def is_event_time(self) -> bool:
        return False


@dataclass(frozen=True)
class CountTumblingWindowAssigner(CountWindowAssigner):
    """Windows of so many records, one after the other; behind ``count_window(size)``."""

    window_size: int

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """An assigner with this size. Raises GraphError below 1."""
        _check_count("CountTumblingWindowAssigner", window_size, window_size)
        return CountTumblingWindowAssigner(window_size)

    @property
    def window_slide(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of records between starts of windows."""
        return self.window_size


@dataclass(frozen=True)
class CountSlidingWindowAssigner(CountWindowAssigner):
    """Windows of so many records, one starting each slide; behind ``count_window(size, slide)``."""

    window_size: int
    window_slide: int

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """An assigner with this size and slide. Raises GraphError below 1."""
        _check_count("CountSlidingWindowAssigner", window_size, window_slide)
        return CountSlidingWindowAssigner(window_size, window_slide)


def count_windows(size: int, slide: int) -> CountWindowAssigner:
    """Assigner of ``count_window``; a slide of 0 gives tumbling windows. Raises GraphError."""
    if slide == 0:
        return CountTumblingWindowAssigner.of(size)
    return CountSlidingWindowAssigner.of(size, slide)


def _check_count(where: str, size: int, slide: int) -> None:
    if size < 1 or slide < 1:
        raise GraphError(
            f"Windows of {size} records each {slide} records can't be",
            where=where,
            remedy="Give 1 or more.",
        )


def _checked(where: str, size: Span, slide: Span, offset: Span | None) -> tuple[int, int, int]:
    size_ms, slide_ms = millis_of(size, where=where), millis_of(slide, where=where)
    offset_ms = 0 if offset is None else millis_of(offset, where=where)
    if size_ms < 1 or slide_ms < 1 or abs(offset_ms) >= slide_ms:
        raise GraphError(
            f"Windows of {size_ms} ms each {slide_ms} ms with an offset of {offset_ms} ms can't be",
            where=where,
            remedy="Give a size and a slide of 1 ms or more, and an offset smaller than the slide.",
        )
    return size_ms, slide_ms, offset_ms


def _checked_gap(where: str, size: Span) -> int:
    gap_ms = millis_of(size, where=where)
    if gap_ms < 1:
        raise GraphError(
            f"Sessions with a gap of {gap_ms} ms can't be",
            where=where,
            remedy="Give a gap of 1 ms or more.",
        )
    return gap_ms

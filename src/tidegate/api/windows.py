"""Windows, and how records are assigned to them.

Times are milliseconds since 1970, spans milliseconds; the calls take ``Time`` or ``Duration``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.errors import GraphError

if TYPE_CHECKING:
    from tidegate.model.duration import Duration, Time

_LONG_MAX: Final = 2**63 - 1


class Window:
    """A bounded part of a stream, for each key."""

    __slots__ = ()

    def max_timestamp(self) -> int:
        """Largest event time that still belongs to the window."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, order=True)
class TimeWindow(Window):
    """The event times from start (inclusive) to end (exclusive), milliseconds.

    >>> TimeWindow(0, 10_000).max_timestamp()
    9999
    """

    start: int
    end: int

    def max_timestamp(self) -> int:
        """The millisecond before the end."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether they overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Start of the window of that size in which the timestamp lies; right below 0 too."""
        return timestamp - (timestamp - offset) % window_size


@dataclass(frozen=True, slots=True, order=True)
class CountWindow(Window):
    """A window of so many records, known by its number."""

    id: int

    def max_timestamp(self) -> int:
        """The largest timestamp: event time does not end it."""
        return _LONG_MAX


@dataclass(frozen=True, slots=True)
class GlobalWindow(Window):
    """The one window that holds all of a key; any two are equal."""

    @staticmethod
    def get() -> GlobalWindow:
        """The window."""
        return GlobalWindow()

    def max_timestamp(self) -> int:
        """The largest timestamp: it never ends."""
        return _LONG_MAX


@dataclass(frozen=True, slots=True)
class TumblingEventTimeWindows:
    """Windows of one size in event time, side by side.

    >>> TumblingEventTimeWindows.of(Time.seconds(10))
    """

    size_ms: int
    offset_ms: int = 0

    @staticmethod
    def of(
        size: Time | Duration, offset: Time | Duration | None = None
    ) -> TumblingEventTimeWindows:
        """Windows of that size, which start at multiples of it, shifted by the offset.

        Raises GraphError for a size below 1 ms or an offset that is not smaller than the size.
        """
        _, size_ms, offset_ms = _checked("TumblingEventTimeWindows", size, size, offset)
        return TumblingEventTimeWindows(size_ms, offset_ms)

    @property
    def slide_ms(self) -> int:
        """From the start of a window to that of the next."""
        return self.size_ms


@dataclass(frozen=True, slots=True)
class SlidingEventTimeWindows:
    """Windows of one size in event time, one starting each slide.

    A slide that exceeds the size leaves gaps: records between windows are in none.

    >>> SlidingEventTimeWindows.of(Time.minutes(1), Time.seconds(10))
    """

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    @staticmethod
    def of(
        size: Time | Duration, slide: Time | Duration, offset: Time | Duration | None = None
    ) -> SlidingEventTimeWindows:
        """Windows of that size, which start at multiples of the slide, shifted by the offset.

        Raises GraphError for a size or slide below 1 ms or an offset not smaller than the slide.
        """
        return SlidingEventTimeWindows(*_checked("SlidingEventTimeWindows", size, slide, offset))


def _checked(
    where: str, size: Time | Duration, slide: Time | Duration, offset: Time | Duration | None
) -> tuple[int, int, int]:
    size_ms, slide_ms = size.to_millis(), slide.to_millis()
    offset_ms = 0 if offset is None else offset.to_millis()
    if size_ms < 1 or slide_ms < 1 or abs(offset_ms) >= slide_ms:
        raise GraphError(
            f"Windows of {size_ms} ms each {slide_ms} ms with an offset of {offset_ms} ms can't be",
            where=where,
            remedy="Give a size and a slide of 1 ms or more, and an offset smaller than the slide.",
        )
    return size_ms, slide_ms, offset_ms

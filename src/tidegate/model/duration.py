"""Lengths of time, and points in it, as users write them, under PyFlink's names."""

from __future__ import annotations

from flinkformat.frozen import frozen


@frozen(order=True)
class Duration:
    """A length of time; equal by length."""

    nanos: int

    @staticmethod
    def of_days(days: int) -> Duration:
        """A duration of this many days of 24 hours."""
        return Duration.of_hours(24 * days)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """A duration of this many hours."""
        return Duration.of_minutes(60 * hours)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """A duration of this many minutes."""
        return Duration.of_seconds(60 * minutes)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """A duration of this many seconds."""
        return Duration.of_millis(1_000 * seconds)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """A duration of this many milliseconds."""
        return Duration(1_000_000 * millis)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """A duration of this many nanoseconds."""
        return Duration(nanos)

    def to_millis(self) -> int:
        """Whole milliseconds, rounded down."""
        return self.nanos // 1_000_000


@frozen(order=True)
class Time:
    """A span in milliseconds, as windows, time-to-live and timeouts take it."""

    span_ms: int

    def __init__(self, milliseconds: int) -> None:
        object.__setattr__(self, "span_ms", milliseconds)

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """A span of this many milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """A span of this many seconds."""
        return Time(1_000 * seconds)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """A span of this many minutes."""
        return Time.seconds(60 * minutes)

    @staticmethod
    def hours(hours: int) -> Time:
        """A span of this many hours."""
        return Time.minutes(60 * hours)

    @staticmethod
    def days(days: int) -> Time:
        """A span of this many days of 24 hours."""
        return Time.hours(24 * days)

    def to_milliseconds(self) -> int:
        """The span in milliseconds."""
        return self.span_ms

    def to_millis(self) -> int:
        """The span in milliseconds."""
        return self.span_ms


@frozen(order=True)
class Instant:
    """A point in time: whole seconds since 1970 in UTC, and nanoseconds of that second.

    >>> Instant.of_epoch_milli(1_500)
    Instant(seconds=1, nanos=500000000)
    """

    seconds: int
    nanos: int = 0

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """The instant this many milliseconds after 1970-01-01 UTC; negative means before."""
        seconds, millis = divmod(epoch_milli, 1_000)
        return Instant(seconds, 1_000_000 * millis)

    def to_epoch_milli(self) -> int:
        """Whole milliseconds since 1970, rounded down."""
        return 1_000 * self.seconds + self.nanos // 1_000_000

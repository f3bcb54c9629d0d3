"""Event time: the timestamps of records, and watermarks drawn from them.

Names are PyFlink's; ``WatermarkGenerator`` is that of Flink's Java API.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from flinkformat.frozen import frozen
from tidegate.config.spans import Span, span_ms
from tidegate.errors import ConfigError, GraphError
from tidegate.model.duration import Duration

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T", contravariant=True)

UPDATE_INTERVAL: Final = Duration.of_seconds(1)
"""How often the sources of an alignment group hear from one another, unless it is said."""


class TimestampAssigner(ABC, Generic[T]):
    """Extracts the event time of a record."""

    @abstractmethod
    def extract_timestamp(self, value: T, record_timestamp: int, /) -> int:
        """Event time in milliseconds. record_timestamp: its former one, or ``MIN_TIMESTAMP_MS``."""


class WatermarkOutput(Protocol):
    """Receives the watermarks of a generator, which take effect at once."""

    def emit_watermark(self, timestamp: int) -> None:
        """Promises that no record at or before this time, in milliseconds, will come.

        One that is not above all before it is passed over.
        """
        ...

    def mark_idle(self) -> None:
        """Marks the stream as idle: readers don't wait for its event time until it is active."""
        ...

    def mark_active(self) -> None:
        """Ends ``mark_idle``; a higher watermark does so too."""
        ...


class WatermarkGenerator(ABC, Generic[T]):
    """Makes watermarks from records; each subtask has its own, which starts again after a restore.

    >>> class EachRecord(WatermarkGenerator[object]):
    ...     def on_event(self, value, timestamp, output):
    ...         output.emit_watermark(timestamp)
    >>> WatermarkStrategy.for_generator(EachRecord)
    """

    @abstractmethod
    def on_event(self, value: T, timestamp: int, output: WatermarkOutput) -> None:
        """Sees a record. timestamp: its event time; ``MIN_TIMESTAMP_MS`` for none."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called every ``pipeline.auto-watermark-interval``, first after one; not while idle."""


Assigner = TimestampAssigner[Any] | Callable[[Any, int], int] | str
"""How records get their timestamps: an object, a function of the same arguments, or a column."""


@frozen
class WatermarkAlignment:
    """Bound on how far sources of a group drift apart. See ``with_watermark_alignment``."""

    group: str
    drift_ms: int
    update_ms: int


@frozen(repr=False)
class WatermarkStrategy:
    """Event time of records, and how late they may come.

    A value: each ``with_`` gives a new one. lateness_ms: how far a record may lie behind the
    greatest timestamp so far. supplier: makes the generator of each subtask. If both are None,
    there are no watermarks but the last one.

    >>> WatermarkStrategy.for_bounded_out_of_orderness(
    ...     Duration.of_seconds(5)
    ... ).with_timestamp_assigner("time").with_idleness(Duration.of_minutes(1))
    """

    lateness_ms: int | None = None
    supplier: Callable[[], WatermarkGenerator[Any]] | None = None
    assigner: Assigner | None = None
    idle_ms: int | None = None
    alignment: WatermarkAlignment | None = None

    def __repr__(self) -> str:
        if self.supplier is not None:
            calls = [f"for_generator({_called(self.supplier)})"]
        elif self.lateness_ms is None:
            calls = ["no_watermarks()"]
        elif self.lateness_ms == 0:
            calls = ["for_monotonous_timestamps()"]
        else:
            calls = [f"for_bounded_out_of_orderness('{self.lateness_ms} ms')"]
        if self.assigner is not None:
            calls.append(f"with_timestamp_assigner({_called(self.assigner)})")
        if self.idle_ms is not None:
            calls.append(f"with_idleness('{self.idle_ms} ms')")
        if self.alignment is not None:
            group = self.alignment
            calls.append(
                f"with_watermark_alignment({group.group!r}, '{group.drift_ms} ms', "
                f"'{group.update_ms} ms')"
            )
        return ".".join(["WatermarkStrategy", *calls])

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Gives no watermarks but the one at the end of a bounded input."""
        return WatermarkStrategy()

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """For timestamps that never go back: the watermark is the greatest one, less 1 ms."""
        return WatermarkStrategy(lateness_ms=0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Span) -> WatermarkStrategy:
        """For timestamps that go back by at most this much, by which the watermark is delayed.

        Raises ConfigError for what is no length of time, or a negative one.
        """
        call = "for_bounded_out_of_orderness"
        return WatermarkStrategy(lateness_ms=_millis(max_out_of_orderness, call, least=0))

    @staticmethod
    def for_generator(supplier: Callable[[], WatermarkGenerator[Any]]) -> WatermarkStrategy:
        """Takes watermarks from a user's generator.

        supplier: called once in each subtask; the generator's class will do. Raises GraphError
        where it cannot be called.
        """
        if not callable(supplier):
            raise GraphError(
                f"for_generator takes a function that makes a generator, not {_kind(supplier)}",
                where="WatermarkStrategy.for_generator",
                remedy="Pass the generator's class, or a function without arguments.",
            )
        return WatermarkStrategy(supplier=supplier)

    def with_timestamp_assigner(self, timestamp_assigner: Assigner) -> Self:
        """A copy with this way to extract timestamps.

        timestamp_assigner: an assigner, a function of the same arguments, or the name of a column.
        A column holds milliseconds since 1970 or times; it is read of Arrow batches as they are,
        and of records under its name; times without a zone are in UTC. Raises GraphError for
        anything else.
        """
        given: object = timestamp_assigner
        fits = isinstance(given, TimestampAssigner | str) or callable(given)
        if not fits or isinstance(given, type):
            raise GraphError(
                f"with_timestamp_assigner takes an assigner, not {_kind(given)}",
                where="WatermarkStrategy.with_timestamp_assigner",
                remedy="Pass a TimestampAssigner object, a function of (value, timestamp), or the "
                "name of a column.",
            )
        return replace(self, assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Span) -> Self:
        """A copy in which an input without records for this long no longer holds event time back.

        It counts again with its next record. Idleness is checked once in
        ``pipeline.auto-watermark-interval``. Raises ConfigError for less than 1 ms.
        """
        return replace(self, idle_ms=_millis(idle_timeout, "with_idleness", least=1))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Span,
        update_interval: Span | None = None,
    ) -> Self:
        """A copy in which a source that is too far ahead of its group's slowest waits for it.

        watermark_group: a name; all readers of all sources of the job with this name are one group.
        max_allowed_watermark_drift: how far ahead a reader may be. update_interval: how often the
        group's least watermark is told; each second where it is not given. Readers that are idle,
        have ended, or have no watermark yet do not count. Raises ConfigError for arguments that
        cannot be, and for a strategy without watermarks.
        """
        call = "with_watermark_alignment"
        _check_group(watermark_group, call)
        if self.lateness_ms is None and self.supplier is None:
            raise ConfigError(
                "A source without watermarks cannot be aligned with others",
                where=f"WatermarkStrategy.{call}, group '{watermark_group}'",
                remedy="Begin with for_monotonous_timestamps, for_bounded_out_of_orderness or "
                "for_generator.",
            )
        drift_ms = _millis(max_allowed_watermark_drift, call, least=0)
        interval = UPDATE_INTERVAL if update_interval is None else update_interval
        update_ms = _millis(interval, call, least=1)
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift_ms, update_ms))


def _called(function: object) -> str:
    return getattr(function, "__name__", None) or repr(function)


def _check_group(given: object, call: str) -> None:
    if not isinstance(given, str) or not given:
        raise ConfigError(
            f"The watermark group is {given!r}, not a name",
            where=f"WatermarkStrategy.{call}",
            remedy="Give all sources of the group one text.",
        )


def _millis(given: object, call: str, *, least: int) -> int:
    where = f"WatermarkStrategy.{call}"
    try:
        millis = span_ms(given)
    except ValueError:
        raise ConfigError(
            f"{call} takes a Duration, not {_kind(given)}",
            where=where,
            remedy="Write for example Duration.of_seconds(5), timedelta(seconds=5), '5 s', or "
            "whole milliseconds.",
        ) from None
    if millis < least:
        raise ConfigError(
            f"{call} was given {millis} ms", where=where, remedy=f"Give {least} ms or more."
        )
    return millis


def _kind(given: object) -> str:
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__

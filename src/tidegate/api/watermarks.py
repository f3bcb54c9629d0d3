"""Event time at the sources: timestamps of records, and watermarks drawn from them.

Names are PyFlink's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from tidegate.model.elements import MIN_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.model.duration import Duration

T = TypeVar("T", contravariant=True)


class TimestampAssigner(ABC, Generic[T]):
    """Finds the event time of a record."""

    @abstractmethod
    def extract_timestamp(self, value: T, record_timestamp: int) -> int:
        """Milliseconds. record_timestamp: what the record had; ``MIN_TIMESTAMP_MS`` for nothing."""


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """How a source's records get event time, and how late they may come.

    A value: each ``with_`` gives a new one. lateness_ms: how far a record may lie behind the
    greatest timestamp so far; None for no watermarks but the last one.
    """

    lateness_ms: int | None = None
    assigner: TimestampAssigner[object] | Callable[[object, int], int] | None = None
    idle_ms: int | None = None

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """None but the one at the end of a bounded input."""
        return WatermarkStrategy()

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never go back."""
        return WatermarkStrategy(lateness_ms=0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Timestamps go back by at most this much."""
        return WatermarkStrategy(lateness_ms=max_out_of_orderness.to_millis())

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner[object] | Callable[[object, int], int]
    ) -> WatermarkStrategy:
        """With this way to find timestamps: an assigner, or a function of the same arguments."""
        return replace(self, assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Without records for this long, the source no longer holds back event time."""
        return replace(self, idle_ms=idle_timeout.to_millis())


class WatermarkTracker:
    """One subtask's watermark: the greatest timestamp, less the lateness, less 1 ms."""

    def __init__(self, lateness_ms: int) -> None:
        self._lateness_ms = lateness_ms
        self._greatest: int | None = None
        self._emitted = MIN_TIMESTAMP_MS

    def saw(self, timestamp_ms: int) -> None:
        """A batch came; timestamp_ms: its greatest."""
        if self._greatest is None or timestamp_ms > self._greatest:
            self._greatest = timestamp_ms

    def advance(self) -> int | None:
        """The watermark to emit now; None where it has not advanced."""
        if self._greatest is None:
            return None
        watermark = max(self._greatest - self._lateness_ms - 1, MIN_TIMESTAMP_MS)
        if watermark <= self._emitted:
            return None
        self._emitted = watermark
        return watermark

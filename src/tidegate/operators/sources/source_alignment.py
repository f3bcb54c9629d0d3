"""Watermark alignment: the readers of a group, of one source or several, keep near one another.

Each reader tells its source's coordinator how far its event time has come; each coordinator tells
its readers how far they may go: a bounded drift ahead of the group's least. A reader that is
further rests. The least of them never rests for long: whoever rests has told its place, so the next
announcement lets it go on. Nothing here is part of a snapshot.

Source: Flink, FLIP-182.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.model.elements import MAX_WATERMARK_MS, OperatorEvent
from tidegate.operators.sources.split_events import WatermarkAllowed, WatermarkReached

if TYPE_CHECKING:
    from tidegate.api.coordinator import CoordinatorContext
    from tidegate.api.operator import OperatorContext
    from tidegate.api.watermarks import WatermarkAlignment


class AlignmentGroup:
    """Progress of all readers of a group's sources; readers that don't count are missing."""

    def __init__(self) -> None:
        self._reached: dict[tuple[SourceAlignment, int], int] = {}

    def reached(self, source: SourceAlignment, subtask: int, ms: int | None) -> None:
        """Records a reader's progress; None if it does not count."""
        if ms is None:
            self._reached.pop((source, subtask), None)
        else:
            self._reached[source, subtask] = ms

    def allowed(self, drift_ms: int) -> int:
        """Limit for a reader that may be ahead by this much; unbounded if it is alone."""
        if len(self._reached) < 2:
            return MAX_WATERMARK_MS
        return min(min(self._reached.values()) + drift_ms, MAX_WATERMARK_MS)


class SourceAlignment:
    """The part of one source's coordinator in its group."""

    def __init__(self, alignment: WatermarkAlignment, context: CoordinatorContext) -> None:
        name = f"watermark alignment group {alignment.group}"
        self._group = context.shared(name, AlignmentGroup)
        self._drift_ms = alignment.drift_ms
        self._update_ms = alignment.update_ms
        self._context = context
        self._told: dict[int, int] = {}

    def start(self) -> None:
        self._context.call_later(self._update_ms, self._announce)

    def reader_ready(self, subtask: int) -> None:
        """A reader runs, without a limit yet."""
        self._told[subtask] = MAX_WATERMARK_MS

    def reader_reset(self, subtask: int) -> None:
        self._told.pop(subtask, None)
        self._group.reached(self, subtask, None)

    def reached(self, subtask: int, ms: int | None) -> None:
        """A reader reports its progress."""
        self._group.reached(self, subtask, ms)

    def _announce(self) -> None:
        allowed = self._group.allowed(self._drift_ms)
        for subtask, told in self._told.items():
            if told != allowed:
                self._told[subtask] = allowed
                self._context.send(subtask, OperatorEvent(WatermarkAllowed(allowed)))
        self._context.call_later(self._update_ms, self._announce)


class ReaderAlignment:
    """One reader's part in its group.

    Its source asks ``rests`` at each poll, with the watermark that its records allow.
    """

    def __init__(self, alignment: WatermarkAlignment, context: OperatorContext) -> None:
        self._context = context
        self._update_ms = alignment.update_ms
        self._allowed_ms = MAX_WATERMARK_MS
        self._resting = False
        self._told: int | None = None
        self._due_ms = 0
        self._arm()

    def allow(self, ms: int) -> None:
        """Sets the watermark beyond which not to read."""
        self._allowed_ms = ms

    def rests(self, position_ms: int | None) -> bool:
        """True if the reader is too far ahead. position_ms: None if it does not count.

        Its place is told once in the update interval, and at once where others may wait for it.
        """
        resting = position_ms is not None and position_ms > self._allowed_ms
        due = self._context.time.monotonic_ms() >= self._due_ms
        stopped = position_ms is None and self._told is not None
        if due or stopped or (resting and not self._resting):
            self._tell(position_ms)
        self._resting = resting
        return resting

    def end(self) -> None:
        self._tell(None)

    def _tell(self, position_ms: int | None) -> None:
        self._told = position_ms
        self._context.tasks.to_coordinator(OperatorEvent(WatermarkReached(position_ms)))
        self._arm()

    def _arm(self) -> None:
        self._due_ms = self._context.time.monotonic_ms() + self._update_ms
        self._context.time.wake_at(self._due_ms)

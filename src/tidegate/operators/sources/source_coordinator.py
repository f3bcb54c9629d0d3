"""The driver-side half of a source: hosts the enumerator and knows who was given what.

No split is lost or read twice: at each moment a split is in exactly one of the enumerator, the
assignments after the last completed checkpoint, and the readers' checkpointed state. A split that
is assigned before this coordinator's snapshot reaches its reader before the barrier does; one that
is assigned after it is held back until the reader has taken its snapshot (the gateway's work), so
the snapshots of both sides always fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.api import ship
from tidegate.errors import GraphError
from tidegate.model.elements import MAX_WATERMARK_MS, OperatorEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.coordinator import CoordinatorContext
    from tidegate.api.operator import OperatorContext
    from tidegate.api.source import Source, SplitEnumerator
    from tidegate.api.watermarks import WatermarkAlignment
    from tidegate.model.ids import CheckpointId


@frozen
class SplitsWanted:
    """Reader to coordinator: no splits are left to read."""


@frozen
class SplitsAssigned:
    """Coordinator to reader: read these too."""

    splits: tuple[bytes, ...]


@frozen
class NoMoreSplits:
    """Coordinator to reader: all splits have been assigned."""


@frozen
class WatermarkReached:
    """Reader to coordinator, of an alignment group: how far its event time has come.

    ms: None if it does not count: it is idle, has ended, or has no watermark yet.
    """

    ms: int | None


@frozen
class WatermarkAllowed:
    """Coordinator to reader, of an alignment group: read no further than this watermark."""

    ms: int


class AlignmentGroup:
    """Progress of all readers of a group's sources; readers that don't count are missing."""

    def __init__(self) -> None:
        self._reached: dict[tuple[SourceAlignment, int], int] = {}

    def reached(self, source: SourceAlignment, subtask: int, ms: int | None) -> None:
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
        self._told[subtask] = MAX_WATERMARK_MS

    def reader_reset(self, subtask: int) -> None:
        self._told.pop(subtask, None)
        self._group.reached(self, subtask, None)

    def reached(self, subtask: int, ms: int | None) -> None:
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


class SourceCoordinator:
    """The ``OperatorCoordinator`` around a source's enumerator."""

    def __init__(
        self,
        source: Source[object],
        context: CoordinatorContext,
        name: str,
        alignment: WatermarkAlignment | None = None,
    ) -> None:
        self._source = source
        self._context = context
        self._name = name
        self._tracker = AssignmentTracker()
        self._ready: set[int] = set()
        self._asked: set[int] = set()
        self._exhausted: set[int] = set()
        self._enumerator: SplitEnumerator[object] | None = None
        self._alignment = None if alignment is None else SourceAlignment(alignment, context)

    def start(self, checkpoint: CheckpointId | None, data: bytes | None) -> None:
        self._enumerator = self.enumerator(data)
        self._enumerator.start()
        if self._alignment is not None:
            self._alignment.start()

    def enumerator(self, data: bytes | None) -> SplitEnumerator[object]:
        """A new enumerator, which has not begun to look. data: of a checkpoint, or None.

        Raises what the source raises, RestoreRefused for what another source has written.
        """
        return self._source.enumerator(_EnumeratorContext(self, self._context), data)

    def subtask_ready(self, subtask: int) -> None:
        self._ready.add(subtask)
        if self._alignment is not None:
            self._alignment.reader_ready(subtask)
        self._running.reader_ready(subtask)
        if subtask in self._exhausted:
            self._send(subtask, NoMoreSplits())
        if subtask in self._asked:
            self._asked.remove(subtask)
            self._running.split_requested(subtask)

    def subtask_reset(self, subtask: int, checkpoint: CheckpointId | None) -> None:
        self._ready.discard(subtask)
        self._asked.discard(subtask)
        self._exhausted.discard(subtask)
        if self._alignment is not None:
            self._alignment.reader_reset(subtask)
        self._running.add_back(subtask, self._tracker.take_back(subtask, checkpoint))

    def on_event(self, subtask: int, event: OperatorEvent) -> None:
        match event.payload:
            case SplitsWanted():
                if subtask in self._ready:
                    self._running.split_requested(subtask)
                else:
                    self._asked.add(subtask)
            case WatermarkReached(ms):
                assert self._alignment is not None, "only readers of a group tell"
                self._alignment.reached(subtask, ms)
            case other:
                raise AssertionError(f"no event of a reader: {other!r}")

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        data = self._running.snapshot(checkpoint)
        self._tracker.cut(checkpoint)
        return data

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """Splits assigned before the checkpoint now belong to the readers for good."""
        self._tracker.forget(checkpoint)
        self._running.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        """Does nothing: the next checkpoint covers the same assignments."""

    def close(self) -> None:
        if self._enumerator is not None:
            self._enumerator.close()

    @property
    def _running(self) -> SplitEnumerator[object]:
        assert self._enumerator is not None, "a coordinator is started before anything else"
        return self._enumerator

    def assign(self, subtask: int, splits: Sequence[object]) -> None:
        if subtask not in self._ready:
            raise GraphError(
                f"the enumerator of source '{self._name}' assigns splits to reader {subtask}, "
                "which is not ready",
                where=f"source '{self._name}'",
                remedy="Assign in `reader_ready`, or when the reader asks.",
            )
        if splits:
            self._tracker.assigned(subtask, splits)
            shipped = tuple(ship.dumps(split, name=self._name) for split in splits)
            self._send(subtask, SplitsAssigned(shipped))

    def no_more_splits(self, subtask: int) -> None:
        self._exhausted.add(subtask)
        if subtask in self._ready:
            self._send(subtask, NoMoreSplits())

    def _send(self, subtask: int, payload: object) -> None:
        self._context.send(subtask, OperatorEvent(payload))


class AssignmentTracker:
    """Remembers which splits were assigned to whom since each checkpoint."""

    def __init__(self) -> None:
        self._since: dict[int, list[object]] = {}
        self._cuts: dict[int, dict[int, list[object]]] = {}

    def assigned(self, subtask: int, splits: Sequence[object]) -> None:
        self._since.setdefault(subtask, []).extend(splits)

    def cut(self, checkpoint: CheckpointId) -> None:
        self._cuts[checkpoint] = self._since
        self._since = {}

    def forget(self, checkpoint: CheckpointId) -> None:
        for cut in [cut for cut in self._cuts if cut <= checkpoint]:
            del self._cuts[cut]

    def take_back(self, subtask: int, checkpoint: CheckpointId | None) -> list[object]:
        """Removes and returns a subtask's assignments after that checkpoint, oldest first."""
        splits: list[object] = []
        for cut, given in sorted(self._cuts.items()):
            if checkpoint is None or cut > checkpoint:
                splits.extend(given.pop(subtask, []))
        splits.extend(self._since.pop(subtask, []))
        return splits


class _EnumeratorContext:
    def __init__(self, coordinator: SourceCoordinator, context: CoordinatorContext) -> None:
        self.parallelism = context.parallelism
        self.staged = context.staged
        self.goes_on = context.goes_on
        self.assign = coordinator.assign
        self.no_more_splits = coordinator.no_more_splits
        self.run_blocking = context.run_blocking
        self.call_later = context.call_later
        self._report_backlog = context.report_backlog
        self.fail = context.fail

    def set_is_processing_backlog(self, is_processing_backlog: bool) -> None:
        self._report_backlog(is_processing_backlog)

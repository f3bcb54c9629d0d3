"""Figures of checkpoints: counts, history, summary, and each subtask's share.

The tracker is told what happens and makes frozen values of it, which the REST pages and metrics
read. Times are wall clock milliseconds, −1 where there is none yet; sizes are bytes.

Source: checkpoint coordination §12.1, REST §4.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from flinkformat.snapshots import SavepointType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flinkformat.snapshots import CheckpointProperties, SavepointFormatType, SubtaskState
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.checkpoint.coordinator.requests import Request
    from tidegate.model.control import CheckpointAcknowledged
    from tidegate.model.elements import SnapshotKind
    from tidegate.model.failure_reason import FailureReason
    from tidegate.model.ids import CheckpointId, OperatorId, VertexId
    from tidegate.model.topology import Topology

SUMMARY_WINDOW: Final = 10_000
"""Completed checkpoints that percentiles look back on."""


class CheckpointStatus(Enum):
    """Progress of a checkpoint; names as in Flink."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class CheckpointKind(Enum):
    """Types of checkpoints in figures; names as on Flink's pages."""

    CHECKPOINT = "CHECKPOINT"
    UNALIGNED_CHECKPOINT = "UNALIGNED_CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"
    SYNC_SAVEPOINT = "SYNC_SAVEPOINT"


@frozen
class Distribution:
    """Distribution of a figure: minimum, maximum, mean and percentiles; None if not kept."""

    count: int = 0
    min: int = 0
    max: int = 0
    avg: int = 0
    percentiles: Mapping[float, float] | None = None


@frozen
class SubtaskStatistics:
    """Figures reported by one subtask. ack_delay_ms: from the trigger to its acknowledgement."""

    index: int
    ack_ms: int
    ack_delay_ms: int
    state_size: int
    checkpointed_size: int
    sync_ms: int
    async_ms: int
    processed_bytes: int
    persisted_bytes: int
    alignment_ms: int
    start_delay_ms: int
    unaligned: bool


@frozen
class VertexStatistics:
    """One vertex's share of a checkpoint. subtasks: by index, None if nothing came yet."""

    vertex: VertexId
    subtasks: tuple[SubtaskStatistics | None, ...]

    @property
    def acknowledged(self) -> tuple[SubtaskStatistics, ...]:
        return tuple(subtask for subtask in self.subtasks if subtask is not None)

    @property
    def latest_ack_ms(self) -> int:
        return max((subtask.ack_ms for subtask in self.acknowledged), default=-1)

    def total(self, figure: Callable[[SubtaskStatistics], int]) -> int:
        return sum(map(figure, self.acknowledged))

    def distribution(self, figure: Callable[[SubtaskStatistics], int]) -> Distribution:
        """Spread of a figure over the subtasks, without percentiles."""
        return _distribution([figure(subtask) for subtask in self.acknowledged])


@frozen(kw_only=True)
class CheckpointStatistics:
    """One checkpoint.

    duration_ms: from the trigger to the last acknowledgement, of a failed one to its failure; −1
    before the first acknowledgement. checkpointed_size: bytes written anew. pointer: None before
    completion. reason, failure, failed_at: of a failed one why, its message with the cause, and
    the name of the subtask at which it failed, "" for none; ``reason.remedy`` says what to do.
    """

    checkpoint: CheckpointId
    kind: SnapshotKind
    properties: CheckpointProperties
    status: CheckpointStatus
    trigger_ms: int
    vertices: tuple[VertexStatistics, ...]
    state_size: int = 0
    checkpointed_size: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0
    unaligned: bool = False
    subtasks: int = 0
    acknowledged: int = 0
    latest_ack_ms: int = -1
    duration_ms: int = -1
    metadata_size: int = 0
    pointer: str | None = None
    discarded: bool = False
    failed_ms: int = -1
    reason: FailureReason | None = None
    failure: str | None = None
    failed_at: str = ""

    @property
    def type(self) -> CheckpointKind:
        """Its type; a checkpoint is an unaligned one where the share of a subtask is."""
        if self.kind.is_savepoint:
            synchronous = self.kind.is_synchronous
            return CheckpointKind.SYNC_SAVEPOINT if synchronous else CheckpointKind.SAVEPOINT
        return CheckpointKind.UNALIGNED_CHECKPOINT if self.unaligned else CheckpointKind.CHECKPOINT

    @property
    def savepoint_format(self) -> SavepointFormatType | None:
        kind = self.properties.snapshot_type
        return kind.format if isinstance(kind, SavepointType) else None

    @property
    def last_share(self) -> tuple[VertexId, SubtaskStatistics] | None:
        """The share that came last, and its vertex; None before the first."""
        shares = ((each.vertex, share) for each in self.vertices for share in each.acknowledged)
        return max(shares, key=lambda each: each[1].ack_delay_ms, default=None)

    def vertex(self, vertex: VertexId) -> VertexStatistics | None:
        """The share of one vertex, if it is in the job."""
        return next((v for v in self.vertices if v.vertex == vertex), None)


@frozen
class RestoredStatistics:
    """The latest restore. restored_ms: when; pointer: from what."""

    checkpoint: CheckpointId
    restored_ms: int
    savepoint: bool
    pointer: str | None
    state_size: int


@frozen
class Counts:
    """How many there were since the job master started. total: triggered."""

    restored: int = 0
    total: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0


@frozen
class Summary:
    """Spread of figures over the latest completed checkpoints, with percentiles.

    Its fields are named as in CheckpointStatistics.
    """

    checkpointed_size: Distribution
    state_size: Distribution
    duration_ms: Distribution
    processed_bytes: Distribution
    persisted_bytes: Distribution


@frozen
class StatisticsView:
    """All figures at one moment. history: newest first; latest_…: outlive the history.

    backlog: sources that say that they catch up.
    """

    counts: Counts
    summary: Summary
    history: tuple[CheckpointStatistics, ...]
    latest_completed: CheckpointStatistics | None
    latest_savepoint: CheckpointStatistics | None
    latest_failed: CheckpointStatistics | None
    latest_restored: RestoredStatistics | None
    backlog: tuple[OperatorId, ...] = ()

    def find(self, checkpoint: CheckpointId) -> CheckpointStatistics | None:
        latest = (self.latest_completed, self.latest_savepoint, self.latest_failed)
        known = (*self.history, *(one for one in latest if one is not None))
        return next((one for one in known if one.checkpoint == checkpoint), None)


PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(slots=True)
class _Progress:
    """A checkpoint under way, as far as figures go."""

    checkpoint: CheckpointId
    request: Request
    triggered_ms: int
    begun_ms: int
    subtasks: dict[VertexId, list[SubtaskStatistics | None]]


class StatisticsTracker:
    """Is told what happens to checkpoints, and shows it as frozen values.

    history_max: checkpoints kept in the history; 0 keeps counts alone.
    """

    def __init__(self, history_max: int) -> None:
        self._counts = Counts()
        self._progress: dict[CheckpointId, _Progress] = {}
        self._history_max = max(history_max, 0)
        # Final versions, and None for each that is still under way; oldest first.
        self._history: dict[CheckpointId, CheckpointStatistics | None] = {}
        # Numbers alone: whole statistics of so many checkpoints would be megabytes of a long job.
        self._completed = {each.name: array("q") for each in fields(Summary)}
        self._latest_completed: CheckpointStatistics | None = None
        self._latest_savepoint: CheckpointStatistics | None = None
        self._latest_failed: CheckpointStatistics | None = None
        self._latest_restored: RestoredStatistics | None = None
        self._summary: Summary | None = None

    def triggered(
        self,
        checkpoint: CheckpointId,
        request: Request,
        topology: Topology,
        *,
        triggered_ms: int,
        begun_ms: int,
    ) -> None:
        """A checkpoint is under way since then, on the wall clock and on the monotonic one."""
        assert checkpoint not in self._progress, "a checkpoint is triggered once"
        counts = self._counts
        self._count(total=counts.total + 1, in_progress=counts.in_progress + 1)
        subtasks: dict[VertexId, list[SubtaskStatistics | None]] = {
            vertex.id: [None] * vertex.parallelism for vertex in topology.vertices
        }
        progress = _Progress(checkpoint, request, triggered_ms, begun_ms, subtasks)
        self._progress[checkpoint] = progress
        self._history[checkpoint] = None
        while len(self._history) > self._history_max:
            del self._history[next(iter(self._history))]

    def acknowledged(self, message: CheckpointAcknowledged, now_ms: int) -> None:
        progress = self._progress[message.checkpoint]
        subtask = message.execution.subtask
        figures = message.figures
        delay_ms = now_ms - progress.begun_ms
        progress.subtasks[subtask.vertex][subtask.index] = SubtaskStatistics(
            index=subtask.index,
            ack_ms=progress.triggered_ms + delay_ms,
            ack_delay_ms=delay_ms,
            state_size=_size(message.state.values() if message.state is not None else ()),
            checkpointed_size=figures.bytes_written,
            sync_ms=figures.sync_ms,
            async_ms=figures.async_ms,
            processed_bytes=figures.processed_bytes,
            persisted_bytes=figures.persisted_bytes,
            alignment_ms=figures.alignment_ms,
            start_delay_ms=figures.start_delay_ms,
            unaligned=figures.unaligned,
        )

    def completed(
        self, checkpoint: CheckpointId, pointer: str, written_bytes: int, metadata_size: int
    ) -> CheckpointStatistics:
        """A checkpoint is complete; its final figures. Its size is that of its subtasks' state."""
        progress = self._progress.pop(checkpoint)
        final = replace(
            _figures(progress),
            status=CheckpointStatus.COMPLETED,
            checkpointed_size=written_bytes,
            metadata_size=metadata_size,
            pointer=pointer,
        )
        counts = self._counts
        self._count(in_progress=counts.in_progress - 1, completed=counts.completed + 1)
        if final.properties.is_savepoint:
            self._latest_savepoint = final
        else:
            self._latest_completed = final
        for figure, values in self._completed.items():
            values.append(getattr(final, figure))
            del values[:-SUMMARY_WINDOW]
        self._summary = None
        self._keep(final)
        return final

    def failed(
        self, checkpoint: CheckpointId, reason: FailureReason, told: str, where: str, now_ms: int
    ) -> CheckpointStatistics:
        """A checkpoint under way has failed; its final figures.

        told: the reason's message and its cause. where: name of the subtask at which it failed.
        """
        progress = self._progress.pop(checkpoint)
        duration_ms = now_ms - progress.begun_ms
        final = replace(
            _figures(progress),
            status=CheckpointStatus.FAILED,
            duration_ms=duration_ms,
            failed_ms=progress.triggered_ms + duration_ms,
            reason=reason,
            failure=told,
            failed_at=where,
        )
        counts = self._counts
        self._count(in_progress=counts.in_progress - 1, failed=counts.failed + 1)
        self._latest_failed = final
        self._keep(final)
        return final

    def failed_before(self) -> None:
        """A request has failed before it had a checkpoint id."""
        counts = self._counts
        self._count(total=counts.total + 1, failed=counts.failed + 1)

    def discarded(self, checkpoint: CheckpointId) -> None:
        """A completed checkpoint has been given up for deletion."""
        known = self._history.get(checkpoint)
        if known is not None:
            self._keep(replace(known, discarded=True))
        if self._latest_completed is not None and self._latest_completed.checkpoint == checkpoint:
            self._latest_completed = replace(self._latest_completed, discarded=True)

    def restored(self, completed: CompletedCheckpoint, wall_ms: int) -> None:
        self._count(restored=self._counts.restored + 1)
        self._latest_restored = RestoredStatistics(
            completed.checkpoint,
            wall_ms,
            completed.is_savepoint,
            completed.pointer,
            completed.state_size,
        )

    def view(self) -> StatisticsView:
        if self._summary is None:
            self._summary = Summary(
                **{name: _distribution(each, PERCENTILES) for name, each in self._completed.items()}
            )
        history = [
            _figures(self._progress[checkpoint]) if final is None else final
            for checkpoint, final in self._history.items()
        ]
        return StatisticsView(
            counts=self._counts,
            summary=self._summary,
            history=tuple(reversed(history)),
            latest_completed=self._latest_completed,
            latest_savepoint=self._latest_savepoint,
            latest_failed=self._latest_failed,
            latest_restored=self._latest_restored,
        )

    def _count(self, **changed: int) -> None:
        now = self._counts = replace(self._counts, **changed)
        ended = now.completed + now.failed
        assert now.total == now.in_progress + ended, "a checkpoint ends in one way"
        assert now.in_progress == len(self._progress) or changed, "and is under way until then"

    def _keep(self, final: CheckpointStatistics) -> None:
        if final.checkpoint in self._history:
            self._history[final.checkpoint] = final


def _figures(progress: _Progress) -> CheckpointStatistics:
    vertices = tuple(
        VertexStatistics(vertex, tuple(subtasks)) for vertex, subtasks in progress.subtasks.items()
    )
    acknowledged = [subtask for vertex in vertices for subtask in vertex.acknowledged]
    return CheckpointStatistics(
        checkpoint=progress.checkpoint,
        kind=progress.request.kind,
        properties=progress.request.properties,
        status=CheckpointStatus.IN_PROGRESS,
        trigger_ms=progress.triggered_ms,
        vertices=vertices,
        state_size=sum(subtask.state_size for subtask in acknowledged),
        checkpointed_size=sum(subtask.checkpointed_size for subtask in acknowledged),
        processed_bytes=sum(subtask.processed_bytes for subtask in acknowledged),
        persisted_bytes=sum(subtask.persisted_bytes for subtask in acknowledged),
        unaligned=any(subtask.unaligned for subtask in acknowledged),
        subtasks=sum(len(vertex.subtasks) for vertex in vertices),
        acknowledged=len(acknowledged),
        latest_ack_ms=max((subtask.ack_ms for subtask in acknowledged), default=-1),
        duration_ms=max((subtask.ack_delay_ms for subtask in acknowledged), default=-1),
    )


def _size(states: Iterable[SubtaskState]) -> int:
    return sum(state.state_size for state in states)


def _distribution(values: Sequence[int], percentiles: tuple[float, ...] = ()) -> Distribution:
    if not values:
        return Distribution()
    ordered = sorted(values)
    return Distribution(
        count=len(ordered),
        min=ordered[0],
        max=ordered[-1],
        avg=sum(ordered) // len(ordered),
        percentiles={p: _percentile(ordered, p) for p in percentiles} or None,
    )


def _percentile(ordered: list[int], percentile: float) -> float:
    """By linear interpolation at percentile · (n + 1) / 100, as in Apache Commons Math.

    For percentiles from 50 on: below the first value none of them falls.
    """
    position = percentile * (len(ordered) + 1) / 100
    below = int(position)
    if below >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[below - 1], ordered[below]
    return low + (position - below) * (high - low)

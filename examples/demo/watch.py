"""From one view of a job to the next: what happened meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from examples.demo.news import (
    AllRunning,
    CheckpointBegun,
    CheckpointCompleted,
    CheckpointFailed,
    Failure,
    JobRestored,
    Progress,
    SlotGone,
    SlotUp,
    StatusChanged,
)
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.model.control import ExecutionState
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from examples.demo.news import News
    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.jobmaster.view import JobView
    from tidegate.model.control import JobStatus
    from tidegate.model.ids import CheckpointId, SlotId

_RUNNING_OR_DONE: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


class JobWatch:
    """Compares each view of one job with what the views before have shown."""

    def __init__(self) -> None:
        self._slots: dict[SlotId, int] = {}
        self._status: JobStatus | None = None
        self._status_since_ms = 0
        self._running_since_ms: int | None = None
        self._restored: tuple[int, CheckpointId] | None = None
        self._checkpoints: dict[CheckpointId, CheckpointStatus] = {}
        self._failures: set[tuple[int, str, str]] = set()
        self._rows = 0

    def look(self, view: JobView, now_ms: int) -> list[News]:
        return [
            *self._failures_in(view),
            *self._slots_in(view, now_ms),
            *self._status_in(view, now_ms),
            *self._restored_in(view, now_ms),
            *self._running_in(view),
            *self._checkpoints_in(view, now_ms),
            *self._progress_in(view, now_ms),
        ]

    def _failures_in(self, view: JobView) -> Iterator[News]:
        for failure in reversed(view.failures):
            known_by = failure.wall_ms, failure.task, failure.error
            if known_by not in self._failures:
                self._failures.add(known_by)
                yield Failure(failure.wall_ms, failure.error, failure.task)

    def _slots_in(self, view: JobView, now_ms: int) -> Iterator[News]:
        present = {slot.id for slot in view.slots}
        for gone in [slot for slot in self._slots if slot not in present]:
            yield SlotGone(now_ms, str(gone), self._slots.pop(gone))
        for slot in view.slots:
            if slot.id not in self._slots:
                self._slots[slot.id] = slot.pid
                yield SlotUp(now_ms, str(slot.id), slot.host, slot.pid)

    def _status_in(self, view: JobView, now_ms: int) -> Iterator[News]:
        since_ms = view.timestamps_ms.get(view.status, now_ms)
        if view.status is not self._status or since_ms != self._status_since_ms:
            self._status, self._status_since_ms = view.status, since_ms
            yield StatusChanged(since_ms, view.status.value)

    def _running_in(self, view: JobView) -> Iterator[News]:
        since_ms = _running_since_ms(view)
        if since_ms is not None and since_ms != self._running_since_ms:
            self._running_since_ms = since_ms
            yield AllRunning(since_ms)

    def _restored_in(self, view: JobView, now_ms: int) -> Iterator[News]:
        latest = view.checkpoints.latest_restored
        if latest is None or self._restored == (latest.restored_ms, latest.checkpoint):
            return
        self._restored = latest.restored_ms, latest.checkpoint
        yield JobRestored(now_ms, latest.checkpoint)

    def _checkpoints_in(self, view: JobView, now_ms: int) -> Iterator[News]:
        for checkpoint in reversed(view.checkpoints.history):
            before = self._checkpoints.get(checkpoint.checkpoint)
            if before is checkpoint.status:
                continue
            self._checkpoints[checkpoint.checkpoint] = checkpoint.status
            if before is None:
                yield CheckpointBegun(checkpoint.trigger_ms, checkpoint.checkpoint)
            if checkpoint.status is not CheckpointStatus.IN_PROGRESS:
                yield _end_of(checkpoint, now_ms)

    def _progress_in(self, view: JobView, now_ms: int) -> Iterator[News]:
        sources = view.vertices[:1]
        rows = sum(subtask.figures.rows_out for each in sources for subtask in each.subtasks)
        if rows != self._rows:
            self._rows = rows
            yield Progress(now_ms, rows, _watermark_ms(view))


def _running_since_ms(view: JobView) -> int | None:
    """When the last subtask began to run; None while some do not yet, and once all have ended."""
    subtasks = [subtask for vertex in view.vertices for subtask in vertex.subtasks]
    states = {subtask.state for subtask in subtasks}
    if ExecutionState.RUNNING not in states or states - _RUNNING_OR_DONE:
        return None
    return max(subtask.timestamps_ms.get(ExecutionState.RUNNING, 0) for subtask in subtasks)


def _watermark_ms(view: JobView) -> int | None:
    """The least watermark of all subtasks; None while one has none, and once event time is over."""
    figures = [subtask.figures for vertex in view.vertices for subtask in vertex.subtasks]
    marks = [each.watermark_ms for each in figures if each.watermark_ms is not None]
    least = min(marks, default=MIN_TIMESTAMP_MS)
    return least if MIN_TIMESTAMP_MS < least < MAX_WATERMARK_MS else None


def _end_of(checkpoint: CheckpointStatistics, now_ms: int) -> News:
    if checkpoint.status is CheckpointStatus.FAILED:
        return CheckpointFailed(now_ms, checkpoint.checkpoint, checkpoint.failure or "")
    return CheckpointCompleted(
        now_ms,
        checkpoint.checkpoint,
        checkpoint.duration_ms,
        checkpoint.checkpointed_size,
        checkpoint.state_size,
    )

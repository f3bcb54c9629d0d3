"""All metrics of a job at one moment, made from its view alone.

REST and reporters both begin here, so that a number is the same wherever it is read. Names, scopes
and variables are Flink's. Source: REST §3.6; Flink's metrics page, system scope and variables.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.model.control import JobStatus
from tidegate.model.metrics import MetricKey, MetricKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics, SubtaskStatistics
    from tidegate.jobmaster.view import JobView, SlotView, SubtaskView, VertexView
    from tidegate.model.metrics import Group, MetricValue

NO_PATH: Final = "n/a"
_NONE_YET: Final = -1
_NANOS: Final = 1_000_000


class Scope(Enum):
    """Flink's scopes of metrics."""

    JOB = "job"
    TASK_MANAGER = "task manager"
    TASK = "task"
    OPERATOR = "operator"


@frozen
class Metric:
    """One metric. variables: of its place, under Flink's names, such as ``task_name``.

    groups: those that a function has added, outermost first.
    """

    scope: Scope
    variables: Mapping[str, str]
    groups: tuple[Group, ...]
    name: str
    kind: MetricKind
    value: MetricValue


def metrics_of(job: JobView, now_ms: int) -> Iterator[Metric]:
    """Every metric of a job. now_ms: wall clock."""
    of_job = {"job_id": str(job.job), "job_name": job.name}
    for name, value in of_job_master(job, now_ms).items():
        kind = MetricKind.GAUGE
        yield Metric(Scope.JOB, of_job, (), name, kind, value)
    slots = {slot.id: slot for slot in job.slots}
    for slot in job.slots:
        place = _place(slot)
        for key, value in slot.metrics.items():
            yield Metric(Scope.TASK_MANAGER, place, key.groups, key.name, key.kind, value)
    for vertex in job.vertices:
        for subtask in vertex.subtasks:
            slot = None if subtask.slot is None else slots.get(subtask.slot)
            place = of_job | ({} if slot is None else _place(slot))
            yield from _of_subtask(job, vertex, subtask, place)


def _place(slot: SlotView) -> dict[str, str]:
    return {"host": slot.host, "tm_id": str(slot.id)}


def _of_subtask(
    job: JobView, vertex: VertexView, subtask: SubtaskView, place: Mapping[str, str]
) -> Iterator[Metric]:
    task = {
        **place,
        "task_id": vertex.id.hex(),
        "task_name": vertex.name,
        "subtask_index": str(subtask.index),
        "task_attempt_num": str(subtask.attempt),
    }
    operators = {
        operator.id: {**task, "operator_id": operator.id.hex(), "operator_name": operator.name}
        for operator in vertex.operators
    }
    for key, value in of_subtask(job, vertex, subtask).items():
        if key.operator is None:
            yield Metric(Scope.TASK, task, key.groups, key.name, key.kind, value)
        elif (operator := operators.get(key.operator)) is not None:
            yield Metric(Scope.OPERATOR, operator, key.groups, key.name, key.kind, value)


def of_job_master(job: JobView, now_ms: int) -> dict[str, MetricValue]:
    """Metrics of the job as a whole, by name."""
    counts, restored = job.checkpoints.counts, job.checkpoints.latest_restored
    running = job.status is JobStatus.RUNNING
    return {
        "totalNumberOfCheckpoints": counts.total,
        "numberOfInProgressCheckpoints": counts.in_progress,
        "numberOfCompletedCheckpoints": counts.completed,
        "numberOfFailedCheckpoints": counts.failed,
        "lastCheckpointRestoreTimestamp": _NONE_YET if restored is None else restored.restored_ms,
        **_last(job),
        "numRestarts": job.restarts,
        "numRescales": job.rescales,
        "numSourcesWithBacklog": len(job.checkpoints.backlog),
        "uptime": now_ms - job.timestamps_ms[JobStatus.RUNNING] if running else _NONE_YET,
    }


def _last(job: JobView) -> dict[str, MetricValue]:
    """The newest complete snapshot of either kind."""
    seen = job.checkpoints
    complete = [one for one in (seen.latest_completed, seen.latest_savepoint) if one is not None]
    last = max(complete, key=lambda one: one.checkpoint, default=None)
    if last is None:
        return {**dict.fromkeys(_NUMBERS, _NONE_YET), _PATH: NO_PATH}
    return {**_numbers(last), _PATH: last.pointer or NO_PATH}


_PATH: Final = "lastCheckpointExternalPath"
_NUMBERS: Final = (
    "lastCheckpointSize",
    "lastCheckpointFullSize",
    "lastCheckpointMetadataSize",
    "lastCheckpointDuration",
    "lastCheckpointProcessedData",
    "lastCheckpointPersistedData",
    "lastCompletedCheckpointId",
    "lastCheckpointCompletedTimestamp",
)


def _numbers(last: CheckpointStatistics) -> dict[str, MetricValue]:
    values = (
        last.checkpointed_size,
        last.state_size,
        last.metadata_size,
        last.duration_ms,
        last.processed_bytes,
        last.persisted_bytes,
        last.checkpoint,
        last.latest_ack_ms,
    )
    return dict(zip(_NUMBERS, values, strict=True))


def of_subtask(
    job: JobView, vertex: VertexView, subtask: SubtaskView
) -> dict[MetricKey, MetricValue]:
    """Metrics of a subtask and its operators: those that its slot tells, and the driver's own."""
    share = _last_share(job, vertex, subtask)
    ours: dict[str, MetricValue] = {
        "initializationTime": subtask.restore_ms,
        "checkpointAlignmentTime": share.alignment_ms * _NANOS if share else 0,
        "checkpointStartDelayNanos": share.start_delay_ms * _NANOS if share else 0,
    }
    if share is not None:
        ours |= {
            "checkpointSyncTimeMs": share.sync_ms,
            "checkpointAsyncTimeMs": share.async_ms,
            "checkpointStateSize": share.state_size,
            "checkpointWrittenSize": share.checkpointed_size,
        }
    gauges = {MetricKey(name, MetricKind.GAUGE): value for name, value in ours.items()}
    return {**subtask.metrics, **gauges}


def _last_share(job: JobView, vertex: VertexView, subtask: SubtaskView) -> SubtaskStatistics | None:
    """The subtask's share of the newest checkpoint that it acknowledged."""
    for one in job.checkpoints.history:
        found = one.vertex(vertex.id)
        if found is not None and subtask.index < len(found.subtasks):
            share = found.subtasks[subtask.index]
            if share is not None:
                return share
    return None

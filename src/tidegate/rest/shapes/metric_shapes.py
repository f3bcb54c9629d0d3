"""Metrics under Flink's names. Source: REST §3.6, checkpoint coordination §12.2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics, SubtaskStatistics
    from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
    from tidegate.rest.rates import Shares

Metrics = dict[str, object]

NO_PATH: Final = "n/a"
_NONE_YET: Final = -1
_NANOS: Final = 1_000_000


def answer(known: Mapping[str, object], wanted: str | None) -> list[dict[str, str]]:
    """Names of all metrics, or names and values of the wanted ones. wanted: separated by commas."""
    if wanted is None:
        return [{"id": name} for name in known]
    names = [name for name in wanted.split(",") if name in known]
    return [{"id": name, "value": str(known[name])} for name in names]


def of_job(job: JobView, now_ms: int) -> Metrics:
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
        "uptime": now_ms - job.timestamps_ms[JobStatus.RUNNING] if running else _NONE_YET,
    }


def _last(job: JobView) -> Metrics:
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


def _numbers(last: CheckpointStatistics) -> Metrics:
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
    job: JobView, vertex: VertexView, subtask: SubtaskView, shares: Shares | None
) -> Metrics:
    figures = subtask.figures
    metrics: Metrics = {
        "numRecordsIn": figures.rows_in,
        "numRecordsOut": figures.rows_out,
        "accumulateBusyTimeMs": figures.busy_ms,
        "accumulateBackPressuredTimeMs": figures.blocked_ms,
        "initializationTime": subtask.restore_ms,
    }
    if figures.watermark_ms is not None:
        metrics["currentInputWatermark"] = figures.watermark_ms
    if shares is not None:
        metrics |= {
            "busyTimeMsPerSecond": round(1_000 * shares.busy),
            "idleTimeMsPerSecond": round(1_000 * shares.idle),
            "backPressuredTimeMsPerSecond": round(1_000 * shares.blocked),
        }
    share = _last_share(job, vertex, subtask)
    return {
        **metrics,
        "checkpointAlignmentTime": share.alignment_ms * _NANOS if share else 0,
        "checkpointStartDelayNanos": share.start_delay_ms * _NANOS if share else 0,
    }


def _last_share(job: JobView, vertex: VertexView, subtask: SubtaskView) -> SubtaskStatistics | None:
    """The subtask's share of the newest checkpoint that it acknowledged."""
    for one in job.checkpoints.history:
        found = one.vertex(vertex.id)
        if found is not None and subtask.index < len(found.subtasks):
            share = found.subtasks[subtask.index]
            if share is not None:
                return share
    return None

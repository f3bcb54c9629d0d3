"""Metrics under Flink's names, and how busy subtasks are.

Source: REST §3.3, §3.4, §3.6; checkpoint coordination §12.2.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics, SubtaskStatistics
    from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
    from tidegate.model.control import SubtaskFigures
    from tidegate.model.ids import VertexId

Metrics = dict[str, object]

NO_PATH: Final = "n/a"
_NONE_YET: Final = -1
_NANOS: Final = 1_000_000

WINDOW_MS: Final = 5_000
"""How far back a share looks, as in Flink; at least from one set of counters to the next."""

_SAMPLES_MAX: Final = 16

Key = tuple["VertexId", int, int]


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


Object = dict[str, object]

LOW_ABOVE: Final = 0.1
HIGH_ABOVE: Final = 0.5


def backpressure(shares: Mapping[int, Shares], now_ms: int) -> Object:
    """``…/backpressure``. shares: by subtask; empty until they are known."""
    if not shares:
        level = dict.fromkeys(("backpressureLevel", "backpressure-level"))
        return {"status": "deprecated", **level, "end-timestamp": None, "subtasks": None}
    return {
        "status": "ok",
        **_level(max(share.blocked for share in shares.values())),
        "end-timestamp": now_ms,
        "subtasks": [
            {
                "subtask": index,
                **_level(share.blocked),
                "ratio": share.blocked,
                "idleRatio": share.idle,
                "busyRatio": share.busy,
            }
            for index, share in shares.items()
        ],
    }


def _level(ratio: float) -> Object:
    level = "ok" if ratio <= LOW_ABOVE else "low" if ratio <= HIGH_ABOVE else "high"
    return {"backpressureLevel": level, "backpressure-level": level}


def watermarks(vertex: VertexView) -> list[Object]:
    return [
        {
            "id": f"{subtask.index}.currentInputWatermark",
            "value": str(subtask.figures.watermark_ms),
        }
        for subtask in vertex.subtasks
        if subtask.figures.watermark_ms is not None
    ]


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of time, each from 0 to 1: blocked by readers, busy, idle."""

    blocked: float
    busy: float

    @property
    def idle(self) -> float:
        return max(0.0, 1.0 - self.blocked - self.busy)


class Rates:
    """The latest counters, by subtask and attempt."""

    def __init__(self) -> None:
        self._seen: dict[Key, deque[SubtaskFigures]] = {}

    def saw(self, job: JobView) -> None:
        """Stores the counters of all subtasks, and drops subtasks that are gone."""
        seen: dict[Key, deque[SubtaskFigures]] = {}
        for vertex in job.vertices:
            for subtask in vertex.subtasks:
                key = (vertex.id, subtask.index, subtask.attempt)
                known = seen[key] = self._seen.get(key, deque(maxlen=_SAMPLES_MAX))
                if subtask.figures.at_ms and (not known or known[-1].at_ms < subtask.figures.at_ms):
                    known.append(subtask.figures)
        self._seen = seen

    def of(self, vertex: VertexId, subtask: SubtaskView) -> Shares | None:
        """Shares of a subtask's time; None until its counters were read twice."""
        known = self._seen.get((vertex, subtask.index, subtask.attempt))
        if known is None or len(known) < 2:
            return None
        newest = known[-1]
        earlier = [one for one in known if newest.at_ms - one.at_ms >= WINDOW_MS]
        since = earlier[-1] if earlier else known[0]
        passed_ms = newest.at_ms - since.at_ms
        return Shares(
            blocked=min(1.0, (newest.blocked_ms - since.blocked_ms) / passed_ms),
            busy=min(1.0, (newest.busy_ms - since.busy_ms) / passed_ms),
        )

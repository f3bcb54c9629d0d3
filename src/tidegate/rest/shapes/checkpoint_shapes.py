"""Checkpoints as JSON. Source: REST §4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.snapshots import RetentionPolicy
from tidegate.checkpoint.coordinator.statistics import (
    PERCENTILES,
    CheckpointStatistics,
    CheckpointStatus,
    Distribution,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.checkpoint.coordinator.statistics import (
        RestoredStatistics,
        StatisticsView,
        SubtaskStatistics,
        VertexStatistics,
    )
    from tidegate.model.settings import JobSettings

Object = dict[str, object]

DISABLED_MS: Final = 2**63 - 1
"""The interval of checkpoints that are not triggered periodically."""

IN_MEMORY: Final = "<checkpoint-not-externally-addressable>"

_NAN: Final = float("nan")

_BACKENDS: Final = {"hashmap": "HashMapStateBackend", "rocksdb": "EmbeddedRocksDBStateBackend"}
_STORAGES: Final = {
    "jobmanager": "JobManagerCheckpointStorage",
    "filesystem": "FileSystemCheckpointStorage",
}


def overview(seen: StatisticsView) -> Object:
    counts, summary = seen.counts, seen.summary
    return {
        "counts": {
            "restored": counts.restored,
            "total": counts.total,
            "in_progress": counts.in_progress,
            "completed": counts.completed,
            "failed": counts.failed,
        },
        "summary": {
            "checkpointed_size": stats(summary.checkpointed_size),
            "state_size": stats(summary.state_size),
            "end_to_end_duration": stats(summary.duration_ms),
            "alignment_buffered": _NOTHING_BUFFERED,
            "processed_data": stats(summary.processed_bytes),
            "persisted_data": stats(summary.persisted_bytes),
        },
        "latest": {
            "completed": _or_none(seen.latest_completed),
            "savepoint": _or_none(seen.latest_savepoint),
            "failed": _or_none(seen.latest_failed),
            "restored": None if seen.latest_restored is None else _restored(seen.latest_restored),
        },
        "history": [checkpoint(one) for one in seen.history],
    }


def checkpoint(one: CheckpointStatistics, *, tasks: bool = False) -> Object:
    """One checkpoint. tasks: adds the share of each vertex."""
    format = one.savepoint_format
    shape: Object = {
        "className": one.status.value.lower(),
        "id": one.checkpoint,
        "status": one.status.value,
        "is_savepoint": one.properties.is_savepoint,
        "savepointFormat": None if format is None else format.value,
        "trigger_timestamp": one.trigger_ms,
        "latest_ack_timestamp": one.latest_ack_ms,
        "checkpointed_size": one.checkpointed_size,
        "state_size": one.state_size,
        "end_to_end_duration": one.duration_ms,
        "alignment_buffered": 0,
        "processed_data": one.processed_bytes,
        "persisted_data": one.persisted_bytes,
        "num_subtasks": one.subtasks,
        "num_acknowledged_subtasks": one.acknowledged,
        "checkpoint_type": one.type.value,
        "tasks": {v.vertex.hex(): task(one, v) for v in one.vertices} if tasks else {},
    }
    match one.status:
        case CheckpointStatus.COMPLETED:
            shape |= {"external_path": one.pointer or IN_MEMORY, "discarded": one.discarded}
        case CheckpointStatus.FAILED:
            shape |= {"failure_timestamp": one.failed_ms, "failure_message": one.failure}
        case CheckpointStatus.IN_PROGRESS:
            pass
    return shape


def task(one: CheckpointStatistics, share: VertexStatistics) -> Object:
    return {
        "id": one.checkpoint,
        "status": one.status.value,
        "latest_ack_timestamp": share.latest_ack_ms,
        "checkpointed_size": share.total(lambda subtask: subtask.checkpointed_size),
        "state_size": share.total(lambda subtask: subtask.state_size),
        "end_to_end_duration": max((s.ack_delay_ms for s in share.acknowledged), default=-1),
        "alignment_buffered": 0,
        "processed_data": share.total(lambda subtask: subtask.processed_bytes),
        "persisted_data": share.total(lambda subtask: subtask.persisted_bytes),
        "num_subtasks": len(share.subtasks),
        "num_acknowledged_subtasks": len(share.acknowledged),
    }


def subtasks(one: CheckpointStatistics, share: VertexStatistics) -> Object:
    def spread(figure: Callable[[SubtaskStatistics], int]) -> Object:
        return stats(share.distribution(figure))

    return {
        **task(one, share),
        "summary": {
            "checkpointed_size": spread(lambda subtask: subtask.checkpointed_size),
            "state_size": spread(lambda subtask: subtask.state_size),
            "end_to_end_duration": spread(lambda subtask: subtask.ack_delay_ms),
            "checkpoint_duration": {
                "sync": spread(lambda subtask: subtask.sync_ms),
                "async": spread(lambda subtask: subtask.async_ms),
            },
            "alignment": {
                "buffered": _NOTHING_BUFFERED,
                "processed": spread(lambda subtask: subtask.processed_bytes),
                "persisted": spread(lambda subtask: subtask.persisted_bytes),
                "duration": spread(lambda subtask: subtask.alignment_ms),
            },
            "start_delay": spread(lambda subtask: subtask.start_delay_ms),
        },
        "subtasks": [_subtask(index, found) for index, found in enumerate(share.subtasks)],
    }


def _subtask(index: int, reported: SubtaskStatistics | None) -> Object:
    if reported is None:
        return {"className": "pending", "index": index, "status": "pending_or_failed"}
    return {
        "className": "completed",
        "index": index,
        "ack_timestamp": reported.ack_ms,
        "end_to_end_duration": reported.ack_delay_ms,
        "checkpointed_size": reported.checkpointed_size,
        "state_size": reported.state_size,
        "checkpoint": {"sync": reported.sync_ms, "async": reported.async_ms},
        "alignment": {
            "buffered": 0,
            "processed": reported.processed_bytes,
            "persisted": reported.persisted_bytes,
            "duration": reported.alignment_ms,
        },
        "start_delay": reported.start_delay_ms,
        "unaligned_checkpoint": reported.unaligned,
        "aborted": False,
        "status": "completed",
    }


def config(settings: JobSettings) -> Object:
    checkpoints, changelog = settings.checkpoints, settings.slot.changelog
    retention, interval_ms = checkpoints.retention, checkpoints.interval_ms
    takes_none = interval_ms is None or settings.slot.final_only
    return {
        "mode": checkpoints.mode.value.lower(),
        "interval": DISABLED_MS if takes_none else interval_ms,
        "timeout": checkpoints.timeout_ms,
        "min_pause": checkpoints.min_pause_ms,
        "max_concurrent": checkpoints.max_concurrent,
        "externalization": {
            "enabled": retention is not RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS,
            "delete_on_cancellation": retention is not RetentionPolicy.RETAIN_ON_CANCELLATION,
        },
        "state_backend": _BACKENDS[checkpoints.state_backend],
        "checkpoint_storage": _STORAGES[checkpoints.storage],
        "unaligned_checkpoints": checkpoints.unaligned,
        "tolerable_failed_checkpoints": checkpoints.tolerable_failures,
        "aligned_checkpoint_timeout": checkpoints.aligned_timeout_ms,
        "checkpoints_after_tasks_finish": checkpoints.after_tasks_finish,
        "state_changelog_enabled": changelog is not None,
        "changelog_periodic_materialization_interval": (changelog and changelog.materialize_ms)
        or 0,
        "changelog_storage": changelog and ("memory" if changelog.in_memory else "filesystem"),
    }


def stats(spread: Distribution) -> Object:
    """A distribution; percentiles are NaN, since they are not kept."""
    known = spread.percentiles or {}
    percentiles = {f"p{p:g}".replace(".", ""): known.get(p, _NAN) for p in PERCENTILES}
    return {"min": spread.min, "max": spread.max, "avg": spread.avg, **percentiles}


_NOTHING_BUFFERED: Final = stats(Distribution(percentiles=dict.fromkeys(PERCENTILES, 0.0)))


def _or_none(one: CheckpointStatistics | None) -> Object | None:
    return None if one is None else checkpoint(one)


def _restored(one: RestoredStatistics) -> Object:
    return {
        "id": one.checkpoint,
        "restore_timestamp": one.restored_ms,
        "is_savepoint": one.savepoint,
        "external_path": one.pointer or IN_MEMORY,
    }

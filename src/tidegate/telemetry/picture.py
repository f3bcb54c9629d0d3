"""A job as people look at it, on its page and in a terminal: one picture with all that is shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.graph.guarantees import guarantees
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.telemetry.costs import costs_of
from tidegate.telemetry.findings import BLOCKED, BUSY, findings_of, rate_of, share_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.jobmaster.view import FailureView, JobView, StopView, SubtaskView, VertexView
    from tidegate.model.ids import VertexId

Object = dict[str, object]

_RATE_IN: Final = "numRecordsInPerSecond"
_GIVEN: Final = MetricKey("currentOutputWatermark", MetricKind.GAUGE)

WAITED_FOR_MAX: Final = 8
"""Subtasks that are named of a checkpoint under way; more would not be read."""


def picture(job: JobView, now_ms: int, *, since: int) -> Object:
    """Everything the page shows. since: id of the first checkpoint that it does not know whole."""
    history = [one for one in job.checkpoints.history if one.checkpoint >= since]
    counts, is_batch = job.checkpoints.counts, job.settings.slot.final_only
    vertices = {vertex.id: vertex for vertex in job.vertices}
    return {
        "job": _job(job, now_ms),
        "vertices": [_vertex(vertex) for vertex in job.vertices],
        "rates": _rates(job),
        "edges": [
            {"from": edge.source.hex(), "to": edge.target.hex(), "how": edge.partitioner.value}
            for edge in job.edges
        ],
        "checkpoints": {
            "counts": {
                "completed": counts.completed,
                "failed": counts.failed,
                "in_progress": counts.in_progress,
            },
            "interval": None if is_batch else job.settings.checkpoints.interval_ms,
            "backlog": _backlog(job),
            "history": [_checkpoint(vertices, one) for one in history],
        },
        "sinks": [
            each.as_json()
            for vertex in job.vertices
            for each in guarantees(vertex.operators, job.settings)
        ],
        "failures": [_failure(one) for one in job.failures],
        "waits": waits(job),
        "findings": [
            {
                "subject": each.subject.value,
                "step": each.step,
                "what": each.what,
                "remedy": each.remedy,
            }
            for each in findings_of(job, now_ms)
        ],
    }


def _job(job: JobView, now_ms: int) -> Object:
    return {
        "id": job.job,
        "name": job.name,
        "state": job.status.value,
        "now": now_ms,
        "began": job.timestamps_ms.get(JobStatus.INITIALIZING, now_ms),
        "ended": job.timestamps_ms[job.status] if job.status.is_terminal else None,
        "restarts": job.restarts,
        "rescales": job.rescales,
        "epoch": job.epoch,
        "slots": len(job.slots),
        "slots_wanted": job.slots_wanted,
        "batch": job.settings.slot.final_only,
        "tasks": _tasks(job),
        "costs": costs_of(job),
    }


def _tasks(job: JobView) -> Object | None:
    """Numbers of the tasks of a batch in stages; None for all other jobs.

    again: attempts beyond the first of each task. failed: tasks whose last attempt has failed.
    """
    if not job.in_stages:
        return None
    states = Counter(each.state for vertex in job.vertices for each in vertex.subtasks)
    return {
        "done": states[ExecutionState.FINISHED],
        "of": sum(vertex.parallelism for vertex in job.vertices),
        "running": states[ExecutionState.RUNNING],
        "failed": states[ExecutionState.FAILED],
        "again": sum(each.attempt for vertex in job.vertices for each in vertex.subtasks),
    }


def progress_text(job: Mapping[str, Any]) -> str:
    """How far a job is: a batch by its tasks, others by their slots. job: of a picture."""
    tasks = job.get("tasks")  # drivers of version 0.1 know no such
    if tasks is None:
        return f"{job['slots']} of {job['slots_wanted']} slots"
    again = f", {tasks['again']} run again" if tasks["again"] else ""
    return f"{tasks['done']} of {tasks['of']} tasks done, {tasks['running']} running{again}"


def _rates(job: JobView) -> Object:
    """Records a second that sources read, and that sinks take out of the job."""
    fed = {edge.target for edge in job.edges}
    read, written = 0.0, 0.0
    for vertex in job.vertices:
        sources = [] if vertex.id in fed else [info.id for info in vertex.operators[:1]]
        sinks = [info.id for info in vertex.operators if info.delivery is not None]
        for subtask in vertex.subtasks:
            if subtask.state is ExecutionState.RUNNING:
                read += sum(rate_of(subtask, _RATE_IN, id) for id in sources)
                written += sum(rate_of(subtask, _RATE_IN, id) for id in sinks)
    return {"read": read, "written": written}


def _vertex(vertex: VertexView) -> Object:
    return {
        "id": vertex.id.hex(),
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "stage": None if vertex.stage is None else asdict(vertex.stage),
        "fixed": vertex.parallelism_set,
        "operators": [
            {
                "name": operator.name,
                "uid": operator.uid,
                "functions": [
                    {"call": each.call, "each": each.each, "by_row": each.by_row}
                    for each in operator.functions
                ],
            }
            for operator in vertex.operators
        ],
        "subtasks": [_subtask(subtask) for subtask in vertex.subtasks],
    }


def _subtask(subtask: SubtaskView) -> Object:
    figures = subtask.figures
    return {
        "index": subtask.index,
        "attempt": subtask.attempt,
        "state": subtask.state.value,
        "slot": subtask.slot,
        "rows_in": figures.rows_in,
        "rows_out": figures.rows_out,
        "in_a_second": rate_of(subtask, _RATE_IN),
        "out_a_second": rate_of(subtask, "numRecordsOutPerSecond"),
        "busy": share_of(subtask, BUSY),
        "held": share_of(subtask, BLOCKED),
        "watermark": _event_time(_reached(subtask)),
    }


def _reached(subtask: SubtaskView) -> int | None:
    """Event time that a task has reached; of a source, which has no input, what it gives out."""
    if subtask.figures.watermark_ms is not None:
        return subtask.figures.watermark_ms
    given = subtask.metrics.get(_GIVEN)
    return given if isinstance(given, int) else None


def _backlog(job: JobView) -> Object | None:
    """Sources that catch up, and the interval meanwhile (0 for none); None if none does."""
    behind = set(job.checkpoints.backlog)
    if not behind:
        return None
    names = [info.name for vertex in job.vertices for info in vertex.operators if info.id in behind]
    settings = job.settings.checkpoints
    during_ms = settings.interval_during_backlog_ms
    return {"sources": names, "interval": settings.interval_ms if during_ms is None else during_ms}


def _event_time(ms: int | None) -> int | str | None:
    """Milliseconds; None where there is no event time yet, "end" where no more will come."""
    if ms is None or ms <= MIN_TIMESTAMP_MS:
        return None
    return "end" if ms >= MAX_WATERMARK_MS else ms


Vertices = dict["VertexId", "VertexView"]


def _checkpoint(vertices: Vertices, one: CheckpointStatistics) -> Object:
    reason = one.reason
    return {
        "id": one.checkpoint,
        "status": one.status.value,
        "savepoint": one.properties.is_savepoint,
        "unaligned": one.unaligned,
        "begun": one.trigger_ms,
        "duration": one.duration_ms,
        "tasks": one.subtasks,
        "acknowledged": one.acknowledged,
        "state_size": one.state_size,
        "written": one.checkpointed_size,
        "path": one.pointer,
        "failure": one.failure,
        "remedy": None if reason is None else reason.remedy,
        "latest": _latest(vertices, one),
        "waits_for": _waits_for(vertices, one),
    }


def _latest(vertices: Vertices, one: CheckpointStatistics) -> Object | None:
    """The share that came last, by its phases in milliseconds."""
    if one.last_share is None:
        return None
    vertex, share = one.last_share
    return {
        "task": _task(vertices, vertex, share.index),
        "start_delay": share.start_delay_ms,
        "alignment": share.alignment_ms,
        "sync": share.sync_ms,
        "async": share.async_ms,
    }


def _waits_for(vertices: Vertices, one: CheckpointStatistics) -> list[str]:
    if one.status is not CheckpointStatus.IN_PROGRESS:
        return []
    missing = [
        _task(vertices, vertex.vertex, index)
        for vertex in one.vertices
        for index, share in enumerate(vertex.subtasks)
        if share is None
    ]
    more = len(missing) - WAITED_FOR_MAX
    return [*missing[:WAITED_FOR_MAX], f"{more} more"] if more > 0 else missing


def _task(vertices: Vertices, vertex: VertexId, index: int) -> str:
    known = vertices.get(vertex)
    return f"a step that is gone ({index + 1}/{index + 1})" if known is None else known.task(index)


def _failure(failure: FailureView) -> Object:
    return {
        "at": failure.wall_ms,
        "kind": failure.kind,
        "error": failure.error,
        "task": failure.task,
        "slot": failure.slot,
        "labels": dict(failure.labels),
        "concurrent": [_failure(one) for one in failure.concurrent],
    }


def waits(job: JobView) -> Object:
    """Calls of over 10 s, tasks that wait for a slot of their own or a stop for. Not in Flink."""
    hosts = {slot.id: slot.host for slot in job.slots}
    calls = [
        {
            "task": slot.calling,
            "slot": slot.id,
            "host": slot.host,
            "duration": slot.batch_age_ms,
            "function": slot.long_call.function,
            "stack": slot.long_call.stack.splitlines(),
        }
        for slot in job.slots
        if slot.long_call is not None
    ]
    guests = [
        {
            "task": vertex.task(subtask.index),
            "slot": subtask.slot,
            "host": None if subtask.slot is None else hosts.get(subtask.slot),
        }
        for vertex in job.vertices
        for subtask in vertex.subtasks
        if subtask.guest
    ]
    return {"calls": calls, "guests": guests, "stop": _stop(job.stopping)}


def _stop(stopping: StopView | None) -> Object | None:
    if stopping is None:
        return None
    return {
        "duration": stopping.for_ms,
        "savepoint": stopping.savepoint,
        "waits-for": [
            {
                "task": each.task,
                "slot": each.slot,
                "call-duration": each.call_ms,
                "function": each.function,
            }
            for each in stopping.waits_for
        ],
    }

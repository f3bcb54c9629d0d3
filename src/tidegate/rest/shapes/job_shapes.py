"""A job, its vertices and subtasks as JSON. Source: REST §3."""

from __future__ import annotations

import base64
import html
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.config.option import without_secrets
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.metrics import MetricKey, MetricKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidegate.jobmaster.view import FailureView, JobView, SubtaskView, VertexView
    from tidegate.model.ids import SlotId

Object = dict[str, object]
Hosts = Mapping["SlotId | None", str]

_TASK_STATES: Final = (*(state.value for state in ExecutionState), "RECONCILING")
_JOB_STATES: Final = tuple(status.value for status in JobStatus)
_SHARING_GROUP: Final = "0" * 32
"""All steps share slots."""

_PASSING: Final = tuple(state.value for state in ExecutionState if not state.is_terminal)
_NOT_YET: Final = -1
_REFRESH_MS: Final = 3_000
_NOWHERE: Final = "(unassigned)"


def overview(job: JobView, now_ms: int) -> Object:
    """One of ``/jobs/overview``; the last two fields are not in Flink."""
    last = job.checkpoints.latest_completed
    states = _counted(states_of(vertex) for vertex in job.vertices)
    return {
        "jid": job.job,
        "name": job.name,
        "state": job.status.value,
        **span(job, now_ms),
        "last-modification": max(job.timestamps_ms.values(), default=0),
        "tasks": {
            "total": sum(states.values()),
            **{state.lower(): count for state, count in states.items()},
        },
        "pending-operators": 0,
        "jobType": _type(job),
        "schedulerType": "Default",
        "restarts": job.restarts,
        "last-checkpoint": _NOT_YET if last is None else last.latest_ack_ms,
    }


def overview_of_unknown(id: str, name: str) -> Object:
    """The overview of a job of which no more is known."""
    return {
        "jid": id,
        "name": name,
        "state": JobStatus.INITIALIZING.value,
        "start-time": _NOT_YET,
        "end-time": _NOT_YET,
        "duration": 0,
        "last-modification": 0,
        "tasks": {"total": 0, **{state.lower(): 0 for state in _TASK_STATES}},
        "pending-operators": 0,
        "jobType": "STREAMING",
        "schedulerType": "Default",
        "restarts": 0,
        "last-checkpoint": _NOT_YET,
    }


def details(job: JobView, now_ms: int) -> Object:
    aggregates = Counter(state_of(vertex) for vertex in job.vertices)
    return {
        "jid": job.job,
        "name": job.name,
        "application-id": job.job,
        "isStoppable": False,
        "state": job.status.value,
        "job-type": _type(job),
        "schedulerType": "Default",
        **span(job, now_ms),
        "maxParallelism": _NOT_YET,
        "now": now_ms,
        "timestamps": {
            **dict.fromkeys(_JOB_STATES, 0),
            **{status.value: ms for status, ms in job.timestamps_ms.items()},
        },
        "vertices": [vertex_of(vertex, now_ms) for vertex in job.vertices],
        "status-counts": {state: aggregates[state] for state in _TASK_STATES},
        "plan": plan(job),
        "pending-operators": 0,
    }


def span(job: JobView, now_ms: int) -> Object:
    began_ms = job.timestamps_ms.get(JobStatus.INITIALIZING, now_ms)
    ended_ms = job.timestamps_ms[job.status] if job.status.is_terminal else _NOT_YET
    return {
        "start-time": began_ms,
        "end-time": ended_ms,
        "duration": (ended_ms if job.status.is_terminal else now_ms) - began_ms,
    }


def _type(job: JobView) -> str:
    return "BATCH" if job.settings.slot.final_only else "STREAMING"


def vertex_of(vertex: VertexView, now_ms: int) -> Object:
    began = [ms for s in vertex.subtasks if (ms := _deployed_ms(s)) is not None]
    began_ms = min(began, default=_NOT_YET)
    over = len(began) == vertex.parallelism and all(s.state.is_terminal for s in vertex.subtasks)
    ended_ms = max(s.timestamps_ms[s.state] for s in vertex.subtasks) if over else _NOT_YET
    return {
        "id": vertex.id.hex(),
        "slotSharingGroupId": _SHARING_GROUP,
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": state_of(vertex),
        "start-time": began_ms,
        "end-time": ended_ms,
        "duration": (ended_ms if over else now_ms) - began_ms if began else _NOT_YET,
        "tasks": _counted([states_of(vertex)]),
        "metrics": _io(vertex.subtasks, now_ms),
    }


def vertex_details(job: JobView, vertex: VertexView, now_ms: int) -> Object:
    known = hosts(job)
    return {
        "id": vertex.id.hex(),
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": now_ms,
        "subtasks": [subtask_of(known, subtask, now_ms) for subtask in vertex.subtasks],
        "aggregated": _aggregates(vertex.subtasks, now_ms),
        **stage_of(vertex),
    }


def stage_of(vertex: VertexView) -> Object:
    """The stage of Spark that runs a vertex, where there is one. Not in Flink."""
    stage = vertex.stage
    return {} if stage is None else {"spark-stage": {"id": stage.number, "url": stage.page}}


def _aggregated(each: Sequence[Mapping[str, object]]) -> Object:
    numbers: dict[str, list[int]] = {}
    for one in each:
        for name, value in one.items():
            if not isinstance(value, bool) and isinstance(value, int | float):
                numbers.setdefault(name, []).append(int(value))
    return {name: _spread(sorted(values)) for name, values in numbers.items()}


def _spread(ordered: Sequence[int]) -> dict[str, int]:
    def percentile(percent: int) -> int:
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": sum(ordered) // len(ordered),
        "sum": sum(ordered),
        "median": percentile(50),
        **{f"p{percent}": percentile(percent) for percent in (25, 75, 95)},
    }


def slots_of(job: JobView, vertex: VertexView, now_ms: int) -> Object:
    """``…/taskmanagers``: the subtasks by slot; those without one stand together."""
    known = hosts(job)
    by_slot: dict[SlotId | None, list[SubtaskView]] = {}
    for subtask in vertex.subtasks:
        by_slot.setdefault(subtask.slot, []).append(subtask)
    return {
        "id": vertex.id.hex(),
        "name": vertex.name,
        "now": now_ms,
        "taskmanagers": [
            _share(known, vertex, slot, subtasks, now_ms) for slot, subtasks in by_slot.items()
        ],
    }


def _share(
    known: Hosts, vertex: VertexView, slot: SlotId | None, subtasks: list[SubtaskView], now_ms: int
) -> Object:
    share = vertex_of(replace(vertex, parallelism=len(subtasks), subtasks=tuple(subtasks)), now_ms)
    same = ("status", "start-time", "end-time", "duration", "metrics")
    return {
        "endpoint": known.get(slot, _NOWHERE),
        "taskmanager-id": slot or _NOWHERE,
        **{name: share[name] for name in same},
        "status-counts": share["tasks"],
        "aggregated": _aggregates(subtasks, now_ms),
    }


def _aggregates(subtasks: Iterable[SubtaskView], now_ms: int) -> Object:
    return {
        "metrics": _aggregated([_io([subtask], now_ms) for subtask in subtasks]),
        "status-duration": _aggregated([_durations(subtask, now_ms) for subtask in subtasks]),
    }


def subtask_times(job: JobView, vertex: VertexView, now_ms: int) -> Object:
    known = hosts(job)
    return {
        "id": vertex.id.hex(),
        "name": vertex.name,
        "now": now_ms,
        "subtasks": [
            {
                "subtask": subtask.index,
                "endpoint": known.get(subtask.slot, _NOWHERE),
                "duration": subtask_of(known, subtask, now_ms)["duration"],
                "timestamps": {
                    **dict.fromkeys(_TASK_STATES, 0),
                    **{state.value: ms for state, ms in subtask.timestamps_ms.items()},
                },
            }
            for subtask in vertex.subtasks
        ],
    }


def subtask_of(known: Hosts, subtask: SubtaskView, now_ms: int) -> Object:
    began_ms = _deployed_ms(subtask)
    entered = subtask.timestamps_ms
    ended_ms = entered[subtask.state] if subtask.state.is_terminal else _NOT_YET
    until_ms = now_ms if ended_ms == _NOT_YET else ended_ms
    return {
        "subtask": subtask.index,
        "status": subtask.state.value,
        "attempt": subtask.attempt,
        "endpoint": known.get(subtask.slot, _NOWHERE),
        "start-time": _NOT_YET if began_ms is None else began_ms,
        "end-time": ended_ms,
        "duration": _NOT_YET if began_ms is None else until_ms - began_ms,
        "metrics": _io([subtask], now_ms),
        "taskmanager-id": subtask.slot or _NOWHERE,
        "start_time": _NOT_YET if began_ms is None else began_ms,
        "status-duration": _durations(subtask, now_ms),
    }


def _durations(subtask: SubtaskView, now_ms: int) -> dict[str, int]:
    """Time spent in each transient state; -1 for states that were never entered."""
    entered = sorted((ms, state.value) for state, ms in subtask.timestamps_ms.items())
    ends = [*(ms for ms, _ in entered[1:]), now_ms]
    return {
        **dict.fromkeys(_PASSING, _NOT_YET),
        **{
            state: end - ms
            for (ms, state), end in zip(entered, ends, strict=True)
            if state in _PASSING
        },
    }


def hosts(job: JobView) -> Hosts:
    """Host of each slot, found once for all that an answer shows."""
    return {slot.id: slot.host for slot in job.slots}


def _io(subtasks: Iterable[SubtaskView], now_ms: int) -> Object:
    """Counts of rows, bytes and times."""
    subtasks = tuple(subtasks)
    figures = [subtask.figures for subtask in subtasks]
    busy_ms = sum(each.busy_ms for each in figures)
    blocked_ms = sum(each.blocked_ms for each in figures)
    running_ms = sum(_running_ms(subtask, now_ms) for subtask in subtasks)
    reported = bool(subtasks)
    return {
        "read-bytes": sum(_count(each, "numBytesIn") for each in subtasks),
        "read-bytes-complete": reported,
        "write-bytes": sum(_count(each, "numBytesOut") for each in subtasks),
        "write-bytes-complete": reported,
        "read-records": sum(each.rows_in for each in figures),
        "read-records-complete": reported,
        "write-records": sum(each.rows_out for each in figures),
        "write-records-complete": reported,
        "accumulated-backpressured-time": blocked_ms,
        "accumulated-idle-time": max(0, running_ms - busy_ms - blocked_ms),
        "accumulated-busy-time": float(busy_ms),
    }


def _count(subtask: SubtaskView, name: str) -> int:
    found = subtask.metrics.get(MetricKey(name, MetricKind.COUNTER), 0)
    return found if isinstance(found, int) else 0


def _running_ms(subtask: SubtaskView, now_ms: int) -> int:
    since_ms = subtask.timestamps_ms.get(ExecutionState.RUNNING)
    if since_ms is None:
        return 0
    ended = subtask.state is not ExecutionState.RUNNING
    return max(0, (subtask.timestamps_ms[subtask.state] if ended else now_ms) - since_ms)


def _deployed_ms(subtask: SubtaskView) -> int | None:
    return subtask.timestamps_ms.get(ExecutionState.DEPLOYING)


def states_of(vertex: VertexView) -> list[str]:
    """State of each subtask; CREATED before its first deployment."""
    known = [subtask.state.value for subtask in vertex.subtasks]
    return known + ["CREATED"] * (vertex.parallelism - len(known))


def state_of(vertex: VertexView) -> str:
    """State of a whole vertex. Source: Flink, ExecutionJobVertex."""
    states = set(states_of(vertex))
    for telling in ("FAILED", "CANCELING", "CANCELED", "INITIALIZING", "RUNNING"):
        if telling in states:
            return telling
    if "FINISHED" in states:
        return "FINISHED" if states == {"FINISHED"} else "RUNNING"
    return "CREATED"


def _counted(states: Iterable[Iterable[str]]) -> dict[str, int]:
    counts = Counter(state for one in states for state in one)
    return {state: counts[state] for state in _TASK_STATES}


def plan(job: JobView) -> Object:
    """``/jobs/:jobid/plan``: the vertices, last ones of the stream first."""
    nodes: list[Object] = []
    for vertex in reversed(job.vertices):
        node: Object = {
            "id": vertex.id.hex(),
            "parallelism": vertex.parallelism,
            "operator": "",
            "operator_strategy": "",
            "description": html.escape(vertex.name) + "<br/>",
            "optimizer_properties": {},
            "functions": [
                {
                    "operator": operator.name,
                    "function": each.call,
                    "each": each.each,
                    "by-row": each.by_row,
                }
                for operator in vertex.operators
                for each in operator.functions
            ],
        }
        inputs = [edge for edge in job.edges if edge.target == vertex.id]
        if inputs:
            node["inputs"] = [
                {
                    "num": number,
                    "id": edge.source.hex(),
                    "ship_strategy": edge.partitioner.value,
                    "exchange": "blocking" if job.in_stages else "pipelined_bounded",
                }
                for number, edge in enumerate(inputs)
            ]
        nodes.append(node)
    return {"jid": job.job, "name": job.name, "type": _type(job), "nodes": nodes}


def config(job: JobView) -> Object:
    return {
        "jid": job.job,
        "name": job.name,
        "execution-config": {
            "restart-strategy": "Cluster level default restart strategy",
            "job-parallelism": max((vertex.parallelism for vertex in job.vertices), default=1),
            "object-reuse-mode": job.settings.slot.object_reuse,
            "user-config": without_secrets(job.settings.parameters),
        },
    }


def exceptions(job: JobView, entries_max: int, label: tuple[str, str] | None) -> Object:
    """``/jobs/:jobid/exceptions``, newest first. label: keeps failures with this label."""
    found = job.failures if label is None else job.failures_labelled(*label)
    known = hosts(job)
    return {
        "exceptionHistory": {
            "entries": [
                {
                    **_failure(known, failure),
                    "concurrentExceptions": [_failure(known, one) for one in failure.concurrent],
                }
                for failure in found[:entries_max]
            ],
            "truncated": len(found) > entries_max,
        }
    }


def _failure(known: Hosts, failure: FailureView) -> Object:
    return {
        "exceptionName": failure.kind,
        "stacktrace": failure.error,
        "timestamp": failure.wall_ms,
        "failureLabels": dict(failure.labels),
        "taskName": failure.task or None,
        "endpoint": known.get(failure.slot),
        "taskManagerId": failure.slot,
    }


def execution_result(job: JobView, now_ms: int) -> Object:
    """``/jobs/:jobid/execution-result``, which clients poll to wait for the end."""
    if not job.status.is_terminal:
        return {"status": {"id": "IN_PROGRESS"}}
    over = span(job, now_ms)
    result: Object = {
        "id": job.job,
        "name": job.name,
        "application-status": _ENDS[job.status],
        "accumulator-results": {},
        "net-runtime": over["duration"],
        "start-time": over["start-time"],
        "end-time": over["end-time"],
        "application-id": job.job,
    }
    if job.status is JobStatus.FAILED and job.failures:
        last = job.failures[0]
        result["failure-cause"] = throwable(last.kind, last.error)
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


_ENDS: Final = {
    JobStatus.FINISHED: "SUCCEEDED",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELED: "CANCELED",
}


def throwable(kind: str, text: str) -> Object:
    """A failure as Flink's clients read it; there is no Java here to serialise a throwable."""
    serialized = base64.b64encode(text.encode()).decode()
    return {"class": kind, "stack-trace": text, "serialized-throwable": serialized}


def requirements(job: JobView) -> Object:
    """``/jobs/:jobid/resource-requirements``: what each vertex runs at."""
    return {
        vertex.id.hex(): {"parallelism": {"lowerBound": 1, "upperBound": vertex.parallelism}}
        for vertex in job.vertices
    }


def cluster(job: JobView, version: str) -> Object:
    """``/overview``: the slots, and the state of the one job."""
    used = {s.slot for v in job.vertices for s in v.subtasks if not s.state.is_terminal}
    return {
        "taskmanagers": len(job.slots),
        "slots-total": len(job.slots),
        "slots-available": sum(slot.id not in used for slot in job.slots),
        **counted_jobs([job.status], version),
    }


def counted_jobs(states: Sequence[JobStatus], version: str) -> Object:
    """``/overview`` without slots. states: of the jobs."""
    ended = {
        "jobs-finished": JobStatus.FINISHED,
        "jobs-cancelled": JobStatus.CANCELED,
        "jobs-failed": JobStatus.FAILED,
    }
    return {
        "jobs-running": sum(not state.is_terminal for state in states),
        **{name: states.count(state) for name, state in ended.items()},
        "flink-version": version,
        "flink-commit": "unknown",
    }


def server(version: str, *, many: bool = False) -> Object:
    """``/config``, which Flink's dashboard asks before anything else. many: not in Flink."""
    return {
        "refresh-interval": _REFRESH_MS,
        "timezone-name": "UTC",
        "timezone-offset": 0,
        "flink-version": version,
        "flink-revision": "unknown",
        "features": {
            "web-submit": False,
            "web-cancel": True,
            "web-history": False,
            "web-rescale": True,
        },
        **({"many-jobs": True} if many else {}),
    }

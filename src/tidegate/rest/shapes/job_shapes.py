"""A job, its vertices and subtasks as JSON. Source: REST §3."""

from __future__ import annotations

import html
from collections import Counter
from typing import TYPE_CHECKING, Final

from tidegate.config.option import without_secrets
from tidegate.model.control import ExecutionState, JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidegate.jobmaster.view import FailureView, JobView, StopView, SubtaskView, VertexView
    from tidegate.model.ids import SlotId

Object = dict[str, object]

_TASK_STATES: Final = (*(state.value for state in ExecutionState), "RECONCILING")
_JOB_STATES: Final = tuple(status.value for status in JobStatus)
_SHARING_GROUP: Final = "0" * 32
"""All steps share slots."""

_PASSING: Final = tuple(state.value for state in ExecutionState if not state.is_terminal)
_NOT_YET: Final = -1
_NOWHERE: Final = "(unassigned)"


def overview(job: JobView, now_ms: int) -> Object:
    states = _counted(states_of(vertex) for vertex in job.vertices)
    return {
        "jid": job.job,
        "name": job.name,
        "state": job.status.value,
        **_span(job, now_ms),
        "last-modification": max(job.timestamps_ms.values(), default=0),
        "tasks": {
            "total": sum(states.values()),
            **{state.lower(): count for state, count in states.items()},
        },
        "pending-operators": 0,
        "jobType": _type(job),
        "schedulerType": "Default",
    }


def details(job: JobView, now_ms: int) -> Object:
    aggregates = Counter(state_of(vertex) for vertex in job.vertices)
    return {
        "jid": job.job,
        "name": job.name,
        "isStoppable": False,
        "state": job.status.value,
        "job-type": _type(job),
        "schedulerType": "Default",
        **_span(job, now_ms),
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


def _span(job: JobView, now_ms: int) -> Object:
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
    return {
        "id": vertex.id.hex(),
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": now_ms,
        "subtasks": [subtask_of(job, subtask, now_ms) for subtask in vertex.subtasks],
        "aggregated": {
            "metrics": _aggregated([_io([subtask], now_ms) for subtask in vertex.subtasks]),
            "status-duration": _aggregated(
                [_durations(subtask, now_ms) for subtask in vertex.subtasks]
            ),
        },
    }


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


def subtask_times(job: JobView, vertex: VertexView, now_ms: int) -> Object:
    return {
        "id": vertex.id.hex(),
        "name": vertex.name,
        "now": now_ms,
        "subtasks": [
            {
                "subtask": subtask.index,
                "endpoint": _host(job, subtask.slot) or _NOWHERE,
                "duration": subtask_of(job, subtask, now_ms)["duration"],
                "timestamps": {
                    **dict.fromkeys(_TASK_STATES, 0),
                    **{state.value: ms for state, ms in subtask.timestamps_ms.items()},
                },
            }
            for subtask in vertex.subtasks
        ],
    }


def subtask_of(job: JobView, subtask: SubtaskView, now_ms: int) -> Object:
    began_ms = _deployed_ms(subtask)
    entered = subtask.timestamps_ms
    ended_ms = entered[subtask.state] if subtask.state.is_terminal else _NOT_YET
    until_ms = now_ms if ended_ms == _NOT_YET else ended_ms
    return {
        "subtask": subtask.index,
        "status": subtask.state.value,
        "attempt": subtask.attempt,
        "endpoint": _host(job, subtask.slot) or _NOWHERE,
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


def _host(job: JobView, id: SlotId | None) -> str | None:
    return next((slot.host for slot in job.slots if slot.id == id), None)


def _io(subtasks: Iterable[SubtaskView], now_ms: int) -> Object:
    """Counts of rows and times. Bytes are not counted, and marked as incomplete."""
    subtasks = tuple(subtasks)
    figures = [subtask.figures for subtask in subtasks]
    busy_ms = sum(each.busy_ms for each in figures)
    blocked_ms = sum(each.blocked_ms for each in figures)
    running_ms = sum(_running_ms(subtask, now_ms) for subtask in subtasks)
    reported = bool(subtasks)
    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": 0,
        "write-bytes-complete": False,
        "read-records": sum(each.rows_in for each in figures),
        "read-records-complete": reported,
        "write-records": sum(each.rows_out for each in figures),
        "write-records-complete": reported,
        "accumulated-backpressured-time": blocked_ms,
        "accumulated-idle-time": max(0, running_ms - busy_ms - blocked_ms),
        "accumulated-busy-time": float(busy_ms),
    }


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
                {"operator": operator.name, "function": each.call, "by-row": each.by_row}
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
                    "exchange": "pipelined_bounded",
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
    return {
        "exceptionHistory": {
            "entries": [
                {
                    **_failure(job, failure),
                    "concurrentExceptions": [_failure(job, one) for one in failure.concurrent],
                }
                for failure in found[:entries_max]
            ],
            "truncated": len(found) > entries_max,
        }
    }


def _failure(job: JobView, failure: FailureView) -> Object:
    return {
        "exceptionName": failure.kind,
        "stacktrace": failure.error,
        "timestamp": failure.wall_ms,
        "failureLabels": dict(failure.labels),
        "taskName": failure.task or None,
        "endpoint": _host(job, failure.slot),
        "taskManagerId": failure.slot,
    }


def cluster(job: JobView, version: str) -> Object:
    """``/overview``: the slots, and the state of the one job."""
    used = {s.slot for v in job.vertices for s in v.subtasks if not s.state.is_terminal}
    ended = {
        "jobs-finished": JobStatus.FINISHED,
        "jobs-cancelled": JobStatus.CANCELED,
        "jobs-failed": JobStatus.FAILED,
    }
    return {
        "taskmanagers": len(job.slots),
        "slots-total": len(job.slots),
        "slots-available": sum(slot.id not in used for slot in job.slots),
        "jobs-running": int(not job.status.is_terminal),
        **{name: int(job.status is status) for name, status in ended.items()},
        "flink-version": version,
        "flink-commit": "unknown",
    }


def waits(job: JobView) -> Object:
    """Calls of over 10 s, tasks that wait for a slot of their own or a stop for. Not in Flink."""
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
            "task": f"{vertex.name} ({subtask.index + 1}/{vertex.parallelism})",
            "slot": subtask.slot,
            "host": _host(job, subtask.slot),
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

"""Slots as Flink's task managers, the driver as its job manager, the job as an application.

Source: REST §2; dashboard §3.4 to §3.9.
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Final

from tidegate.config.configuration import shown_settings
from tidegate.model.control import JobStatus
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.rest.shapes import job_shapes as jobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.jobmaster.view import FailureView, JobView, SlotView
    from tidegate.model.control import ThreadStack
    from tidegate.model.ids import SlotId

Object = dict[str, object]

UNKNOWN: Final = -1
_CORES: Final = 1
"""A slot is one process with one loop."""

_APPLICATION: Final = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "CREATED",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.RESTARTING: "RUNNING",
    JobStatus.RECONCILING: "RUNNING",
    JobStatus.SUSPENDED: "RUNNING",
    JobStatus.FAILING: "FAILING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
}
"""Flink's applications have fewer states; a suspended job is one that goes on elsewhere."""


def application(job: JobView, now_ms: int) -> Object:
    """One of ``/applications/overview``: the job is an application of its own."""
    return application_of(jobs.overview(job, now_ms))


def application_of(overview: Mapping[str, object]) -> Object:
    """The application of a job. overview: of the job, as in ``/jobs/overview``."""
    state = JobStatus(overview["state"])
    return {
        "id": overview["jid"],
        "name": overview["name"],
        "status": _APPLICATION[state],
        **{name: overview[name] for name in ("start-time", "end-time", "duration")},
        "jobs": {status.value: int(state is status) for status in JobStatus},
    }


def application_details(job: JobView, now_ms: int) -> Object:
    timestamps = dict.fromkeys(_APPLICATION.values(), 0)
    for status, ms in job.timestamps_ms.items():
        state = _APPLICATION[status]
        timestamps[state] = max(ms, timestamps[state])
    return {
        **application(job, now_ms),
        "timestamps": timestamps,
        "jobs": [jobs.overview(job, now_ms)],
    }


def application_exceptions(job: JobView) -> Object:
    """Failures that have ended the job; those that it has survived are its own."""
    ended = job.failures[:1] if job.status is JobStatus.FAILED else ()
    return {"exceptionHistory": {"entries": [_ending(job, failure) for failure in ended]}}


def _ending(job: JobView, failure: FailureView) -> Object:
    return {
        "exceptionName": failure.kind,
        "stacktrace": failure.error,
        "timestamp": failure.wall_ms,
        "jobId": job.job,
    }


def slots(job: JobView, now_ms: int) -> Object:
    tasks = _tasks(job)
    return {"taskmanagers": [_slot(slot, tasks[slot.id], now_ms) for slot in job.slots]}


def slot_details(job: JobView, slot: SlotView, now_ms: int) -> Object:
    """``/taskmanagers/:taskmanagerid``. What is resident stands for a JVM's heap."""
    tasks = _tasks(job)[slot.id]
    allocated = {"jobId": job.job, "assignedTasks": tasks, "resource": _resource(_CORES)}
    return {
        **_slot(slot, tasks, now_ms),
        "metrics": {
            **dict.fromkeys(_JVM_MEMORY, 0),
            "heapUsed": _figure(slot, _RESIDENT),
            "heapCommitted": _figure(slot, _RESIDENT),
            "garbageCollectors": [
                {"name": "Python", "count": _figure(slot, _COLLECTIONS), "time": 0}
            ],
        },
        "allocatedSlots": [allocated] if tasks else [],
    }


def _slot(slot: SlotView, tasks: int, now_ms: int) -> Object:
    return {
        "id": slot.id,
        "path": f"{slot.host}, pid {slot.pid}",
        "dataPort": UNKNOWN,
        "jmxPort": UNKNOWN,
        "timeSinceLastHeartbeat": now_ms - slot.pulse_age_ms,
        "slotsNumber": 1,
        "freeSlots": int(not tasks),
        "assignedTasks": tasks,
        "totalResource": _resource(_CORES),
        "freeResource": _resource(0 if tasks else _CORES),
        "hardware": {
            "cpuCores": _CORES,
            "physicalMemory": 0,
            "freeMemory": _figure(slot, _RESIDENT),
            "managedMemory": 0,
        },
        "memoryConfiguration": dict.fromkeys(_MEMORY),
    }


def _figure(slot: SlotView, key: MetricKey) -> int:
    """A whole number among the metrics of a slot; 0 until the slot has told it."""
    value = slot.metrics.get(key, 0)
    return value if isinstance(value, int) else 0


_RESIDENT: Final = MetricKey("Status.Process.Memory.Resident", MetricKind.GAUGE)
_COLLECTIONS: Final = MetricKey("Status.Python.GarbageCollector.Count", MetricKind.COUNTER)


def _tasks(job: JobView) -> Counter[SlotId | None]:
    """Number of subtasks in each slot, counted once for all that an answer shows."""
    return Counter(
        subtask.slot
        for vertex in job.vertices
        for subtask in vertex.subtasks
        if not subtask.state.is_terminal
    )


def _resource(cores: int) -> Object:
    return {
        "cpuCores": float(cores),
        **dict.fromkeys(
            ("taskHeapMemory", "taskOffHeapMemory", "managedMemory", "networkMemory"), 0
        ),
        "extendedResources": {},
    }


_MEMORY: Final = (
    "frameworkHeap",
    "taskHeap",
    "frameworkOffHeap",
    "taskOffHeap",
    "networkMemory",
    "managedMemory",
    "jvmMetaspace",
    "jvmOverhead",
    "totalFlinkMemory",
    "totalProcessMemory",
)

_JVM_MEMORY: Final = (
    *(f"{kind}{what}" for kind in ("heap", "nonHeap") for what in ("Used", "Committed", "Max")),
    *(f"{kind}{what}" for kind in ("direct", "mapped") for what in ("Count", "Used", "Max")),
    "memorySegmentsAvailable",
    "memorySegmentsTotal",
    *(
        f"nettyShuffleMemory{unit}{what}"
        for unit in ("Segments", "")
        for what in ("Available", "Used", "Total")
    ),
)


def settings_of(job: JobView) -> list[Object]:
    """``/jobmanager/config``: what was set, with secrets hidden."""
    given = shown_settings(job.settings.given)
    return [{"key": key, "value": value} for key, value in sorted(given.items())]


def driver_metrics(job: JobView, collections: Sequence[int]) -> dict[str, object]:
    """Metrics of ``/jobmanager/metrics``. collections: of Python's garbage, by generation."""
    tasks = _tasks(job)
    return {
        "numRegisteredTaskManagers": len(job.slots),
        "numRunningJobs": int(not job.status.is_terminal),
        "taskSlotsTotal": len(job.slots),
        "taskSlotsAvailable": sum(not tasks[slot.id] for slot in job.slots),
        **collections_of(collections),
    }


def collections() -> list[int]:
    """Collections of Python's garbage in this process, by generation."""
    return [generation["collections"] for generation in gc.get_stats()]


def collections_of(collections: Sequence[int]) -> dict[str, object]:
    """Metrics of Python's garbage. collections: by generation."""
    return {
        f"Status.JVM.GarbageCollector.Python_generation_{generation}.Count": count
        for generation, count in enumerate(collections)
    }


def threads(stacks: Sequence[ThreadStack]) -> Object:
    """``…/thread-dump``; the page joins the texts."""
    return {
        "threadInfos": [
            {
                "threadName": stack.thread,
                "stringifiedThreadInfo": f'"{stack.thread}"\n{stack.stack.rstrip()}\n\n',
            }
            for stack in stacks
        ]
    }

"""Slots, applications, ends and parallelisms: each value of the job's view under its name."""

from __future__ import annotations

import base64
from dataclasses import replace

import msgspec
import pytest

from tests.rest.shown import (
    CAUSE,
    ENDED,
    IDLE,
    NOW_MS,
    ONE,
    OVER,
    READER,
    READS,
    SINK,
    SLOTS,
    SOURCE,
    VIEW,
    WRITER,
)
from tests.rest.world import JOB
from tidegate.model.control import ExecutionState, JobStatus, ThreadStack
from tidegate.rest.messages import Requirements
from tidegate.rest.refusals import BadRequest
from tidegate.rest.routes.scaling import parallelism_asked
from tidegate.rest.shapes import cluster_shapes as cluster
from tidegate.rest.shapes import job_shapes as jobs

STATES = (*(state.value for state in ExecutionState), "RECONCILING")
MEMORY = {
    "taskHeapMemory": 0,
    "taskOffHeapMemory": 0,
    "managedMemory": 0,
    "networkMemory": 0,
    "extendedResources": {},
}
SLOT = {
    "dataPort": -1,
    "jmxPort": -1,
    "slotsNumber": 1,
    "totalResource": {"cpuCores": 1.0, **MEMORY},
    "hardware": {"cpuCores": 1, "physicalMemory": 0, "freeMemory": 0, "managedMemory": 0},
    "memoryConfiguration": {
        "frameworkHeap": None,
        "taskHeap": None,
        "frameworkOffHeap": None,
        "taskOffHeap": None,
        "networkMemory": None,
        "managedMemory": None,
        "jvmMetaspace": None,
        "jvmOverhead": None,
        "totalFlinkMemory": None,
        "totalProcessMemory": None,
    },
}
BUSY = {
    **SLOT,
    "id": "one",
    "path": "host-1, pid 11",
    "timeSinceLastHeartbeat": NOW_MS - 5,
    "freeSlots": 0,
    "hardware": {"cpuCores": 1, "physicalMemory": 0, "freeMemory": 777, "managedMemory": 0},
    "assignedTasks": 1,
    "freeResource": {"cpuCores": 0.0, **MEMORY},
}


def counted(**counts: int) -> dict[str, int]:
    return {**dict.fromkeys(STATES, 0), **counts}


def free(id: str, path: str, age_ms: int) -> dict[str, object]:
    return {
        **SLOT,
        "id": id,
        "path": path,
        "timeSinceLastHeartbeat": NOW_MS - age_ms,
        "freeSlots": 1,
        "assignedTasks": 0,
        "freeResource": {"cpuCores": 1.0, **MEMORY},
    }


def test_slots_are_task_managers_with_one_slot() -> None:
    assert cluster.slots(VIEW, NOW_MS) == {
        "taskmanagers": [
            BUSY,
            free("two", "host-2, pid 12", 6),
            free("idle", "host-3, pid 13", 7),
        ]
    }


def test_a_slot_has_what_runs_in_it() -> None:
    figures = (
        "heapUsed heapCommitted heapMax nonHeapUsed nonHeapCommitted nonHeapMax directCount "
        "directUsed directMax mappedCount mappedUsed mappedMax memorySegmentsAvailable "
        "memorySegmentsTotal nettyShuffleMemorySegmentsAvailable nettyShuffleMemorySegmentsUsed "
        "nettyShuffleMemorySegmentsTotal nettyShuffleMemoryAvailable nettyShuffleMemoryUsed "
        "nettyShuffleMemoryTotal"
    )
    memory = {
        **dict.fromkeys(figures.split(), 0),
        "heapUsed": 777,
        "heapCommitted": 777,
        "garbageCollectors": [{"name": "Python", "count": 31, "time": 0}],
    }
    resource = {"cpuCores": 1.0, **MEMORY}
    assert cluster.slot_details(VIEW, SLOTS[0], NOW_MS) == {
        **BUSY,
        "metrics": memory,
        "allocatedSlots": [{"jobId": JOB, "assignedTasks": 1, "resource": resource}],
    }
    assert cluster.slot_details(VIEW, SLOTS[2], NOW_MS)["allocatedSlots"] == []


def test_the_subtasks_of_a_vertex_by_slot() -> None:
    page = jobs.slots_of(VIEW, READER, NOW_MS)
    first, second = page.pop("taskmanagers")  # type: ignore[misc]
    assert page == {"id": SOURCE.hex(), "name": "read <fast>", "now": NOW_MS}
    own = jobs.subtask_of(jobs.hosts(VIEW), READS, NOW_MS)
    assert first == {
        "endpoint": "host-1",
        "taskmanager-id": "one",
        "status": "RUNNING",
        "start-time": 1_200,
        "end-time": -1,
        "duration": 18_800,
        "metrics": own["metrics"],
        "status-counts": counted(RUNNING=1),
        "aggregated": jobs.vertex_details(VIEW, replace(READER, subtasks=(READS,)), NOW_MS)[
            "aggregated"
        ],
    }
    assert [second[name] for name in ("taskmanager-id", "status", "end-time", "duration")] == [
        "two",
        "FINISHED",
        9_500,
        8_300,
    ]
    nowhere = replace(READER, subtasks=(replace(ENDED, slot=None), replace(READS, slot=None)))
    [together] = jobs.slots_of(VIEW, nowhere, NOW_MS)["taskmanagers"]  # type: ignore[misc]
    assert together["endpoint"] == together["taskmanager-id"] == "(unassigned)"
    assert together["status-counts"] == counted(RUNNING=1, FINISHED=1)


def application(state: JobStatus, shown: str) -> dict[str, object]:
    return {
        "id": JOB,
        "name": "orders",
        "status": shown,
        "start-time": 1_000,
        "end-time": -1,
        "duration": 19_000,
        "jobs": {status.value: int(status is state) for status in JobStatus},
    }


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (JobStatus.INITIALIZING, "CREATED"),
        (JobStatus.CREATED, "CREATED"),
        (JobStatus.RUNNING, "RUNNING"),
        (JobStatus.RESTARTING, "RUNNING"),
        (JobStatus.SUSPENDED, "RUNNING"),
        (JobStatus.RECONCILING, "RUNNING"),
        (JobStatus.FAILING, "FAILING"),
        (JobStatus.CANCELLING, "CANCELING"),
    ],
)
def test_a_job_is_an_application(status: JobStatus, shown: str) -> None:
    job = replace(VIEW, status=status)
    assert cluster.application(job, NOW_MS) == application(status, shown)


def test_an_application_has_its_job_and_when_it_came_to_its_states() -> None:
    assert cluster.application_details(VIEW, NOW_MS) == {
        **application(JobStatus.RUNNING, "RUNNING"),
        "timestamps": {
            "CREATED": 1_010,
            "RUNNING": 1_600,
            "FAILING": 0,
            "FAILED": 0,
            "CANCELING": 0,
            "CANCELED": 0,
            "FINISHED": 0,
        },
        "jobs": [jobs.overview(VIEW, NOW_MS)],
    }
    over = cluster.application_details(OVER, NOW_MS)
    assert (over["status"], over["end-time"], over["duration"]) == ("FAILED", 12_000, 11_000)
    assert over["timestamps"]["FAILED"] == 12_000  # type: ignore[index]


def test_an_application_fails_with_its_jobs_last_failure() -> None:
    told = {
        "exceptionName": "ValueError",
        "stacktrace": "it broke",
        "timestamp": 4_000,
        "jobId": JOB,
    }
    assert cluster.application_exceptions(OVER) == {"exceptionHistory": {"entries": [told]}}
    assert cluster.application_exceptions(VIEW) == {"exceptionHistory": {"entries": []}}


def test_the_settings_of_a_job_have_no_secrets() -> None:
    given = {"rest.port": "0", "parallelism.default": "3", "security.ssl.rest.key-password": "b"}
    view = replace(VIEW, settings=replace(VIEW.settings, given=given))
    assert cluster.settings_of(view) == [
        {"key": "parallelism.default", "value": "3"},
        {"key": "rest.port", "value": "0"},
        {"key": "security.ssl.rest.key-password", "value": "******"},
    ]


@pytest.mark.parametrize(
    "given, shown",
    [
        ("db.password:hunter2,city: Delft", "db.password:******,city:Delft"),
        ("city: Delft", "city: Delft"),
    ],
)
def test_secrets_within_a_map_are_hidden(given: str, shown: str) -> None:
    key = "pipeline.global-job-parameters"
    view = replace(VIEW, settings=replace(VIEW.settings, given={key: given}))
    assert cluster.settings_of(view) == [{"key": key, "value": shown}]


def test_the_metrics_of_the_driver() -> None:
    assert cluster.driver_metrics(VIEW, (5, 4, 2)) == {
        "numRegisteredTaskManagers": 3,
        "numRunningJobs": 1,
        "taskSlotsTotal": 3,
        "taskSlotsAvailable": 2,
        "Status.JVM.GarbageCollector.Python_generation_0.Count": 5,
        "Status.JVM.GarbageCollector.Python_generation_1.Count": 4,
        "Status.JVM.GarbageCollector.Python_generation_2.Count": 2,
    }
    assert cluster.driver_metrics(OVER, ())["numRunningJobs"] == 0


def test_threads_are_texts_that_the_page_joins() -> None:
    stacks = (ThreadStack("loop", "line 1\nline 2\n"), ThreadStack("io", "line 3"))
    assert cluster.threads(stacks) == {
        "threadInfos": [
            {"threadName": "loop", "stringifiedThreadInfo": '"loop"\nline 1\nline 2\n\n'},
            {"threadName": "io", "stringifiedThreadInfo": '"io"\nline 3\n\n'},
        ]
    }


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (JobStatus.FINISHED, "SUCCEEDED"),
        (JobStatus.FAILED, "FAILED"),
        (JobStatus.CANCELED, "CANCELED"),
    ],
)
def test_the_result_of_a_job_that_is_over(status: JobStatus, shown: str) -> None:
    over = replace(VIEW, status=status, timestamps_ms={**VIEW.timestamps_ms, status: 12_000})
    found = jobs.execution_result(over, NOW_MS)
    result = found.pop("job-execution-result")
    assert found == {"status": {"id": "COMPLETED"}}
    cause = {
        "class": "ValueError",
        "stack-trace": "it broke",
        "serialized-throwable": base64.b64encode(b"it broke").decode(),
    }
    assert result == {
        "id": JOB,
        "name": "orders",
        "application-status": shown,
        "accumulator-results": {},
        "net-runtime": 11_000,
        "start-time": 1_000,
        "end-time": 12_000,
        "application-id": JOB,
        **({"failure-cause": cause} if status is JobStatus.FAILED else {}),
    }
    assert jobs.execution_result(VIEW, NOW_MS) == {"status": {"id": "IN_PROGRESS"}}
    assert CAUSE.error == "it broke"


def asked(**upper: int) -> dict[str, Requirements]:
    ids = {"source": SOURCE.hex(), "sink": SINK.hex()}
    body = {ids[name]: {"parallelism": {"upperBound": n}} for name, n in upper.items()}
    return msgspec.convert(body, dict[str, Requirements])


ALIKE = replace(VIEW, vertices=(READER, replace(WRITER, parallelism=2)))
FIXED = replace(VIEW, vertices=(READER, replace(WRITER, parallelism_set=True)))


def test_a_vertex_requires_what_it_runs_at() -> None:
    assert jobs.requirements(VIEW) == {
        SOURCE.hex(): {"parallelism": {"lowerBound": 1, "upperBound": 2}},
        SINK.hex(): {"parallelism": {"lowerBound": 1, "upperBound": 1}},
    }


def test_steps_that_follow_the_job_are_rescaled_together() -> None:
    assert parallelism_asked(ALIKE, asked(source=5, sink=5)) == 5
    assert parallelism_asked(ALIKE, asked(source=2, sink=2)) is None
    assert parallelism_asked(FIXED, asked(source=5, sink=1)) == 5
    assert parallelism_asked(FIXED, asked(source=5)) == 5


@pytest.mark.parametrize(
    ("upper", "why"),
    [
        ({"source": 5, "sink": 2}, "'read <fast>', 'write'"),
        ({"source": 5}, "change together"),
        ({"source": 0, "sink": 0}, "from 1 to 128, not from 1 to 0"),
        ({"source": 100, "sink": 100}, "'write' can have a parallelism from 1 to 64"),
    ],
)
def test_what_no_parallelism_of_the_job_gives_is_refused(upper: dict[str, int], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        parallelism_asked(ALIKE, asked(**upper))


def test_a_parallelism_that_the_program_has_set_stays() -> None:
    with pytest.raises(BadRequest, match="'write' keeps the parallelism 1"):
        parallelism_asked(FIXED, asked(source=5, sink=5))
    unknown = {"00" * 16: asked(sink=1)[SINK.hex()]}
    with pytest.raises(BadRequest, match="no vertex 0000"):
        parallelism_asked(VIEW, unknown)


def test_slots_are_those_of_the_view() -> None:
    assert [slot.id for slot in SLOTS] == [ONE, "two", IDLE]

"""Each page of a job shows each of its values under its name, and no constant in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rest.shown import (
    BESIDE,
    CAUSE,
    ENDED,
    NOW_MS,
    OLDER,
    OVER,
    READER,
    READS,
    SINK,
    SLOTS,
    SOURCE,
    TWO,
    VIEW,
    WRITER,
)
from tests.rest.world import DONE, FIRST, JOB
from tidegate.jobmaster.view import FailureView, StopView
from tidegate.jobmaster.view import WaitView as Wait
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.metrics import MetricKey, MetricKind
from tidegate.rest.refusals import BadRequest
from tidegate.rest.shapes import job_shapes as jobs
from tidegate.rest.shapes import metric_shapes as metrics
from tidegate.telemetry.picture import waits

STATES = [
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
]
IO = {
    "read-bytes": 0,
    "read-bytes-complete": True,
    "write-bytes": 0,
    "write-bytes-complete": True,
}


def counted(**counts: int) -> dict[str, int]:
    return {**dict.fromkeys(STATES, 0), **counts}


def test_the_job_in_a_list_of_jobs() -> None:
    assert jobs.overview(VIEW, NOW_MS) == {
        "jid": JOB,
        "name": "orders",
        "state": "RUNNING",
        "start-time": 1_000,
        "end-time": -1,
        "duration": 19_000,
        "last-modification": 1_600,
        "tasks": {
            "total": 3,
            **{state.lower(): n for state, n in counted(RUNNING=1, FINISHED=1, CREATED=1).items()},
        },
        "pending-operators": 0,
        "jobType": "STREAMING",
        "schedulerType": "Default",
        "restarts": 4,
        "last-checkpoint": 1_021,
    }


def test_the_page_of_a_job() -> None:
    page = jobs.details(VIEW, NOW_MS)
    assert page.pop("plan") == jobs.plan(VIEW)
    assert page.pop("vertices") == [jobs.vertex_of(one, NOW_MS) for one in (READER, WRITER)]
    assert page == {
        "jid": JOB,
        "name": "orders",
        "application-id": JOB,
        "isStoppable": False,
        "state": "RUNNING",
        "job-type": "STREAMING",
        "schedulerType": "Default",
        "start-time": 1_000,
        "end-time": -1,
        "duration": 19_000,
        "maxParallelism": -1,
        "now": NOW_MS,
        "timestamps": {
            **{status.value: 0 for status in JobStatus},
            "INITIALIZING": 1_000,
            "CREATED": 1_010,
            "RUNNING": 1_600,
        },
        "status-counts": counted(RUNNING=1, CREATED=1),
        "pending-operators": 0,
    }


def test_a_job_that_is_over_has_an_end_and_a_batch_job_its_type() -> None:
    page = jobs.details(OVER, NOW_MS)
    assert (page["state"], page["end-time"], page["duration"]) == ("FAILED", 12_000, 11_000)
    slot = replace(VIEW.settings.slot, final_only=True)
    batch = replace(VIEW, settings=replace(VIEW.settings, slot=slot))
    assert jobs.details(batch, NOW_MS)["job-type"] == "BATCH"
    assert jobs.overview(batch, NOW_MS)["jobType"] == jobs.plan(batch)["type"] == "BATCH"


def test_a_vertex_on_the_page_of_its_job() -> None:
    shown = jobs.vertex_of(READER, NOW_MS)
    assert shown == {
        "id": SOURCE.hex(),
        "slotSharingGroupId": "0" * 32,
        "name": "read <fast>",
        "maxParallelism": 128,
        "parallelism": 2,
        "status": "RUNNING",
        "start-time": 1_200,
        "end-time": -1,
        "duration": 18_800,
        "tasks": counted(RUNNING=1, FINISHED=1),
        "metrics": {
            **IO,
            "read-records": 35,
            "read-records-complete": True,
            "write-records": 27,
            "write-records-complete": True,
            "accumulated-backpressured-time": 109,
            "accumulated-idle-time": 18_500 + 8_000 - 460 - 109,
            "accumulated-busy-time": 460.0,
        },
    }
    created = jobs.vertex_of(WRITER, NOW_MS)
    assert (created["status"], created["start-time"], created["duration"]) == ("CREATED", -1, -1)
    over = jobs.vertex_of(replace(READER, parallelism=1, subtasks=(ENDED,)), NOW_MS)
    assert (over["status"], over["end-time"], over["duration"]) == ("FINISHED", 9_500, 8_300)


def test_bytes_of_a_vertex_are_those_of_its_subtasks() -> None:
    counts = {"numBytesIn": 40, "numBytesOut": 3}
    metrics = {MetricKey(name, MetricKind.COUNTER): count for name, count in counts.items()}
    subtask = replace(READS, metrics=metrics)
    shown = jobs.vertex_of(replace(READER, subtasks=(subtask, subtask, ENDED)), NOW_MS)["metrics"]
    assert (shown["read-bytes"], shown["write-bytes"]) == (80, 6)


def test_a_subtask() -> None:
    assert jobs.subtask_of(jobs.hosts(VIEW), READS, NOW_MS) == {
        "subtask": 0,
        "status": "RUNNING",
        "attempt": 2,
        "endpoint": "host-1",
        "start-time": 1_200,
        "end-time": -1,
        "duration": 18_800,
        "metrics": {
            **IO,
            "read-records": 30,
            "read-records-complete": True,
            "write-records": 20,
            "write-records-complete": True,
            "accumulated-backpressured-time": 100,
            "accumulated-idle-time": 18_000,
            "accumulated-busy-time": 400.0,
        },
        "taskmanager-id": "one",
        "start_time": 1_200,
        "status-duration": {
            "CREATED": -1,
            "SCHEDULED": 100,
            "DEPLOYING": 100,
            "INITIALIZING": 200,
            "RUNNING": 18_500,
            "CANCELING": -1,
        },
    }
    ended = jobs.subtask_of(jobs.hosts(VIEW), ENDED, NOW_MS)
    assert (ended["end-time"], ended["duration"]) == (9_500, 8_300)


def test_the_page_of_a_vertex_has_its_subtasks_and_their_spread() -> None:
    page = jobs.vertex_details(VIEW, READER, NOW_MS)
    assert page["subtasks"] == [
        jobs.subtask_of(jobs.hosts(VIEW), one, NOW_MS) for one in (READS, ENDED)
    ]
    assert [page[name] for name in ("id", "name", "parallelism", "maxParallelism", "now")] == [
        SOURCE.hex(),
        "read <fast>",
        2,
        128,
        NOW_MS,
    ]
    aggregated = page["aggregated"]
    assert isinstance(aggregated, dict)
    assert aggregated["metrics"]["read-records"] == {
        "min": 5,
        "max": 30,
        "avg": 17,
        "sum": 35,
        "median": 30,
        "p25": 5,
        "p75": 30,
        "p95": 30,
    }
    assert aggregated["status-duration"]["RUNNING"]["min"] == 8_000


def test_the_times_of_subtasks() -> None:
    page = jobs.subtask_times(VIEW, READER, NOW_MS)
    first, second = page.pop("subtasks")  # type: ignore[misc]
    assert page == {"id": SOURCE.hex(), "name": "read <fast>", "now": NOW_MS}
    assert first == {
        "subtask": 0,
        "endpoint": "host-1",
        "duration": 18_800,
        "timestamps": counted(SCHEDULED=1_100, DEPLOYING=1_200, INITIALIZING=1_300, RUNNING=1_500),
    }
    assert second["timestamps"]["FINISHED"] == 9_500


def test_the_plan_has_the_vertices_and_what_they_read() -> None:
    node = {"operator": "", "operator_strategy": "", "optimizer_properties": {}}
    reads = {
        "num": 0,
        "id": SOURCE.hex(),
        "ship_strategy": "REBALANCE",
        "exchange": "pipelined_bounded",
    }
    assert jobs.plan(VIEW) == {
        "jid": JOB,
        "name": "orders",
        "type": "STREAMING",
        "nodes": [
            {
                **node,
                "id": SINK.hex(),
                "parallelism": 1,
                "description": "write<br/>",
                "functions": [],
                "inputs": [reads],
            },
            {
                **node,
                "id": SOURCE.hex(),
                "parallelism": 2,
                "description": "read &lt;fast&gt;<br/>",
                "functions": [
                    {
                        "operator": "read <fast>",
                        "function": "timestamps",
                        "each": "row",
                        "by-row": "",
                    },
                    {
                        "operator": "read <fast>",
                        "function": "map",
                        "each": "row",
                        "by-row": "line 3 calls a function",
                    },
                ],
            },
        ],
    }


@pytest.mark.parametrize("reused", [True, False])
def test_the_configuration_of_a_job(reused: bool) -> None:
    slot = replace(VIEW.settings.slot, object_reuse=reused)
    parameters = {"input": "a", "password": "b"}
    view = replace(VIEW, settings=replace(VIEW.settings, slot=slot, parameters=parameters))
    assert jobs.config(view) == {
        "jid": JOB,
        "name": "orders",
        "execution-config": {
            "restart-strategy": "Cluster level default restart strategy",
            "job-parallelism": 2,
            "object-reuse-mode": reused,
            "user-config": {"input": "a", "password": "******"},
        },
    }


def shown(failure: FailureView, endpoint: str | None) -> dict[str, object]:
    return {
        "exceptionName": failure.kind,
        "stacktrace": failure.error,
        "timestamp": failure.wall_ms,
        "failureLabels": failure.labels,
        "taskName": failure.task or None,
        "endpoint": endpoint,
        "taskManagerId": failure.slot,
    }


def test_failures_with_those_that_came_beside_them() -> None:
    newest = {**shown(CAUSE, "host-1"), "concurrentExceptions": [shown(BESIDE, "host-2")]}
    oldest = {**shown(OLDER, None), "concurrentExceptions": []}

    def page(entries: list[object], *, truncated: bool) -> dict[str, object]:
        return {"exceptionHistory": {"entries": entries, "truncated": truncated}}

    assert jobs.exceptions(VIEW, 9, None) == page([newest, oldest], truncated=False)
    assert jobs.exceptions(VIEW, 1, None) == page([newest], truncated=True)
    assert jobs.exceptions(VIEW, 9, ("kind", "user")) == page([newest], truncated=False)
    assert jobs.exceptions(VIEW, 9, ("kind", "system")) == page([], truncated=False)


@pytest.mark.parametrize(
    ("status", "counted_as"),
    [
        (JobStatus.RUNNING, "jobs-running"),
        (JobStatus.FINISHED, "jobs-finished"),
        (JobStatus.CANCELED, "jobs-cancelled"),
        (JobStatus.FAILED, "jobs-failed"),
    ],
)
def test_the_cluster_has_the_slots_and_the_one_job(status: JobStatus, counted_as: str) -> None:
    counts = dict.fromkeys(("jobs-running", "jobs-finished", "jobs-cancelled", "jobs-failed"), 0)
    assert jobs.cluster(replace(VIEW, status=status), "1.2") == {
        "taskmanagers": 3,
        "slots-total": 3,
        "slots-available": 2,
        **counts,
        counted_as: 1,
        "flink-version": "1.2",
        "flink-commit": "unknown",
    }


def test_long_calls_and_what_a_stop_waits_for() -> None:
    call = {
        "task": "read <fast> (1/2)",
        "slot": "one",
        "host": "host-1",
        "duration": 12_000,
        "function": "lookup",
        "stack": ["a", "b"],
    }
    assert waits(VIEW) == {"calls": [call], "guests": [], "stop": None}
    stopping = StopView(700, "/saved", (Wait("write (1/1)", TWO, 300, "insert"),))
    share = {"task": "write (1/1)", "slot": "two", "call-duration": 300, "function": "insert"}
    stop = {"duration": 700, "savepoint": "/saved", "waits-for": [share]}
    told = waits(replace(VIEW, stopping=stopping))
    assert told == {"calls": [call], "guests": [], "stop": stop}


def test_guests_and_the_slots_that_host_them() -> None:
    guest = replace(ENDED, state=ExecutionState.RUNNING, guest=True)
    reader = replace(READER, subtasks=(READS, guest))
    assert waits(replace(VIEW, vertices=(reader, WRITER), slots=SLOTS[1:])) == {
        "calls": [],
        "guests": [{"task": "read <fast> (2/2)", "slot": "two", "host": "host-2"}],
        "stop": None,
    }


def test_the_metrics_of_a_job() -> None:
    assert metrics.of_job(VIEW, NOW_MS) == {
        "totalNumberOfCheckpoints": 21,
        "numberOfInProgressCheckpoints": 1,
        "numberOfCompletedCheckpoints": 17,
        "numberOfFailedCheckpoints": 3,
        "lastCheckpointRestoreTimestamp": 1_234,
        "lastCheckpointSize": DONE.checkpointed_size,
        "lastCheckpointFullSize": DONE.state_size,
        "lastCheckpointMetadataSize": DONE.metadata_size,
        "lastCheckpointDuration": DONE.duration_ms,
        "lastCheckpointProcessedData": DONE.processed_bytes,
        "lastCheckpointPersistedData": DONE.persisted_bytes,
        "lastCompletedCheckpointId": DONE.checkpoint,
        "lastCheckpointCompletedTimestamp": DONE.latest_ack_ms,
        "lastCheckpointExternalPath": DONE.pointer,
        "numRestarts": 4,
        "numRescales": 2,
        "numSourcesWithBacklog": 0,
        "uptime": 18_400,
    }
    assert metrics.of_job(OVER, NOW_MS)["uptime"] == -1


def test_the_metrics_of_a_subtask_and_its_operators() -> None:
    at = "read__fast_"
    assert metrics.of_subtask(VIEW, READER, READS) == {
        "numRecordsIn": 30,
        "numRecordsInPerSecond": 1.5,
        "busyTimeMsPerSecond": 500,
        "backPressuredTimeMsPerSecond": 250,
        f"{at}.shop.country.nl.seen": 7,
        f"{at}.size_count": 9,
        f"{at}.size_min": 1,
        f"{at}.size_max": 8,
        f"{at}.size_mean": 4.5,
        f"{at}.size_stddev": 2.5,
        f"{at}.size_median": 0,
        f"{at}.size_p75": 1,
        f"{at}.size_p95": 2,
        f"{at}.size_p98": 3,
        f"{at}.size_p99": 4,
        f"{at}.size_p999": 5,
        "initializationTime": 55,
        "checkpointAlignmentTime": FIRST.alignment_ms * 1_000_000,
        "checkpointStartDelayNanos": FIRST.start_delay_ms * 1_000_000,
        "checkpointSyncTimeMs": FIRST.sync_ms,
        "checkpointAsyncTimeMs": FIRST.async_ms,
        "checkpointStateSize": FIRST.state_size,
        "checkpointWrittenSize": FIRST.checkpointed_size,
    }


def test_metrics_of_several_subtasks_are_put_together() -> None:
    many: list[dict[str, object]] = [{"rows": 2, "path": "/a"}, {"rows": 4.0, "late": 1}, {}]
    assert metrics.aggregated(many, None, None) == [{"id": n} for n in ("rows", "path", "late")]
    whole = {"id": "rows", "min": 2, "max": 4, "avg": 3, "sum": 6, "skew": pytest.approx(33.3, 0.1)}
    assert metrics.aggregated(many, "rows,path,none", None) == [whole]
    assert metrics.aggregated(many, "late,rows", "MAX,sum") == [
        {"id": "late", "max": 1, "sum": 1},
        {"id": "rows", "max": 4, "sum": 6},
    ]
    assert metrics.aggregated([{"rows": 0}, {"rows": 0}], "rows", "skew") == [
        {"id": "rows", "skew": 0}
    ]
    with pytest.raises(BadRequest, match=r"\(agg\) from value \"most\""):
        metrics.aggregated(many, "rows", "most")


def test_backpressure_and_watermarks_by_subtask() -> None:
    low = {"backpressureLevel": "low", "backpressure-level": "low"}
    assert metrics.backpressure(READER, NOW_MS) == {
        "status": "ok",
        **low,
        "end-timestamp": NOW_MS,
        "subtasks": [{"subtask": 0, **low, "ratio": 0.25, "idleRatio": 0.25, "busyRatio": 0.5}],
    }
    assert metrics.watermarks(READER) == [{"id": "0.currentInputWatermark", "value": "77"}]

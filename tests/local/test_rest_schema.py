"""Every field of Flink's checkpoint pages, with its type, from a job to which all has happened."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import Counted, running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink
from tests.e2e.probes import BreakingOnce
from tests.e2e.rest import SERVED, Rest
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.runtimes import Jobs
from tests.e2e.savepoints import counting, wait_rows
from tests.e2e.watch import until, wait_completed, wait_recovered
from tidegate import CheckpointedFunction, MapFunction, RuntimeContext, SnapshotContext

pytestmark = pytest.mark.slow

NAN = (float, "NaN")
STATS = {
    "min": int, "max": int, "avg": int,
    "p50": NAN, "p90": NAN, "p95": NAN, "p99": NAN, "p999": NAN,
}  # fmt: skip
STATUS = ("IN_PROGRESS", "COMPLETED", "FAILED")
TASK = {
    "id": int, "status": STATUS, "latest_ack_timestamp": int, "checkpointed_size": int,
    "state_size": int, "end_to_end_duration": int, "alignment_buffered": int,
    "processed_data": int, "persisted_data": int, "num_subtasks": int,
    "num_acknowledged_subtasks": int,
}  # fmt: skip
KINDS = ("CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT")
CHECKPOINT = {
    **TASK,
    "className": ("completed", "failed", "in_progress"),
    "is_savepoint": bool,
    "savepointFormat": (None, "CANONICAL", "NATIVE"),
    "trigger_timestamp": int,
    "checkpoint_type": KINDS,
    "tasks": {},
}
COMPLETED = {
    **CHECKPOINT, "className": ("completed",), "external_path": str, "discarded": bool
}  # fmt: skip
FAILED = {
    **CHECKPOINT, "className": ("failed",), "failure_timestamp": int, "failure_message": str
}  # fmt: skip
IN_PROGRESS = {**CHECKPOINT, "className": ("in_progress",)}
OVERVIEW = {
    "counts": {
        "restored": int, "total": int, "in_progress": int, "completed": int, "failed": int
    },
    "summary": {
        "checkpointed_size": STATS, "state_size": STATS, "end_to_end_duration": STATS,
        "alignment_buffered": STATS, "processed_data": STATS, "persisted_data": STATS,
    },
    "latest": {
        "completed": COMPLETED,
        "savepoint": COMPLETED,
        "failed": FAILED,
        "restored": {
            "id": int, "restore_timestamp": int, "is_savepoint": bool, "external_path": str
        },
    },
    "history": list,
}  # fmt: skip
CONFIG = {
    "mode": ("exactly_once", "at_least_once"), "interval": int, "timeout": int, "min_pause": int,
    "max_concurrent": int, "externalization": {"enabled": bool, "delete_on_cancellation": bool},
    "state_backend": str, "checkpoint_storage": str, "unaligned_checkpoints": bool,
    "tolerable_failed_checkpoints": int, "aligned_checkpoint_timeout": int,
    "checkpoints_after_tasks_finish": bool, "state_changelog_enabled": bool,
    "changelog_periodic_materialization_interval": int, "changelog_storage": (None, str),
}  # fmt: skip
SUBTASK = {
    "className": ("completed",), "index": int, "status": ("completed",), "ack_timestamp": int,
    "end_to_end_duration": int, "checkpointed_size": int, "state_size": int,
    "checkpoint": {"sync": int, "async": int},
    "alignment": {"buffered": (0,), "processed": int, "persisted": int, "duration": int},
    "start_delay": int, "unaligned_checkpoint": bool, "aborted": bool,
}  # fmt: skip
PENDING = {"className": ("pending",), "index": int, "status": ("pending_or_failed",)}
SUBTASKS = {
    **TASK,
    "summary": {
        "checkpointed_size": STATS, "state_size": STATS, "end_to_end_duration": STATS,
        "checkpoint_duration": {"sync": STATS, "async": STATS},
        "alignment": {
            "buffered": STATS, "processed": STATS, "persisted": STATS, "duration": STATS
        },
        "start_delay": STATS,
    },
    "subtasks": list,
}  # fmt: skip


def check(schema: Any, value: Any, at: str) -> None:
    """Each field is there and of its type, and there is no other."""
    match schema:
        case dict():
            assert isinstance(value, dict) and value.keys() == schema.keys(), at
            for name, inner in schema.items():
                check(inner, value[name], f"{at}.{name}")
        case tuple():
            assert any(value == one or type(value) is one for one in schema), f"{at} is {value!r}"
        case _:
            assert type(value) is schema, f"{at} is {value!r}"


@dataclass
class Waiting(MapFunction[Counted, Counted], CheckpointedFunction):
    """One of its subtasks takes no snapshot while the latch is set. held: which one, in a file."""

    latch: Latch
    held: Path

    def open(self, runtime_context: RuntimeContext) -> None:
        self._first = runtime_context.get_index_of_this_subtask() == 0

    def map(self, value: Counted) -> Counted:
        return value

    def snapshot_state(self, context: SnapshotContext) -> None:
        if self._first and self.latch.is_set:
            self.held.write_text(str(context.checkpoint))
            self.latch.wait()


def of_class(history: list[Any], name: str) -> Any:
    """The newest of a kind."""
    return next((one for one in history if one["className"] == name), None)


@pytest.mark.feature("F291")
def test_the_checkpoint_pages_have_every_field_with_its_type(jobs: Jobs) -> None:
    before = counting(jobs, 2, None, 500)
    wait_rows(before, 50)
    savepoints, no_folder = str(jobs.folder / "savepoints"), jobs.folder / "file"
    path = before.stop_with_savepoint(False, savepoints).result(100)
    latch, held = Latch(jobs.folder / "latch"), jobs.folder / "held"
    env = jobs.checkpointed(2, 100, **SERVED, **{RESTORE_PATH: path})
    counts = running_counts(env, None, 500).map(Waiting(latch, held)).uid("waiting")
    counts.sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    client = jobs.start(env, "asked")
    wait_completed(client, 3)
    rest = Rest.of(client)
    no_folder.write_text("no folder")
    client.trigger_savepoint(savepoints).result(100)
    assert client.trigger_savepoint(no_folder).exception(20) is not None
    latch.set()
    where = f"{rest.job}/checkpoints"

    def half_way() -> bool:
        found = of_class(rest.get(where)["history"], "in_progress")
        some = found and 0 < found["num_acknowledged_subtasks"] < found["num_subtasks"]
        return some and str(found["id"]) == held.read_text()

    until(held.exists, "a checkpoint is held up")
    until(half_way, "some of its subtasks have acknowledged")
    try:
        check_pages(rest, where)
    finally:
        latch.release()


def check_pages(rest: Rest, where: str) -> None:
    """All pages, while a checkpoint is under way."""
    seen = rest.get(where)
    check(OVERVIEW, seen, "checkpoints")
    assert seen["counts"]["restored"] == seen["counts"]["in_progress"] == 1
    kinds = {"completed": COMPLETED, "failed": FAILED, "in_progress": IN_PROGRESS}
    for one in seen["history"]:
        check(kinds[one["className"]], one, f"history.{one['id']}")
    assert [one["id"] for one in seen["history"]] == sorted(
        (one["id"] for one in seen["history"]), reverse=True
    )
    check(CONFIG, rest.get(f"{where}/config"), "config")
    vertices = [vertex["id"] for vertex in rest.get(rest.job)["vertices"]]
    for name, schema in kinds.items():
        one = of_class(seen["history"], name) or seen["latest"][name]
        check_details(rest, one, schema, vertices)


def check_details(rest: Rest, one: Any, schema: Any, vertices: list[str]) -> None:
    """The pages of one checkpoint add up; one under way may get on between two of them."""
    at = f"{rest.job}/checkpoints/details/{one['id']}"
    details = rest.get(at)
    check({**schema, "tasks": dict.fromkeys(vertices, TASK)}, details, at)
    under_way = one["className"] == "in_progress"
    assert under_way or {**details, "tasks": {}} == one
    for figure in ("state_size", "num_subtasks", "num_acknowledged_subtasks"):
        assert sum(task[figure] for task in details["tasks"].values()) == details[figure]
    for vertex in vertices:
        found = rest.get(f"{at}/subtasks/{vertex}")
        check(SUBTASKS, found, vertex)
        assert [subtask["index"] for subtask in found["subtasks"]] == [0, 1]
        for subtask in found["subtasks"]:
            check(SUBTASK if subtask["status"] == "completed" else PENDING, subtask, vertex)
        reported = [s for s in found["subtasks"] if s["status"] == "completed"]
        known = details["tasks"][vertex]["num_acknowledged_subtasks"]
        assert len(reported) == known or (under_way and len(reported) > known)


IO = {
    "read-bytes": int, "read-bytes-complete": bool, "write-bytes": int,
    "write-bytes-complete": bool, "read-records": int, "read-records-complete": bool,
    "write-records": int, "write-records-complete": bool,
    "accumulated-backpressured-time": int, "accumulated-idle-time": int,
    "accumulated-busy-time": float,
}  # fmt: skip
TASK_STATES = (
    "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING",
    "CANCELED", "FAILED", "RECONCILING",
)  # fmt: skip
PASSING = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "CANCELING")
JOB_STATES = (
    "INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED",
    "FINISHED", "RESTARTING", "SUSPENDED", "RECONCILING",
)  # fmt: skip
JOB = {
    "jid": str, "name": str, "state": JOB_STATES, "start-time": int, "end-time": (-1,),
    "duration": int, "schedulerType": ("Default",), "pending-operators": (0,),
}  # fmt: skip
OVERVIEW_JOB = {
    **JOB,
    "last-modification": int,
    "tasks": {"total": int, **{state.lower(): int for state in TASK_STATES}},
    "jobType": ("STREAMING",),
    # Not in Flink.
    "restarts": int,
    "last-checkpoint": int,
}
VERTEX = {
    "id": str, "slotSharingGroupId": str, "name": str, "maxParallelism": int, "parallelism": int,
    "status": TASK_STATES, "start-time": int, "end-time": (-1,), "duration": int,
    "tasks": dict.fromkeys(TASK_STATES, int), "metrics": IO,
}  # fmt: skip
DETAILS = {
    **JOB,
    "application-id": str, "isStoppable": (False,), "job-type": ("STREAMING",),
    "maxParallelism": (-1,), "now": int,
    "timestamps": dict.fromkeys(JOB_STATES, int), "vertices": list,
    "status-counts": dict.fromkeys(TASK_STATES, int),
    "plan": {"jid": str, "name": str, "type": ("STREAMING",), "nodes": list},
}  # fmt: skip
NODE = {
    "id": str, "parallelism": int, "operator": ("",), "operator_strategy": ("",),
    "description": str, "optimizer_properties": {}, "functions": list,
}  # fmt: skip
INPUT = {"num": int, "id": str, "ship_strategy": ("HASH",), "exchange": ("pipelined_bounded",)}
SUBTASK_PAGE = {
    "subtask": int, "status": TASK_STATES, "attempt": int, "endpoint": str, "start-time": int,
    "start_time": int, "end-time": (-1,), "duration": int, "metrics": IO, "taskmanager-id": str,
    "status-duration": dict.fromkeys(PASSING, int),
}  # fmt: skip
SPREAD = dict.fromkeys(("min", "max", "avg", "sum", "median", "p25", "p75", "p95"), int)
VERTEX_PAGE = {
    "id": str, "name": str, "parallelism": int, "maxParallelism": int, "now": int,
    "subtasks": list,
    "aggregated": {
        "metrics": {name: SPREAD for name, kind in IO.items() if kind is not bool},
        "status-duration": dict.fromkeys(PASSING, SPREAD),
    },
}  # fmt: skip
TIMES = {
    "subtask": int, "endpoint": str, "duration": int, "timestamps": dict.fromkeys(TASK_STATES, int)
}  # fmt: skip
FAILURE = {
    "exceptionName": str, "stacktrace": str, "timestamp": int, "failureLabels": {},
    "taskName": (None, str), "endpoint": (None, str), "taskManagerId": (None, str),
}  # fmt: skip
CLUSTER = {
    "taskmanagers": (2,), "slots-total": (2,), "slots-available": (0,), "jobs-running": (1,),
    "jobs-finished": (0,), "jobs-cancelled": (0,), "jobs-failed": (0,), "flink-version": str,
    "flink-commit": str,
}  # fmt: skip
SERVER = {
    "refresh-interval": int, "timezone-name": str, "timezone-offset": int, "flink-version": str,
    "flink-revision": str,
    "features": dict.fromkeys(("web-submit", "web-cancel", "web-history", "web-rescale"), bool),
}  # fmt: skip
SETTINGS = {
    "restart-strategy": str, "job-parallelism": int, "object-reuse-mode": bool, "user-config": dict
}  # fmt: skip


def test_the_pages_of_the_job_have_every_field_with_its_type(jobs: Jobs) -> None:
    broken = Latch(jobs.folder / "broken")
    env = jobs.checkpointed(2, 100, **SERVED)
    counts = running_counts(env, None, 500).map(BreakingOnce(broken))
    counts.sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "asked")
    wait_completed(client, 1)
    broken.set()
    wait_recovered(client, 1)
    rest = Rest.of(client)
    check(CLUSTER, rest.get("/overview"), "overview")
    check(SERVER, rest.get("/config"), "config")
    [listed] = rest.get("/jobs/overview")["jobs"]
    check(OVERVIEW_JOB, listed, "jobs")
    assert listed["tasks"]["running"] == listed["tasks"]["total"] == 4
    assert rest.get("/jobs") == {"jobs": [{"id": listed["jid"], "status": "RUNNING"}]}
    assert rest.get(f"{rest.job}/status") == {"status": "RUNNING"}
    details = rest.get(rest.job)
    check(DETAILS, details, "job")
    assert details["timestamps"]["RUNNING"] == listed["last-modification"]
    assert details["status-counts"]["RUNNING"] == len(details["vertices"]) == 2
    assert rest.get(f"{rest.job}/plan") == {"plan": details["plan"]}
    last, source = details["plan"]["nodes"]
    [read] = last.pop("inputs")
    check(NODE, source, "plan")
    check(NODE, last, "plan")
    check(INPUT, read, "plan")
    assert read["id"] == source["id"]
    for vertex in details["vertices"]:
        check(VERTEX, vertex, "vertex")
        at = f"{rest.job}/vertices/{vertex['id']}"
        page = rest.get(at)
        check(VERTEX_PAGE, page, at)
        assert [subtask["subtask"] for subtask in page["subtasks"]] == [0, 1]
        read = [subtask["metrics"]["read-records"] for subtask in page["subtasks"]]
        spread = page["aggregated"]["metrics"]["read-records"]
        assert (spread["min"], spread["max"], spread["sum"]) == (min(read), max(read), sum(read))
        for subtask in rest.get(f"{at}/subtasktimes")["subtasks"]:
            check(TIMES, subtask, at)
            assert subtask["timestamps"]["RUNNING"] > 0
        for subtask in page["subtasks"]:
            check(SUBTASK_PAGE, subtask, "subtask")
    check_failures(rest)
    config = rest.get(f"{rest.job}/config")
    check({"jid": str, "name": str, "execution-config": SETTINGS}, config, "job config")


def check_failures(rest: Rest) -> None:
    """There is one failure, with what happened beside it."""
    [failure] = rest.get(f"{rest.job}/exceptions")["exceptionHistory"]["entries"]
    beside = failure.pop("concurrentExceptions")
    for one in (failure, *beside):
        check(FAILURE, one, "failure")
    assert failure["exceptionName"] == "UserCodeFailed" and "told to fail" in failure["stacktrace"]
    none = {"exceptionHistory": {"entries": [], "truncated": True}}
    assert rest.get(f"{rest.job}/exceptions?maxExceptions=0") == none
    labelled = rest.get(f"{rest.job}/exceptions?failureLabelFilter=blame:data")
    assert labelled == {"exceptionHistory": {"entries": [], "truncated": False}}

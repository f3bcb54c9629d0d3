"""What the pages say is what the job is, not only of the right type."""

import json

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import wait_completed, wait_running

pytestmark = pytest.mark.slow

STARTING = ("SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")


@pytest.mark.feature("F002", "F004", "F005", "F009", "F080", "F081", "F083")
def test_the_pages_of_a_job_tell_its_plan_its_start_and_its_checkpoints(jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 100, **SERVED)
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out")).set_parallelism(1)
    plan = json.loads(env.get_execution_plan())
    client = jobs.start(env, "counts")
    rest = Rest.of(client)
    wait_completed(client, 3)

    assert [one["id"] for one in rest.get("/jobs")["jobs"]] == [client.get_job_id()]
    cluster = rest.get("/overview")
    assert (cluster["slots-total"], cluster["slots-available"]) == (2, 0)
    assert (cluster["jobs-running"], cluster["jobs-finished"]) == (1, 0)
    details = rest.get(rest.job)
    stamps = [details["timestamps"][name] for name in ("INITIALIZING", "CREATED", "RUNNING")]
    assert 0 < stamps[0] <= stamps[1] <= stamps[2]
    assert {one["id"]: one["parallelism"] for one in details["vertices"]} == {
        one["id"]: one["parallelism"] for one in plan["vertices"]
    }
    shown = rest.get(f"{rest.job}/plan")["plan"]["nodes"]
    assert {one["id"]: one["description"] for one in shown} == {
        one["id"]: one["description"] for one in plan["vertices"]
    }
    for vertex in details["vertices"]:
        times = rest.get(f"{rest.job}/vertices/{vertex['id']}/subtasktimes")["subtasks"]
        assert len(times) == vertex["parallelism"]
        for subtask in times:
            began = [subtask["timestamps"][state] for state in STARTING]
            assert began[0] > 0 and began == sorted(began)
    completed = [
        one["id"]
        for one in rest.get(f"{rest.job}/checkpoints")["history"]
        if one["status"] == "COMPLETED"
    ]
    assert {1, 2, 3} <= set(completed)


@pytest.mark.feature("F061", "F076")
def test_a_checkpoint_that_was_asked_for_is_in_the_history_under_its_id_and_kind(
    jobs: Jobs,
) -> None:
    settings = {"execution.checkpointing.dir": str(jobs.checkpoints)}
    env = jobs.env(1, **settings, **SERVED)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    rest = Rest.of(client)
    wait_running(client)
    at = f"{rest.job}/checkpoints"
    asked = rest.begin(at, {"checkpointType": "FULL"})
    taken = rest.outcome(f"{at}/{asked}")["checkpointId"]
    savepoint = rest.begin(
        f"{rest.job}/savepoints", {"target-directory": str(jobs.folder / "savepoints")}
    )
    rest.outcome(f"{rest.job}/savepoints/{savepoint}")
    kinds = {one["id"]: one["checkpoint_type"] for one in rest.get(at)["history"]}
    assert kinds == {taken: "CHECKPOINT", taken + 1: "SAVEPOINT"}

"""``tidegate serve`` over jobs whose records are in ZooKeeper: their folder has signs alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browser import Browser
from tests.e2e.driver import Orders
from tests.e2e.drivers import START_S, driver
from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import END_S, Jobs
from tests.e2e.serving import Serving
from tests.e2e.watch import until, wait_completed
from tests.e2e.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.feature("F295")]


def test_a_job_is_seen_while_it_runs_and_when_it_is_over(
    jobs: Jobs, zookeeper: ZooKeeperServer, browser: Browser
) -> None:
    kept = {"execution.checkpointing.num-retained": "20"}
    env = jobs.checkpointed(2, 200, **SERVED, **kept, **zookeeper.options())
    running_counts(env, None, 500).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "kept-elsewhere")
    wait_completed(client, 2)
    id = client.get_job_id()
    with Serving(jobs.checkpoints) as serving:
        rest = Rest(serving.url, job=id)

        def shown() -> dict[str, Any]:
            [job] = rest.get("/jobs/overview")["jobs"]
            return job

        assert (shown()["jid"], shown()["state"]) == (id, "RUNNING")
        assert "trouble" not in shown()
        assert rest.get(rest.job)["state"] == "RUNNING"
        assert rest.get("/overview")["jobs-running"] == 1
        begun = rest.begin(f"{rest.job}/checkpoints", {"checkpointType": "FULL"})
        assert rest.outcome(f"{rest.job}/checkpoints/{begun}")["checkpointId"] > 0
        browser.open(serving.url, "kept-elsewhere", "Running 1")
        browser.click("kept-elsewhere")
        browser.wait("the running job", "Cancel the job", "Records a second")
        client.cancel().result(timeout=END_S)
        until(lambda: shown()["state"] == "CANCELED", "the job is over")
        assert "trouble" not in shown()
        browser.wait("the same job, over", "canceled", "The job has ended.")
        until(lambda: rest.get(f"{rest.job}/picture")["job"].get("left"), "its archive answers")
        assert rest.get(f"{rest.job}/checkpoints")["counts"]["completed"] >= 3
        assert rest.get(f"{rest.job}/log?text=CANCELED")["records"]
        assert rest.refused("PATCH", rest.job)[0] == 409
        assert browser.errors() == []


def test_a_job_whose_driver_is_killed_is_seen_again_once_another_one_leads_it(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    settings = {**zookeeper.options(), **{key: str(value) for key, value in SERVED.items()}}
    orders = Orders(str(tmp_path), rows=20_000, rate=1_000, settings=settings)
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    with Serving(checkpoints) as serving:

        def shown() -> dict[str, Any]:
            found = Rest(serving.url, job="none").get("/jobs/overview")["jobs"]
            assert len(found) <= 1, found
            return found[0] if found else {"state": "", "last-checkpoint": -1}

        def runs() -> bool:
            job = shown()
            return job["state"] == "RUNNING" and "trouble" not in job

        with driver(orders, tmp_path / "first.log") as first:
            until(lambda: runs() and shown()["last-checkpoint"] > 0, "it runs", START_S)
            before = shown()
            with driver(orders, tmp_path / "refused.log") as refused:
                assert refused.wait(START_S) != 0
            assert runs() and shown()["jid"] == before["jid"], "a driver that is refused is no job"
            until(lambda: list((checkpoints / ".history").glob("*[0-9a-f]")), "an archive is left")
            first.kill()
            first.wait()
            until(lambda: shown()["state"] == "SUSPENDED", "it is seen that nobody leads it")
            assert "was killed" in shown()["trouble"]
        # As the page says that somebody should.
        with driver(replace(orders, resume=True), tmp_path / "second.log") as second:
            until(runs, "another driver leads it", START_S)
            assert shown()["jid"] == before["jid"]
            assert Rest(serving.url, job=before["jid"]).get("/overview")["jobs-running"] == 1
            assert second.wait(START_S) == 0, (tmp_path / "second.log").read_text()
        until(lambda: shown()["state"] == "FINISHED", "it is over")
        assert "trouble" not in shown()

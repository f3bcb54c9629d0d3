"""``tidegate serve``: jobs that run, that have finished, and whose driver was killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.browser import Browser
from tests.e2e.dashboard import look, pages_of_job
from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.maven import flink_dashboard
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.serving import Serving
from tests.e2e.watch import until, view, wait_completed
from tidegate import JobCanceled, JobClient

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef0123"
KILLED = """
import sys
from tidegate import Configuration, StreamExecutionEnvironment
env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict({
    "execution.checkpointing.dir": sys.argv[1], "execution.checkpointing.interval": "200 ms",
    "rest.port": "0", "tidegate.rest.token-file": sys.argv[2]}))
env.generate(str, rate=50).uid("numbers").print()
env.execute("killed")
"""


class Folder:
    """Jobs of one checkpoint folder, all with the same token."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self.token_file = jobs.folder / "token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(TOKEN)
        self.secured = {**SERVED, "tidegate.rest.token-file": str(self.token_file)}

    def running(self, name: str) -> JobClient:
        kept = {"execution.checkpointing.num-retained": "20"}
        env = self._jobs.checkpointed(2, 200, **self.secured, **kept)
        running_counts(env, None, 500).sink_to(LedgerSink(self._jobs.folder / name))
        client = self._jobs.start(env, name)
        wait_completed(client, 2)
        return client

    def over(self, name: str) -> JobClient:
        """A job that has finished; it served nothing."""
        env = self._jobs.checkpointed(2, 100)
        running_counts(env, 400, 1_000).sink_to(LedgerSink(self._jobs.folder / name))
        client = self._jobs.start(env, name)
        finished(client)
        return client

    def killed(self) -> str:
        """Id of a job whose driver was killed while it ran, once it had left an archive."""
        history = self._jobs.checkpoints / ".history"
        before = archives(history)
        arguments = [str(self._jobs.checkpoints), str(self.token_file)]
        output = (self._jobs.folder / "killed.txt").open("wb")
        with output:
            process = subprocess.Popen(
                [sys.executable, "-c", KILLED, *arguments], stdout=output, stderr=output
            )
        try:
            until(lambda: any(ran(history / each) for each in archives(history) - before), "ran")
        finally:
            process.kill()
            process.wait()
        [id] = archives(history) - before
        return id


def archives(history: Path) -> set[str]:
    found = history.iterdir() if history.is_dir() else ()
    return {each.name for each in found if each.suffix != ".part"}


def ran(archive: Path) -> bool:
    """Whether an archive shows a job that runs and has a checkpoint."""
    [overview] = (
        json.loads(each["json"])["jobs"][0]
        for each in json.loads(archive.read_text())["archive"]
        if each["path"] == "/jobs/overview"
    )
    return overview["state"] == "RUNNING" and overview["last-checkpoint"] > 0


@pytest.mark.feature("F295")
def test_one_server_answers_for_every_job_of_a_folder(jobs: Jobs) -> None:
    folder = Folder(jobs)
    over = folder.over("over")
    killed = folder.killed()
    one, two = folder.running("one"), folder.running("two")
    ids = {name: client.get_job_id() for name, client in zip("12o", (one, two, over), strict=True)}
    with Serving(jobs.checkpoints, **folder.secured) as serving:
        rest = Rest(serving.url, job=ids["1"], token=TOKEN)
        assert Rest(serving.url, job=ids["1"]).ask("GET", "/jobs")[0] == 401
        listed = {job["jid"]: job for job in rest.get("/jobs/overview")["jobs"]}
        assert {id: job["state"] for id, job in listed.items()} == {
            ids["1"]: "RUNNING",
            ids["2"]: "RUNNING",
            ids["o"]: "FINISHED",
            killed: "SUSPENDED",
        }
        assert "was killed" in listed[killed]["trouble"] and listed[killed]["last-checkpoint"] > 0
        cluster = rest.get("/overview")
        assert (cluster["jobs-running"], cluster["jobs-finished"], cluster["slots-total"]) == (
            *(2, 1),
            len(view(one).slots) + len(view(two).slots),
        )
        check_running(rest, two)
        check_left(rest, ids["o"], "FINISHED")
        check_left(rest, killed, "SUSPENDED")
        check_changes(rest, two, ids["o"])


def check_running(rest: Rest, client: JobClient) -> None:
    """What is asked of a running job is answered by its driver."""
    at = f"/jobs/{client.get_job_id()}"
    vertex = rest.get(at)["vertices"][0]["id"]
    assert rest.get(f"/v1{at}/vertices/{vertex}/subtasks/0")["status"] == "RUNNING"
    rows = f"{at}/vertices/{vertex}/subtasks/metrics?get=numRecordsOut&agg=sum"
    until(lambda: rest.get(rows), "its slots tell their metrics")
    assert rest.get(rows)[0]["id"] == "numRecordsOut" and rest.get(rows)[0]["sum"] > 0
    slots = rest.get("/taskmanagers")["taskmanagers"]
    mine = [slot.id for slot in view(client).slots]
    assert set(mine) < {slot["id"] for slot in slots}
    assert rest.get(f"/taskmanagers/{mine[0]}/thread-dump")["threadInfos"]
    assert rest.get("/jobs/metrics?get=uptime")[0]["min"] > 0
    counted = f"{at}/state/key-groups"
    assert rest.outcome(f"{counted}/{rest.begin(counted, {})}")["bytes"] > 0
    assert rest.refused("GET", f"/jobs/{'f' * 32}")[0] == 404


def check_left(rest: Rest, job: str, state: str) -> None:
    """A job that is over is shown as it has left itself."""
    at = f"/jobs/{job}"
    details = rest.get(at)
    assert details["state"] == state
    vertex = details["vertices"][-1]["id"]
    assert rest.get(f"{at}/picture")["job"]["left"] is True
    counts = rest.get(f"{at}/checkpoints")["counts"]
    assert counts["completed"] > 0
    newest = rest.get(f"{at}/checkpoints")["latest"]["completed"]["id"]
    assert rest.get(f"{at}/checkpoints/details/{newest}/subtasks/{vertex}")["subtasks"]
    for path in ("/config", "/plan", "/exceptions", f"/vertices/{vertex}"):
        assert rest.get(at + path)
    logged = rest.get(f"{at}/log?operator=&limit=1000")["records"]
    assert any("checkpoint completed" in each["message"] for each in logged)
    assert "checkpoint completed" in rest.text(f"{at}/log?format=text&text=CHECKPOINT")
    assert rest.get(f"{at}/log?level=critical")["records"] == []
    status, told = rest.refused("PATCH", at)
    assert status == 409 and (state if state == "FINISHED" else "was killed") in told
    assert rest.refused("GET", f"{at}/nothing")[0] == 404


def check_changes(rest: Rest, client: JobClient, over: str) -> None:
    """Changes reach the job that they name, by both of its paths, and the guard stands before."""
    at = f"/jobs/{client.get_job_id()}"
    id = rest.begin(f"{at}/checkpoints", {"checkpointType": "FULL"})
    assert rest.outcome(f"{at}/checkpoints/{id}")["checkpointId"] > 0
    assert rest.ask("POST", f"{at}/checkpoints", {}, **{"Content-Type": "text/plain"})[0] == 415
    assert rest.refused("GET", f"{at}/yarn-cancel")[0] == 403
    status, _ = rest.ask("GET", f"{at}/yarn-cancel", **{"Sec-Fetch-Site": "same-origin"})
    assert status == 202
    assert isinstance(failure_of(client), JobCanceled)
    until(lambda: rest.get(at)["state"] == "CANCELED", "the archive of a job that was cancelled")


@pytest.mark.feature("F295")
def test_the_page_lists_jobs_and_shows_each(jobs: Jobs, browser: Browser) -> None:
    folder = Folder(jobs)
    over, killed = folder.over("was-here"), folder.killed()
    one = folder.running("goes-on")
    with Serving(jobs.checkpoints, **folder.secured) as serving:
        browser.open(serving.login, "goes-on", "was-here", "killed", "Running 1", "Suspended 1")
        browser.click("was-here")
        browser.wait("the job that is over", "The job has ended.", "finished", "Checkpoints")
        browser.open(
            f"{serving.url}/#/{over.get_job_id()}/checkpoints",
            "End-to-end duration of the last",
            "Took",
        )
        browser.click("Log")
        browser.wait("the log that it has left", "checkpoint completed", "tidegate.log.file")
        browser.click("← All jobs")
        browser.click("killed")
        browser.wait("the job whose driver is gone", "it was killed", "Figures recorded at")
        browser.open(f"{serving.url}/#/{killed}/time", "it was killed")
        browser.click("← All jobs")
        browser.click("goes-on")
        browser.wait("the running job", "Cancel the job", "Records a second")
        one.cancel().result(timeout=100)
        browser.wait("the same job, over", "canceled", "The job has ended.")
        assert browser.errors() == []


@pytest.mark.feature("F295")
def test_flinks_dashboard_shows_running_jobs_and_finished_ones(
    jobs: Jobs, browser: Browser
) -> None:
    folder = Folder(jobs)
    over, one = folder.over("was-here"), folder.running("goes-on")
    jar = {"rest.web.jar": str(flink_dashboard())}
    with Serving(jobs.checkpoints, **folder.secured, **jar) as serving:
        browser.open(serving.login, "goes-on")  # which sets the cookie
        lists = {
            "overview": ("goes-on", "was-here", "Task Managers2"),
            "job/running": ("goes-on",),
            "job/completed": ("was-here", "FINISHED"),
            "task-manager": (view(one).slots[0].id,),
            "job-manager/config": ("rest.web.jar",),
            "job-manager/metrics": ("Garbage Collection",),
        }
        running = Rest(serving.url, job=one.get_job_id(), token=TOKEN)
        completed = Rest(serving.url, job=over.get_job_id(), token=TOKEN)
        look(browser, serving.url, lists)
        look(browser, serving.url, pages_of_job(running, "running", "goes-on"))
        look(browser, serving.url, pages_of_job(completed, "completed", "was-here"))
        job = running.job.replace("/jobs", "/job/running")
        browser.open(f"{serving.url}/index.html#{job}/overview", "Cancel Job")
        browser.click("Cancel Job")
        browser.click("Yes")
        assert isinstance(failure_of(one), JobCanceled)

"""Somebody watches a batch on Spark: by REST, by the command line, and when it is over."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.e2e.browser import Browser
from tests.e2e.rest import Rest
from tests.e2e.runtimes import END_S, Jobs, failure_of, finished
from tests.e2e.serving import Serving
from tests.e2e.watch import until, view, wait_for
from tests.spark.watched_batches import DIES_ONCE, ROWS, by_name, in_batch, sums, waits_for
from tidegate import ConfigError, JobCanceled, JobClient, JobFailed, JobStatus
from tidegate.cli.main import commands
from tidegate.jobmaster.view import JobView
from tidegate.model.control import ExecutionState
from tidegate.model.ids import SlotId

pytestmark = [pytest.mark.slow, pytest.mark.feature("F309")]

RUNNING, FINISHED = ExecutionState.RUNNING, ExecutionState.FINISHED


def tidegate(*arguments: str) -> str:
    """What a command prints; it is to succeed."""
    ran = CliRunner().invoke(commands, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def has_logged(client: JobClient) -> set[str]:
    return {entry.record.text for entry in client.log().entries}


def held(seen: JobView) -> bool:
    """Both tasks of the first step run, and have told of rows."""
    reads = next(each for each in seen.vertices if each.name.startswith("Source"))
    return all(each.state is RUNNING and each.figures.rows_out for each in reads.subtasks)


@pytest.fixture
def go(tmp_path: Path) -> Iterator[Path]:
    """A file that lets tasks go on; at the end nobody waits for it."""
    file = tmp_path / "go"
    yield file
    file.touch()


def started(jobs: Jobs, go: Path, name: str, **settings: object) -> JobClient:
    """A batch whose first step waits in both of its tasks."""
    client = jobs.start(sums(in_batch(jobs, **settings), waits_for(go)), name)
    wait_for(client, held, "both tasks have read rows")
    until(lambda: "logged at 350" in has_logged(client), "the log of a task comes")
    return client


def test_rest_shows_a_batch_while_it_runs(jobs: Jobs, go: Path) -> None:
    client = started(jobs, go, "sums")
    rest = Rest.of(client)
    [overview] = rest.get("/jobs/overview")["jobs"]
    assert overview["jobType"] == "BATCH" and overview["state"] == "RUNNING"
    assert (overview["tasks"]["running"], overview["tasks"]["total"]) == (2, 4)
    details = rest.get(rest.job)
    reads, adds = by_name(details["vertices"])
    assert (reads["status"], adds["status"]) == ("RUNNING", "CREATED")
    assert 0 < reads["metrics"]["write-records"] < ROWS and reads["duration"] > 0
    of_vertex = rest.get(f"{rest.job}/vertices/{reads['id']}")
    assert isinstance(of_vertex["spark-stage"]["id"], int)
    assert {each["status"] for each in of_vertex["subtasks"]} == {"RUNNING"}
    assert "spark-stage" not in rest.get(f"{rest.job}/vertices/{adds['id']}")
    [node] = [each for each in rest.get(f"{rest.job}/plan")["plan"]["nodes"] if "inputs" in each]
    assert node["inputs"][0]["exchange"] == "blocking"
    picture = rest.get(f"{rest.job}/picture")
    tasks = {"done": 0, "of": 4, "running": 2, "failed": 0, "again": 0}
    assert picture["job"]["tasks"] == tasks and picture["job"]["batch"] is True
    assert len(rest.get("/taskmanagers")["taskmanagers"]) == 2
    go.touch()
    finished(client)
    assert client.get_job_status().result() is JobStatus.FINISHED
    by_state = [{each.state for each in vertex.subtasks} for vertex in view(client).vertices]
    assert by_state == [{FINISHED}, {FINISHED}] and view(client).counts.read == ROWS


def test_what_functions_log_and_print_is_in_the_log_of_the_batch(
    jobs: Jobs, go: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client = started(jobs, go, "talks", **{"tidegate.print.lines-to-driver": 100})
    rest = Rest.of(client)
    [logged] = rest.get(f"{rest.job}/log?text=logged%20at%20150")["records"]
    assert logged["operator"] == "Map" and logged["subtask"] == 0 and logged["level"] == "WARNING"
    first = next(each for each in view(client).slots if each.id == logged["slot"])
    assert "logged at 150" in rest.text(f"/taskmanagers/{first.id}/log")
    go.touch()
    finished(client)
    assert {"logged at 150", "logged at 350"} <= has_logged(client)
    assert {"printed at 150", "printed at 350"} <= set(capfd.readouterr().out.splitlines())


def test_what_there_is_only_of_streams_is_refused_with_the_reason(jobs: Jobs, go: Path) -> None:
    client = started(jobs, go, "refuses", **{"execution.checkpointing.interval": 1_000})
    rest = Rest.of(client)
    config = rest.get(f"{rest.job}/checkpoints/config")
    assert config["interval"] == 2**63 - 1
    assert rest.get(f"{rest.job}/checkpoints")["counts"]["total"] == 0
    asked = rest.begin(f"{rest.job}/savepoints", {"target-directory": "/tmp/none"})
    outcome = rest.outcome(f"{rest.job}/savepoints/{asked}")
    assert "A job in batch cannot take a savepoint" in str(outcome)
    wanted = {
        each["id"]: {"parallelism": {"lowerBound": 1, "upperBound": 3}}
        for each in rest.get(rest.job)["vertices"]
    }
    of_job, is_json = f"{rest.job}/resource-requirements", {"Content-Type": "application/json"}
    status, answer = rest.ask("PUT", of_job, wanted, **is_json)
    assert status == 400 and "A job in batch cannot change the parallelism" in str(answer)
    command = ["savepoint", "refuses", "/tmp/none", "-d", str(jobs.checkpoints)]
    ran = CliRunner().invoke(commands, command)
    assert ran.exit_code == 2 and "A job in batch cannot take a savepoint" in ran.output
    assert "job 'refuses'" in ran.output and "end_with_savepoint" in ran.output


def test_metrics_of_tasks_are_reported(jobs: Jobs, go: Path) -> None:
    lines = jobs.folder / "metrics.jsonl"
    reporter = {
        "metrics.reporters": "lines",
        "metrics.reporter.lines.factory.class": "json-lines",
        "metrics.reporter.lines.path": str(lines),
        "metrics.reporter.lines.filter.includes": "taskmanager.job.task:numRecordsOut",
        "metrics.reporter.lines.interval": "100 ms",
    }
    client = started(jobs, go, "reported", **reporter)
    until(lambda: max(reported(lines), default=0) > 0, "rows of a running task are reported")
    assert max(reported(lines)) < ROWS // 2
    go.touch()
    finished(client)
    assert sorted(reported(lines))[-2:] == [ROWS // 2, ROWS // 2]


def reported(lines: Path) -> list[int]:
    """Rows of each task of the first step, as they were reported last."""
    last: dict[str, int] = {}
    whole = lines.read_text().rpartition("\n")[0] if lines.exists() else ""
    for line in whole.splitlines():
        told = json.loads(line)
        if told["variables"]["task_name"].startswith("Source"):
            last[told["variables"]["subtask_index"]] = told["value"]
    return list(last.values())


def test_a_task_that_runs_says_where_it_is(jobs: Jobs, go: Path) -> None:
    client = started(jobs, go, "asked")
    rest = Rest.of(client)
    reads, adds = by_name(rest.get(rest.job)["vertices"])
    path = f"{rest.job}/vertices/{reads['id']}/flamegraph?type=on_cpu"
    until(lambda: "pair (" in str(rest.get(path)["data"]), "samples show the user's function")
    assert rest.get(f"{rest.job}/vertices/{adds['id']}/flamegraph")["data"] is None
    slot, _ = rest.get("/taskmanagers")["taskmanagers"]
    threads = rest.get(f"/taskmanagers/{slot['id']}/thread-dump")["threadInfos"]
    assert any("in pair" in each["stringifiedThreadInfo"] for each in threads)
    go.touch()
    finished(client)
    with pytest.raises(JobFailed, match="the job has ended"):
        client.thread_dump(SlotId(slot["id"])).result(END_S)


def test_the_command_line_finds_a_batch_and_ends_it(jobs: Jobs, go: Path) -> None:
    client = started(jobs, go, "found")
    folder = ("-d", str(jobs.checkpoints))
    [listed] = json.loads(tidegate("list", "--json", *folder))
    assert (listed["job"], listed["status"]) == ("found", "RUNNING")
    assert (listed["id"], listed["parallelism"]) == (client.get_job_id(), 2)
    assert listed["rest"] == client.get_web_interface_url()
    assert "0 of 4 tasks done, 2 running" in tidegate("top", "found", "--once", *folder)
    assert "logged at 350" in tidegate("logs", "found", *folder)
    assert "cancelled found" in tidegate("cancel", "found", *folder)
    assert isinstance(failure_of(client), JobCanceled)
    states = {each.state for vertex in view(client).vertices for each in vertex.subtasks}
    assert view(client).status is JobStatus.CANCELED and states == {ExecutionState.CANCELED}
    [listed] = json.loads(tidegate("list", "--json", *folder))
    assert (listed["job"], listed["status"]) == ("found", "CANCELED")
    assert "logged at 350" in tidegate("logs", "found", *folder)


def test_a_second_batch_of_that_name_is_refused_while_the_first_runs(jobs: Jobs, go: Path) -> None:
    client = started(jobs, go, "once")
    with pytest.raises(ConfigError, match="Job 'once' is already running"):
        jobs.start(sums(in_batch(jobs), waits_for(go)), "once")
    go.touch()
    finished(client)


def test_a_batch_that_is_over_is_shown_by_serve(jobs: Jobs, go: Path) -> None:
    go.touch()
    client = jobs.start(sums(in_batch(jobs), waits_for(go)), "over")
    finished(client)
    with Serving(jobs.checkpoints) as serving:
        rest = Rest(serving.url, job=client.get_job_id())
        [overview] = rest.get("/jobs/overview")["jobs"]
        assert (overview["name"], overview["state"]) == ("over", "FINISHED")
        assert overview["tasks"]["finished"] == 4 and overview["duration"] > 0
        reads, adds = by_name(rest.get(rest.job)["vertices"])
        assert reads["metrics"]["write-records"] == adds["metrics"]["read-records"] == ROWS
        assert rest.get(f"{rest.job}/picture")["job"]["tasks"]["done"] == 4
        assert "logged at 150" in str(rest.get(f"{rest.job}/log"))


def test_a_failure_ends_the_batch_at_once_and_says_where(jobs: Jobs, go: Path) -> None:
    pair = waits_for(go)

    def fails(number: int) -> tuple[int, int]:
        if number == 210:
            raise ValueError("no such number")
        return pair(number)

    client = jobs.start(sums(in_batch(jobs), fails), "fails")
    # The other task waits for a file that there never is.
    error = failure_of(client)
    assert isinstance(error, JobFailed) and "no such number" in str(error)
    [failure] = view(client).failures
    assert failure.kind == "UserCodeFailed" and failure.task.endswith("Map (2/2)")
    assert "operator 'Map'" in failure.error and "in fails" in failure.error
    reads = view(client).vertices[0]
    assert [each.state.value for each in reads.subtasks] == ["CANCELED", "FAILED"]
    assert view(client).status is JobStatus.FAILED


def test_a_task_that_spark_runs_again_counts_once(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES_ONCE)
    command = [sys.executable, script, tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr
    seen: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    assert (tmp_path / "died").exists()
    assert (seen["read"], seen["status"]) == (400, "FINISHED")
    assert (seen["attempts"], seen["states"]) == ([0, 1], ["FINISHED", "FINISHED"])
    [[kind, task, error]] = seen["failures"]
    assert kind == "SlotLost" and task.endswith("Map (2/2)") and "without a word" in error


def test_the_savepoint_at_the_end_is_shown_and_the_next_run_goes_on_from_it(
    jobs: Jobs, local_jobs: Jobs, go: Path
) -> None:
    go.touch()
    env = in_batch(jobs)
    env.end_with_savepoint(jobs.folder / "savepoints")
    client = jobs.start(sums(env, waits_for(go)), "first")
    savepoint = client.get_job_execution_result().result(END_S).get_savepoint()
    [one] = view(client).checkpoints.history
    assert one.pointer == savepoint and one.properties.is_savepoint
    assert one.acknowledged == one.subtasks == 4 and one.state_size > 0
    [listed] = json.loads(tidegate("list", "--json", "-d", str(jobs.checkpoints)))
    assert (listed["status"], listed["newest_checkpoint"]) == ("FINISHED", savepoint)
    settings = {"execution.state-recovery.path": "latest"}
    stream = sums(local_jobs.checkpointed(2, 50, **settings), waits_for(go))
    live = local_jobs.start(stream, "first")
    finished(live)
    assert view(live).checkpoints.latest_restored is not None
    assert live.get_job_id() == client.get_job_id()


def test_the_page_shows_how_far_a_batch_is(jobs: Jobs, go: Path) -> None:
    client = started(jobs, go, "page")
    url = client.get_web_interface_url()
    assert url is not None
    with Browser() as browser:
        browser.open(url, "page", "0 of 4 tasks done, 2 running", "0 of 2 tasks done")
        assert "slots" not in browser.text and "Take a savepoint" not in browser.text
        browser.click("Checkpoints")
        browser.wait("a batch has no checkpoints", "A batch takes no checkpoints")
        browser.click("State")
        browser.wait("nor sizes of state", "The state of a batch lives in its tasks")
        browser.click("Log")
        browser.wait("the log of tasks", "logged at 150")
        go.touch()
        finished(client)

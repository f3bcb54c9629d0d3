"""A running job, asked over HTTP."""

import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.rest import SERVED, Rest
from tests.e2e.runtimes import Jobs, failure_of, finish_by_checkpoints, finished
from tests.e2e.savepoints import END_S, counting, status, wait_rows
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until, view
from tests.house.source import ROOT
from tidegate import ConfigError, JobCanceled, JobClient, JobStatus
from tidegate.cli.main import commands

pytestmark = pytest.mark.slow

TOTAL = 4_000
ID = "0123456789abcdef" * 2


def served(jobs: Jobs, rows: int | None = None, **settings: object) -> tuple[JobClient, Rest]:
    """A job that can be asked, running."""
    client = counting(jobs, 1, rows, 1_000, settings={**SERVED, **settings})
    wait_rows(client, 50)
    return client, Rest.of(client)


@pytest.mark.feature("F072")
def test_a_job_starts_from_where_a_savepoint_was_asked_for(jobs: Jobs) -> None:
    client, rest = served(jobs, TOTAL)
    asked = {"target-directory": str(jobs.folder / "savepoints"), "unheard-of": 1}
    id = rest.begin(f"{rest.job}/savepoints", asked)
    location = rest.outcome(f"{rest.job}/savepoints/{id}")["location"]
    assert status(client) is JobStatus.RUNNING and Path(location, "_metadata").is_file()
    client.cancel().result(100)
    # Nothing was committed behind the savepoint: from it on, all comes out once.
    again = counting(jobs, 2, TOTAL, None, start_from=location, interval_ms=100)
    finished(again)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


@pytest.mark.feature("F270")
def test_the_same_id_is_the_same_operation_even_if_it_failed(jobs: Jobs) -> None:
    client, rest = served(jobs)
    folder, no_folder = jobs.folder / "savepoints", jobs.folder / "file"
    asked = {"target-directory": str(folder), "triggerId": ID}
    where = f"{rest.job}/savepoints"
    assert rest.begin(where, asked) == rest.begin(where, asked) == ID
    first = rest.outcome(f"{where}/{ID}")
    assert rest.begin(where, asked) == ID and rest.outcome(f"{where}/{ID}") == first
    assert [path.as_posix() for path in folder.iterdir()] == [first["location"]]
    no_folder.write_text("no folder")
    other = ID[::-1]
    failing = {"target-directory": str(no_folder), "triggerId": other}
    rest.begin(where, failing)
    cause = rest.outcome(f"{where}/{other}")["failure-cause"]
    assert sorted(cause) == ["class", "serialized-throwable", "stack-trace"]
    assert str(no_folder) in cause["stack-trace"]
    no_folder.unlink()
    rest.begin(where, failing)
    assert rest.outcome(f"{where}/{other}") == {"failure-cause": cause}
    number = rest.begin(f"{rest.job}/checkpoints", {"checkpointType": "FULL", "triggerId": ID})
    done = rest.outcome(f"{rest.job}/checkpoints/{number}")["checkpointId"]
    assert rest.begin(f"{rest.job}/checkpoints", {"triggerId": ID}) == ID
    assert rest.outcome(f"{rest.job}/checkpoints/{ID}") == {"checkpointId": done}
    latest = view(client).checkpoints.latest_completed
    assert latest is not None and latest.checkpoint == done
    assert rest.refused("GET", f"{where}/{'f' * 32}") == (
        404,
        f"There is no savepoint operation with triggerId={'f' * 32} for job {client.get_job_id()}.",
    )


@pytest.mark.feature("F183", "F268")
def test_a_savepoint_is_disposed_of_once(jobs: Jobs) -> None:
    client, rest = served(jobs)
    path = client.trigger_savepoint(jobs.folder / "savepoints").result(100)
    body = {"savepoint-path": path}
    id = rest.begin("/savepoint-disposal", body, 200)
    assert rest.outcome(f"/savepoint-disposal/{id}") == {} and not Path(path).exists()
    id = rest.begin("/savepoint-disposal", body, 200)
    cause = rest.outcome(f"/savepoint-disposal/{id}")["failure-cause"]
    assert f"Cannot find checkpoint or savepoint file/directory '{path}'" in cause["stack-trace"]
    assert rest.refused("POST", "/savepoint-disposal") == (
        400,
        "Field savepoint-path must not be omitted or be null.",
    )
    assert rest.refused("GET", f"/savepoint-disposal/{'f' * 32}")[0] == 404


def test_a_stopped_jobs_savepoint_is_told_behind_its_end(jobs: Jobs) -> None:
    client, rest = served(jobs, TOTAL)
    asked = {"targetDirectory": str(jobs.folder / "savepoints"), "drain": False}
    id = rest.begin(f"{rest.job}/stop", asked)
    finished(client)
    location = rest.outcome(f"{rest.job}/savepoints/{id}")["location"]
    assert status(client) is JobStatus.FINISHED
    finished(counting(jobs, 1, TOTAL, None, start_from=location, interval_ms=100))
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


PROGRAM = """
    from tidegate import StreamExecutionEnvironment
    env = StreamExecutionEnvironment.get_execution_environment()
    env.generate(str, None, 100).uid("numbers").print()
    env.execute("alone")
    print("over", flush=True)
"""


def test_a_program_does_not_end_before_the_savepoint_of_its_stop_is_told(jobs: Jobs) -> None:
    script, port = jobs.folder / "alone.py", a_port()
    script.write_text(textwrap.dedent(PROGRAM))
    options = [f"-Drest.port={port}", f"-Dtidegate.rest.savepoint-dirs={jobs.folder}"]
    run = [sys.executable, "-m", "tidegate.cli.main", "run", *options, script]
    with subprocess.Popen(run, cwd=ROOT / "src", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        rest = Rest(f"http://localhost:{port}")
        asked = {"targetDirectory": str(jobs.folder / "savepoints")}
        id = rest.begin(f"{rest.job}/stop", asked)
        assert b"over\n" in iter(process.stdout.readline, b""), "the program comes to its end"
        location = rest.outcome(f"{rest.job}/savepoints/{id}")["location"]
        assert Path(location, "_metadata").is_file()
        assert process.wait(100) == 0


@pytest.mark.parametrize("saved", [False, True])
def test_a_job_is_cancelled(jobs: Jobs, saved: bool) -> None:
    client, rest = served(jobs)
    if saved:
        asked = {"target-directory": str(jobs.folder / "savepoints"), "cancel-job": True}
        id = rest.begin(f"{rest.job}/savepoints", asked)
        assert Path(rest.outcome(f"{rest.job}/savepoints/{id}")["location"]).is_dir()
    else:
        assert rest.ask("PATCH", rest.job) == (202, {})
    assert isinstance(failure_of(client), JobCanceled)
    assert status(client) is JobStatus.CANCELED
    until(rest.gone, "the server has ended with the job")


BAD_FORM = "Bad request received. Request did not conform to expected format."
BAD_VALUE = "Request did not match expected format SavepointTriggerRequestBody."
NO_FOLDER = "Config key [execution.checkpointing.savepoint-dir] is not set. Property [{}] must"


def test_what_cannot_be_answered_is_told_with_its_status(jobs: Jobs) -> None:
    client, rest = served(jobs)
    job = rest.job
    for method, path, body, status_, text in (
        ("GET", "/jobs/zz", None, 400, 'Cannot resolve path parameter (jobid) from value "zz".'),
        ("GET", f"/jobs/{'0' * 32}", None, 404, f"Could not find Flink job ({'0' * 32})"),
        ("GET", "/nothing", None, 404, "Unable to load requested file /nothing."),
        ("GET", f"{job}/vertices/{'0' * 32}", None, 404, "Could not find job vertex"),
        ("GET", f"{job}/checkpoints/details/99", None, 404, "statistics for checkpoint 99."),
        ("GET", f"{job}/exceptions?maxExceptions=x", None, 400, "could not parse parameters"),
        ("POST", f"{job}/savepoints", b"{", 400, BAD_FORM),
        ("POST", f"{job}/savepoints", {"cancel-job": "perhaps"}, 400, BAD_FORM),
        ("POST", f"{job}/savepoints", {"formatType": "PLAIN"}, 400, BAD_VALUE),
        ("POST", f"{job}/savepoints", {"triggerId": "1"}, 400, BAD_VALUE),
        ("POST", f"{job}/savepoints", b"", 400, NO_FOLDER.format("target-directory")),
        ("POST", f"{job}/stop", {}, 400, NO_FOLDER.format("targetDirectory")),
        ("POST", f"{job}/savepoints", {"target-directory": " "}, 400, "has no name"),
        ("POST", f"{job}/savepoints", {"target-directory": "memory://x"}, 400, "nobody else"),
        ("POST", f"{job}/checkpoints", {"checkpointType": "INCREMENTAL"}, 500, "incremental"),
        ("PATCH", f"{job}?mode=stop", None, 308, "/jobs/:jobid/stop"),
        ("PATCH", f"{job}?mode=dance", None, 400, 'from value "dance".'),
    ):
        found, error = rest.refused(method, path, body)
        assert found == status_ and text in error, (path, body, found, error)
    answer = rest.ask("PATCH", job, Origin="http://elsewhere.example")
    assert answer[0] == 403 and "elsewhere.example" in answer[1]["errors"][0]
    assert rest.ask("GET", "/v1/jobs", Origin=rest.url) == rest.ask("GET", "/jobs")
    assert status(client) is JobStatus.RUNNING


def test_a_port_that_cannot_be_had_is_told_before_anything_starts(jobs: Jobs) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        env = jobs.checkpointed(1, 100, **{"rest.bind-port": port})
        running_counts(env, 10, None).sink_to(LedgerSink(jobs.folder / "out"))
        with pytest.raises(
            ConfigError, match=f"cannot listen at localhost, port {port}"
        ) as refused:
            env.execute_async("unlucky")
        assert "8081-8099" in refused.value.remedy and not jobs.checkpoints.exists()
    unserved = counting(jobs, 1, 100, None)
    assert unserved.get_web_interface_url() is None
    finish_by_checkpoints(unserved)


def a_port() -> int:
    """A port that is free, and stays so unless somebody else takes it."""
    with socket.create_server(("localhost", 0)) as free:
        return free.getsockname()[1]


def test_two_jobs_take_two_ports_of_a_range_and_say_so(jobs: Jobs) -> None:
    first = a_port()
    settings = {"rest.bind-port": f"{first}-{first + 9}", "rest.address": "127.0.0.1"}
    clients = [counting(jobs, 1, None, 100, settings=settings, name=name) for name in "ab"]
    urls = {client.get_web_interface_url() for client in clients}
    listed = CliRunner().invoke(commands, ["list", "-d", str(jobs.checkpoints)]).stdout
    assert all(str(url) in listed for url in urls)
    assert len(urls) == 2 and all(str(url).startswith("http://127.0.0.1:") for url in urls)
    assert {Rest.of(client).get("/jobs")["jobs"][0]["id"] for client in clients} == {
        client.get_job_id() for client in clients
    }
    for client in clients:
        client.cancel().result(END_S)
    ended = CliRunner().invoke(commands, ["list", "-d", str(jobs.checkpoints)]).stdout
    assert ended.count("CANCELED") == 2 and "http" not in ended

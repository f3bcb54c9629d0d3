"""What ``tidegate run -d`` hears of the process that it starts, and what that process tells it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import pytest

from tests.e2e.watch import until
from tests.rest.served import Served
from tests.rest.shown import VIEW
from tests.rest.world import EMPTY, JOB
from tidegate.api.job import JobExecutionResult
from tidegate.cli import detached
from tidegate.config.configuration import Configuration
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.datastream.process.outside import START_TOLD_TO
from tidegate.errors import PeerLost, UserError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from tidegate.jobmaster.view import JobView

TELLER = "tidegate-detached"
RUNS = {
    "runs": True,
    "job": JOB,
    "name": "orders",
    "address": "http://localhost:1",
    "checkpoints": "/checkpoints",
    "waits": "",
}
WAITS = {**RUNS, "runs": False, "waits": "0 of 2 tasks run", "checkpoints": None}


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """All processes that are started; none outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Kept)
    yield started
    for process in started:
        process.kill()
        process.wait()


def started_as(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    settings: dict[str, str] | None = None,
) -> Path:
    """Starts a program that does this in the place of ``tidegate run``; returns its log."""
    stand_in = folder / "python"
    stand_in.write_text(
        f"#!{sys.executable} -IS\nimport os, sys, time\n"
        f"def tell(text): os.write(int(os.environ['{START_TOLD_TO}']), text.encode())\n{body}\n"
    )
    stand_in.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    log = folder / "job.log"
    given = ("-p", "2", "job.py")
    detached.start_detached(given, folder / "job.py", log, Configuration.from_dict(settings or {}))
    return log


def test_a_job_that_runs_is_told_with_its_address_process_and_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    processes: list[subprocess.Popen[bytes]],
) -> None:
    first, last = json.dumps(WAITS), json.dumps(RUNS)
    body = f"tell({first!r} + '\\n' + {last[:9]!r})\ntell({last[9:]!r} + '\\n')\ntime.sleep(600)"
    log = started_as(tmp_path, monkeypatch, body)
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "job 'orders' runs in the background",
        f"  job id   {JOB}",
        "  address  http://localhost:1",
        f"  process  {processes[0].pid}",
        f"  log      {log}",
    ]
    assert said.err == "" and processes[0].poll() is None


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("settings", "port"),
    [
        ({}, ["-D", "rest.port=0"]),
        ({"rest.port": "8123"}, []),
        ({"rest.bind-port": "8100-8200"}, []),
    ],
)
def test_a_job_gets_a_port_of_its_own_unless_one_is_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, str],
    port: list[str],
) -> None:
    log = started_as(tmp_path, monkeypatch, "print(*sys.argv[1:])", settings)
    assert log.read_text().split() == ["-m", "tidegate", "run", *port, "-p", "2", "job.py"]
    assert capsys.readouterr().out == (f"the program has already ended; its output is in {log}\n")


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        ("sys.exit(7)", 7, "ended with 7 before its job ran"),
        ("os.kill(os.getpid(), 9)", 137, "ended with -9 before its job ran"),
    ],
)
def test_a_program_that_ends_shows_the_end_of_its_output_and_its_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: str,
    code: int,
    told: str,
) -> None:
    body = f"for n in range(30): print('line', n, flush=True)\n{end}"
    with pytest.raises(click.exceptions.Exit) as ended:
        started_as(tmp_path, monkeypatch, body)
    assert ended.value.exit_code == code
    *lines, last = capsys.readouterr().err.splitlines()
    assert lines == [f"line {n}" for n in range(10, 30)] and told in last


@pytest.mark.usefixtures("processes")
def test_a_program_that_starts_no_job_in_time_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(detached, "START_S", 0.05)
    monkeypatch.setattr(detached, "_LOOK_S", 0.01)
    monkeypatch.setattr(detached, "_SETTLED_S", 0.1)
    started_as(tmp_path, monkeypatch, "time.sleep(600)")
    said = capsys.readouterr()
    assert said.err == (
        "not running after 0.05 s; it keeps trying in the background: its program has not "
        "started a job\n"
    )
    assert [line.split()[0] for line in said.out.splitlines()] == ["process", "log"]


def test_a_log_that_cannot_be_written_starts_nothing(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    with pytest.raises(UserError, match="cannot be started") as refused:
        detached.start_detached(
            ("job.py",), tmp_path / "job.py", tmp_path / "none" / "x.log", Configuration()
        )
    assert "--log-file" in refused.value.remedy and not processes


def test_a_job_that_does_not_run_in_time_is_told_with_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    processes: list[subprocess.Popen[bytes]],
) -> None:
    told = tmp_path / "told"

    class Told(subprocess.Popen[bytes]):
        """It is waited for only once it has told something."""

        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            processes.append(self)
            until(told.exists, "the process has told something")

    monkeypatch.setattr(subprocess, "Popen", Told)
    monkeypatch.setattr(detached, "START_S", 0.5)
    monkeypatch.setattr(detached, "_LOOK_S", 0.01)
    monkeypatch.setattr(detached, "_SETTLED_S", 0.1)
    line = f"{json.dumps(WAITS)}\n{{"
    body = f"tell({line!r})\nopen({str(told)!r}, 'w').close()\ntime.sleep(600)"
    started_as(tmp_path, monkeypatch, body)
    waited, unfound = capsys.readouterr().err.splitlines()
    assert waited == "not running after 0.5 s; it keeps trying in the background: 0 of 2 tasks run"
    assert "execution.checkpointing.dir" in unfound


@pytest.mark.usefixtures("processes")
def test_a_program_that_has_ended_is_noticed_while_a_slot_of_its_holds_the_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "tell('{')\nslot = os.fork()\nif slot: print(slot)\nelse: time.sleep(600)"
    slot = int(started_as(tmp_path, monkeypatch, body).read_text())
    os.kill(slot, signal.SIGKILL)  # it has lived, and held the pipe
    assert capsys.readouterr().out.startswith("the program has already ended")


class Starting(Served):
    """A job that shows one view after another, the last one from then on."""

    def __init__(self, *views: JobView | PeerLost) -> None:
        super().__init__()
        self.left = list(views)
        self.looks = 0
        self.result: Future[JobExecutionResult] = Future()

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self.result

    def view(self) -> object:
        self.looks += 1
        shown = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(shown, PeerLost):
            raise shown
        return shown


@contextmanager
def running(client: Starting) -> Generator[None]:
    running_jobs().add(client, Configuration())
    try:
        yield
    finally:
        client.result.set_result(JobExecutionResult(JOB, 1))


def tells() -> bool:
    return any(thread.name == TELLER for thread in threading.enumerate())


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "_LOOK_S", 0.01)
    monkeypatch.setattr(detached, "_SETTLED_S", 0.1)


@pytest.mark.usefixtures("often")
def test_a_job_is_told_until_it_runs() -> None:
    client = Starting(PeerLost("The driver is busy"), VIEW, EMPTY)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as told:
        with detached.telling_start(writing):
            assert not os.get_inheritable(writing)
            with running(client):
                until(lambda: not tells(), "the job runs, and nothing more is told")
        waits, runs = (json.loads(line) for line in told)
    assert (waits["runs"], waits["job"], waits["address"]) == (False, JOB, None)
    assert waits["waits"] == (
        "the job is RUNNING, 2 of 3 tasks run, 3 of 1 slots have come; it failed last with: "
        "it broke"
    )
    assert (runs["runs"], runs["name"], runs["checkpoints"]) == (True, "orders", None)


@pytest.mark.usefixtures("often")
def test_nobody_has_to_read_what_is_told() -> None:
    client = Starting(VIEW)
    reading, writing = os.pipe()
    os.close(reading)
    with detached.telling_start(writing), running(client):
        until(lambda: not tells(), "the reader is missed")
    assert client.looks == 1


@pytest.mark.usefixtures("often")
def test_a_program_without_a_job_tells_nothing() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as told:
        with detached.telling_start(writing):
            assert tells()
        assert told.read() == b"" and not tells()


def test_ctrl_c_says_how_to_reach_the_program_that_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: list[subprocess.Popen[bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(detached, "_told_by", interrupted)
    with pytest.raises(click.exceptions.Exit) as ended:
        started_as(tmp_path, monkeypatch, "time.sleep(600)")
    [process] = processes
    assert ended.value.exit_code == 130 and process.poll() is None
    said = capsys.readouterr().err
    assert f"kill {process.pid}" in said and str(tmp_path / "job.log") in said

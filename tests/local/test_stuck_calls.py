"""Calls of user functions that do not return: the job lives with them, and can be cancelled."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import structlog

from tests.house.source import ROOT
from tidegate import Configuration, JobStatus, MapFunction, StreamExecutionEnvironment
from tidegate.driver.telling import watching
from tidegate.minicluster.forking import forking

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate import RuntimeContext
    from tidegate.driver.client.driver_client import DriverClient
    from tidegate.jobmaster.view import WaitView

LIMIT_S = 120.0

SOURCES = ROOT / "src"


def sleeps(folder: str) -> str:
    Path(folder, "called").touch()
    while True:
        time.sleep(1_000)


def computes(folder: str) -> str:
    Path(folder, "called").touch()
    while True:
        pass


def tries_again_whatever_is_raised(folder: str) -> str:
    Path(folder, "called").touch()
    while True:
        try:
            time.sleep(1_000)
        except BaseException:
            continue


def holds_the_interpreter(folder: str) -> str:
    Path(folder, "called").touch()
    return str(sum(range(10**13)))  # one call in C, for days


class NeverOpens(MapFunction[str, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        Path(str(runtime_context.get_job_parameter("folder")), "called").touch()
        time.sleep(1_000)

    def map(self, value: str) -> str:
        return value


def stuck(
    folder: Path, function: Callable[[str], str] | MapFunction[str, str], **settings: str
) -> DriverClient:
    """A job that is in a call of the function."""
    given = {key.replace("__", "-").replace("_", "."): value for key, value in settings.items()}
    configuration = Configuration.from_dict(
        {"pipeline.global-job-parameters": f"folder:{folder}", **given}
    )
    env = StreamExecutionEnvironment.local(1, configuration=configuration)
    env.from_collection([str(folder)]).map(function).print()
    client = env.execute_async("stuck")
    waited_for((folder / "called").exists)
    return client  # type: ignore[return-value]


@pytest.mark.parametrize(
    "function",
    [sleeps, computes, tries_again_whatever_is_raised, holds_the_interpreter, NeverOpens()],
    ids=["sleep", "loop", "caught", "c", "open"],
)
def test_a_job_in_a_call_that_never_returns_is_cancelled_and_leaves_no_process(
    tmp_path: Path, function: Callable[[str], str]
) -> None:
    client = stuck(tmp_path, function)
    client.cancel().result(LIMIT_S)
    assert client.get_job_status().result(LIMIT_S) is JobStatus.CANCELED
    server = forking().pid
    assert server is not None
    assert psutil.Process(server).children() == []


@pytest.mark.slow
def test_a_call_that_holds_the_interpreter_is_named_and_not_taken_for_a_dead_slot(
    tmp_path: Path,
) -> None:
    timings = {"heartbeat_interval": "100 ms", "heartbeat_timeout": "1 s"}
    client = stuck(tmp_path, holds_the_interpreter, **timings)
    waited_for(lambda: client.view().slots[0].long_call is not None)
    view = client.view()
    call = view.slots[0].long_call
    assert call is not None and call.function.startswith("holds_the_interpreter (")
    assert "test_stuck_calls.py" in call.stack
    assert (view.status, view.restarts, len(view.failures)) == (JobStatus.RUNNING, 0, 0)
    client.cancel().result(LIMIT_S)


@pytest.mark.slow
def test_a_stop_with_savepoint_says_which_call_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To who waits for it, in the view, on the log and by REST."""
    monkeypatch.setattr(watching, "TELL_EVERY_MS", 500)
    called, release = tmp_path / "called", tmp_path / "release"

    def ask(number: int) -> int:
        called.touch()
        while not release.exists():
            time.sleep(0.02)
        return number

    settings = {"execution.checkpointing.dir": str(tmp_path / "checkpoints"), "rest.port": "0"}
    env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict(settings))
    env.generate(lambda number: number, rate=100).map(ask).name("Ask").print()
    with structlog.testing.capture_logs() as logs:
        client = env.execute_async("stuck")
        waited_for(called.exists)
        stopped = client.stop_with_savepoint(False, tmp_path / "savepoints")

        def waits() -> WaitView | None:
            stopping = client.view().stopping  # type: ignore[attr-defined]
            return stopping.waits_for[0] if stopping and stopping.waits_for else None

        waited_for(lambda: (wait := waits()) is not None and wait.function != "")
        with pytest.raises(TimeoutError, match=r"Ask.*\(1/1\) on slot .* in one call of ask \("):
            stopped.result(0.1)
        url = f"{client.get_web_interface_url()}/jobs/{client.get_job_id()}/waits"
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            told = json.load(answer)
        waited_for(lambda: any("in one call of ask" in str(log.get("why")) for log in logs))
        release.touch()
        assert stopped.result(LIMIT_S).startswith(str(tmp_path / "savepoints"))
    (call,), stop = told["calls"], told["stop"]
    assert "Ask" in call["task"] and call["function"].startswith("ask (") and call["stack"]
    assert call["duration"] >= 10_000 and stop["savepoint"] is None and stop["duration"] > 0
    (wait,) = stop["waits-for"]
    assert (wait["task"], wait["slot"]) == (call["task"], call["slot"])
    assert wait["function"] == call["function"] and wait["call-duration"] >= 10_000


@pytest.mark.slow
def test_the_command_that_stops_a_job_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TELL_EVERY_MS", 500)
    called, release = tmp_path / "called", tmp_path / "release"

    def ask(number: int) -> int:
        called.touch()
        while not release.exists():
            time.sleep(0.02)
        return number

    settings = {"execution.checkpointing.dir": str(tmp_path / "checkpoints")}
    env = StreamExecutionEnvironment.local(1, configuration=Configuration.from_dict(settings))
    env.generate(lambda number: number, rate=100).map(ask).name("Ask").print()
    client = env.execute_async("stuck")
    waited_for(called.exists)
    target = str(tmp_path / "savepoints")
    stop = ["stop", "stuck", "-p", target, "-d", settings["execution.checkpointing.dir"]]
    command = [sys.executable, "-m", "tidegate.cli.main", *stop]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=SOURCES, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        told = process.stderr.readline()
        release.touch()
        path = process.stdout.read().strip()
        process.stderr.read()
    assert told.startswith("stop: not done after 0.5 s; it waits for subtasks to take their share")
    assert "Ask" in told and process.returncode == 0 and Path(path).is_dir()
    client.get_job_execution_result().result(LIMIT_S)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_last_checkpoint_waits_for_one_call_although_another_checkpoint_is_under_way(
    tmp_path: Path, parallelism: int
) -> None:
    """Behind that one it would wait for a second call, which here never returns."""
    called, release = tmp_path / "called", tmp_path / "release"

    def ask(number: int) -> int:
        (tmp_path / f"again{number}").touch() if release.exists() else called.touch()
        while not release.exists() or (tmp_path / f"again{number}").exists():
            time.sleep(0.02)
        return number

    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.interval": "1 h",
        "tidegate.interrupt.checkpoint-timeout": "10 d",
        "task.cancellation.timeout": "100 ms",
    }
    env = StreamExecutionEnvironment.local(
        parallelism, configuration=Configuration.from_dict(settings)
    )
    env.generate(lambda number: number, rate=100).map(ask).key_by(str).map(str).print()
    client: DriverClient = env.execute_async("stuck")  # type: ignore[assignment]
    waited_for(called.exists)
    before = client.trigger_checkpoint()
    waited_for(lambda: client.view().checkpoints.counts.in_progress == 1)
    suspended = client.suspend()
    waited_for(lambda: client.view().checkpoints.counts.in_progress == 2)
    release.touch()
    suspended.result(LIMIT_S)
    assert before.exception(LIMIT_S) is None or "subsumed" in str(before.exception())
    assert len(list(tmp_path.glob("checkpoints/*/chk-2/_metadata"))) == 1


def waited_for(reached: Callable[[], bool]) -> None:
    for _ in range(int(LIMIT_S * 20)):
        if reached():
            return
        threading.Event().wait(0.05)
    raise AssertionError("this did not come to be in time")

"""The demonstration on the local runtime: real processes are killed, real files are compared."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SMALL = ["--runtime", "local", "--parallelism", "2", "--flights", "9000", "--rate", "3000"]
LIMIT_S = 150

DAYS = 33
"""Airports and days that the flights are of."""

STRAGGLERS = 44
"""Flights that may be too late for their day."""


@contextmanager
def demo(*options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "examples.demo", *SMALL, *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")]),
        },
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def result_of(*options: str) -> tuple[dict, str]:
    """The JSON object of the last line, and all that was printed."""
    with demo("--json", *options) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1]), output


def assert_exactly_once(result: dict, killed: int) -> None:
    assert result["matches"] is True
    assert (result["read"], result["counted"]) == (9_000, 9_000)
    assert (result["lost"], result["doubled"], result["killed"]) == (0, 0, killed)
    assert result["checkpoints"] >= 2
    assert result["windows"] == DAYS
    assert 0 <= result["late"] <= STRAGGLERS


@pytest.mark.feature("F189")
def test_a_killed_worker_loses_and_doubles_nothing() -> None:
    result, output = result_of("--kill-at", "2.5")
    assert_exactly_once(result, killed=1)
    assert result["recovery_s"] > 0
    before, kill, after = output.partition("SIGKILL to a worker")
    assert kill
    # On a busy machine the kill may come ahead of the first checkpoint.
    assert ("restored from checkpoint" in after) == (" complete: " in before)


def test_a_worker_killed_during_a_checkpoint_loses_and_doubles_nothing() -> None:
    result, output = result_of("--kill-at", "1.5", "--kill-during-checkpoint")
    assert_exactly_once(result, killed=1)
    assert ", during checkpoint" in output


def test_two_killed_workers_lose_and_double_nothing() -> None:
    result, output = result_of("--kills", "2")
    assert_exactly_once(result, killed=2)
    assert output.count("SIGKILL to a worker") == 2


@pytest.mark.feature("F188")
def test_a_killed_driver_is_followed_by_one_that_goes_on() -> None:
    result, output = result_of("--kill-at", "1.8", "--kill-driver")
    assert_exactly_once(result, killed=1)
    assert "SIGKILL to the driver" in output
    assert output.count("starting another driver") == 1


def test_without_a_kill_there_is_nothing_to_recover_from(tmp_path: Path) -> None:
    result, output = result_of("--kills", "0", "--rate", "9000", "--keep", str(tmp_path / "kept"))
    assert (result["matches"], result["killed"], result["recovery_s"]) == (True, 0, None)
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        "checkpoints",
        "driver.log",
        "flights.parquet",
        "output",
        "weather.parquet",
    }
    assert "\x1b" not in output


def test_ctrl_c_ends_the_driver_and_its_slots(tmp_path: Path) -> None:
    with demo("--rate", "300", "--keep", str(tmp_path)) as process:
        assert process.stdout is not None
        until_line(process, "all running")
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 3
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert output.endswith("interrupted\n")
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive


def until_line(process: subprocess.Popen[str], part: str) -> None:
    assert process.stdout is not None
    deadline = time.monotonic() + LIMIT_S
    for line in process.stdout:
        if part in line:
            return
        assert time.monotonic() < deadline, f"no line with {part!r}"
    raise AssertionError(f"the program ended without a line with {part!r}")


def test_without_java_spark_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with demo("--runtime", "spark") as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert "Spark does not start" in output
    assert "Java 17 or newer" in output
    assert "Traceback" not in output


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with demo("--keep", str(tmp_path)) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert "not empty" in output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_kill_after_the_end_is_refused_before_anything_is_started() -> None:
    with demo("--kill-at", "99") as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert "about 3.0 s" in output
    assert "starting the driver" not in output

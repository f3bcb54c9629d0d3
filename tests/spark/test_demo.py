"""The demonstration on Spark: workers and drivers are killed, and nothing is lost or doubled."""

import itertools
import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FLIGHTS = 40_000
LIMIT_S = 280

DAYS = 138
"""Airports and days that the flights are of."""

STRAGGLERS = 196
"""Flights that may be too late for their day."""


def demo(*options: str) -> tuple[dict, str]:
    """The JSON object of the last line, and all that was printed."""
    small = ["--flights", str(FLIGHTS), "--rate", "5000", "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "examples.demo", *small, *options],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": "src"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout.splitlines()[-1]), run.stdout


def assert_exactly_once(result: dict, killed: int) -> None:
    figures = {name: result[name] for name in ("read", "counted", "lost", "doubled", "killed")}
    assert figures == {
        "read": FLIGHTS,
        "counted": FLIGHTS,
        "lost": 0,
        "doubled": 0,
        "killed": killed,
    }
    assert result["matches"] is True
    assert result["checkpoints"] >= 3
    assert result["windows"] == DAYS
    assert 0 < result["late"] <= STRAGGLERS


def assert_restored(output: str) -> None:
    """Each kill after a completed checkpoint is followed by a restore; none if it came before."""
    _, *after_kills = output.split("SIGKILL")
    before = itertools.accumulate(output.split("SIGKILL"))
    for seen, after in zip(before, after_kills, strict=False):
        if " complete: " in seen:
            assert "restored from checkpoint" in after


@pytest.mark.feature("F189")
def test_killed_workers_lose_and_double_nothing_on_spark() -> None:
    result, output = demo("--kills", "2")
    assert_exactly_once(result, killed=2)
    assert_restored(output)


@pytest.mark.feature("F188")
def test_a_killed_driver_is_followed_by_another_on_spark() -> None:
    result, output = demo("--kill-at", "3.5", "--kill-driver")
    assert_exactly_once(result, killed=1)
    assert_restored(output)

"""Metrics of functions, from slots on this machine to REST and to reporters."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples import parcel_metrics
from tests.e2e.metered import (
    check_a_new_attempt_begins_anew,
    check_a_stuck_gauge_hurts_nobody,
    check_metrics_arrive,
    check_state_is_counted,
    metered,
)
from tests.e2e.reported import check_reporters, check_state_is_exported, fetched
from tests.e2e.rest import SERVED
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import until
from tidegate.errors import ConfigError

pytestmark = pytest.mark.slow

PROM = "metrics.reporter.prom."


def test_metrics_of_functions_arrive(jobs: Jobs) -> None:
    check_metrics_arrive(jobs)


def test_a_new_attempt_begins_anew(jobs: Jobs) -> None:
    check_a_new_attempt_begins_anew(jobs)


def test_entries_of_state_are_counted(jobs: Jobs) -> None:
    check_state_is_counted(jobs)


def test_a_gauge_that_never_returns_hurts_nobody(jobs: Jobs) -> None:
    check_a_stuck_gauge_hurts_nobody(jobs)


def test_a_reporter_that_cannot_be_made_is_told_before_the_job_starts(jobs: Jobs) -> None:
    wrong = {"metrics.reporter.lines.path": "/nowhere/told.jsonl", **SERVED}
    env = jobs.env(1, **{"metrics.reporter.lines.factory.class": "json-lines", **wrong})
    metered(env, None, 10)
    with pytest.raises(ConfigError, match="Reporter 'lines' cannot write its file"):
        jobs.start(env, "refused")


def test_metrics_are_reported(jobs: Jobs) -> None:
    check_reporters(jobs)


def test_state_is_exported_by_its_name(jobs: Jobs) -> None:
    check_state_is_exported(jobs)


def test_the_example_is_fetched_while_it_runs_and_ended_by_ctrl_c(tmp_path: Path) -> None:
    options = {"factory.class": "prometheus", "port": "19400-19499"}
    given = [text for key, value in options.items() for text in ("-D", f"{PROM}{key}={value}")]
    command = [sys.executable, "-m", "tidegate.cli.main", "run", *given, parcel_metrics.__file__]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "log").open("wb") as log:
        program = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: len(grams(19400, 19499)) == 18, "all countries are there")
    finally:
        os.killpg(program.pid, signal.SIGINT)
        program.wait(60)
    assert program.returncode == 130


def grams(first: int, last: int) -> set[tuple[str, str]]:
    """Country and quantile of each weight that is told, wherever in the range that is."""
    for port in range(first, last + 1):
        try:
            found = fetched(port).get("flink_taskmanager_job_task_operator_country_grams", ())
        except OSError:
            continue
        return {(labels["country"], labels["quantile"]) for labels, _ in found}
    return set()

"""``tidegate logs`` over the door of a job whose log a test writes."""

from __future__ import annotations

import json
import logging
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from click.testing import CliRunner

from tests.cli.reached import NAME, reached
from tests.rest.served import Served
from tests.rest.shown import VIEW
from tests.rest.world import JOB
from tidegate.api.job import JobExecutionResult
from tidegate.cli import logs
from tidegate.cli.jobs import JobFolder, KnownJob
from tidegate.cli.main import commands
from tidegate.driver.client.door import Door
from tidegate.errors import TidegateError
from tidegate.model.control import JobStatus, Logged, LogRecord
from tidegate.model.ids import Epoch, SlotId
from tidegate.model.logs import PAGE_MAX, LogFilter, LogPage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

HOUR_MS = 3_600_000
RED, YELLOW = "\x1b[31m", "\x1b[33m"


def record(text: str, level: int = logging.INFO, **where: Any) -> LogRecord:
    return LogRecord(9_999_999_999_000, level, "shop", text, **where)


class Logging(Served):
    """A running job; before each look at its log something may happen, in turn."""

    def __init__(self, *happens: Callable[[Logging], object]) -> None:
        super().__init__()
        self.shown = VIEW
        self.happens = list(happens)
        self.result: Future[JobExecutionResult] = Future()

    def tells(self, *records: LogRecord) -> None:
        self.logged.heard(Logged(SlotId("one"), records))

    def ends(self) -> None:
        self.result.set_result(JobExecutionResult(JOB, 1))

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self.result

    def log(
        self, wanted: LogFilter | None = None, *, after: int | None = None, limit: int = PAGE_MAX
    ) -> LogPage:
        if self.happens:
            self.happens.pop(0)(self)
        return super().log(wanted, after=after, limit=limit)

    def view(self) -> object:
        if self.shown is None:
            raise TidegateError("The job is gone")
        return self.shown


def nothing(client: Logging) -> None:
    pass


def breaks(client: Logging) -> None:
    raise LookupError("the driver breaks off")


def dies(client: Logging) -> None:
    client.shown = None
    raise LookupError("the driver breaks off")


def ends(client: Logging) -> None:
    client.tells(record("the last"))
    client.ends()


def shown(folder: Path, *args: str, color: bool = False) -> Result:
    command = ["logs", NAME, "-d", str(folder), *args]
    return CliRunner().invoke(commands, command, color=color)


def texts(told: Result) -> list[str]:
    assert told.exit_code == 0, told.output
    return [json.loads(line)["message"] for line in told.stdout.splitlines()]


def test_records_are_lines_in_the_colour_of_their_level(tmp_path: Path) -> None:
    client = Logging()
    step = {"operator": "look up", "task": "look up -> print", "subtask": 0, "slot": "one"}
    client.tells(record("fine", **step), record("odd", logging.WARNING))
    client.tells(record("broke", logging.ERROR, trace="KeyError: 1"))
    with reached(tmp_path, client):
        told = shown(tmp_path, color=True)
    assert told.exit_code == 0, told.output
    fine, odd, broke, trace = told.stdout.splitlines()
    assert fine.endswith("INFO shop [look up (1)]: fine slot=one\x1b[0m") and RED not in fine
    assert odd.startswith(YELLOW) and "WARNING shop: odd" in odd
    assert broke.startswith(RED) and trace.startswith("KeyError: 1")


def test_a_terminal_obeys_nothing_that_a_record_says(tmp_path: Path) -> None:
    client = Logging()
    client.tells(record("a\x1b[2J\tb\rc\ud83d", trace="line 1\nline 2\x9b1m"))
    with reached(tmp_path, client):
        told = shown(tmp_path)
    assert "a\\x1b[2J\tb\\x0dc\\ud83d" in told.stdout and "\nline 2\\x9b1m\n" in told.stdout


def test_records_are_chosen_by_step_level_text_and_number(tmp_path: Path) -> None:
    client = Logging()
    client.tells(
        record("one", operator="look up", task="a", subtask=0),
        record("two", operator="look up", task="a", subtask=1),
        record("Three", logging.ERROR),
        replace(record("old"), at_ms=HOUR_MS),
    )
    with reached(tmp_path, client):
        for args, expected in (
            ((), ["one", "two", "Three", "old"]),
            (("-o", "look up"), ["one", "two"]),
            (("-o", "look up", "--subtask", "1"), ["two"]),
            (("-l", "WARNING"), ["Three"]),
            (("-t", "three"), ["Three"]),
            (("-n", "2"), ["Three", "old"]),
            (("--since", "1d"), ["one", "two", "Three"]),
        ):
            assert texts(shown(tmp_path, "--json", *args)) == expected


@pytest.mark.parametrize("age", ["soon", "10", "s", "1.5h", "-1m"])
def test_an_age_that_is_none_is_told(tmp_path: Path, age: str) -> None:
    told = shown(tmp_path, "--since", age)
    assert told.exit_code == 2 and f"'{age}' is no duration such as 30s" in told.stderr


def test_a_log_is_followed_until_the_job_ends(tmp_path: Path) -> None:
    client = Logging(nothing, nothing, ends)
    client.tells(record("the first"))
    with reached(tmp_path, client):
        assert texts(shown(tmp_path, "-f", "--json")) == ["the first", "the last"]


def test_whoever_is_cut_off_goes_on_behind_the_last_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_AGAIN_S", 0.01)
    client = Logging(nothing, breaks, ends)
    client.tells(record("the first"))
    with reached(tmp_path, client):
        assert texts(shown(tmp_path, "-f", "--json")) == ["the first", "the last"]


def test_a_log_that_is_followed_ends_with_a_driver_that_dies(tmp_path: Path) -> None:
    client = Logging(nothing, dies)
    client.tells(record("the first"))
    with reached(tmp_path, client):
        told = shown(tmp_path, "-f", "--json")
    assert told.exit_code == 1 and "does not answer" in told.stderr
    assert [json.loads(line)["message"] for line in told.stdout.splitlines()] == ["the first"]


def test_a_log_that_is_followed_goes_on_with_the_driver_that_takes_the_job_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_AGAIN_S", 0.01)
    later = Logging(nothing, ends)
    later.tells(record("from its start"))
    other = Door(NAME, str(tmp_path), structlog.get_logger())

    def replaced(client: Logging) -> None:
        other.open(later, Epoch(2))
        dies(client)

    client = Logging(nothing, replaced)
    client.tells(record("one"), record("two"), record("three"))
    with reached(tmp_path, client), closing(other):
        told = texts(shown(tmp_path, "-f", "--json"))
        other.shut()
    assert told == ["one", "two", "three", "from its start", "the last"]


def test_a_log_that_is_followed_ends_with_a_job_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_of = JobFolder.jobs
    client = Logging(nothing, dies)
    client.tells(record("the first"))

    def jobs(folder: JobFolder) -> list[KnownJob]:
        known = record_of(folder)
        if client.shown is not None:
            return known
        [job] = known
        assert job.record is not None
        return [replace(job, record=replace(job.record, status=JobStatus.FINISHED), sign=None)]

    monkeypatch.setattr(JobFolder, "jobs", jobs)
    with reached(tmp_path, client):
        assert texts(shown(tmp_path, "-f", "--json")) == ["the first"]


def test_a_driver_that_says_nothing_at_all_is_told(tmp_path: Path) -> None:
    with reached(tmp_path, Logging(breaks)):
        told = shown(tmp_path)
    assert told.exit_code == 1 and "does not answer" in told.stderr
    assert told.stdout == ""


def test_a_job_that_has_ended_has_no_log_to_show(tmp_path: Path) -> None:
    with reached(tmp_path, Logging(), status=JobStatus.FINISHED):
        told = shown(tmp_path)
    assert told.exit_code == 2 and "The job has ended: FINISHED" in told.stderr

"""The log of a job: what is kept of it, what readers choose, and what is written to a file."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

from tidegate.config.log import process_log
from tidegate.driver.pool import WAITING_MAX
from tidegate.driver.telling.job_log import OWN_BYTES, JobLog
from tidegate.errors import UserError
from tidegate.model.control import Logged, LogRecord
from tidegate.model.ids import SlotId
from tidegate.model.logs import PAGE_BYTES_MAX, LogFilter, LogPage
from tidegate.model.settings import LogSettings
from tidegate.telemetry.log_lines import as_text
from tidegate.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOT = SlotId("one")


class Written:
    """A logger that notes what it is told."""

    def __init__(self, facts: dict[str, object] | None = None) -> None:
        self.facts = facts or {}
        self.lines: list[tuple[str, str]] = []

    def bind(self, **facts: object) -> Written:
        bound = Written({**self.facts, **facts})
        bound.lines = self.lines
        return bound

    def __getattr__(self, level: str) -> Any:
        return lambda event, **facts: self.lines.append((level, f"{event} {self.facts | facts}"))


def made(written: Written | None = None) -> JobLog:
    return JobLog(ManualClock(), cast("Any", written or Written()))


def record(text: str, level: int = 20, **named: Any) -> LogRecord:
    return LogRecord(0, level, "orders", text, slot=SLOT, **named)


def heard(log: JobLog, *records: LogRecord) -> None:
    log.heard(Logged(SLOT, records))


def texts(page: LogPage) -> list[str]:
    return [entry.record.text for entry in page.entries]


def read(log: JobLog, limit: int = 1_000, after: int | None = None, **wanted: Any) -> list[str]:
    return texts(log.read(LogFilter(**wanted), after=after, limit=limit))


def test_events_of_the_driver_have_facts_and_go_on_to_its_log() -> None:
    written = Written()
    job = made(written)
    log = job.log.bind(job="orders")
    log.info("checkpoint completed", checkpoint=7, cause="", path=None)
    log.debug("left out")
    log.warning("it broke", error="first\nsecond", slot="one")
    first, second = read(job)
    assert first == "checkpoint completed job=orders checkpoint=7"
    assert second == "it broke job=orders slot=one\n    error: first\n    second"
    assert [level for level, _ in written.lines] == ["info", "debug", "warning"]


def test_an_exception_is_kept_with_its_traceback() -> None:
    job = made()
    try:
        raise ValueError("told to break")
    except ValueError:
        job.log.exception("a request failed")
    [text] = read(job, level="error")
    assert "a request failed" in text and "ValueError: told to break" in text


def test_what_slots_log_does_not_push_out_what_the_driver_has_logged() -> None:
    job = made()
    job.log.error("job failed")
    for number in range(3 * OWN_BYTES // 1_000):
        heard(job, record(f"{number} {'x' * 1_000}"))
    kept = read(job, slot=SLOT)
    assert kept[-1].startswith(f"{3 * OWN_BYTES // 1_000 - 1} ")
    assert read(job, slot="") == ["job failed"] and len(read(job)) < 1_100


def test_readers_choose_by_level_step_subtask_text_and_time() -> None:
    job = made()
    first = record("Lookup failed", 30, operator="look up", task="read -> look up", subtask=1)
    heard(job, first, record("other", subtask=0, operator="map"))
    job.log.info("job status")
    assert read(job) == ["Lookup failed", "other", "job status"]
    assert read(job, level="warning") == ["Lookup failed"]
    assert read(job, operator="look up") == read(job, operator="read -> look up")
    assert read(job, operator="look up") == ["Lookup failed"] == read(job, text="lookup f")
    assert read(job, subtask=0) == ["other"] and read(job, since_ms=1) == []
    with pytest.raises(UserError, match="'loud' is not a log level"):
        LogFilter("loud")


def test_pages_go_on_where_the_last_one_ended() -> None:
    job = made()
    job.begin(LogSettings(), lambda call: call())
    for number in range(5):
        heard(job, record(str(number)))
    newest = job.read(LogFilter(), limit=2)
    assert texts(newest) == ["3", "4"]
    assert read(job, after=newest.after) == []
    pages, after = list[str](), 0
    while (page := job.read(LogFilter(), after=after, limit=2)).entries:
        pages.append("".join(texts(page)))
        after = page.after
    assert pages == ["01", "23", "4"]
    heard(job, record("x" * PAGE_BYTES_MAX), record("last"))
    assert read(job, after=after) == ["x" * PAGE_BYTES_MAX]


def test_dropped_records_are_told_with_the_option_that_allows_more() -> None:
    job = made()
    job.heard(Logged(SLOT, (), records_left_out=1_200, lines_left_out=3))
    first, second = read(job, level="warning", slot=SLOT)
    assert first.startswith("1,200 records dropped") and "log.records-to-driver" in first
    assert second.startswith("3 lines dropped") and "print.lines-to-driver" in second


def test_the_line_of_a_record_is_printed_and_not_kept_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job, calls = made(), list["Callable[[], None]"]()
    job.begin(LogSettings(), calls.append)
    heard(job, record("it"), record("INFO it", stream="stderr", repeats=True))
    assert read(job) == ["it"]
    calls[0]()
    assert capsys.readouterr().err == "INFO it\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_all_is_added_to_a_file(tmp_path: Path, as_json: bool) -> None:
    file = tmp_path / "job.log"
    file.write_text("before\n")
    job = made()
    job.begin(LogSettings(file=str(file), as_json=as_json), lambda call: call())
    job.log.info("job status", status="RUNNING")
    found = record("it broke", 40, trace="Traceback\nValueError", operator="map", subtask=1)
    heard(job, found)
    before, first, *second = file.read_text().splitlines()
    assert before == "before"
    if as_json:
        assert json.loads(first)["message"] == "job status status=RUNNING"
        told = json.loads(second[0])
        assert (told["level"], told["operator"], told["subtask"]) == ("ERROR", "map", 1)
        assert told["exception"].endswith("ValueError") and told["slot"] == SLOT
    else:
        assert first.endswith("INFO tidegate: job status status=RUNNING")
        assert "\n".join(second) == as_text(found)
        assert second[0].endswith("ERROR orders [map (2)]: it broke slot=one")


def test_lines_of_the_driver_wait_for_the_pool_and_are_written_in_order() -> None:
    """Its loop would stand still while nobody reads its standard error."""
    written, calls = Written(), list[Callable[[], None]]()
    job = made(written)
    job.begin(LogSettings(), calls.append)
    log = job.log.bind(job="orders")
    for number in range(3):
        log.warning("checkpoint failed", checkpoint=number)
    log.debug("late message")
    assert written.lines == [] and len(read(job)) == 3 and len(calls) == 1
    calls.pop()()
    assert [line.split(" {")[0] for _, line in written.lines] == [
        *["checkpoint failed"] * 3,
        "late message",
    ]
    job.end()
    log.info("the end")
    assert written.lines[-1] == ("info", "the end {'job': 'orders'}") and calls == []


def test_lines_that_nobody_reads_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    written, calls = Written(), list[Callable[[], None]]()
    job = made(written)
    job.begin(LogSettings(), calls.append)
    for _ in range(WAITING_MAX + 7):
        job.log.info("checkpoint completed")
    calls.pop()()
    assert len(written.lines) == WAITING_MAX
    assert capsys.readouterr().err == "tidegate: 7 more lines were logged\n"


def test_an_error_that_is_written_later_has_its_traceback() -> None:
    calls = list[Callable[[], None]]()
    with capture_logs() as logs:
        job = JobLog(ManualClock(), process_log())
        job.begin(LogSettings(), calls.append)
        try:
            raise KeyError("row")
        except KeyError as error:
            raised = error
            job.log.exception("it broke")
            job.log.warning("it broke", exc_info=True)
        calls.pop()()
    assert [each["exc_info"] for each in logs] == [raised, raised]


def test_a_standard_error_that_is_gone_holds_nothing_up() -> None:
    class Gone(Written):
        def __getattr__(self, level: str) -> Any:
            raise BrokenPipeError

    job = made(Gone())
    job.begin(LogSettings(), lambda call: call())
    job.log.info("one")
    job.log.info("two")
    assert read(job) == ["one", "two"]


def test_a_file_that_cannot_be_written_is_told_once_and_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.mkdir()
    with capture_logs() as logs:
        job = JobLog(ManualClock(), process_log())
        job.begin(LogSettings(file=str(file)), lambda call: call())
        heard(job, record("one"))
        heard(job, record("two"))
    assert [each["event"].split(";")[0] for each in logs] == ["the job's log cannot be written"]
    assert read(job) == ["one", "two"]
    file.rmdir()
    heard(job, record("three"))
    assert [line.split(" ")[-2] for line in file.read_text().splitlines()] == [
        "one",
        "two",
        "three",
    ]


def test_a_full_disk_costs_the_file_no_record(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.symlink_to("/dev/full")
    with capture_logs() as logs:
        job = JobLog(ManualClock(), process_log())
        job.begin(LogSettings(file=str(file), as_json=True), lambda call: call())
        heard(job, record("one"))
        file.unlink()
        heard(job, record("two"))
    assert "No space left" in logs[0]["error"] and len(logs) == 1
    lines = filter(None, file.read_text().splitlines())
    assert [json.loads(line)["message"] for line in lines] == ["one", "two"]


def test_the_file_says_how_many_records_it_lacks(tmp_path: Path) -> None:
    file, calls = tmp_path / "job.log", list["Callable[[], None]"]()
    job = made()
    job.begin(LogSettings(file=str(file)), calls.append)
    for _ in range(WAITING_MAX + 1_234):
        heard(job, record("row"))
    calls.pop()()
    *rows, note = file.read_text().splitlines()
    assert len(rows) == WAITING_MAX
    assert note.endswith(
        "WARNING tidegate: 1,234 records dropped: they came faster than this file took them"
    )
    heard(job, record("last"))
    calls.pop()()
    assert "dropped" not in file.read_text().splitlines()[-1]


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns after each few instructions."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_log_at_once_are_in_the_file_in_the_order_of_the_pages(tmp_path: Path) -> None:
    file, calls = tmp_path / "job.log", list["Callable[[], None]"]()
    job = made()
    job.begin(LogSettings(file=str(file)), calls.append)
    threads = [
        threading.Thread(target=lambda n=n: [job.log.info(f"{n}-{k}") for k in range(200)])
        for n in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    for call in calls:
        call()
    written = [line.rsplit(" ", 1)[1] for line in file.read_text().splitlines()]
    assert len(written) == 800 and written == read(job)

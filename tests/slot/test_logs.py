"""What is logged and printed in a slot, on its way to the driver."""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tests.worlds.clock import StepClock
from tidegate.config.log import process_log
from tidegate.driver.pool import WAITING_MAX, PrintedLines
from tidegate.model.control import STDERR, STDOUT, Logged, LogRecord, ProgramLogs
from tidegate.model.ids import SlotId
from tidegate.model.settings import LogSettings
from tidegate.slot.driver_link import TEXT_MAX, WAITING_S, SlotLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLOT = SlotId("one")
LOGGER = logging.getLogger("orders.lookup")


def made(clock: StepClock | None = None, **settings: Any) -> SlotLog:
    return SlotLog(SLOT, LogSettings(**{"records_max": 0, **settings}), clock or StepClock())


def taken(log: SlotLog) -> list[tuple[str, str]]:
    """Name of the logger or stream, and text, of all that has come."""
    return [(each.logger, each.text) for logged in log.take() for each in logged.records]


def test_whole_lines_are_taken_in_order_with_the_stream_they_were_for() -> None:
    log = made(lines_max=10)
    with log.gathering(None):
        print("one", end="")
        print(" and two\nthree", file=sys.stdout)
        print("four", file=sys.stderr)
        print("half", end="")
    assert taken(log) == [
        (STDOUT, "one and two"),
        (STDOUT, "three"),
        (STDERR, "four"),
    ]
    assert log.take() == ()


def test_nothing_is_taken_from_a_process_that_prints_for_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = made()
    with log.gathering(None):
        print("one")
        LOGGER.error("two")
    assert log.take() == () and capsys.readouterr().out == "one\n"


def test_all_is_as_it_was_behind_it() -> None:
    root, before = logging.getLogger(), (sys.stdout, sys.stderr)
    had = (root.parent, list(root.handlers), root.level)
    logs = ProgramLogs(True, "%(message)s", None, {"root": logging.DEBUG})
    log = made(lines_max=1, records_max=1, levels={"orders": logging.DEBUG})
    with pytest.raises(ValueError), log.gathering(logs):
        assert sys.stdout is not before[0] and root.level == logging.DEBUG
        raise ValueError
    assert (sys.stdout, sys.stderr) == before
    assert (root.parent, root.handlers, root.level) == had
    assert logging.getLogger("orders").level == logging.NOTSET


def test_more_than_is_wanted_of_a_second_is_counted() -> None:
    time = StepClock()
    log = made(time, lines_max=2, records_max=1)
    with log.gathering(None):
        print("1\n2\n3\n4")
        LOGGER.error("first")
        LOGGER.error("second")
        time.advance(1_000)
        print("5")
    [logged] = log.take()
    texts = [each.text for each in logged.records if each.stream != STDERR]
    assert texts == ["1", "2", "first", "5"]
    assert (logged.records_left_out, logged.lines_left_out) == (1, 2)


def test_what_waits_for_a_loop_in_a_long_call_is_bounded() -> None:
    time = StepClock()
    log = made(time, lines_max=10, bytes_max=1_000)
    with log.gathering(None):
        for _ in range(100):
            print("x" * 500)
            print("x" * 600)
            time.advance(1_000)
    [logged] = log.take()
    assert sum(len(each.text) for each in logged.records) <= WAITING_S * 1_000
    assert len(logged.records) + logged.lines_left_out == 200
    with log.gathering(None):
        print("there is room again")
    assert taken(log) == [(STDOUT, "there is room again")]


def test_a_text_that_is_too_long_is_cut() -> None:
    log = made(records_max=1)
    with log.gathering(None):
        LOGGER.error("y" * (TEXT_MAX + 1_234))
    [(_, text)] = taken(log)
    assert text == "y" * TEXT_MAX + "… 1,234 more characters"


def test_lines_of_two_threads_do_not_mix() -> None:
    log = made(lines_max=10)
    with log.gathering(None):
        sys.stdout.write("main ")
        other = threading.Thread(target=lambda: sys.stdout.write("thread\n"))
        other.start()
        other.join()
        sys.stdout.write("goes on\n")
    assert taken(log) == [(STDOUT, "thread"), (STDOUT, "main goes on")]


def test_records_have_level_logger_text_and_traceback() -> None:
    log = made(records_max=10)
    with log.gathering(None):
        LOGGER.info("of no interest to the root")
        try:
            raise ValueError("told to break")
        except ValueError:
            LOGGER.exception("seen %s", 7)
    [logged] = log.take()
    [record] = logged.records
    assert (record.level, record.logger, record.text) == (logging.ERROR, LOGGER.name, "seen 7")
    assert record.trace.endswith("ValueError: told to break") and record.slot == SLOT


def test_levels_of_loggers_are_those_of_the_settings_then_the_programs() -> None:
    log = made(records_max=10, levels={"orders.lookup": logging.DEBUG, "": logging.ERROR})
    program = ProgramLogs(None, None, None, {"root": logging.INFO, "carts": logging.INFO})
    with log.gathering(program):
        LOGGER.debug("1")
        logging.getLogger("carts").info("2")
        logging.getLogger("others").warning("3")
    assert [text for _, text in taken(log)] == ["1", "2"]


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger without handlers, as in a slot."""
    root = logging.getLogger()
    handlers, root.handlers[:] = list(root.handlers), []
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        root.setLevel(logging.WARNING)


def test_a_functions_own_set_up_of_logging_holds_and_its_records_are_told() -> None:
    log = made(records_max=10)
    with bare_root() as root, log.gathering(None):
        logging.basicConfig(level=logging.INFO, handlers=[logging.NullHandler()])
        assert len(root.handlers) == 1 and root.level == logging.INFO
        LOGGER.info("seen")
    assert taken(log) == [(LOGGER.name, "seen")]


def test_warnings_still_reach_standard_error_where_nobody_handles_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = made(records_max=10)
    with bare_root() as root, log.gathering(None):
        LOGGER.warning("look at it")
        root.addHandler(logging.NullHandler())
        LOGGER.warning("somebody handles it")
    assert capsys.readouterr().err == "look at it\n"


def test_a_record_that_cannot_be_put_in_words_fails_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = made(records_max=10)
    with bare_root() as root, log.gathering(None):
        root.addHandler(logging.NullHandler())
        LOGGER.error("%d of %s", "one")
    assert log.take() == () and "Logging error" in capsys.readouterr().err


def test_events_of_the_slot_itself_are_told_too() -> None:
    log = made(records_max=10)
    with capture_logs() as logs:
        log.of(process_log().bind(slot=SLOT)).warning("closing failed", error="x")
    assert logs[0]["slot"] == SLOT
    assert taken(log) == [("tidegate", "closing failed error=x")]


def line(text: str, stream: str = STDOUT) -> LogRecord:
    return LogRecord(0, logging.INFO, stream, text, stream=stream)


def test_the_driver_prints_in_one_call_what_has_come(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Callable[[], None]] = []
    lines = PrintedLines(calls.append)
    lines.show([line("1"), line("2", STDERR)])
    lines.show([line("3")], left_out=1_200)
    assert len(calls) == 1
    calls[0]()
    assert capsys.readouterr() == (
        "1\n3\n",
        "2\ntidegate: 1,200 more lines were printed in slots\n",
    )
    lines.show([line("4")])
    assert len(calls) == 2


def test_while_nobody_reads_only_so_many_lines_wait(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Callable[[], None]] = []
    lines = PrintedLines(calls.append)
    for _ in range(3):
        lines.show([line("x")] * (WAITING_MAX // 2))
    calls[0]()
    out, err = capsys.readouterr()
    assert out.count("x") == WAITING_MAX and f"{WAITING_MAX // 2:,} more lines" in err


def test_what_left_has_the_slots_name() -> None:
    log = made(records_max=1)
    log.add(logging.INFO, "tidegate", "it")
    expected = LogRecord(StepClock().wall_ms(), 20, "tidegate", "it", slot=SLOT)
    assert log.take() == (Logged(SLOT, (expected,)),)

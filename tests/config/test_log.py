"""What a process logs where the program has configured nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from tidegate.config.log import process_log
from tidegate.errors import ConfigError

ERROR = "A file is missing\n  where: chk-7\n  what to do: Put it back."


def test_a_fact_of_several_lines_stands_below_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    process_log().bind(job="orders").warning("job restarts", error=ERROR, restart=1)
    first, *below = capsys.readouterr().err.splitlines()
    assert first.endswith("job=orders restart=1") and "job restarts" in first
    assert below == [
        "    error: A file is missing",
        "      where: chk-7",
        "      what to do: Put it back.",
    ]


def test_a_fact_that_is_empty_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    process_log().warning("checkpoint failed", where="", error=None, size_bytes=0)
    assert capsys.readouterr().err.rstrip().endswith("checkpoint failed              size_bytes=0")


def test_a_traceback_shows_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "".join(("open", "sesame"))
    try:
        raise ValueError("the door is shut")
    except ValueError:
        process_log().exception("a slot failed")
    told = capsys.readouterr().err
    assert "the door is shut" in told and "Traceback (most recent call last)" in told
    assert secret not in told


def test_what_is_no_terminal_gets_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    process_log().error("job failed")
    assert "\x1b" not in capsys.readouterr().err


def test_a_process_without_standard_error_goes_on_without_its_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", None)
        process_log().bind(job="orders").warning("job restarts", error=ERROR)
    process_log().warning("job ends")
    told = capsys.readouterr()
    assert told.out == "" and "job ends" in told.err and "job restarts" not in told.err


def test_a_logger_with_nothing_to_tell_does_not_load_structlog() -> None:
    program = """
import sys
from tidegate.config.log import process_log

log = process_log().bind(job="orders")
log.info("checkpoint completed")
assert "structlog" not in sys.modules
log.warning("job restarts", restart=1)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stderr.splitlines()
    assert "job restarts" in line and "job=orders" in line and "restart=1" in line


def test_a_level_that_is_none_is_refused_before_anything_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEGATE_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match="'loud' is not a log level"):
        process_log()


def test_the_programs_configuration_holds_for_loggers_that_were_there_before() -> None:
    log = process_log().bind(job="orders")
    with capture_logs() as logs:
        log.info("checkpoint completed", checkpoint=7)
    assert logs == [
        {"event": "checkpoint completed", "job": "orders", "checkpoint": 7, "log_level": "info"}
    ]


def test_what_must_be_told_is_told_without_structlog_if_no_file_can_be_opened() -> None:
    program = """
import resource
from tidegate.config.log import process_log

log = process_log().bind(job="orders")
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
log.warning("checkpoint failed", error="too many open files")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == "[warning] checkpoint failed job=orders error=too many open files\n"

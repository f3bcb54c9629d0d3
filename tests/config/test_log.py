"""What a process logs where the program has configured nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.config.log import process_log

if TYPE_CHECKING:
    import pytest

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

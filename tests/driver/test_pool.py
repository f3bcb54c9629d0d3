"""The driver's pool: as many threads as are needed, none that the process must wait for."""

import io
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait

import pytest

from tidegate.clock import SystemClock
from tidegate.driver.pool import DriverPool, PrintedLines, WaitingLines
from tidegate.model.control import STDERR, LogRecord


def test_calls_run_beside_each_other_and_give_what_they_give() -> None:
    pool = DriverPool(4, SystemClock())
    meeting = threading.Barrier(3, timeout=60)
    met = [pool.submit(meeting.wait) for _ in range(3)]
    assert sorted(future.result(timeout=60) for future in met) == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(timeout=60)
    with pytest.raises(RuntimeError, match=r"SystemExit\(5\)"):
        pool.submit(lambda: sys.exit(5)).result(timeout=60)
    assert pool.close(5) == 0


def test_there_are_never_more_threads_than_allowed_and_idle_ones_are_used_again() -> None:
    pool = DriverPool(2, SystemClock())
    names = {pool.submit(lambda: threading.current_thread().name).result(5) for _ in range(20)}
    many = [pool.submit(lambda: threading.current_thread().name) for _ in range(50)]
    wait(many, timeout=60)
    assert len(names | {future.result() for future in many}) <= 2
    assert pool.close(5) == 0


def test_a_call_that_ends_the_program_has_failed() -> None:
    pool = DriverPool(1, SystemClock())
    with pytest.raises(RuntimeError, match=r"SystemExit\(3\)"):
        pool.submit(lambda: sys.exit(3)).result(timeout=60)
    assert pool.close(5) == 0


def test_a_thread_that_cannot_be_started_is_nobody_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = DriverPool(1, SystemClock())
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="start new thread"):
        patch.setattr(threading.Thread, "start", refused)
        pool.submit(lambda: None)
    assert pool.close(5) == 0


def test_a_call_that_was_cancelled_in_the_queue_is_not_made() -> None:
    pool, go, made = DriverPool(1, SystemClock()), threading.Event(), []
    first = pool.submit(lambda: go.wait(5))
    second = pool.submit(lambda: made.append(2))
    assert second.cancel()
    go.set()
    assert first.result(timeout=60) is True and pool.close(5) == 0 and made == []


def test_the_end_counts_the_calls_that_do_not_end_and_leaves_them() -> None:
    pool, go = DriverPool(3, SystemClock()), threading.Event()
    stuck = pool.submit(lambda: go.wait(10))
    pool.submit(lambda: None).result(timeout=60)
    assert pool.close(0.05) == 1
    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("tidegate-driver-io"))
    go.set()
    assert stuck.result(timeout=60) is True


def test_a_call_that_asks_for_another_as_the_pool_is_closed_leaves_no_thread() -> None:
    pool, go = DriverPool(3, SystemClock()), threading.Event()

    def call() -> str:
        go.wait(60)
        return pool.submit(lambda: threading.current_thread().name).result(timeout=60)

    first = pool.submit(call)
    assert pool.close(0.0) == 1
    go.set()
    assert first.result(timeout=60) == "tidegate-driver-io_0"
    assert pool.close(60) == 0


def printed(*lines: str, stream: str = "stdout", left_out: int = 0) -> None:
    """Has lines printed as they come, each by itself."""
    shown = PrintedLines(lambda call: call())
    for line in lines:
        shown.show([LogRecord(0, 20, "step", line, stream=stream)], left_out)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("utf-8", "é \\udc80\nnext\n"), ("ascii", "\\xe9 \\udc80\nnext\n")],
)
def test_characters_that_the_output_cannot_take_are_escaped(
    monkeypatch: pytest.MonkeyPatch, encoding: str, expected: str
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding, newline="\n"))
    printed("é \udc80", "next")
    assert written.getvalue().decode(encoding) == expected


class Gone(io.StringIO):
    """An output that takes no line with a certain text."""

    def write(self, text: str) -> int:
        if "bad" in text:
            raise BrokenPipeError("nobody reads it")
        return super().write(text)


def test_a_line_that_cannot_be_written_is_lost_and_later_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    printed("first", "bad", "last", stream=STDERR)
    assert sys.stderr.getvalue() == "first\nlast\n"  # type: ignore[attr-defined]


def test_a_process_without_output_loses_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        patched.setattr(sys, "stderr", None)
        printed("it", left_out=3)
    printed("another")
    assert capsys.readouterr() == ("another\n", "")


def test_a_write_that_raises_leaves_the_other_lines_to_the_next() -> None:
    calls = list["Callable[[], None]"]()
    written = list[int]()

    def write(lines: Iterator[int]) -> None:
        if not written:
            written.append(0)
            raise RuntimeError("the user's own output fails")
        written.extend(lines)

    waiting = WaitingLines(calls.append, write)
    waiting.add([1, 2])
    with pytest.raises(RuntimeError, match="the user's own"):
        calls.pop()()
    waiting.add([3])
    calls.pop()()
    assert written == [0, 1, 2, 3] and calls == []

"""What functions print on its way from a slot to the driver's own output."""

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.worlds.clock import StepClock
from tidegate.driver.pool import WAITING_MAX, PrintedLines
from tidegate.model.control import Printed
from tidegate.slot.driver_link import Printing

if TYPE_CHECKING:
    from collections.abc import Callable


def test_whole_lines_are_taken_in_order_with_the_stream_they_were_for() -> None:
    printing = Printing(10, StepClock().monotonic_ms)
    with printing.standard_streams():
        print("one", end="")
        print(" and two\nthree", file=sys.stdout)
        print("four", file=sys.stderr)
        print("half", end="")
    assert printing.take() == (Printed(((False, "one and two"), (False, "three"), (True, "four"))),)
    assert printing.take() == ()


def test_nothing_is_taken_from_a_process_that_prints_for_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printing = Printing(0, StepClock().monotonic_ms)
    with printing.standard_streams():
        print("one")
    assert printing.take() == () and capsys.readouterr().out == "one\n"


def test_the_streams_come_back() -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(ValueError), Printing(1, StepClock().monotonic_ms).standard_streams():
        assert sys.stdout is not before[0]
        raise ValueError
    assert (sys.stdout, sys.stderr) == before


def test_more_lines_than_are_wanted_of_a_second_are_counted() -> None:
    time = StepClock()
    printing = Printing(2, time.monotonic_ms)
    with printing.standard_streams():
        print("1\n2\n3\n4")
        time.advance(1_000)
        print("5")
    assert printing.take() == (Printed(((False, "1"), (False, "2"), (False, "5")), left_out=2),)


def test_lines_of_two_threads_do_not_mix() -> None:
    printing = Printing(10, StepClock().monotonic_ms)
    with printing.standard_streams():
        sys.stdout.write("main ")
        other = threading.Thread(target=lambda: sys.stdout.write("thread\n"))
        other.start()
        other.join()
        sys.stdout.write("goes on\n")
    assert printing.take() == (Printed(((False, "thread"), (False, "main goes on"))),)


def test_the_driver_prints_in_one_call_what_has_come(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Callable[[], None]] = []
    lines = PrintedLines(calls.append)
    lines.show(Printed(((False, "1"), (True, "2"))))
    lines.show(Printed(((False, "3"),), left_out=1_200))
    assert len(calls) == 1
    calls[0]()
    assert capsys.readouterr() == (
        "1\n3\n",
        "2\ntidegate: 1,200 more lines were printed in slots\n",
    )
    lines.show(Printed(((False, "4"),)))
    assert len(calls) == 2


def test_while_nobody_reads_only_so_many_lines_wait(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Callable[[], None]] = []
    lines = PrintedLines(calls.append)
    for _ in range(3):
        lines.show(Printed(((False, "x"),) * (WAITING_MAX // 2)))
    calls[0]()
    out, err = capsys.readouterr()
    assert out.count("x") == WAITING_MAX and f"{WAITING_MAX // 2:,} more lines" in err

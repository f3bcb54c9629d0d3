"""What is a fault, and what is told of one: wrong errors, hangs, crashes and memory."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from scripts.fuzz import report, side_by_side
from tests.fuzzing import children
from tests.fuzzing.cases import Opened, Reader, fault_of, fault_of_growth
from tests.fuzzing.catalogue import all_readers
from tests.fuzzing.children import numbers_from, watched
from tidegate.errors import FormatError
from tidegate.ha.chain import decode

if TYPE_CHECKING:
    from collections.abc import Callable

LONG_S = 600.0


def reader(read: Callable[[int, bytes], object]) -> Reader:
    return Reader("of a test", lambda: Opened([b"seed"], read), (FormatError,))


def refuse(_: int, data: bytes) -> None:
    raise FormatError("these are not what they say")


def raise_another(_: int, data: bytes) -> None:
    raise KeyError("\ud800")


def read_or_refuse(reader: Reader) -> None:
    for number in range(20):
        assert fault_of(reader, reader.open(), number) is None


def test_what_is_read_or_refused_as_documented_is_no_fault() -> None:
    read_or_refuse(reader(lambda _, data: data))
    read_or_refuse(reader(refuse))
    read_or_refuse(reader(lambda _, data: decode(data, "p")))


def test_another_error_is_a_fault_with_its_place_and_the_command_that_repeats_it() -> None:
    wrong = reader(raise_another)
    fault = fault_of(wrong, wrong.open(), 7)
    assert fault is not None
    assert fault.what == r"KeyError: '\ud800'"
    assert "raise_another" in fault.trace
    assert fault.replay == 'make fuzz MINUTES=0 FIRST=7 READER="of a test"'


def test_memory_counts_when_one_input_takes_much_of_it() -> None:
    assert fault_of_growth(reader(refuse), 1, 20.0) is None
    fault = fault_of_growth(reader(refuse), 1, 300.0)
    assert fault is not None and fault.what == "took 300 MB"


def test_fixed_and_fresh_inputs_take_turns() -> None:
    numbers = numbers_from([1, 1_000])
    assert [next(numbers) for _ in range(5)] == [1, 1_000, 2, 1_001, 3]
    assert next(numbers_from([1, 1_000], begin=4)) == 3


def hang(_: int, data: bytes) -> None:
    while True:
        pass


def wait(_: int, data: bytes) -> None:
    time.sleep(LONG_S)


def crash(_: int, data: bytes) -> None:
    os.abort()


def take_all(_: int, data: bytes) -> None:
    bytearray(8 << 30)


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (hang, "hangs"),
        (wait, "hangs"),
        (crash, "ended by SIGABRT"),
        (take_all, "MemoryError: "),
        (raise_another, r"KeyError: '\ud800'"),
    ],
)
@pytest.mark.slow
def test_a_child_that_does_not_come_back_is_a_fault_of_the_input_it_was_at(
    read: Callable[[int, bytes], object], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "CASE_CPU_S", 0.3)
    monkeypatch.setattr(children, "CASE_WALL_S", 2.0 if read is wait else LONG_S)
    [tally] = side_by_side([watched(reader(read), [5], LONG_S, 1)])
    [fault] = tally.faults.values()
    assert (fault.number, fault.what) == (5, what)
    assert any(fault.replay in line for line in report([tally], with_traces=True))


@pytest.mark.slow
def test_another_child_goes_on_behind_the_input_that_ended_one() -> None:
    def end(_: int, data: bytes) -> None:
        os._exit(3)

    found: list[int] = []
    for tally in watched(reader(end), [1], LONG_S):
        found = [fault.number for fault in tally.faults.values()]
        if sum(tally.times.values()) >= 3:
            break
    assert found == [1], "equal faults are told once"
    assert tally.inputs >= 2


def test_each_reader_has_a_name_of_its_own() -> None:
    names = [each.name for each in all_readers()]
    assert len(names) == len(set(names)) > 30

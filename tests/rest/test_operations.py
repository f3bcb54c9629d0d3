"""Operations by id: one an id, readable for a time."""

from concurrent.futures import Future
from typing import Any

import pytest

from tidegate.rest.served import LAST_READ_MS, OPERATIONS_MAX, Operations
from tidegate.testing import ManualClock


class Begun:
    """Operations whose futures the test holds."""

    def __init__(self, store_ms: int = 300_000) -> None:
        self.clock = ManualClock()
        self.operations = Operations(self.clock, store_ms)
        self.futures: list[Future[Any]] = []

    def begin(self, id: str, kind: str = "savepoint") -> None:
        self.operations.begin(kind, id, self._begin)

    def _begin(self) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


def test_an_id_is_one_operation_of_its_kind_whether_it_went_well_or_not() -> None:
    begun = Begun()
    begun.begin("a")
    begun.begin("a", "checkpoint")
    begun.futures[0].set_exception(OSError("no room"))
    begun.begin("a")
    assert len(begun.futures) == 2
    assert begun.operations.find("savepoint", "a") is begun.futures[0]
    assert begun.operations.find("checkpoint", "a") is begun.futures[1]
    assert begun.operations.find("savepoint", "b") is None


def test_what_cannot_be_begun_is_no_operation() -> None:
    begun = Begun()

    def refuse() -> Future[Any]:
        raise ValueError("no folder")

    with pytest.raises(ValueError, match="no folder"):
        begun.operations.begin("savepoint", "a", refuse)
    assert begun.operations.find("savepoint", "a") is None
    begun.begin("a")
    assert len(begun.futures) == 1


def test_results_are_readable_for_a_time_after_the_end() -> None:
    begun = Begun(store_ms=1_000)
    begun.begin("a")
    begun.clock.advance(5_000)
    assert begun.operations.find("savepoint", "a") is not None
    begun.futures[0].set_result("/savepoint-1")
    begun.clock.advance(1_000)
    assert begun.operations.find("savepoint", "a") is not None
    begun.clock.advance(1)
    assert begun.operations.find("savepoint", "a") is None


def test_the_oldest_that_have_ended_make_room_and_none_that_is_under_way() -> None:
    begun = Begun()
    for number in range(OPERATIONS_MAX):
        begun.begin(str(number))
    with pytest.raises(OverflowError):
        begun.begin("one more")
    begun.futures[3].set_result(None)
    begun.begin("one more")
    assert begun.operations.find("savepoint", "3") is None
    assert begun.operations.find("savepoint", "0") is not None


def test_a_result_is_awaited_until_it_is_read_or_long_past() -> None:
    begun = Begun()
    assert not begun.operations.awaited
    begun.begin("a")
    begun.begin("b")
    for future in begun.futures:
        future.set_result(None)
    begun.operations.find("savepoint", "a")
    assert begun.operations.awaited
    begun.operations.find("savepoint", "b")
    assert not begun.operations.awaited
    begun.operations.wait_until_read()
    begun.begin("c")
    begun.futures[2].set_result(None)
    assert begun.operations.awaited
    begun.clock.advance(LAST_READ_MS)
    assert not begun.operations.awaited

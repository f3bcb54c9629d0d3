"""When state is materialised, and what comes of failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
import structlog

from tidegate.clock import SystemClock
from tidegate.errors import StorageFailed
from tidegate.model.settings import ChangelogSettings
from tidegate.slot.subtask.materializing import PART_BYTES, Materializing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidegate.slot.subtask.ending import Ending
    from tidegate.slot.subtask.host import Host
    from tidegate.state.backend import OperatorBackend


class Pending:
    """A base of so many slices, each as long as a part."""

    def __init__(self, slices: int, *, fails: bool) -> None:
        self._slices = slices
        self._fails = fails
        self.waiting = 0
        self.said: list[str] = []

    def encode(self, budget_ms: float) -> bool:
        self._slices -= 1
        self.waiting += PART_BYTES
        return self._slices <= 0

    def write(self) -> None:
        if self._fails:
            raise StorageFailed("The store is away")
        self.waiting = 0
        self.said.append("written")

    def take(self) -> None:
        self.said.append("taken")

    def give_up(self) -> None:
        self.said.append("given up")


class Backend:
    """Gives one base after the other; None where there is nothing to write."""

    def __init__(self, *bases: Pending | None) -> None:
        self._bases = list(bases)

    def materialize(self) -> Pending | None:
        return self._bases.pop(0)


class Lowest:
    """Draws the least of what may come."""

    def uniform_ms(self, low: int, high: int) -> int:
        return low

    def bits64(self) -> int:
        return 0


class Slot:
    """Calls what is to be called when a test says so, and runs coroutines to their end."""

    def __init__(self, *bases: Pending | None, failures_max: int = 1) -> None:
        self.calls: list[Callable[[], None]] = []
        self.waits_ms: list[int] = []
        self.operators_finished = False
        self.clock = SystemClock()
        self.chance = Lowest()
        self.log = structlog.get_logger()
        self._materializing = Materializing(
            [cast("OperatorBackend", Backend(*bases))],
            ChangelogSettings(materialize_ms=10_000, failures_max=failures_max),
            cast("Host", self),
            cast("Ending", self),
            "counts (1/1)",
        )
        self._materializing.begin()

    async def run_blocking(self, call: Callable[[], object]) -> object:
        return call()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run(coroutine)

    def call_at(self, at_ms: int, act: Callable[[], None]) -> None:
        self.waits_ms.append(at_ms - self.clock.monotonic_ms())
        self.calls.append(act)

    def pass_time(self) -> None:
        self.calls.pop(0)()


def test_a_base_is_written_part_by_part_and_then_counted_on() -> None:
    base = Pending(3, fails=False)
    slot = Slot(base, None)
    slot.pass_time()
    assert base.said == ["written", "written", "written", "taken"]
    slot.pass_time()
    assert len(slot.calls) == 1


def test_each_operator_begins_within_the_interval_and_then_keeps_to_it() -> None:
    slot = Slot(None)
    slot.pass_time()
    first, second = slot.waits_ms
    assert first <= 1 and 9_000 < second <= 10_000


def test_failures_in_a_row_are_borne_as_often_as_was_said() -> None:
    fails = [Pending(1, fails=True) for _ in range(3)]
    slot = Slot(fails[0], Pending(1, fails=False), *fails[1:])
    for _ in range(3):
        slot.pass_time()
    with pytest.raises(StorageFailed) as told:
        slot.pass_time()
    assert "2 times in a row: The store is away" in told.value.what
    assert "max-failures-allowed" in told.value.remedy
    assert [base.said for base in fails] == [["given up"]] * 3


def test_what_no_checkpoint_will_name_is_given_up() -> None:
    base = Pending(2, fails=False)
    slot = Slot(base)
    slot.operators_finished = True
    slot.pass_time()
    assert base.said == [] and slot.calls == []

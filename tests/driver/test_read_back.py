"""Savepoints that slots read back: one answer of each machine counts, and who cannot is named."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidegate.driver.links import ASKED_MAX, ReadBacks
from tidegate.errors import FileMissing, StorageFailed
from tidegate.model.control import HasRead, ReadBack
from tidegate.model.ids import SlotId

if TYPE_CHECKING:
    from collections.abc import Callable

POINTER = "/savepoints/savepoint-1"
MISSING = FileMissing("There is no file _metadata", where=f"{POINTER}/_metadata")


class World:
    def __init__(self, **hosts: str) -> None:
        self.asked: list[SlotId] = []
        self.number = 0
        self.read_backs = ReadBacks(self._send)
        for slot, host in hosts.items():
            self.read_backs.came(SlotId(slot), host)

    def _send(self, slot: SlotId, message: object) -> None:
        assert isinstance(message, ReadBack)
        assert (message.pointer, message.metadata, message.files) == (POINTER, (8, 1), {"/f": 5})
        self.number = message.number
        self.asked.append(slot)

    def says(self, slot: str, error: StorageFailed | None = None) -> None:
        self.read_backs.heard(HasRead(self.number, SlotId(slot), error))

    def check(self, then: Callable[[], None], timeout_ms: int = 60_000) -> None:
        """Check a savepoint; what happens then comes when all have been asked."""

        async def check() -> None:
            checking = asyncio.create_task(
                self.read_backs.check(POINTER, (8, 1), {"/f": 5}, timeout_ms=timeout_ms)
            )
            await asyncio.sleep(0)
            then()
            await checking

        asyncio.run(check())


def test_one_answer_of_each_machine_is_enough() -> None:
    world = World(a="one", b="one", c="two")

    def answer() -> None:
        world.says("b")
        world.says("c")

    world.check(answer)
    assert world.asked == ["a", "b", "c"]
    world.says("a")  # too late, and nobody's concern


def test_of_a_machine_with_many_slots_a_few_are_asked() -> None:
    world = World(**{f"s{index}": "one" for index in range(10)})
    world.check(lambda: world.says("s1"))
    assert len(world.asked) == ASKED_MAX


def test_a_slot_that_cannot_read_it_is_named_with_its_machine_and_the_file() -> None:
    world = World(a="one", b="two")

    def answer() -> None:
        world.says("a")
        world.says("b", MISSING)

    with pytest.raises(StorageFailed, match=r"slot b on two.*no file _metadata") as refused:
        world.check(answer)
    assert refused.value.where == MISSING.where and "share" in refused.value.remedy


def test_slots_that_are_lost_meanwhile_are_not_waited_for() -> None:
    world = World(a="one", b="one", c="two")

    def answer() -> None:
        world.read_backs.left(SlotId("a"))
        world.read_backs.left(SlotId("c"))
        world.says("b")

    world.check(answer)
    World().check(lambda: None)  # with no slots at all the driver has read it itself


def test_slots_that_answer_never_are_waited_for_within_a_limit() -> None:
    with pytest.raises(StorageFailed, match="within 20 ms"):
        World(a="one").check(lambda: None, timeout_ms=20)

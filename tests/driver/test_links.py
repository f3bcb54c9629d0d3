"""The driver's links: offers, versions, endings, pulses."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
import structlog

from tests.driver.world import IdleProvider
from tidegate.driver import links
from tidegate.driver.links import SlotLinks
from tidegate.errors import (
    ConfigError,
    DriverUnreachable,
    NodeUnfit,
    PeerLost,
    SlotLost,
    TidegateError,
)
from tidegate.jobmaster.events import CancelRequested, JobEvent, SlotLeft, SlotRequestFailed
from tidegate.model.control import (
    Logged,
    Offer,
    Pulse,
    Refused,
    Release,
    SlotLeaving,
    ToCoordinator,
    ToDriver,
    ToSlot,
)
from tidegate.model.elements import OperatorEvent
from tidegate.model.ids import Attempt, Epoch, ExecutionId, OperatorId, SlotId, SubtaskId, VertexId
from tidegate.model.versions import versions
from tidegate.transport.memory import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.model.control import SlotInvitation
    from tidegate.transport.wire import Wire

SLOT = SlotId("slot-1")


class Caller:
    """A slot's end of the link."""

    def __init__(self) -> None:
        self.heard: list[ToSlot] = []
        self.ended: list[PeerLost | None] = []
        self.wire: Wire | None = None

    def on_frame(self, frame: memoryview) -> None:
        self.heard.append(pickle.loads(frame))

    def on_closed(self, error: PeerLost | None) -> None:
        self.ended.append(error)

    def say(self, message: ToDriver) -> None:
        assert self.wire is not None
        self.wire.send([pickle.dumps(message)])


class World:
    """Links over a network in memory, and what they posted."""

    def __init__(self, *, tells_ends: bool = False) -> None:
        self.posted: list[JobEvent] = []
        self.for_coordinators: list[ToCoordinator] = []
        self.logged: list[Logged] = []
        self.provider = IdleProvider()
        self.provider.tells_ends = tells_ends
        self.links = SlotLinks(
            self.provider,
            self.posted.append,
            self.for_coordinators.append,
            self.logged.append,
            structlog.get_logger(),
        )
        self.network = MemoryNetwork()

    async def dial(self, name: str = SLOT) -> Caller:
        listener = await self.network.listen(self.links.accept)
        caller = Caller()
        caller.wire = await self.network.connect(listener.address, name, caller)
        await listener.close()
        return caller

    async def offered(self) -> Caller:
        caller = await self.dial()
        caller.say(offer())
        await settle()
        return caller


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def offer(**other: str) -> Offer:
    return Offer(SLOT, "here:1", 7, "host-a", {**versions(), **other}, "request-1")


def run(test: Callable[[World], Awaitable[None]], *, tells_ends: bool = False) -> None:
    async def main() -> None:
        with structlog.testing.capture_logs():
            await test(World(tells_ends=tells_ends))

    asyncio.run(main())


def test_an_offer_is_posted_and_the_slot_can_be_reached_from_then_on() -> None:
    async def test(world: World) -> None:
        caller = await world.offered()
        assert world.posted == [offer()]
        world.links.send(SLOT, Release("go"))
        world.links.send(SlotId("nobody"), Release("go"))
        await settle()
        assert caller.heard == [Release("go")]

    run(test)


def test_the_end_of_a_slots_process_is_news_unless_the_slot_had_come() -> None:
    async def test(world: World) -> None:
        async with world.links.open(world.network, lambda address: cast("SlotInvitation", address)):
            await world.offered()
            assert world.provider.failed is not None and world.provider.ended is not None
            lost = SlotLost("killed")
            world.provider.failed("request-1", lost, False)
            world.provider.failed("request-2", lost, True)
            world.provider.ended("somebody")
            await settle()
            failed, ended = SlotRequestFailed(lost, final=True), CancelRequested("somebody")
            assert world.posted == [offer(), failed, ended]
        assert world.provider.closed == 1

    run(test)


@pytest.mark.parametrize("kind", [DriverUnreachable, NodeUnfit, ConfigError])
def test_what_is_wrong_with_a_node_is_final_until_a_slot_has_come(
    kind: type[TidegateError],
) -> None:
    error = kind("node-1 cannot reach the driver")

    async def test(world: World) -> None:
        async with world.links.open(world.network, lambda address: cast("SlotInvitation", address)):
            assert world.provider.failed is not None
            world.provider.failed("request-2", error, True)
            await settle()
            await world.offered()
            world.provider.failed("request-3", error, True)
            await settle()
        first, second = SlotRequestFailed(error, final=True), SlotRequestFailed(error, final=False)
        assert world.posted == [first, offer(), second]

    run(test)


def test_all_slots_are_let_go_those_that_have_not_come_yet_too() -> None:
    async def test(world: World) -> None:
        caller = await world.offered()
        world.links.release("over")
        await settle()
        assert caller.heard == [Release("over")] and world.provider.released == 1

    run(test)


@pytest.mark.parametrize(("name", "other"), [("python", "2.7"), ("tidegate", "0.0.1")])
def test_a_slot_of_other_versions_is_told_so_in_a_sentence_and_cut_off(
    name: str, other: str
) -> None:
    async def test(world: World) -> None:
        caller = await world.dial()
        caller.say(offer(**{name: other}))
        await settle()
        (failed,) = world.posted
        assert isinstance(failed, SlotRequestFailed) and failed.final
        expected = f"{name} {other} there, {versions()[name]} here"
        assert expected in str(failed.error) and "host-a" in str(failed.error)
        assert failed.error.remedy.startswith("Give the executors")
        (refused,) = caller.heard
        assert isinstance(refused, Refused) and expected in refused.reason
        assert len(caller.ended) == 1

    run(test)


def test_a_slot_of_other_versions_is_about_one_node_once_another_slot_has_come() -> None:
    async def test(world: World) -> None:
        await world.offered()
        caller = await world.dial("slot-2")
        caller.say(replace(offer(tidegate="0.0.1"), slot=SlotId("slot-2"), request="request-2"))
        await settle()
        _, failed = world.posted
        assert isinstance(failed, SlotRequestFailed) and not failed.final
        assert "runs other versions" in str(failed.error)
        assert isinstance(caller.heard[0], Refused) and len(caller.ended) == 1

    run(test)


def test_slots_of_other_versions_are_no_slots_that_have_come() -> None:
    async def test(world: World) -> None:
        for name in SLOT, SlotId("slot-2"):
            caller = await world.dial(name)
            caller.say(replace(offer(tidegate="0.0.1"), slot=name, request=name))
        await settle()
        assert all(isinstance(each, SlotRequestFailed) and each.final for each in world.posted)
        assert len(world.posted) == 2

    run(test)


def test_a_slot_that_says_it_leaves_has_left_with_its_reason_and_once() -> None:
    async def test(world: World) -> None:
        caller = await world.offered()
        error = SlotLost("out of memory")
        caller.say(SlotLeaving(SLOT, error))
        assert caller.wire is not None
        caller.wire.close()
        await settle()
        left = [event for event in world.posted if isinstance(event, SlotLeft)]
        assert [str(event.error) for event in left] == [str(error)]

    run(test)


def test_a_link_that_breaks_is_a_lost_slot() -> None:
    async def test(world: World) -> None:
        caller = await world.offered()
        assert caller.wire is not None
        caller.wire.close()
        await settle()
        left = world.posted[-1]
        assert isinstance(left, SlotLeft) and left.slot == SLOT
        assert "slot-1 is gone" in str(left.error)
        assert left.error is not None and "lack of memory" in left.error.remedy

    run(test)


@pytest.mark.parametrize("ends_first", [False, True])
def test_a_lost_slot_is_told_with_the_end_of_its_process(ends_first: bool) -> None:
    async def test(world: World) -> None:
        caller = await world.offered()
        slots = world.links.gone
        if ends_first:
            slots.process_ended("request-1", "process 7 was ended by signal 9")
        assert caller.wire is not None
        caller.wire.close()
        await settle()
        if not ends_first:
            assert not any(isinstance(each, SlotLeft) for each in world.posted)
            slots.process_ended("request-1", "process 7 was ended by signal 9")
        [left] = [each for each in world.posted if isinstance(each, SlotLeft)]
        assert "slot-1 is gone: process 7 was ended by signal 9" in str(left.error)

    run(test, tells_ends=True)


def test_a_lost_slot_of_whose_process_nothing_is_heard_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "KNOWN_S", 0)

    async def test(world: World) -> None:
        caller = await world.offered()
        assert caller.wire is not None
        caller.wire.close()
        await settle()
        [left] = [each for each in world.posted if isinstance(each, SlotLeft)]
        assert "slot-1 is gone: slot-1 closed the connection" in str(left.error)

    run(test, tells_ends=True)


def test_a_message_that_cannot_be_read_ends_the_link_and_says_why() -> None:
    async def test(world: World) -> None:
        caller = await world.offered()
        assert caller.wire is not None
        caller.wire.send([b"\x80\x05cno_such_module\nThing\n."])
        await settle()
        left = world.posted[-1]
        assert isinstance(left, SlotLeft) and "no_such_module" in str(left.error)
        assert len(caller.ended) == 1

    run(test)


def test_a_dropped_slot_is_cut_off_and_its_end_is_no_news() -> None:
    async def test(world: World) -> None:
        caller = await world.offered()
        world.links.drop(SLOT)
        await settle()
        assert world.posted == [offer()] and len(caller.ended) == 1

    run(test)


def test_pulses_are_posted_and_the_end_of_their_link_is_no_loss() -> None:
    async def test(world: World) -> None:
        await world.offered()
        beating = await world.dial("pulse:slot-1")
        beating.say(Pulse(SLOT, 40))
        await settle()
        assert world.posted[1:] == [Pulse(SLOT, 40)]
        assert beating.wire is not None
        beating.wire.close()
        await settle()
        assert world.posted[1:] == [Pulse(SLOT, 40)]

    run(test)


def test_events_for_coordinators_take_the_short_way() -> None:
    async def test(world: World) -> None:
        caller = await world.offered()
        execution = ExecutionId(SubtaskId(VertexId(b"v" * 16), 0), Attempt(0), Epoch(1))
        message = ToCoordinator(execution, OperatorId(b"o" * 16), OperatorEvent("x"))
        caller.say(message)
        await settle()
        assert world.for_coordinators == [message] and world.posted == [offer()]

    run(test)


def test_closing_ends_every_link_whoever_dialled_and_whatever_he_said() -> None:
    async def test(world: World) -> None:
        callers = [await world.offered(), await world.dial("pulse:slot-1"), await world.dial("new")]
        world.links.close()
        await settle()
        assert [len(caller.ended) for caller in callers] == [1, 1, 1]
        assert world.posted == [offer()]  # nobody is lost: this side ended it

    run(test)


def test_who_dials_after_the_end_is_cut_off_at_once() -> None:
    async def test(world: World) -> None:
        world.links.close()
        caller = await world.dial()
        await settle()
        assert len(caller.ended) == 1

    run(test)

"""A model check: several drivers contend under random schedules and a store that fails or is late.

Safety leans on no sign of life here: the lease is nought, so a driver takes over whenever it looks.
The net is itself tested by faults planted in the chain.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ha.world import ScheduledStore, SteppedClock
from tests.properties import examples
from tidegate.errors import (
    ConfigError,
    LeadershipLost,
    OutcomeUnknown,
    StorageFailed,
    TidegateError,
)
from tidegate.ha import chain, leadership
from tidegate.ha.chain import HaStore, JobRecord, MemoryHaStore, Seal, encode, place_path
from tidegate.ha.leadership import HaWorld, Leadership, lead
from tidegate.model.chance import SeededChance
from tidegate.model.ids import CheckpointId, Epoch

if TYPE_CHECKING:
    from collections.abc import Callable


class Broken(AssertionError):
    """An invariant does not hold."""


class Contention:
    """What the drivers of one schedule have seen of each other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = SteppedClock()
        self.inner = MemoryHaStore()
        self.store = ScheduledStore(self.inner, self.random, self.random.choice((0.0, 0.05, 0.3)))
        self.began: list[Leadership] = []
        self.restored: dict[int, set[int]] = {}
        self.added: dict[int, list[int]] = {}
        self.ids: dict[int, list[int]] = {}

    def world(self, number: int) -> HaWorld:
        return HaWorld(
            self.store,
            self.clock,
            SeededChance(self.random.getrandbits(32) + number),
            self.pause,
            beat_ms=1,
            lease_ms=0,
            records_kept=self.random.choice((1, 2, 4)),
        )

    async def pause(self, duration_ms: int, /) -> None:
        for _ in range(self.random.randint(1, 30)):
            await asyncio.sleep(0)
        self.clock.now_ms += duration_ms

    async def drive(self, number: int) -> None:
        """One driver: leads when it can, works for a while, then dies or is deposed."""
        await self.pause(1)
        try:
            leader = await self.lead(number)
        except (StorageFailed, OutcomeUnknown):
            return
        except ConfigError as refused:
            if "already running" not in refused.what:
                raise Broken("the job was forgotten") from refused
            return
        with contextlib.suppress(LeadershipLost):
            for _ in range(self.random.randint(0, 12)):
                with contextlib.suppress(OutcomeUnknown):
                    await self.work(leader)
        await leader.close()

    async def lead(self, number: int, *, resume: bool = True) -> Leadership:
        leader = await lead(self.world(number), "orders", resume=resume, standby=True)
        if any(other.epoch == leader.epoch for other in self.began):
            raise Broken("two leaders have one epoch")
        self.began.append(leader)
        self.restored[leader.epoch] = {pointer.checkpoint for pointer in leader.completed}
        return leader

    async def work(self, leader: Leadership) -> None:
        taken = await leader.next_checkpoint_id()
        self.ids.setdefault(leader.epoch, []).append(taken)
        if self.random.random() < 0.2:
            return  # a checkpoint that was given up
        deposed = any(other.epoch > leader.epoch for other in self.began)
        await leader.add(taken, f"/chk-{taken}")
        if deposed:
            raise Broken(f"epoch {leader.epoch} completed a checkpoint after it was deposed")
        self.added.setdefault(leader.epoch, []).append(taken)

    def check(self) -> None:
        for epoch, restored in self.restored.items():
            for lower in (lower for lower in self.added if lower < epoch):
                if not restored >= set(self.added[lower]):
                    raise Broken(f"epoch {epoch} misses checkpoints of epoch {lower}")
        ids = [taken for epoch in sorted(self.ids) for taken in self.ids[epoch]]
        if ids != sorted(set(ids)):
            raise Broken(f"ids do not only grow: {ids}")

    async def run(self) -> None:
        fault_rate, self.store.fault_rate = self.store.fault_rate, 0.0
        first = await self.lead(0, resume=False)
        await self.work(first)
        self.store.fault_rate = fault_rate
        drivers = [asyncio.create_task(self.drive(number)) for number in range(1, 5)]
        for _ in range(self.random.randint(0, 400)):
            await asyncio.sleep(0)
        with contextlib.suppress(LeadershipLost, OutcomeUnknown):
            await self.work(first)
        if self.random.random() < 0.3:
            self.random.choice(drivers).cancel()
        outcomes = await asyncio.gather(*drivers, return_exceptions=True)
        for leader in self.began:
            await leader.close()
        await self.store.settle()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        self.check()
        await self.go_on()

    async def go_on(self) -> None:
        """The faults have stopped: somebody can lead, and knows everything."""
        try:
            last = await self.lead(9)
            self.check()
            await self.work(last)
            self.check()
            await last.close()
        except TidegateError as error:
            raise Broken("nobody can lead any more") from error


def broken(seed: int) -> str:
    """Which invariant this schedule breaks; empty where it breaks none."""
    try:
        asyncio.run(Contention(seed).run())
    except Broken as fault:
        return str(fault)
    return ""


@examples(200)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_one_leads_nothing_is_lost_and_ids_only_grow(seed: int) -> None:
    assert not broken(seed)


async def seals_without_a_second_look(store: HaStore, epoch: int, *, by: Epoch) -> None:
    last = await chain.last_number(store, epoch)
    await store.create(place_path(epoch, last + 1), encode(Seal(by)))


async def reads_before_it_seals(store: HaStore, epoch: Epoch) -> JobRecord | None:
    newest = await chain.newest_record(store)
    for lower in range(epoch - 1, 0, -1):
        await chain.seal(store, lower, by=epoch)
    return newest


async def seals_nothing(store: HaStore, epoch: Epoch) -> JobRecord | None:
    return await chain.newest_record(store)


async def seals_only_the_epoch_below(store: HaStore, epoch: Epoch) -> JobRecord | None:
    if epoch > 1:
        await chain.seal(store, epoch - 1, by=epoch)
    return await chain.newest_record(store)


async def claims_without_asking(store: HaStore, token: str) -> Epoch:
    epoch = await chain.highest_epoch(store) + 1
    await store.create(chain.claim_path(epoch), token.encode())
    return Epoch(epoch)


async def takes_any_answer_for_yes(self: Leadership, path: str, data: bytes) -> None:
    await self._world.store.create(path, data)


async def takes_silence_for_yes(self: Leadership, path: str, data: bytes) -> None:
    with contextlib.suppress(StorageFailed):
        await self._put_once(path, data)


async def gives_out_ids_unwritten(self: Leadership, *, above: int = 0) -> CheckpointId:
    self._next_id = CheckpointId(max(self._next_id, above + 1) + 1)
    return CheckpointId(self._next_id - 1)


async def forgets_its_newest_record(self: Leadership) -> None:
    with contextlib.suppress(StorageFailed):
        await self._world.store.delete([place_path(self.epoch, self._number)])


PLANTED: dict[str, tuple[object, str, Callable[..., object]]] = {
    "seals without a second look": (chain, "seal", seals_without_a_second_look),
    "reads before it seals": (leadership, "seal_below", reads_before_it_seals),
    "seals nothing": (leadership, "seal_below", seals_nothing),
    "seals only the epoch below": (leadership, "seal_below", seals_only_the_epoch_below),
    "claims without asking": (leadership, "claim_epoch", claims_without_asking),
    "takes any answer for yes": (Leadership, "_put_once", takes_any_answer_for_yes),
    "takes silence for yes": (Leadership, "_put", takes_silence_for_yes),
    "gives out ids unwritten": (Leadership, "next_checkpoint_id", gives_out_ids_unwritten),
    "forgets its newest record": (Leadership, "_forget_old", forgets_its_newest_record),
}


RARE = {"seals only the epoch below": 350}
"""Where the search for a rare fault begins, so that it ends soon."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_the_check_finds_a_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[fault])
    first = RARE.get(fault, 0)
    assert any(broken(seed) for seed in range(first, first + 3_000))

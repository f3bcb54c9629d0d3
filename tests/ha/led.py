"""A leader on ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidegate.clock import SystemClock
from tidegate.ha.chain import last_beat
from tidegate.ha.leadership import HaWorld, Leadership, lead
from tidegate.model.chance import SeededChance

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tidegate.ha.zookeeper import ZooKeeperHaStore


LIMIT_S = 100.0


def run(work: Awaitable[None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            await work

    asyncio.run(main())


async def pause(duration_ms: int, /) -> None:
    await asyncio.sleep(duration_ms / 1000)


async def leads(
    store: ZooKeeperHaStore, number: int, *, lease_ms: int = 1_000, beat_ms: int = 100
) -> Leadership:
    """A leader that has shown that it lives."""
    world = HaWorld(store, SystemClock(), SeededChance(number), pause, beat_ms, lease_ms)
    leader = await lead(world, "orders", resume=False, recover=True)
    # Its first sign of life is on its way.
    while not await last_beat(store):  # noqa: ASYNC110 - it lies in another process
        await asyncio.sleep(0.01)
    return leader

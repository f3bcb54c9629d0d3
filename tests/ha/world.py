"""A world for leaders on one loop: a clock moved by pauses, stores that fail or are late."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from tests.worlds.clock import StepClock
from tidegate.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from random import Random

    from tidegate.ha.chain import HaStore, MemoryHaStore
    from tidegate.ha.zookeeper import ZooKeeperHaStore
    from tidegate.model.settings import ZooKeeperSettings


class SteppedClock(StepClock):
    """A clock that goes on by pauses alone; the loop takes no real time."""

    calls = 0

    async def pause(self, duration_ms: int, /) -> None:
        """Waits until the clock stands that much later, moving it by a millisecond a turn."""
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            before_ms = self.now_ms
            await asyncio.sleep(0)
            if self.calls:
                await asyncio.sleep(0.0005)  # a real store is at work: no time passes meanwhile
            elif self.now_ms == before_ms:
                self.now_ms += 10


class Timed:
    """A store whose calls take none of the clock's time, however long they really take."""

    def __init__(self, inner: HaStore, clock: SteppedClock) -> None:
        self._inner = inner
        self._clock = clock

    async def create(self, path: str, data: bytes) -> bool:
        with self._call():
            return await self._inner.create(path, data)

    async def read(self, path: str) -> bytes | None:
        with self._call():
            return await self._inner.read(path)

    async def list(self, prefix: str) -> list[str]:
        with self._call():
            return await self._inner.list(prefix)

    async def delete(self, paths: Iterable[str]) -> None:
        with self._call():
            await self._inner.delete(paths)

    @contextmanager
    def _call(self) -> Iterator[None]:
        self._clock.calls += 1
        try:
            yield
        finally:
            self._clock.calls -= 1


@asynccontextmanager
async def over_zookeeper(
    settings: ZooKeeperSettings, name: str = "orders"
) -> AsyncIterator[ZooKeeperHaStore]:
    """The chain of a job in a real ZooKeeper, on the running loop."""
    from tidegate.ha.zookeeper import open_chain

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as pool:
        store = await open_chain(settings, name, lambda call: loop.run_in_executor(pool, call))
        try:
            yield store
        finally:
            await store.close()


class ScheduledStore:
    """A store whose calls happen at random moments, fail before or after they did, or land late.

    late: effects that outlive the call which asked for them.
    """

    def __init__(self, inner: MemoryHaStore, random: Random, fault_rate: float) -> None:
        self.inner = inner
        self.random = random
        self.fault_rate = fault_rate
        self.late: set[asyncio.Task[None]] = set()

    async def create(self, path: str, data: bytes) -> bool:
        await self._turns()
        match self._fate():
            case "before":
                raise StorageFailed("no answer")
            case "late":
                self._later(path, data)
                raise StorageFailed("no answer in time")
            case "after":
                await self.inner.create(path, data)
                raise StorageFailed("the answer was lost")
            case _:
                created = await self.inner.create(path, data)
                await self._turns()
                return created

    async def read(self, path: str) -> bytes | None:
        await self._turns()
        self._may_fail()
        data = await self.inner.read(path)
        await self._turns()
        return data

    async def list(self, prefix: str) -> list[str]:
        await self._turns()
        self._may_fail()
        found = await self.inner.list(prefix)
        await self._turns()
        return found

    async def delete(self, paths: Iterable[str]) -> None:
        for path in list(paths):
            await self._turns()
            self._may_fail()
            await self.inner.delete([path])

    async def settle(self) -> None:
        """No more faults; all that is late lands."""
        self.fault_rate = 0.0
        if self.late:
            await asyncio.wait(self.late)

    def _fate(self) -> str:
        if self.random.random() < self.fault_rate:
            return self.random.choice(["before", "after", "late"])
        return "done"

    def _may_fail(self) -> None:
        if self.random.random() < self.fault_rate:
            raise StorageFailed("no answer")

    async def _turns(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 5, 20))):
            await asyncio.sleep(0)

    def _later(self, path: str, data: bytes) -> None:
        async def land() -> None:
            for _ in range(self.random.randint(1, 200)):
                await asyncio.sleep(0)
            await self.inner.create(path, data)

        task = asyncio.create_task(land())
        self.late.add(task)
        task.add_done_callback(self.late.discard)

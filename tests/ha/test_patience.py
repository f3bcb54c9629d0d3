"""Stores that hang: their calls are told of, fail in the end, and do no harm when they return."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog

from tidegate.errors import StorageFailed
from tidegate.ha.chain import HaStore, MemoryHaStore
from tidegate.ha.patience import HUNG_MAX, PatientStore, told


class Hanging(MemoryHaStore):
    """Creates nothing before it goes on; what it is asked meanwhile happens then."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.asked = 0

    async def create(self, path: str, data: bytes) -> bool:
        self.asked += 1
        await self.goes_on.wait()
        return await super().create(path, data)


def play(script: Callable[[Hanging, HaStore], Awaitable[None]]) -> list[Any]:
    """Plays a script over a store that hangs; gives the log."""

    async def main() -> None:
        hanging = Hanging()
        log = structlog.get_logger()
        await script(hanging, PatientStore(hanging, log, told_s=0.005, limit_s=0.01))

    with structlog.testing.capture_logs() as logs:
        asyncio.run(main())
    return list(logs)


def test_a_call_that_hangs_is_told_of_and_fails() -> None:
    async def script(hanging: Hanging, store: HaStore) -> None:
        with pytest.raises(StorageFailed, match="has not returned for") as failed:
            await store.create("chains/1/2", b"record")
        assert failed.value.where == "chains/1/2"

    told_of = play(script)[-1]
    assert (told_of["call"], told_of["where"]) == ("create", "chains/1/2")


def test_what_failed_may_happen_yet_and_the_same_call_finds_it() -> None:
    async def script(hanging: Hanging, store: HaStore) -> None:
        with pytest.raises(StorageFailed):
            await store.create("a", b"record")
        hanging.goes_on.set()
        assert await store.create("a", b"record") is False
        assert await store.read("a") == b"record"

    play(script)


def test_no_further_call_is_made_while_too_many_hang() -> None:
    async def script(hanging: Hanging, store: HaStore) -> None:
        for number in range(HUNG_MAX):
            with pytest.raises(StorageFailed, match="has not returned for"):
                await store.create(str(number), b"record")
        with pytest.raises(StorageFailed, match="3 earlier calls have not returned"):
            await store.create("more", b"record")
        assert hanging.asked == HUNG_MAX
        hanging.goes_on.set()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        assert await store.list("") == ["0", "1", "2"]
        await store.delete(["0"])
        assert await store.create("more", b"record")

    play(script)


def test_a_call_that_returns_in_time_is_not_told_of() -> None:
    async def main() -> bool:
        answer = asyncio.ensure_future(asyncio.sleep(0, "answer"))
        return await told(answer, "read", "a", structlog.get_logger()) and answer.done()

    with structlog.testing.capture_logs() as logs:
        assert asyncio.run(main())
    assert logs == []


def test_whoever_waits_no_more_takes_the_call_back() -> None:
    async def main() -> bool:
        answer = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(told(answer, "read", "a", structlog.get_logger()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return answer.cancelled()

    assert asyncio.run(main())

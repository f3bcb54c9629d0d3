"""An event loop whose time is a manual clock's."""

from __future__ import annotations

import asyncio
import selectors
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidegate.testing.clock import ManualClock

T = TypeVar("T")

_TURNS_AT_ONCE: Final = 8


class ManualLoop(asyncio.SelectorEventLoop):
    """A loop on a clock that a test moves: it never waits."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._times_ms: list[int] = []
        self._tasks: list[asyncio.Task[None]] = []
        super().__init__(_NeverWaiting())

    def time(self) -> float:
        """The clock's, seconds."""
        return self.clock.monotonic_ms() / 1000

    def call_at(self, when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        """Call something then, once the clock has been moved so far."""
        heappush(self._times_ms, ceil(when * 1000))
        return super().call_at(when, *arguments, **options)

    def wake_at(self, monotonic_ms: int, wake: Callable[[], None]) -> None:
        """Call ``wake`` then."""
        self.call_at(monotonic_ms / 1000, wake)

    def next_timer_ms(self) -> int | None:
        """When the next call is due that is not due yet."""
        while self._times_ms and self._times_ms[0] <= self.clock.monotonic_ms():
            heappop(self._times_ms)
        return self._times_ms[0] if self._times_ms else None

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run a coroutine; what it fails with is raised by ``run_ready``."""
        self._tasks.append(self.create_task(coroutine))

    def on(self, call: Callable[[], T]) -> T:
        """The result of a call that is made on the loop."""

        async def made() -> T:
            return call()

        return self.run_until_complete(made())

    def run_ready(self) -> None:
        """Run what is ready. Raises what a coroutine has failed with."""
        self.run_until_complete(_some_turns())
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.remove(task)
            task.result()

    def end(self) -> None:
        """Cancel what is left."""
        for task in self._tasks:
            task.cancel()
        self.run_until_complete(asyncio.sleep(0))
        super().close()


async def _some_turns() -> None:
    for _ in range(_TURNS_AT_ONCE):
        await asyncio.sleep(0)


class _NeverWaiting(selectors.SelectSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(0)

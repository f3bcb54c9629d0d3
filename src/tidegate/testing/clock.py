"""A clock that stands still until a test moves it, and an event loop whose time is the clock's."""

from __future__ import annotations

import asyncio
import selectors
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator


class ManualClock:
    """Time under the control of a test. wall_ms: first wall time, in milliseconds since 1970."""

    def __init__(self, wall_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def monotonic_ms(self) -> int:
        """Milliseconds since the clock was made."""
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._wall_ms

    def precise_s(self) -> float:
        """Seconds since the clock was made."""
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Moves time forward by this many milliseconds."""
        self._monotonic_ms += ms
        self._wall_ms += ms


T = TypeVar("T")

_TURNS_AT_ONCE: Final = 8


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time a test moves; it never waits."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._times_ms: list[int] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._beside = ThreadPoolExecutor(1)
        super().__init__(_NeverWaiting())

    def time(self) -> float:
        return self.clock.monotonic_ms() / 1000

    def call_at(self, when: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        heappush(self._times_ms, ceil(when * 1000))
        return super().call_at(when, *arguments, **options)

    def wake_at(self, monotonic_ms: int, wake: Callable[[], None]) -> None:
        self.call_at(monotonic_ms / 1000, wake)

    def next_timer_ms(self) -> int | None:
        while self._times_ms and self._times_ms[0] <= self.clock.monotonic_ms():
            heappop(self._times_ms)
        return self._times_ms[0] if self._times_ms else None

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Starts a coroutine; ``run_ready`` raises its failure."""
        self._tasks.append(self.create_task(coroutine))

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return super().run_until_complete(future)
        # As in a cell of a notebook, or an async test: a thread can run one loop at a time. All
        # calls are made on one thread beside, since what functions open may belong to its thread.
        run = copy_context().run
        return self._beside.submit(run, super().run_until_complete, future).result()

    def on(self, call: Callable[[], T]) -> T:
        async def made() -> T:
            return call()

        return self.run_until_complete(made())

    def run_ready(self) -> None:
        self.run_until_complete(_some_turns())
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.remove(task)
            task.result()

    def end(self) -> None:
        if self.is_closed():
            return
        for task in self._tasks:
            task.cancel()
        self.run_until_complete(asyncio.sleep(0))
        super().close()
        self._beside.shutdown()


async def _some_turns() -> None:
    for _ in range(_TURNS_AT_ONCE):
        await asyncio.sleep(0)


class _NeverWaiting(selectors.SelectSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(0)

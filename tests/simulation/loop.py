"""An event loop on virtual time that runs many processes in one, in an order drawn from a seed.

A process is what would be one in a real job: a driver, a slot, the world outside. Within a process
callbacks run in their order, as in a real loop; which process goes next is drawn. Time passes only
when nothing is left to do. A killed process runs no further, a frozen one goes on later.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

T = TypeVar("T")

STEPS_MAX = 150_000
"""Callbacks of one run; more of them are a loop that never comes to an end."""


class Process:
    """One process. context: callbacks of the process run in copies of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return self.name


CURRENT: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class NothingToDo(AssertionError):
    """Everybody waits for somebody, for ever."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs callbacks of processes; faults: what was raised where nobody caught it."""

    def __init__(self, chance: Random) -> None:
        self.outside = Process("outside")
        self.faults: list[str] = []
        self.now_s = 1_000.0
        self.ahead_s = 0.0
        self.steps = 0
        self._chance = chance
        self._busy: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process]] = []
        self._order = count()

    # --- running ---

    def run(self, main: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Run to the end of ``main``. Raises NothingToDo, and TimeoutError after virtual time."""
        deadline_s, steps_max = self.now_s + limit_s, self.steps + STEPS_MAX
        asyncio._set_running_loop(self)
        try:
            task = self.outside.context.run(self.create_task, main)
            while not task.done():
                self._step()
                if self.now_s > deadline_s or self.steps > steps_max:
                    task.cancel()
                    raise TimeoutError(f"not over after {limit_s} s, {self.steps} steps")
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now_s:
            timer = heapq.heappop(timers)
            self._ready(timer[2], timer[3])
        busy = self._busy
        if not busy:
            while timers and (timers[0][2].cancelled() or not timers[0][3].alive):
                heapq.heappop(timers)
            if not timers:
                raise NothingToDo
            self.now_s = max(self.now_s, timers[0][0])
            return
        index = int(self._chance.random() * len(busy)) if len(busy) > 1 else 0
        process = busy[index]
        handle = process.ready.popleft()
        if not process.ready:
            self._idle(index)
        if not handle.cancelled():
            self.steps += 1
            handle._run()
            if self.ahead_s:
                blocked_s, self.ahead_s = self.ahead_s, 0.0
                self.freeze(process, blocked_s)

    def _ready(self, handle: asyncio.Handle, process: Process) -> None:
        process.ready.append(handle)
        if len(process.ready) == 1 and process.alive and not process.frozen:
            self._busy.append(process)

    def _idle(self, index: int) -> None:
        """It does not matter in which order processes stand, but it is the same each time."""
        last = self._busy.pop()
        if index < len(self._busy):
            self._busy[index] = last

    def kill(self, process: Process) -> None:
        """The process runs no further; its memory is kept, so that nothing of it is cleaned up."""
        process.alive = False
        if process in self._busy:
            self._idle(self._busy.index(process))

    def block(self, for_s: float) -> float:
        """The running callback blocks its process: for itself, time has passed when this returns.

        Everybody else goes on meanwhile; the process stands still until they have caught up.
        Result: how long the callback has blocked before.
        """
        before_s, self.ahead_s = self.ahead_s, self.ahead_s + for_s
        return before_s

    def freeze(self, process: Process, for_s: float) -> None:
        """The process stands still for a while, as one that is stopped or swapped out."""
        if process.frozen:
            return
        process.frozen = True
        if process in self._busy:
            self._idle(self._busy.index(process))
        self.call_in(self.outside, for_s, self._thaw, process)

    def _thaw(self, process: Process) -> None:
        process.frozen = False
        if process.ready and process.alive:
            self._busy.append(process)

    def bury(self, process: Process) -> None:
        """Cancel what a dead process had under way, when nothing it does can matter any more."""
        process.alive = True
        process.frozen = False
        if process.ready and process not in self._busy:
            self._busy.append(process)
        for task in list(process.tasks):
            process.context.run(task.cancel)

    # --- what asyncio asks of a loop ---

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        context = context or contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready(handle, context.get(CURRENT) or self.outside)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = context or contextvars.copy_context()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        process = context.get(CURRENT) or self.outside
        heapq.heappush(self._timers, (when, next(self._order), timer, process))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_in(
        self, process: Process, delay_s: float, callback: Callable[..., object], *args: Any
    ) -> None:
        """Call in another process, some time from now."""
        self.call_later(delay_s, callback, *args, context=process.context.copy())

    def time(self) -> float:
        return self.now_s + self.ahead_s

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        process = (context or contextvars.copy_context()).get(CURRENT) or self.outside
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when they are due."""


class SimulatedClock:
    """The loop's time as a process sees it. Each look takes a little, so that turns end.

    skew_ms: how far this process's wall clock is off; it may jump.
    """

    def __init__(self, loop: SimulatedLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self._looks_s = 0.0
        self.skew_ms = skew_ms

    def precise_s(self) -> float:
        self._looks_s += 1e-5
        return self._loop.time() + self._looks_s

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.skew_ms + int(self._loop.time() * 1000)

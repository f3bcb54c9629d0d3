"""How many calls may be under way, and which records wait for one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidegate.operators.async_calls.async_queue import Call


class Seats:
    """A seat for each call under way; the records of other calls wait.

    A call that goes on after its timeout keeps its seat until it returns, though nobody waits for
    it. capacity: number of seats. freed: called as such a call gives its seat back.
    """

    def __init__(self, capacity: int, freed: Callable[[], None]) -> None:
        self._capacity = capacity
        self._freed = freed
        self._waiting: deque[Call] = deque()
        self._taken = self._going_on = 0
        self._is_open = self._is_over = False

    @property
    def going_on(self) -> int:
        """Number of calls that go on after their timeout."""
        return self._going_on

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def takes_more(self) -> bool:
        """True if the input need not be held back."""
        return self._taken + len(self._waiting) <= self._capacity

    def open(self) -> None:
        """The function is open, and may be called."""
        self._is_open = True

    def close(self) -> None:
        """The operator is over: nobody is told of free seats any more."""
        self._is_over = True

    def wait(self, call: Call) -> None:
        """Let a call wait for its turn."""
        self._waiting.append(call)

    def take(self) -> Call | None:
        """Give a seat to the call that has waited longest; None without a seat or a call."""
        if not (self._is_open and self._waiting and self._taken < self._capacity):
            return None
        self._taken += 1
        return self._waiting.popleft()

    def leave(self, call: Call) -> None:
        """The results of a call have left."""
        call.has_left = True
        if not call.goes_on:
            self._taken -= 1

    def keep(self, call: Call, running: asyncio.Future[object] | None) -> None:
        """The time of a call is over. running: what may go on of it."""
        if running is None or running.done():
            return
        call.goes_on = True
        self._going_on += 1

        def returned(_: object) -> None:
            call.goes_on = False
            self._going_on -= 1
            if call.has_left and not self._is_over:
                self._taken -= 1
                self._freed()

        running.add_done_callback(returned)


class LoopTasks:
    """Coroutines on the slot's loop that the end of the subtask cancels, and does not wait for.

    fail: runs a coroutine whose failure is the subtask's.
    """

    def __init__(self, fail: Callable[[Coroutine[object, object, None]], None]) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    def begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())

    async def _guard(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:
            if not self._is_over:
                self._fail(_failing(error))

    def leave(self) -> None:
        """The operator is over: a failure is nobody's any more."""
        self._is_over = True

    async def end(self) -> None:
        """Cancel what is under way, and wait for that."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _failing(error: Exception) -> None:
    raise error

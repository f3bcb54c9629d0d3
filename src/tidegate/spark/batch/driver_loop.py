"""The loop and the pool of threads in the driver of a batch; the batch itself is on another."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegate.clock import SystemClock
from tidegate.driver.pool import DriverPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Future

    import structlog

T = TypeVar("T")

_THREADS: Final = 4
_END_S: Final = 5.0


class DriverLoop:
    """Runs coroutines for other threads, and calls that block on threads of its own.

    pool: for the calls. stack: is left when the loop is closed.
    """

    def __init__(self, log: structlog.typing.FilteringBoundLogger) -> None:
        self.pool: Final = DriverPool(_THREADS, SystemClock())
        self.stack: Final = contextlib.AsyncExitStack()
        self._log = log
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._serve, name="tidegate-calls", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_forever()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine. Raises RuntimeError once the loop is closed."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """Result of a coroutine; blocks until it is there. Raises what the coroutine raises."""
        return self.begin(work).result()

    def blocking(self, call: Callable[[], T]) -> Awaitable[T]:
        """Runs a call on the pool. For coroutines of this loop."""
        return self.pool.run(call)

    def soon(self, call: Callable[[], object]) -> None:
        """Calls a function on the loop, after what it does now; any thread may ask for it."""
        self._loop.call_soon_threadsafe(call)

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Runs a coroutine beside all else. For what runs on this loop."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """Leave what has been entered, and end. Blocking."""
        self.done(self._left())
        self._loop.call_soon_threadsafe(self._loop.stop)
        if left := self.pool.close(_END_S):
            self._log.warning("calls that do not end are abandoned", threads=left)
        self._thread.join(_END_S)

    async def _left(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.stack.aclose()

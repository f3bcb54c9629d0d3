"""Work beside the turns of a slot's subtasks: coroutines, calls on the pool, and threads.

A thread cannot be stopped. Whoever waits for a call may be cancelled, but the call goes on using
what it has at hand, such as an open file; so an operator is closed only after the last of them.

Calls of users that may take minutes, or never return, have threads of their own. The pool of the
standard library joins its threads when the interpreter ends, and so one call that hangs would keep
the process. These are daemons: whoever has gone no longer waits for them.

Calls that compute in Python share the interpreter with the slot's loop, which wants it back after
each look at a socket or file, some twenty times a checkpoint. Each time it waits until every
thread before it has had its interval: with eight threads and Python's 5 ms a checkpoint of
nothing took a second, with half a millisecond it takes a tenth.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from tidegate.errors import UserCodeFailed, as_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from typing import Any

    from tidegate.api.operator import Threads

_Work = tuple["Callable[[], object]", asyncio.AbstractEventLoop, "asyncio.Future[object]"]

SWITCH_S: Final = 0.0005
"""How long a thread of a slot keeps the interpreter when another one wants it."""


async def guarded(
    work: Coroutine[object, object, None], fail: Callable[[Exception], object]
) -> None:
    """Runs the work of a subtask; fail: gets what it raises."""
    try:
        await work
    except GeneratorExit:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Not this task was cancelled but what it waited for; nobody else would notice.
        fail(UserCodeFailed("what the subtask waited for was cancelled"))
    except BaseException as raised:
        fail(as_error(raised))


class Tasks:
    """Coroutines that have not ended. of: others among which each of them is counted too."""

    def __init__(self, of: Tasks | None = None) -> None:
        self._of = of
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._count(task)
        return task

    def _count(self, task: asyncio.Task[None]) -> None:
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if self._of is not None:
            self._of._count(task)

    def cancel(self) -> None:
        """Cancel all but the one that calls."""
        for task in self._running:
            if task is not asyncio.current_task():
                task.cancel()

    async def ended(self) -> None:
        """Wait until none is left; the end of one may begin another. Raises what one has raised."""
        while self._running:
            for outcome in await asyncio.gather(*self._running, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome


class BlockingCalls:
    """One subtask's calls. run_blocking: runs one on the pool."""

    def __init__(self, run_blocking: Callable[[Callable[[], object]], Awaitable[object]]) -> None:
        self._run_blocking = run_blocking
        self._under_way: set[asyncio.Future[object]] = set()
        self._over = False

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def run(self, call: Callable[[], object], *, on: Threads | None = None) -> Awaitable[object]:
        """Runs a call; cancelling the caller does not hide that it continues.

        on: threads to run it on; the pool if None.
        """
        in_context = partial(copy_context().run, call)
        run = self._run_blocking if on is None else on.run
        running = asyncio.ensure_future(run(lambda: self._unless_over(in_context)))
        self._under_way.add(running)
        running.add_done_callback(self._returned)
        return asyncio.shield(running)

    def _returned(self, call: asyncio.Future[object]) -> None:
        self._under_way.discard(call)
        if not call.cancelled():
            call.exception()  # who waited for it may be gone, and nobody else would look

    def _unless_over(self, call: Callable[[], object]) -> object:
        try:
            return None if self._over else call()
        except Exception:
            raise
        except BaseException as raised:
            raise as_error(raised) from None

    def give_up(self) -> None:
        """The subtask is over: what waits for a thread does nothing any more."""
        self._over = True

    async def ended(self, limit_s: float) -> bool:
        """Wait until none is under way; False if that takes too long."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=limit_s)
        return not self._under_way


@contextlib.contextmanager
def short_switches() -> Generator[None]:
    """Within this block, threads of the process switch soon."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(min(former, SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(former)


class DaemonThreads:
    """A limited number of threads, started on demand. Used on one loop alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads = 0
        self._unfinished = 0
        self._over = False

    def run(self, call: Callable[[], object]) -> asyncio.Future[object]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()
        self._unfinished += 1
        if self._threads < min(self._unfinished, self._limit):
            self._threads += 1
            threading.Thread(target=self._serve, name="tidegate-call", daemon=True).start()
        self._work.put((partial(copy_context().run, call), loop, done))
        return done

    def close(self) -> None:
        self._over = True
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            call, loop, done = work
            result: object = None
            error: Exception | None = None
            if not (self._over or done.cancelled()):
                try:
                    result = call()
                except BaseException as raised:
                    error = as_error(raised)
            try:
                loop.call_soon_threadsafe(self._returned, done, result, error)
            except RuntimeError:
                return  # the loop is closed: the slot is gone

    def _returned(
        self, done: asyncio.Future[object], result: object, error: Exception | None
    ) -> None:
        self._unfinished -= 1
        if done.done():
            return
        if self._over and result is None and error is None:
            done.cancel()
        elif error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
            done.exception()  # whoever waited for it may be gone, and nobody else would look

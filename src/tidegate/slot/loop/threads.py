"""Threads for calls of users that may take minutes, or never return.

The pool of the standard library joins its threads when the interpreter ends, and so one call that
hangs would keep the process. These are daemons: whoever has gone no longer waits for them.

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
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_Work = tuple["Callable[[], object]", asyncio.AbstractEventLoop, "asyncio.Future[object]"]

SWITCH_S: Final = 0.0005
"""How long a thread of a slot keeps the interpreter when another one wants it."""


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
        self._work.put((call, loop, done))
        return done

    def close(self) -> None:
        self._over = True
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            call, loop, done = work
            result: object = None
            error: BaseException | None = None
            if not (self._over or done.cancelled()):
                try:
                    result = call()
                except (StopIteration, SystemExit, KeyboardInterrupt) as raised:
                    # A future cannot hold the first, and the others would end the loop.
                    error = RuntimeError(f"the call raised {raised!r}")
                    error.__cause__ = raised
                except BaseException as raised:
                    error = raised
            try:
                loop.call_soon_threadsafe(self._returned, done, result, error)
            except RuntimeError:
                return  # the loop is closed: the slot is gone

    def _returned(
        self, done: asyncio.Future[object], result: object, error: BaseException | None
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

"""The driver's pool: threads for what blocks.

A `ThreadPoolExecutor` would do, but for its end: it waits for each of its calls, and so does the
process. Some of the calls are the user's (master hooks, failure enrichers), who may never return.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.clock import Clock
    from tidegate.model.control import Printed

T = TypeVar("T")


class DriverPool:
    """At most so many threads, started as they are needed."""

    def __init__(self, threads_max: int, clock: Clock) -> None:
        self._threads_max = threads_max
        self._clock = clock
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)

        self._calls.put(run)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._threads_max:
            name = f"tidegate-driver-io_{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def close(self, timeout_s: float) -> int:
        """End the threads; the result is how many were still at a call after that time."""
        for _ in self._threads:
            self._calls.put(None)
        deadline_s = self._clock.precise_s() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - self._clock.precise_s()))
        return sum(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        while (run := self._calls.get()) is not None:
            run()
            del run  # what it holds is not to wait for the next call
            self._idle.release()


WAITING_MAX: Final = 10_000
"""Lines that wait while nobody reads what the driver prints; more are left out."""


class PrintedLines:
    """Prints on the pool, one call at a time, for the loop must not wait for a slow reader.

    start: runs a call on the pool.
    """

    def __init__(self, start: Callable[[Callable[[], None]], object]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bool, str]] = deque()
        self._left_out = 0
        self._at_work = False

    def show(self, printed: Printed) -> None:
        """Have lines printed, in order."""
        with self._lock:
            room = WAITING_MAX - len(self._waiting)
            self._waiting.extend(printed.lines[:room])
            self._left_out += printed.left_out + len(printed.lines[room:])
            begins, self._at_work = not self._at_work, True
        if begins:
            self._start(self._print)

    def _print(self) -> None:
        # Where nobody reads any more the lines are lost, as the slots cannot know.
        with contextlib.suppress(OSError, ValueError):
            while (line := self._next()) is not None:
                to_error, text = line
                stream = sys.stderr if to_error else sys.stdout
                stream.write(f"{text}\n")
                stream.flush()

    def _next(self) -> tuple[bool, str] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._left_out:
                told = f"tidegate: {self._left_out:,} more lines were printed in slots"
                self._left_out = 0
                return True, told
            self._at_work = False
            return None

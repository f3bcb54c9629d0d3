"""The driver's pool: threads for what blocks.

A `ThreadPoolExecutor` would do, but for its end: it waits for each of its calls, and so does the
process. Some of the calls are the user's (master hooks, failure enrichers), who may never return.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tidegate.config.log import print_line
from tidegate.errors import as_error
from tidegate.model.control import STDERR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from tidegate.clock import Clock
    from tidegate.model.control import LogRecord

T = TypeVar("T")


class DriverPool:
    """At most so many threads, started as they are needed.

    Once it is closed, a call runs on the thread that asks for it: the last ones write log lines.
    """

    def __init__(self, threads_max: int, clock: Clock) -> None:
        self._threads_max = threads_max
        self._clock = clock
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as raised:
                    future.set_exception(as_error(raised))
                else:
                    future.set_result(result)

        with self._lock:
            closed = self._closed
            if not closed:
                self._calls.put(run)
                self._add_thread()
        if closed:
            run()
        return future

    def _add_thread(self) -> None:
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._threads_max:
            name = f"tidegate-driver-io_{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def run(self, call: Callable[[], T]) -> Awaitable[T]:
        """Runs a call, for a coroutine to wait for."""
        return asyncio.wrap_future(self.submit(call))

    def close(self, timeout_s: float) -> int:
        """End the threads; the result is how many were still at a call after that time."""
        with self._lock:
            self._closed = True
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


class WaitingLines(Generic[T]):
    """Writes lines on the pool, one call at a time, for the loop must not wait for what is slow.

    start: runs a call on the pool. write: writes all lines that it is given, in order.
    """

    def __init__(
        self,
        start: Callable[[Callable[[], None]], object],
        write: Callable[[Iterator[T]], None],
    ) -> None:
        self._start = start
        self._write = write
        self._lock = threading.Lock()
        self._waiting: deque[T] = deque()
        self._left_out = 0
        self._at_work = False

    def add(self, lines: Sequence[T], left_out: int = 0) -> None:
        """Have lines written. left_out: further ones that are only counted."""
        with self._lock:
            room = WAITING_MAX - len(self._waiting)
            self._waiting.extend(lines[:room])
            self._left_out += left_out + len(lines[room:])
            begins, self._at_work = not self._at_work, True
        if begins:
            self._start(self._write_all)

    def take_left_out(self) -> int:
        """How many lines were left out since the last call."""
        with self._lock:
            left_out, self._left_out = self._left_out, 0
        return left_out

    def _write_all(self) -> None:
        """Writes all lines that wait; a write that fails leaves its rest to the next one."""
        some_left = True

        def lines() -> Iterator[T]:
            nonlocal some_left
            while True:
                with self._lock:
                    if not self._waiting:
                        some_left = self._at_work = False
                        return
                    line = self._waiting.popleft()
                yield line

        try:
            self._write(lines())
        finally:
            if some_left:
                with self._lock:
                    self._at_work = False


class PrintedLines:
    """Prints what functions have printed in slots. start: runs a call on the pool."""

    def __init__(self, start: Callable[[Callable[[], None]], object]) -> None:
        self._lines = WaitingLines(start, self._print)

    def show(self, lines: Sequence[LogRecord], left_out: int = 0) -> None:
        """Have lines printed, in order. left_out: how many more there were."""
        self._lines.add(lines, left_out)

    def _print(self, lines: Iterator[LogRecord]) -> None:
        for line in lines:
            print_line(sys.stderr if line.stream == STDERR else sys.stdout, line.text)
        if left_out := self._lines.take_left_out():
            print_line(sys.stderr, f"tidegate: {left_out:,} more lines were printed in slots")

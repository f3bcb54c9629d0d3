"""The driver's pool: threads for what blocks.

A `ThreadPoolExecutor` would do, but for its end: it waits for each of its calls, and so does the
process. Some of the calls are the user's (master hooks, failure enrichers), who may never return.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.clock import Clock

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

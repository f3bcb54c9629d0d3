"""Settings of calls: how many at once, for how many records, and by whom."""

from __future__ import annotations

import os
import sys
from enum import Enum

from flinkformat.frozen import frozen


class Executor(Enum):
    """Executor of the calls of a plain function."""

    THREAD = "thread"
    PROCESS = "process"


@frozen
class CallSettings:
    """Settings of a step with calls.

    timeout_ms: of one record, over all its attempts. capacity: records that were called and whose
    results have not left. workers: threads, processes or batches at once; None for what fits the
    executor. batch_rows, batch_wait_ms: greatest size of a batch, and time to gather it.
    """

    timeout_ms: int
    capacity: int = 100
    executor: Executor = Executor.THREAD
    workers: int | None = None
    batch_rows: int = 64
    batch_wait_ms: int = 100

    def calls_at_once(self, *, batched: bool, coroutine: bool) -> int:
        """Number of calls that may be in flight in one subtask."""
        if self.workers is not None:
            return min(self.workers, self.capacity)
        if coroutine:
            return self.capacity
        if batched:
            return 1  # a model is seldom made to be called twice at once
        return self.capacity if self.executor is Executor.THREAD else min(self.capacity, _cores())


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

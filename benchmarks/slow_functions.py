"""Functions that take long, in each way in which a function can: asleep, computing, or in C.

A step between them notes what somebody who watches the job asks for: which calls were made, which
subtask worked on a row, when a row was at the sink.
"""

import ctypes
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate import (
    MapFunction,
    Prepared,
    ProcessWindowFunction,
    RuntimeContext,
    Trigger,
    TriggerResult,
    WriterContext,
)
from tidegate.model.elements import Batch
from tidegate.model.ids import CheckpointId

STRETCH = 10**12
"""Each subtask of the source counts through so many numbers of its own."""

_MUTEX_BYTES = 128  # more than any system's pthread_mutex_t has; zeros are a mutex that is free


def sleep(seconds: float) -> None:
    """Wait, and let go of the interpreter, as a call to a service does."""
    time.sleep(seconds)


def compute(seconds: float) -> None:
    """Compute in Python, which gives the interpreter to others now and then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def hold_waiting(seconds: float) -> None:
    """Wait in C for a lock, hold the interpreter, and hear no signal."""
    libc = ctypes.PyDLL(None)
    mutex = ctypes.create_string_buffer(_MUTEX_BYTES)
    libc.pthread_mutex_lock(mutex)
    end_ns = time.time_ns() + int(seconds * 1e9)
    timespec = (ctypes.c_long * 2)(*divmod(end_ns, 10**9))
    libc.pthread_mutex_timedlock(mutex, timespec)


def hold_computing(seconds: float) -> None:
    """Compute in C, and hold the interpreter, as one call of a long sum does."""
    sample = 10**7
    began = time.thread_time()  # a clock on the wall would tell what else the machine does
    sum(range(sample))
    sum(range(int(seconds / (time.thread_time() - began) * sample)))


FUNCTIONS: dict[str, Callable[[float], None]] = {
    "sleeps": sleep,
    "computes": compute,
    "waits in C": hold_waiting,
    "computes in C": hold_computing,
}


@dataclass(frozen=True)
class Slow(MapFunction):
    """Gives a row after the time that its number in the subtask's order is given.

    seconds: of the numbers in ``only``, or of all. The other numbers of a step that has
    ``only`` take ``else_seconds``. calls: folder in which each call that takes ``seconds`` is
    noted, as it begins.
    """

    function: str
    seconds: float
    only: range | None = None
    else_seconds: float = 0.0
    calls: Path | None = None

    def map(self, value: int) -> int:
        if self.only is not None and value % STRETCH not in self.only:
            sleep(self.else_seconds)
            return value
        if self.calls is not None:
            with (self.calls / f"{os.getpid()}").open("a") as noted:
                noted.write(f"{value}\n")
        FUNCTIONS[self.function](self.seconds)
        return value


def calls_noted(folder: Path) -> list[int]:
    """The number of each call that has begun, in every process."""
    return [int(line) for file in folder.iterdir() for line in file.read_text().splitlines()]


class Named(MapFunction):
    """Puts beside a number the index of the subtask that has worked on it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._index = runtime_context.get_index_of_this_subtask()

    def map(self, value: int) -> tuple[int, int]:
        return value, self._index


class EachRowAndTheEnd(Trigger):
    """Fires at each row, and once more when the window's time is over."""

    def on_element(self, element, timestamp, window, ctx) -> TriggerResult:
        """A row is shown at once."""
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.FIRE

    def on_processing_time(self, time, window, ctx) -> TriggerResult:
        """The window's time is over."""
        return TriggerResult.FIRE_AND_PURGE

    def on_event_time(self, time, window, ctx) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window, ctx) -> None:
        """Such windows do not merge."""

    def clear(self, window, ctx) -> None:
        """The timer of the window is what has fired last."""


class Newest(ProcessWindowFunction):
    """The window's newest row, and where the window's time is over, its end; else 0."""

    def process(self, key, context, elements: Iterable[tuple[int, int]]):
        end = context.window().max_timestamp()
        over = context.current_processing_time() >= end
        *_, (number, index) = elements
        yield number, index, end if over else 0


@dataclass(frozen=True)
class Arrived:
    """A row at the sink. window_ms: the last moment of the window whose time was over, else 0."""

    ns: int
    number: int
    index: int
    window_ms: int


@dataclass(frozen=True)
class StampingSink:
    """Notes in a folder when each row came."""

    folder: Path

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "StampingWriter":
        return StampingWriter(self.folder / context.attempt_name)

    def committer(self) -> None: ...

    def arrived(self) -> list[Arrived]:
        lines = [line for file in self.folder.iterdir() for line in file.read_text().splitlines()]
        return sorted(
            (Arrived(*map(int, line.split())) for line in lines), key=lambda each: each.ns
        )


class StampingWriter:
    """Writes a line for each row."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def write(self, batch: Batch) -> None:
        now = time.time_ns()
        self._file.writelines(f"{now} {n} {i} {w}\n" for n, i, w in batch.values)
        self._file.flush()

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared()

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        self._file.close()

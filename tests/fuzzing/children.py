"""Processes that read inputs under limits, for a reader may hang, take all memory, or crash.

A child tells through shared memory which case it is at, so that one it does not come back from is
known. Time is the processor's, for a busy machine hangs nobody; a wall's limit is there for waits.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import mmap
import multiprocessing
import os
import resource
import signal
import struct
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from tests.fuzzing.cases import Fault, Reader, fault_of, fault_of_growth
from tidegate.slot.process.serve import share_heaps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from multiprocessing.connection import Connection

CASE_CPU_S: Final = 10.0
CASE_WALL_S: Final = 60.0
OPENING_CPU_S: Final = 120.0
OPENING_WALL_S: Final = 900.0
MEMORY_MB: Final = 1024
"""What a child may take beside what it has when it begins."""

_STATE: Final = struct.Struct("<qqq")
OPENING: Final = -1
_BREAKDOWNS_MAX: Final = 30
"""A reader that breaks so often is left alone."""


@dataclass(slots=True)
class Tally:
    """What came of a reader: faults by their place and kind, each once, with their number."""

    reader: Reader
    inputs: int = 0
    most_mb: float = 0.0
    cpu_s: float = 0.0
    faults: dict[tuple[str, str], Fault] = field(default_factory=dict)
    times: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, fault: Fault) -> bool:
        """True for the first of its kind."""
        key = fault.place, fault.what.partition(":")[0]
        self.times[key] = self.times.get(key, 0) + 1
        return self.faults.setdefault(key, fault) is fault


class Child:
    """Reads the inputs of a reader until it is told to stop, has read all, or breaks."""

    def __init__(self, reader: Reader, numbers: Iterator[int]) -> None:
        self.reader = reader
        self._numbers = numbers
        self._seen = mmap.mmap(-1, _STATE.size + 1)
        self._write(OPENING, 0, 0)
        self._trace = tempfile.NamedTemporaryFile(prefix="tidegate-fuzz-")  # noqa: SIM115
        context = multiprocessing.get_context("fork")
        self._faults, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=self._work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._last_at = OPENING
        self._since = self.cpu_s(), time.monotonic()

    # --- in the parent ---

    @property
    def at(self) -> int:
        """The number of the case that it is at."""
        return _STATE.unpack_from(self._seen)[0]

    @property
    def inputs(self) -> int:
        """How many it has read."""
        return _STATE.unpack_from(self._seen)[1]

    @property
    def most_mb(self) -> float:
        """The most memory that it had, beside what it began with."""
        return _STATE.unpack_from(self._seen)[2] / 1024

    def stop(self) -> None:
        """No case after this one."""
        self._seen[_STATE.size] = 1

    def faults(self) -> Iterator[Fault]:
        """What it has found since."""
        while self._faults.poll():
            try:
                yield self._faults.recv()
            except EOFError:
                return

    def ended(self) -> bool:
        """True once it is over."""
        return self._process.exitcode is not None

    def breakdown(self) -> Fault | None:
        """What it did not come back from: a hang, which ends it here, or what killed it."""
        at = self.at
        if self.ended():
            code = self._process.exitcode or 0
            if code == 0:
                return None
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            return self._broken(at, how)
        cpu_s, now_s = self.cpu_s(), time.monotonic()
        if at != self._last_at:
            self._last_at, self._since = at, (cpu_s, now_s)
            return None
        cpu_max, wall_max = CASE_CPU_S, CASE_WALL_S
        if at == OPENING:
            cpu_max, wall_max = OPENING_CPU_S, OPENING_WALL_S
        began_cpu_s, began_s = self._since
        if cpu_s - began_cpu_s <= cpu_max and now_s - began_s <= wall_max:
            return None
        self.kill()
        return self._broken(at, "hangs")

    def kill(self) -> None:
        """End it, with its stack told where it can be."""
        for number in (signal.SIGABRT, signal.SIGKILL):
            if self._process.is_alive() and self._process.pid is not None:
                os.kill(self._process.pid, number)
                self._process.join(timeout=10)

    def close(self) -> None:
        """Let go of what belongs to it."""
        self.kill()
        self._process.join(timeout=10)
        self._faults.close()
        self._trace.close()
        self._seen.close()

    def _broken(self, at: int, what: str) -> Fault:
        trace = Path(self._trace.name).read_text(errors="replace")
        if at == OPENING:
            what = f"{what} while it makes its seeds"
        lines = [line.strip() for line in trace.splitlines() if "tidegate" in line]
        return Fault(self.reader.name, at, what, lines[0] if lines else "unknown", trace)

    def cpu_s(self) -> float:
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return sum(times[:4])  # its own and its children's, those that have ended

    # --- in the child ---

    def _write(self, at: int, done: int, most_kb: int) -> None:
        _STATE.pack_into(self._seen, 0, at, done, most_kb)

    def _work(self, faults: Connection) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when it is over
        os.dup2(self._trace.fileno(), 2)  # what libraries say as they end the process, too
        faulthandler.enable(self._trace)
        reader = self.reader
        opened = reader.open()
        gc.freeze()
        share_heaps()  # one each for RocksDB's threads would be all of the memory below
        limit = _memory_now() + (MEMORY_MB << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most_kb = began_kb = _most_kb()
        number = OPENING
        for done, number in enumerate(self._numbers):
            if self._seen[_STATE.size]:
                break
            self._write(number, done, most_kb - began_kb)
            found = [fault_of(reader, opened, number)]
            if (now_kb := _most_kb()) > most_kb:
                found.append(fault_of_growth(reader, number, (now_kb - most_kb) / 1024))
                most_kb = now_kb
            for fault in found:
                if fault is not None:
                    faults.send(fault)
            self._write(number, done + 1, most_kb - began_kb)
        os._exit(0)  # threads of libraries are not waited for


def _most_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _memory_now() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def numbers_from(firsts: Sequence[int], begin: int = 0) -> Iterator[int]:
    """From each of the firsts on, in turns. begin: how many are passed over."""
    for turn in itertools.count(begin):
        yield firsts[turn % len(firsts)] + turn // len(firsts)


def watched(
    reader: Reader, firsts: Sequence[int], seconds: float, inputs_max: int | None = None
) -> Iterator[Tally]:
    """Reads inputs for so many seconds of the processor; the tally, at each look.

    A child that breaks is followed by another, which begins behind the case that broke it.
    """
    tally = Tally(reader)
    for _ in range(_BREAKDOWNS_MAX):
        numbers = itertools.islice(numbers_from(firsts, tally.inputs), inputs_max)
        child = Child(reader, numbers)
        try:
            fault = yield from _to_its_end(child, tally, seconds)
        finally:
            child.close()
        if fault is None or fault.number == OPENING or inputs_max is not None:
            return
        tally.inputs += 1  # the one that broke it


def _to_its_end(child: Child, tally: Tally, seconds: float) -> Generator[Tally, None, Fault | None]:
    """Looks at a child until it is over; what it did not come back from."""
    before = tally.inputs, tally.cpu_s
    began_s = 0.0
    over = False
    while not over:
        yield tally
        over = child.ended()
        fault = child.breakdown()
        for found in child.faults():
            tally.add(found)
        cpu_s = child.cpu_s()
        if child.at == OPENING:
            began_s = cpu_s
        tally.inputs = before[0] + child.inputs
        tally.cpu_s = max(tally.cpu_s, before[1] + cpu_s - began_s)
        tally.most_mb = max(tally.most_mb, child.most_mb)
        if fault is not None:
            tally.add(fault)
            return fault
        if tally.cpu_s > seconds:
            child.stop()
    return None

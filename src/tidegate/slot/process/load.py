"""Metrics of a slot's process: memory, processor time, threads, garbage collections."""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.metrics import MetricRegistry, Rate
from tidegate.model.metrics import MetricKind

if TYPE_CHECKING:
    from collections.abc import Callable

_NANOS: Final = 1_000_000_000


def process_metrics(now_ms: Callable[[], int]) -> MetricRegistry:
    """The registry of this process. now_ms: a clock that never goes back."""
    registry = MetricRegistry(now_ms)
    load = Rate(_cpu_s, now_ms)
    registry.tell("Status.Process.Memory.Resident", MetricKind.GAUGE, _resident_bytes)
    registry.tell("Status.Process.CPU.Time", MetricKind.GAUGE, lambda: round(_cpu_s() * _NANOS))
    registry.tell("Status.Process.CPU.Load", MetricKind.GAUGE, load.a_second)
    registry.tell("Status.Process.Threads.Count", MetricKind.GAUGE, threading.active_count)
    registry.tell("Status.Python.GarbageCollector.Count", MetricKind.COUNTER, _collections)
    return registry


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def _resident_bytes() -> int | None:
    if sys.platform == "linux":
        with suppress(OSError):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
    return None

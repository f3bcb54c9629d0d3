"""Time; the only module that asks the system for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time, injected everywhere."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, from an arbitrary zero."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        ...

    def precise_s(self) -> float:
        """Seconds that never go back, as fine as the system gives; for durations."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def precise_s(self) -> float:
        return time.perf_counter()

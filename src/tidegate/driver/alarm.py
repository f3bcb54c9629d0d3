"""The driver's alarm: wakes the job master when that has asked for it, and not before it has heard.

A call in C that holds the interpreter, a stopped process or a machine with too much to do may keep
the driver from everything for longer than any of its timeouts. What slots have said meanwhile waits
in sockets, and the loop would look at its timers first: leases, checkpoints and slots would count
as lost although the answers are here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.jobmaster.slots import LATE_WAKE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    import structlog

    from tidegate.clock import Clock

HEAR_FIRST_MS: Final = 1_000
"""How long the driver listens after it stood still, before it judges who is late."""

TOLD_MS: Final = 5_000
"""A standstill that is longer is told."""


class Alarm:
    """A timer that fires once, at the time that was set last."""

    def __init__(
        self, clock: Clock, ring: Callable[[], None], log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._clock = clock
        self._ring = ring
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._not_before_ms = 0

    def set(self, at_ms: int | None) -> None:
        """Ring at that time; None for never."""
        now_ms = self._clock.monotonic_ms()
        self._notice_standstill(now_ms)
        self.cancel()
        if at_ms is not None:
            self._due_ms = max(at_ms, now_ms, self._not_before_ms)
            delay_s = (self._due_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        if self._notice_standstill(self._clock.monotonic_ms()):
            self.set(self._not_before_ms)
        else:
            self._timer = None
            self._ring()

    def _notice_standstill(self, now_ms: int) -> bool:
        late_ms = now_ms - self._due_ms
        if self._timer is None or late_ms <= LATE_WAKE_MS:
            return False
        self.cancel()
        self._not_before_ms = now_ms + HEAR_FIRST_MS
        if late_ms > TOLD_MS:
            self._log.warning(
                "the driver stood still: its process was stopped, a call in C held its "
                "interpreter, or the machine is overloaded. Slots of other machines end, and are "
                "replaced, when they do not hear from it for heartbeat.timeout",
                for_ms=late_ms,
            )
        return True

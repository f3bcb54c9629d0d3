"""Buffer debloating of one subtask: measures how fast it reads, and tells its senders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.api.pieces import ROWS_UNBOUNDED
from tidegate.transport.debloat import DebloatedSize

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.clock import Clock
    from tidegate.model.settings import DebloatSettings
    from tidegate.slot.channels.asked_size import AskedSize
    from tidegate.slot.channels.gate import Gate


class Alarms(Protocol):
    """Calls what is to be called at a time."""

    def call_at(self, at_ms: int, act: Callable[[], None]) -> None: ...


class Debloater:
    """Watches the turns of one subtask. asked: tells its senders how many rows a batch should have.

    Time counts while there is something to read or to finish, also when the subtask waits for
    credit: what is behind a slow step takes as long as what is in front of it.
    """

    def __init__(
        self,
        settings: DebloatSettings,
        rows_max: int,
        gate: Gate,
        asked: AskedSize,
    ) -> None:
        self.period_ms = settings.period_ms
        self.size = DebloatedSize(settings, rows_max)
        self._rows_full = rows_max
        self._gate = gate
        self._asked = asked
        self._active_s = 0.0
        self._rows_then = 0
        self._busy_from_s: float | None = None

    def turned(self, began_s: float, ended_s: float, *, idle: bool) -> None:
        """A turn is over. idle: there is nothing left to do."""
        if self._busy_from_s is None:
            self._busy_from_s = began_s
        if idle:
            self._active_s += ended_s - self._busy_from_s
            self._busy_from_s = None
            self.size.emptied()

    def begin(self, alarms: Alarms, clock: Clock) -> None:
        def measure() -> None:
            self.measure(clock.precise_s())
            self.begin(alarms, clock)

        alarms.call_at(clock.monotonic_ms() + self.period_ms, measure)

    def measure(self, now_s: float) -> None:
        if self._busy_from_s is not None:
            self._active_s += now_s - self._busy_from_s
            self._busy_from_s = now_s
        rows_read = sum(channel.rows_read for channel in self._gate.inputs)
        rows, self._rows_then = rows_read - self._rows_then, rows_read
        active_s, self._active_s = self._active_s, 0.0
        if active_s > 0 and self.size.measured(rows, active_s * 1000, self._gate.backlog):
            rows = self.size.rows
            self._asked.debloated(rows if rows < self._rows_full else ROWS_UNBOUNDED)

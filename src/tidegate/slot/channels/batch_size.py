"""How many rows a subtask wants in a batch, and how many batches may be on the way to it.

Two ask for it. What the operators work off in a few milliseconds is a batch of its own; and with
debloating no more data are in flight than the subtask reads in a given time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.api.pieces import ROWS_UNBOUNDED
from tidegate.transport.credit import credit_for
from tidegate.transport.debloat import DebloatedSize

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.clock import Clock
    from tidegate.model.settings import DebloatSettings, SlotSettings
    from tidegate.slot.channels.gate import Gate


class AskedSize:
    """The number of rows that senders are to put in a batch: the least that anyone asks for.

    gate: its senders are told, and get credit for more batches where batches are longer.
    """

    def __init__(self, settings: SlotSettings, gate: Gate) -> None:
        self._rows_max = max(settings.rows, settings.arrow_rows)
        self._credit_max = settings.credit
        self._credit = credit_for(1, settings.credit)
        self._gate = gate
        self._rows = self._fitting = 1  # as senders begin
        self._debloated = ROWS_UNBOUNDED

    def fits(self, rows: int) -> None:
        """Rows that take the reader as long as a batch should take."""
        rows = min(rows, self._rows_max)
        # Measured times waver, and each word goes to every sender.
        if self._fitting < 2 * rows < 4 * self._fitting and rows != self._rows_max:
            return
        self._fitting = rows
        self._ask()

    def debloated(self, rows: int) -> None:
        """Rows in a batch for which data in flight take the target time."""
        self._debloated = rows
        self._ask()

    def _ask(self) -> None:
        rows = min(self._fitting, self._debloated)
        if rows != self._rows:
            self._rows = rows
            for channel in self._gate.inputs:
                channel.producer.resize(rows)
            credit = credit_for(rows, self._credit_max)
            self._gate.add_credit(credit - self._credit)
            self._credit = credit


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

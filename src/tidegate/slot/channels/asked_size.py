"""A subtask tells its senders how many rows a batch should have, and how many may be on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.pieces import ROWS_UNBOUNDED
from tidegate.transport.credit import credit_for

if TYPE_CHECKING:
    from tidegate.model.settings import SlotSettings
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

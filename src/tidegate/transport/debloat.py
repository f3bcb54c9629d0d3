"""Buffer debloating: how many rows a batch should have, so that data in flight take a target time.

Without IO. A checkpoint's barrier waits behind what is in flight, and of a slow reader that may be
minutes of work. The reader therefore measures how many rows it takes a second, and tells its
senders to make smaller batches, as few rows as it reads in the target time; the number of batches
stays. The size follows slowly, as an exponential moving average, and only a change that matters is
told.

Source: Flink, BufferDebloater and BufferSizeEMA, with rows for bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    from tidegate.model.settings import DebloatSettings


@frozen
class Backlog:
    """Rows in front of a reader: how many, in how many batches and channels."""

    rows: int = 0
    batches: int = 0
    channels: int = 0


class DebloatedSize:
    """The size of the batches in front of one reader. rows_max: of a full batch."""

    def __init__(self, settings: DebloatSettings, rows_max: int) -> None:
        self._settings = settings
        self._rows_max = rows_max
        self._average = float(rows_max)
        self._rows = rows_max
        self._in_flight_ms = 0

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def in_flight_ms(self) -> int:
        """Time that the reader needed for the rows in flight at the last measurement."""
        return self._in_flight_ms

    def measured(self, rows_read: int, active_ms: float, backlog: Backlog) -> bool:
        """Records rows read while there was something to read; returns True if the size changes.

        active_ms: above 0. A channel that has something waiting has one batch more on its way: its
        sender sends whenever it can, and then holds the one for which there is no credit.
        """
        if rows_read == 0 and backlog.rows == 0:
            return False  # it was busy with other things
        rows_a_ms = rows_read / active_ms
        in_flight = backlog.rows + backlog.channels * self._rows
        if rows_read:
            self._in_flight_ms = round(in_flight / rows_a_ms)
        else:
            self._in_flight_ms += round(active_ms)  # it stands still, and so much is known
        batches = max(1, backlog.batches + backlog.channels)
        wanted = min(rows_a_ms * self._settings.target_ms / batches, 2 * self._average)
        self._average += (wanted - self._average) * 2 / (self._settings.samples + 1)
        self._average = min(max(self._average, 1), self._rows_max)
        return self._change_to(round(self._average))

    def emptied(self) -> None:
        """Records that the reader has emptied its input."""
        self._in_flight_ms = 0

    def _change_to(self, rows: int) -> bool:
        """Changes the size if the step is worth a message, or if it reaches a limit."""
        change = abs(rows - self._rows) * 100
        is_limit = rows in (1, self._rows_max)
        if change == 0 or (change < self._rows * self._settings.threshold_percent and not is_limit):
            return False
        self._rows = rows
        return True

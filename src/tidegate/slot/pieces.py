"""Rows that a subtask works on at once: as many as take a millisecond or two."""

from __future__ import annotations

from typing import Final

PIECE_S: Final = 0.002
"""Work that a row function is given at once, seconds; cutting a batch costs its rows again."""

LONG_S: Final = 0.02
"""A piece that took as long tells what its rows cost now, whatever they cost before."""

PIECE_ROWS_MIN: Final = 16
"""Fewer rows tell nothing, unless they took long."""

ROW_COST_GROWTH: Final = 1.05
"""By how much the cost of a row may seem to grow from one short piece to the next."""


class PieceSize:
    """Learns from how long pieces took. rows: of the next one. rows_max: of a full batch."""

    def __init__(self, rows_max: int) -> None:
        self.rows = PIECE_ROWS_MIN
        self._rows_max = rows_max
        self._row_s = 0.0

    def took(self, rows: int, seconds: float) -> None:
        """A piece of so many rows took so long."""
        if seconds >= LONG_S:
            self._row_s = seconds / rows
        elif rows >= PIECE_ROWS_MIN:
            # The least counts, and grows slowly: a turn in which the machine did other things
            # would else cut the next batches to crumbs.
            self._row_s = min(seconds / rows, self._row_s * ROW_COST_GROWTH or seconds / rows)
        elif rows == self.rows and seconds < PIECE_S:
            self._row_s /= 2  # so few rows were to take longer
        wanted = int(PIECE_S / self._row_s) if self._row_s > 0 else self._rows_max
        self.rows = max(1, min(self._rows_max, wanted))

"""How many rows are worked on at once: as many as take a few milliseconds.

What a row costs is known only once a row has been worked on. So a piece of unknown cost has one
row, and the next one at most eight times as many as the one before.
"""

from __future__ import annotations

from typing import Final

PIECE_S: Final = 0.002
"""Work that a subtask takes in at once, seconds; cutting a batch costs its rows again."""

TURN_S: Final = 0.005
"""Work that begins in one turn of a subtask: no call begins later than this after the first."""

LONG: Final = 10
"""A piece that took so many times too long tells what its rows cost now, whatever they cost."""

PIECE_ROWS_MIN: Final = 16
"""What fewer rows cost a row is mostly what a piece costs, unless they took long."""

PIECE_GROWTH: Final = 8
"""How many times as many rows a piece has as the one before it, at most."""

ROW_COST_GROWTH: Final = 1.05
"""By how much the cost of a row may seem to grow from one short piece to the next."""


class PieceSize:
    """Learns from how long pieces took. rows: of the next one. rows_max: of a full batch.

    aim_s: how long a piece is to take.
    """

    def __init__(self, rows_max: int, aim_s: float = PIECE_S) -> None:
        # A call with a batch costs much by itself, so that one row of it would tell little.
        self.rows = 1 if aim_s <= TURN_S else PIECE_ROWS_MIN
        self._rows_max = rows_max
        self._aim_s = aim_s
        self._row_s = 0.0

    def took(self, rows: int, seconds: float) -> None:
        """A piece of so many rows took so long."""
        cost = seconds / rows
        if seconds >= LONG * self._aim_s or not self._row_s:
            self._row_s = cost
        elif rows >= PIECE_ROWS_MIN or cost < self._row_s:
            # The least counts, and grows slowly: a turn in which the machine did other things
            # would else cut the next batches to crumbs.
            self._row_s = min(cost, self._row_s * ROW_COST_GROWTH)
        elif seconds > self._aim_s:
            self._row_s = cost
        wanted = int(self._aim_s / self._row_s) if self._row_s > 0 else self._rows_max
        grown = max(self.rows, rows * PIECE_GROWTH)
        self.rows = max(1, min(self._rows_max, wanted, grown))


class Intake:
    """Measures what rows that a subtask took in set going, over all turns until it is done."""

    def __init__(self, rows_max: int, aim_s: float = PIECE_S) -> None:
        self._piece = PieceSize(rows_max, aim_s)
        self._in_hand = 0
        self._worked_s = 0.0

    @property
    def rows(self) -> int:
        """How many rows to take in next."""
        return self._piece.rows

    def settle(self) -> None:
        """All that was taken in is done."""
        if self._in_hand:
            self._piece.took(self._in_hand, self._worked_s)
            self._in_hand = 0
        self._worked_s = 0.0

    def take(self, rows: int) -> None:
        """So many rows are taken in."""
        self._in_hand += rows

    def worked(self, seconds: float) -> None:
        """Work on them took so long."""
        self._worked_s += seconds

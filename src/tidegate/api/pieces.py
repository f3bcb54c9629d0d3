"""Sizes of pieces of work: as many rows as take a few milliseconds.

The cost of a row is known only once a row has been processed. So a piece of unknown cost has one
row, and the next one at most eight times as many as the one before. The same holds for batches on
their way to a subtask, which wait there in front of a barrier; and who sends them learns how many
rows to give on at once from what has to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

PIECE_S: Final = 0.002
"""Work that a subtask takes in at once, seconds; cutting a batch costs its rows again."""

BATCH_S: Final = 0.02
"""Work for the reader of a channel that comes in one batch; each batch costs its way."""

TURN_S: Final = 0.005
"""Work that begins in one turn of a subtask: no call begins later than this after the first."""

LONG: Final = 10
"""A piece that took so many times too long tells what its rows cost now, whatever they cost."""

PIECE_ROWS_MIN: Final = 16
"""What fewer rows cost a row is mostly what a piece costs, unless they took long."""

ROWS_UNBOUNDED: Final = 2**31
"""More rows than any batch has."""

PIECE_GROWTH: Final = 8
"""How many times as many rows a piece has as the one before it, at most."""

ROW_COST_GROWTH: Final = 1.05
"""By how much the cost of a row may seem to grow from one short piece to the next."""


class PieceSize:
    """Learns the size of pieces from their durations. rows: of the next one. rows_max: limit.

    aim_s: how long a piece is to take.
    """

    def __init__(self, rows_max: int, aim_s: float = PIECE_S) -> None:
        # A call with a batch costs much by itself, so that one row of it would tell little.
        self.rows = 1 if aim_s <= TURN_S else PIECE_ROWS_MIN
        self._rows_max = rows_max
        self._aim_s = aim_s
        self._row_s = 0.0

    def rows_in(self, seconds: float) -> int:
        """Number of rows that take this long, at least one."""
        if not self._row_s:
            return self._rows_max
        return max(1, min(self._rows_max, int(seconds / self._row_s)))

    def took(self, rows: int, seconds: float) -> None:
        """Records that a piece of this many rows took this long."""
        cost = seconds / rows
        if seconds >= LONG * self._aim_s or not self._row_s:
            self._row_s = cost
        elif rows >= PIECE_ROWS_MIN or cost < self._row_s:
            # The least counts, and grows slowly: a turn in which the machine did other things
            # would else cut the next batches to crumbs.
            self._row_s = min(cost, self._row_s * ROW_COST_GROWTH)
        elif seconds > self._aim_s:
            self._row_s = cost
        grown = max(self.rows, rows * PIECE_GROWTH)
        self.rows = min(self.rows_in(self._aim_s), grown)


class Portion:
    """Learns how many rows to send to channels at once, so that few have to wait for credit.

    In no channel more than about one batch is to wait: a sender that waits for one reader has
    nothing for the others. More are tried where nothing waits, so that channels which get nothing,
    or take all that they get, hold nothing back.
    """

    def __init__(self) -> None:
        self.rows = 1
        self._growth = PIECE_GROWTH
        self._waiting: dict[Hashable, float] = {}

    def crowded(self, channel: Hashable, batches: float) -> None:
        """Records that this many more batches wait in a channel."""
        self._waiting[channel] = self._waiting.get(channel, 0.0) + batches

    def given(self, rows: int, allowed: int) -> None:
        """Records that this many rows were sent at once, of the number allowed."""
        # Sources that emit groups of rows rarely hit the number exactly.
        in_full = 2 * rows > allowed
        most = max(self._waiting.values(), default=0.0)
        self._waiting.clear()
        if most >= 2:
            self.rows = max(1, int(rows / most))
            self._growth = 2  # with more care, once it is known where it ends
        elif most <= 0.5 and in_full:
            growth = 2 if most else self._growth
            self.rows = min(ROWS_UNBOUNDED, growth * max(self.rows, rows))

    def forget(self) -> None:
        """Ignores what waits by now, which had another reason."""
        self._waiting.clear()


class Intake:
    """Measures the work caused by rows that a subtask took in, over all turns until it is done.

    portion: hears what has to wait in the channels behind it.
    """

    def __init__(self, rows_max: int, aim_s: float, portion: Portion) -> None:
        self._piece = PieceSize(rows_max, aim_s)
        self._batch_s = max(aim_s, BATCH_S)
        self._batch_rows = self._piece.rows
        self._portion = portion
        portion.rows = self._piece.rows
        self._in_hand = 0
        self._worked_s = 0.0

    @property
    def rows(self) -> int:
        return min(self._piece.rows, self._portion.rows)

    @property
    def batch_rows(self) -> int:
        return min(self._batch_rows, self._portion.rows)

    def settle(self) -> None:
        """Ends a measurement: everything taken in is done."""
        rows = self._in_hand
        if rows:
            self._portion.given(rows, self.rows)
            self._piece.took(rows, self._worked_s)
            grown = max(self._batch_rows, rows * PIECE_GROWTH)
            self._batch_rows = min(self._piece.rows_in(self._batch_s), grown)
            self._in_hand = 0
        else:
            self._portion.forget()
        self._worked_s = 0.0

    def take(self, rows: int) -> None:
        """Records that rows are taken in."""
        self._in_hand += rows

    def worked(self, seconds: float) -> None:
        """Records time spent on them."""
        self._worked_s += seconds

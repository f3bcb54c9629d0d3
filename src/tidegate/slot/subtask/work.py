"""The time that one operator spends, and what is learnt of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.api.pieces import ROWS_UNBOUNDED, PieceSize
from tidegate.metrics import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable


class Below(Protocol):
    """The operators and outputs that take an operator's results."""

    @property
    def below_s(self) -> float:
        """Time spent on them so far."""
        ...


class Work:
    """Clocks the pieces of work of one operator: a batch, a watermark, a wake-up.

    A piece is begun, may rest and be resumed, and ends. busy_s: spent in all of them, without what
    came of their results. per_row: microseconds that a row took, a sample a batch. piece: how many
    rows make a piece of a few milliseconds, which includes what comes of them.
    """

    __slots__ = (
        "_began_s",
        "_below",
        "_below_s",
        "_now_s",
        "_rows",
        "_worked_s",
        "busy_s",
        "per_row",
        "piece",
    )

    def __init__(self, piece_s: float, below: Below, now_s: Callable[[], float]) -> None:
        self.piece = PieceSize(ROWS_UNBOUNDED, piece_s)
        self.busy_s = 0.0
        self.per_row = Histogram()
        self._below = below
        self._now_s = now_s
        self._rows = 0
        self._began_s = self._below_s = self._worked_s = 0.0

    def begin(self, rows: int = 0) -> None:
        self._rows, self._worked_s, self._below_s = rows, 0.0, self._below.below_s
        self._began_s = self._now_s()

    def rest(self) -> None:
        self._worked_s += self._now_s() - self._began_s

    def resume(self) -> None:
        self._began_s = self._now_s()

    def end(self) -> None:
        took_s = self._worked_s + self._now_s() - self._began_s
        own_s = max(0.0, took_s - (self._below.below_s - self._below_s))
        self.busy_s += own_s
        if self._rows:
            self.piece.took(self._rows, took_s)
            self.per_row.update(own_s * 1e6 / self._rows)

    def worked(self, own_s: float) -> None:
        """Adds time that was clocked elsewhere."""
        self.busy_s += own_s

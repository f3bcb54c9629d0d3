"""Credit: a sender may have only so many batches on the way, channel by channel.

Without IO. A batch costs one credit, a mark costs none but keeps its place behind the batches
before it. The reader gives a credit back for each batch that it has taken out of its queue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidegate.api.rows.column_rows import ColumnRows
from tidegate.model.elements import ArrowBatch, Barrier, Batch, Element, RowBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.model.ids import CheckpointId


def credit_for(rows: int, credit_max: int) -> int:
    """Number of batches of this many rows that may be in flight in a channel.

    If a row takes long, one batch is enough beside the one being processed.
    """
    return min(credit_max, 1 + rows)


class CreditedSender:
    """The sending end of one channel: what may go now, and what waits for credit.

    credit: batches that the reader takes before it has granted anything. rows, arrow_rows: of a
    batch that goes, by its kind. A batch twice as long or longer goes in pieces of that size, which
    are cut when they go: the reader may have asked for another size since the batch was offered.
    """

    __slots__ = ("_begun", "_credit", "_waiting", "arrow_rows", "rows")

    def __init__(self, credit: int, rows: int, arrow_rows: int) -> None:
        assert credit > 0, "a channel without credit never moves"
        self.rows = rows
        self.arrow_rows = arrow_rows
        self._credit = credit
        self._begun = 0  # rows of the first element that have gone
        self._waiting: deque[Element] = deque()

    @property
    def has_room(self) -> bool:
        return not self._waiting

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def batches_waiting(self) -> list[Batch]:
        return [
            self._rest(position, each)
            for position, each in enumerate(self._waiting)
            if isinstance(each, RowBatch | ArrowBatch)
        ]

    def holds(self, checkpoint: CheckpointId) -> bool:
        return any(
            isinstance(each, Barrier) and each.checkpoint == checkpoint for each in self._waiting
        )

    def take_barrier(self, checkpoint: CheckpointId) -> tuple[Barrier | None, list[Batch]]:
        """Removes a checkpoint's barrier from what waits; returns the batches that it overtakes."""
        overtaken: list[Batch] = []
        for position, each in enumerate(self._waiting):
            if isinstance(each, RowBatch | ArrowBatch):
                overtaken.append(self._rest(position, each))
            elif isinstance(each, Barrier) and each.checkpoint == checkpoint:
                del self._waiting[position]
                return each, overtaken
        return None, []

    def offer(self, element: Element) -> Sequence[Element]:
        """Elements to send at once; the rest is kept until ``grant`` returns it."""
        # Whatever waits goes first, or elements would overtake each other.
        self._waiting.append(element)
        return () if len(self._waiting) > 1 else self._going()

    def grant(self, credit: int) -> Sequence[Element]:
        """Adds credit; returns the elements to send now, in order."""
        self._credit += credit
        return self._going()

    def batches_left(self) -> float:
        """Batches still to send of the element offered last, in the size asked for."""
        last = self._waiting[-1] if self._waiting else None
        if not isinstance(last, RowBatch | ArrowBatch):
            return 0.0
        rows = len(last) - (self._begun if len(self._waiting) == 1 else 0)
        return rows / self._size(last)

    def _going(self) -> Sequence[Element]:
        going: list[Element] = []
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            if isinstance(first, RowBatch | ArrowBatch):
                if self._credit == 0:
                    break
                self._credit -= 1
                begun, size = self._begun, self._size(first)
                # Fewer rows than two pieces go as one, so that no tiny rest costs a credit.
                if len(first) - begun >= 2 * size:
                    self._begun = begun + size
                    going.append(first.piece(begun, self._begun))
                    continue
                first, self._begun = self._rest(0, first), 0
            waiting.popleft()
            going.append(first)
        return going

    def _size(self, batch: Batch) -> int:
        plain = isinstance(batch, RowBatch) and not isinstance(batch, ColumnRows)
        return self.rows if plain else self.arrow_rows

    def _rest(self, position: int, batch: Batch) -> Batch:
        # Pieces of the first batch may be on their way already.
        if position or not self._begun:
            return batch
        return batch.piece(self._begun, len(batch))

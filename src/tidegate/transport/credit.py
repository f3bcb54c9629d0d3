"""Credit: a sender may have only so many batches on the way, channel by channel.

Without IO. A batch costs one credit, a mark costs none but keeps its place behind the batches
before it. The reader gives a credit back for each batch that it has taken out of its queue.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidegate.model.elements import ArrowBatch, Barrier, Batch, Element, RowBatch

if TYPE_CHECKING:
    from tidegate.model.ids import CheckpointId


class CreditedSender:
    """The sending end of one channel: what may go now, and what waits for credit.

    credit: batches that the reader takes before it has granted anything.
    """

    __slots__ = ("_credit", "_waiting")

    def __init__(self, credit: int) -> None:
        assert credit > 0, "a channel without credit never moves"
        self._credit = credit
        self._waiting: deque[Element] = deque()

    @property
    def has_room(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    @property
    def waiting(self) -> int:
        """Elements that wait for credit."""
        return len(self._waiting)

    def batches_waiting(self) -> list[Batch]:
        """The batches that wait for credit, in order; they go on waiting."""
        return [each for each in self._waiting if isinstance(each, RowBatch | ArrowBatch)]

    def holds(self, checkpoint: CheckpointId) -> bool:
        """Whether a checkpoint's barrier waits."""
        return any(
            isinstance(each, Barrier) and each.checkpoint == checkpoint for each in self._waiting
        )

    def take_barrier(self, checkpoint: CheckpointId) -> tuple[Barrier | None, list[Batch]]:
        """Take a checkpoint's barrier out of what waits, and say which batches it overtakes."""
        overtaken: list[Batch] = []
        for position, each in enumerate(self._waiting):
            if isinstance(each, RowBatch | ArrowBatch):
                overtaken.append(each)
            elif isinstance(each, Barrier) and each.checkpoint == checkpoint:
                del self._waiting[position]
                return each, overtaken
        return None, []

    def offer(self, element: Element) -> bool:
        """Whether the element may go at once; else it is kept until ``grant`` returns it."""
        if self._waiting:
            self._waiting.append(element)
            return False
        if isinstance(element, RowBatch | ArrowBatch):
            if self._credit == 0:
                self._waiting.append(element)
                return False
            self._credit -= 1
        return True

    def grant(self, credit: int) -> list[Element]:
        """More credit has come; the elements that may go now, in order."""
        self._credit += credit
        going: list[Element] = []
        while self._waiting:
            if isinstance(self._waiting[0], RowBatch | ArrowBatch):
                if self._credit == 0:
                    break
                self._credit -= 1
            going.append(self._waiting.popleft())
        return going

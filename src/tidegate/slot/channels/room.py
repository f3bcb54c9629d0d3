"""Room of one subtask's outputs: if they take more, and how much at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.pieces import Portion

if TYPE_CHECKING:
    from tidegate.clock import Clock
    from tidegate.model.ids import ChannelId


class Room:
    """Knows if the outputs of a subtask take more.

    waiting: its channels that wait for credit. overdraft: what is under way may go on all the
    same, so that the subtask comes to a point where it can be cut. clock: measures how long
    channels wait; None if nobody asks.
    """

    __slots__ = ("_clock", "_portions", "_since_s", "_waited_s", "overdraft", "waiting")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._portions: list[Portion] = []
        self._waited_s = self._since_s = 0.0
        self.waiting = 0
        self.overdraft = False

    @property
    def is_free(self) -> bool:
        return self.waiting == 0 or self.overdraft

    @property
    def waited_s(self) -> float:
        """How long at least one channel has waited for credit, in all."""
        now_s = self._now_s()
        return self._waited_s + (now_s - self._since_s if self.waiting else 0.0)

    def portion(self) -> Portion:
        """A new learner of how many rows to give at once to the channels of the subtask."""
        portion = Portion()
        self._portions.append(portion)
        return portion

    def crowded(self, channel: ChannelId, batches: float) -> None:
        """More batches have to wait in a channel."""
        for portion in self._portions:
            portion.crowded(channel, batches)

    def begin_wait(self) -> None:
        if not self.waiting:
            self._since_s = self._now_s()
        self.waiting += 1

    def end_wait(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self._waited_s += self._now_s() - self._since_s

    def _now_s(self) -> float:
        return 0.0 if self._clock is None else self._clock.precise_s()

"""How long a turn of a subtask lasts: one call, or a few milliseconds of short ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tidegate.api.pieces import TURN_S

if TYPE_CHECKING:
    from tidegate.clock import Clock

LONG_TURN_S: Final = 2 * TURN_S
"""Beside a turn that is longer, the cost of sending its results at once cannot be seen."""

CALL_FADES: Final = 0.9
"""With each shorter turn, the known duration of a call shrinks to this share of it."""


class Turn:
    """The turn that a subtask has; its operators begin nothing more once it is over.

    It is never over where nobody has begun one. call_s: how long a call takes, going by turns.
    """

    __slots__ = ("_until_s", "call_s", "now_s")

    def __init__(self, clock: Clock) -> None:
        self.now_s = clock.precise_s
        self._until_s = math.inf
        self.call_s = 0.0

    def begin(self) -> None:
        self._until_s = self.now_s() + TURN_S

    def lasted(self, seconds: float) -> None:
        """Learns the duration of a turn that was not for a checkpoint alone."""
        # One without a call does not tell that calls are short now.
        self.call_s = max(seconds, self.call_s * CALL_FADES)

    @property
    def over(self) -> bool:
        """True if the rest is left to the next turn."""
        return self.now_s() >= self._until_s

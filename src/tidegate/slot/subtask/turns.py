"""The turns of one subtask: one call each, or a few milliseconds of short ones."""

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


class Turns:
    """Knows if the present turn is over: then operators begin nothing more.

    It is never over where nobody has begun one. call_s: how long a call takes, going by turns.
    busy_s: how long all took that have ended.
    """

    __slots__ = ("_began_s", "_until_s", "_within_s", "busy_s", "call_s", "now_s")

    def __init__(self, clock: Clock) -> None:
        self.now_s = clock.precise_s
        self._began_s, self._until_s = 0.0, math.inf
        self._within_s: float | None = None
        self.busy_s = self.call_s = 0.0

    def begin(self) -> float:
        """A turn begins; the result is when, in seconds."""
        began_s = self._began_s = self._within_s = self.now_s()
        self._until_s = began_s + TURN_S
        return began_s

    @property
    def over(self) -> bool:
        """True if the rest is left to the next turn."""
        return self.now_s() >= self._until_s

    @property
    def is_long(self) -> bool:
        return self.now_s() - self._began_s > LONG_TURN_S

    @property
    def worked_s(self) -> float:
        """``busy_s`` with the present turn, as far as it has come. For any thread."""
        within_s = self._within_s
        return self.busy_s + (0.0 if within_s is None else self.now_s() - within_s)

    def end(self, *, is_urgent: bool) -> float:
        """A turn has ended; the result is when. is_urgent: it was for a checkpoint alone."""
        ended_s = self.now_s()
        took_s = ended_s - self._began_s
        self._within_s = None
        self.busy_s += took_s
        if not is_urgent:
            # One without a call does not tell that calls are short now.
            self.call_s = max(took_s, self.call_s * CALL_FADES)
        return ended_s

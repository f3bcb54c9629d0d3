"""The turns of one subtask: who has asked for one, and how long they took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.slot.subtask.pace import LONG_TURN_S

if TYPE_CHECKING:
    from tidegate.clock import Clock
    from tidegate.model.settings import SlotSettings
    from tidegate.slot.channels.debloat import Debloater
    from tidegate.slot.subtask.chain import Chain
    from tidegate.slot.subtask.pace import Turn


class Turns:
    """The turns of one subtask: who has asked for one, and how long they took.

    pace: what operators see of the present turn. debloater: None if nothing is debloated.
    """

    def __init__(
        self,
        pace: Turn,
        chain: Chain,
        clock: Clock,
        settings: SlotSettings,
        debloater: Debloater | None,
    ) -> None:
        self.pace = pace
        self.busy_s = 0.0
        self.woken = self.front_woken = False
        self.debloater = debloater
        self._chain = chain
        self._clock = clock
        self._sends_early = settings.buffer_timeout_ms >= 0

    def tell_ready(self) -> None:
        """Tell the operators that they are woken, as far as they are not at work."""
        self.woken = False
        self.front_woken = not self._chain.ready()

    def begin(self) -> float:
        """A turn begins; the result is when, in seconds."""
        began_s = self._clock.precise_s()
        self.pace.begin()
        return began_s

    def is_long(self, began_s: float) -> bool:
        """True if what the turn has made leaves at once: to send it costs nothing beside it."""
        return self._sends_early and self._clock.precise_s() - began_s > LONG_TURN_S

    def over(self, began_s: float, *, idle: bool, is_urgent: bool) -> None:
        """A turn is over. idle: nothing is left to do. is_urgent: it was for a checkpoint alone."""
        ended_s = self._clock.precise_s()
        self.busy_s += ended_s - began_s
        if not is_urgent:
            self.pace.lasted(ended_s - began_s)
        if self.debloater is not None:
            self.debloater.turned(began_s, ended_s, idle=idle)

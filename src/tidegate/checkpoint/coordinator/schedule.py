"""When the next periodic checkpoint is due.

Source: checkpoint coordination §2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.model.chance import Chance
    from tidegate.model.ids import OperatorId
    from tidegate.model.settings import CheckpointSettings


class Schedule:
    """A fixed rate: what is late does not move what follows.

    A due time that passed long ago counts once: after a pause of the whole process there is no
    volley of checkpoints.
    """

    def __init__(self, settings: CheckpointSettings, chance: Chance) -> None:
        self._settings = settings
        self._chance = chance
        self._started_before = False
        self._backlog: dict[OperatorId, bool] = {}
        self.running = False
        self.next_ms: int | None = None

    @property
    def backlog(self) -> tuple[OperatorId, ...]:
        """Sources that have a backlog."""
        return tuple(sorted(source for source, backlog in self._backlog.items() if backlog))

    @property
    def interval_ms(self) -> int | None:
        """Current time between two triggers; None if nothing is triggered."""
        during_backlog_ms = self._settings.interval_during_backlog_ms
        if during_backlog_ms is None or not any(self._backlog.values()):
            return self._settings.interval_ms
        return during_backlog_ms or None

    def start(self, now_ms: int) -> None:
        """Every subtask runs. The first delay is drawn, so that jobs spread in time.

        It is a short one where sources wait for the first checkpoint.
        """
        assert not self.running, "the schedule is running already"
        self.running = True
        interval_ms = self._settings.interval_ms
        if interval_ms is None:
            return
        delay_ms = self._settings.min_pause_ms
        if not self._started_before:
            latest_ms = 2 * delay_ms if self._settings.pause_sources else interval_ms
            delay_ms = self._chance.uniform_ms(delay_ms, max(delay_ms, latest_ms))
        self._started_before = True
        self.next_ms = now_ms + delay_ms

    def stop(self) -> None:
        """Nothing is due until the next start."""
        self.running = False
        self.next_ms = None

    def due(self, now_ms: int) -> bool:
        """True if a checkpoint is due; then the next one is scheduled."""
        due_ms = self.next_ms
        if due_ms is None or due_ms > now_ms:
            return False
        interval_ms = self.interval_ms
        if interval_ms is None:
            self.next_ms = None
            return False
        self.next_ms = due_ms + interval_ms * ((now_ms - due_ms) // interval_ms + 1)
        assert now_ms < self.next_ms <= now_ms + interval_ms, "the cadence is kept"
        return True

    def postpone(self, next_ms: int) -> None:
        """Set the next time; the cadence goes on from there."""
        if self.running:
            self.next_ms = next_ms

    def report_backlog(self, operator: OperatorId, backlog: bool, now_ms: int) -> None:
        """A source has begun, or ended, to catch up; only what is due later is brought forward."""
        self._backlog[operator] = backlog
        interval_ms = self.interval_ms
        if not self.running or interval_ms is None:
            return
        if self.next_ms is None or now_ms + interval_ms < self.next_ms:
            self.next_ms = now_ms + interval_ms

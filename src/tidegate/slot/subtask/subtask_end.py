"""When a subtask may end: what has to come before it, and how much of that has.

Two ways lead there. Its input ends: then its operators finish, and what they made has to be in a
completed checkpoint. Or a savepoint stops the job: then nothing enters the operators behind their
snapshot, what they have under way and their timers are left to whoever restores the savepoint, and
only the completion of that savepoint lets the subtask go. If the job drains, both happen.

Either way the producers have ended before: a snapshot in which a subtask is finished and they are
not could not be restored.

Source: checkpoint coordination §9.4, §16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidegate.model.elements import Barrier
    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.model.settings import CheckpointSettings


class SubtaskEnd:
    """Knows what one subtask still waits for. restored: the checkpoint that it starts from."""

    def __init__(
        self,
        channels: Collection[ChannelId],
        settings: CheckpointSettings,
        restored: CheckpointId | None,
    ) -> None:
        self.data_ended = False
        self.stop: CheckpointId | None = None
        self.stopped = False
        self._with_data = set(channels)
        self._open = set(channels)
        self._awaits_final = settings.periodic and settings.after_tasks_finish
        self._final_from: CheckpointId | None = None
        self._completed = restored

    def data_ended_on(self, channel: ChannelId) -> bool:
        self._with_data.discard(channel)
        return not self._with_data

    def channel_ended(self, channel: ChannelId) -> None:
        self._open.discard(channel)

    def stop_at(self, barrier: Barrier) -> None:
        """The barrier has come on each channel; its savepoint may stop the job."""
        if barrier.options.kind.is_synchronous:
            self.stop = barrier.checkpoint

    def cut(self, checkpoint: CheckpointId, *, operators_finished: bool) -> None:
        """The snapshot has been taken. operators_finished: with nothing more to come."""
        self.stopped = self.stop == checkpoint
        if operators_finished and self._final_from is None:
            self._final_from = checkpoint

    def given_up(self, checkpoint: CheckpointId) -> None:
        """A checkpoint was given up. Raises CheckpointAborted if the job was to stop with it."""
        if checkpoint == self.stop:
            raise FailureReason.TASK_CHECKPOINT_FAILURE.aborted(
                "Stop-with-savepoint failed: the savepoint was given up, and the subtask has "
                "stopped for it already",
                where=f"checkpoint {checkpoint}",
                remedy="Find out why the savepoint was aborted. The job resumes from its newest "
                "checkpoint, if it may restart.",
            )

    def completed(self, checkpoint: CheckpointId) -> bool:
        if self._completed is not None and checkpoint <= self._completed:
            return False
        self._completed = checkpoint
        return True

    @property
    def may_come(self) -> bool:
        """True if nothing has to come before the end any more."""
        if self._open:
            return False
        if self.stop is not None:
            return self.stopped and self._has_completed(self.stop)
        if not self._awaits_final:
            return self.data_ended
        return (
            self.data_ended
            and self._final_from is not None
            and self._has_completed(self._final_from)
        )

    def _has_completed(self, checkpoint: CheckpointId) -> bool:
        return self._completed is not None and self._completed >= checkpoint

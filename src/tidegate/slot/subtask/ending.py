"""The end of a subtask: its operators finish, then it waits for its time, then all has to leave.

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

from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    EndOfData,
    EndOfPartition,
    SnapshotKind,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tidegate.model.deployment import Deployment
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.model.settings import CheckpointSettings
    from tidegate.slot.channels.gate import Gate
    from tidegate.slot.channels.output import Outputs
    from tidegate.slot.subtask.chain import Chain


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


class Ending:
    """Brings one subtask to its end.

    operators_finished: nothing enters them any more, and nothing comes of them. released: nothing
    has to come before the end any more but what waits for credit. when: what has to. goes_on:
    another job goes on behind the input, so that its end ends nothing; has_come: it has come.
    """

    def __init__(self, deployment: Deployment, chain: Chain, gate: Gate, outputs: Outputs) -> None:
        deploy = deployment.deploy
        self.operators_finished = self._finished_on_restore = deploy.finished
        self.released = self.goes_on = self.has_come = False
        self._chain = chain
        self._outputs = outputs
        self._is_source = not gate.channels
        self.when = SubtaskEnd(gate.channels, deployment.settings.checkpoints, deploy.restored)
        self._finishing: Iterator[None] | None = None
        self._drains = False

    # --- the operators ---

    def data_ended_on(self, channel: ChannelId) -> None:
        if self.when.data_ended_on(channel):
            self.end_data()

    def end_data(self) -> None:
        """All input has come: end event time, finish the operators, say so downstream."""
        self.has_come = True
        if self.goes_on:
            return
        if self._is_source:
            # Event time ends, also for readers that have passed over an idle source so far.
            self._chain.head.out.emit_watermark(WatermarkStatus(idle=False))
            self._chain.head.out.emit_watermark(Watermark(MAX_WATERMARK_MS))
        self._finishing = iter(()) if self._finished_on_restore else self._chain.finish()
        self.go_on()

    @property
    def has_begun(self) -> bool:
        return self._finishing is not None

    @property
    def can_go_on(self) -> bool:
        return self._finishing is not None and (self._chain.finishing or self._chain.drained)

    def go_on(self) -> None:
        assert self._finishing is not None, "the end has begun"
        for _ in self._finishing:
            return
        self._finishing = None
        self.operators_finished = self.when.data_ended = True
        self._outputs.mark(EndOfData())

    # --- beside checkpoints ---

    @property
    def comes_first(self) -> bool:
        """True if the end comes before a snapshot; not while it waits for calls."""
        return self._finishing is not None and (self._drains or self._chain.finishing)

    def stop_at(self, barrier: Barrier) -> None:
        """A savepoint that stops the job, and drains it, ends the data of its sources."""
        self.when.stop_at(barrier)
        self._drains = barrier.options.kind is SnapshotKind.TERMINATE
        if (
            self._drains
            and self._is_source
            and not self.operators_finished
            and self._finishing is None
        ):
            self.end_data()

    def cut(self, checkpoint: CheckpointId) -> None:
        self.when.cut(checkpoint, operators_finished=self.operators_finished)

    # --- the end itself ---

    @property
    def may_come(self) -> bool:
        """True if nothing has to come before it any more, and it has not come."""
        return not self.released and self.when.may_come

    def release(self) -> None:
        """Say downstream that nothing follows."""
        assert not self.released, "a subtask ends once"
        self.released = True
        self._outputs.mark(EndOfPartition())

    @property
    def can_leave(self) -> bool:
        """True once the last element has left: what waits for credit would be lost."""
        return self.released and self._outputs.has_sent

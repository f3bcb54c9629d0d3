"""The end of a subtask: its operators finish, then it waits for its time, then all has to leave."""

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
from tidegate.slot.subtask.subtask_end import SubtaskEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.model.elements import Barrier
    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.slot.channels.gate import Gate
    from tidegate.slot.channels.output import Outputs
    from tidegate.slot.subtask.chain import Chain
    from tidegate.slot.subtask.deployment import Deployment


class Ending:
    """Brings one subtask to its end.

    operators_finished: nothing enters them any more, and nothing comes of them. released: nothing
    has to come before the end any more but what waits for credit. when: what has to.
    """

    def __init__(self, deployment: Deployment, chain: Chain, gate: Gate, outputs: Outputs) -> None:
        deploy = deployment.deploy
        self.operators_finished = self._finished_on_restore = deploy.finished
        self.released = False
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

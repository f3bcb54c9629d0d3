"""Barrier handling of one subtask: which channels wait, and when it takes its snapshot.

A barrier cuts each channel in two. A subtask's snapshot has to hold the effect of everything
before the cut, and, for exactly-once, of nothing behind it; so a channel that has delivered its
barrier is not read until all have. What is held back stays with its sender, for no credit is
granted: nothing is buffered here.

Rules that keep a subtask from waiting for ever:

- Only the newest checkpoint counts. A barrier with a higher id gives up the older one: its
  barrier will not come any more on that channel, which delivers in order.
- A channel that has ended counts as having delivered every barrier.
- A subtask that gives a checkpoint up says so downstream (`Cancel`).

Source: checkpoint coordination §13.1, §13.5, §14.1, §14.2. One thing differs from Flink. A trigger
from the driver, which reaches a subtask whose producers have all finished, is not put into the
channels that are still open: the snapshot waits for their ends, so that what is still on its way
from a finished producer is never lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidegate.checkpoint.barriers.protocol import (
    AbortedByDriver,
    BarrierAnnounced,
    BarrierArrived,
    Block,
    Cancel,
    CancelArrived,
    ChannelEnded,
    Decline,
    EndAnnounced,
    GivenUpAhead,
    Snapshot,
    TimeReached,
    TriggeredByDriver,
    Unblock,
)
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidegate.checkpoint.barriers.protocol import BarrierCommand, BarrierEvent
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import ChannelId, CheckpointId


class AlignedBarriers:
    """Holds back channels until the barrier of one checkpoint has come on each."""

    def __init__(self, channels: Collection[ChannelId], *, after_tasks_finish: bool = True) -> None:
        self._after_tasks_finish = after_tasks_finish
        self._open = dict.fromkeys(channels)
        self._blocked: dict[ChannelId, None] = {}
        self._newest = 0
        self._pending: Barrier | None = None
        self._started_ms = 0
        self._aborted = GivenUpAhead()

    @property
    def wake_at_ms(self) -> int | None:
        """Never: a barrier is awaited as long as the driver waits."""
        return None

    @property
    def aligning(self) -> CheckpointId | None:
        """Checkpoint whose barriers have come in part; None if there is none."""
        return None if self._pending is None else self._pending.checkpoint

    def handle(self, event: BarrierEvent, now_ms: int) -> list[BarrierCommand]:
        match event:
            case BarrierArrived(channel, barrier):
                return self._barrier_arrived(channel, barrier, now_ms)
            case CancelArrived(channel, checkpoint):
                return self._cancel_arrived(channel, checkpoint)
            case ChannelEnded(channel):
                return self._channel_ended(channel, now_ms)
            case TriggeredByDriver(barrier):
                return self._begin(barrier, now_ms) + self._complete_if_all(now_ms)
            case AbortedByDriver(checkpoint):
                return self._aborted_by_driver(checkpoint)
            case BarrierAnnounced() | EndAnnounced() | TimeReached():
                return []
            case _:
                assert_never(event)

    def _barrier_arrived(
        self, channel: ChannelId, barrier: Barrier, now_ms: int
    ) -> list[BarrierCommand]:
        assert channel in self._open, f"a barrier came on {channel}, which is not open"
        assert channel not in self._blocked, f"{channel} was read while it was blocked"
        commands = self._begin(barrier, now_ms)
        if self.aligning != barrier.checkpoint:
            return commands  # obsolete: completed, given up, or older than what is under way
        self._blocked[channel] = None
        commands.append(Block(channel))
        return commands + self._complete_if_all(now_ms)

    def _begin(self, barrier: Barrier, now_ms: int) -> list[BarrierCommand]:
        """Aborts older ones; makes this the pending checkpoint unless it is obsolete."""
        if barrier.checkpoint <= self._newest:
            return []
        commands = self._give_up_older(barrier.checkpoint)
        if barrier.checkpoint in self._aborted:
            return [*commands, *self._pass_over(barrier.checkpoint), Cancel(barrier.checkpoint)]
        self._pass_over(barrier.checkpoint)
        assert not self._blocked, "no channel waits for what is older"
        self._pending = barrier
        self._started_ms = now_ms
        return commands

    def _give_up_older(self, checkpoint: CheckpointId) -> list[BarrierCommand]:
        older = self.aligning
        if older is None or older >= checkpoint:
            return []
        return [
            *self._release(),
            Decline(older, FailureReason.CHECKPOINT_DECLINED_SUBSUMED),
            Cancel(older),
        ]

    def _cancel_arrived(self, channel: ChannelId, checkpoint: CheckpointId) -> list[BarrierCommand]:
        assert channel in self._open, f"a cancel barrier came on {channel}, which is not open"
        if checkpoint < self._newest or (checkpoint == self._newest and self._pending is None):
            return []
        return [
            *self._give_up_older(checkpoint),
            *self._pass_over(checkpoint),
            Decline(checkpoint, FailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER),
            Cancel(checkpoint),
        ]

    def _channel_ended(self, channel: ChannelId, now_ms: int) -> list[BarrierCommand]:
        assert channel in self._open, f"{channel} has ended twice"
        assert channel not in self._blocked, f"{channel} was read while it was blocked"
        del self._open[channel]
        pending = self.aligning
        if pending is not None and not self._after_tasks_finish:
            return [
                *self._release(),
                Decline(pending, FailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM),
                Cancel(pending),
            ]
        return self._complete_if_all(now_ms)

    def _aborted_by_driver(self, checkpoint: CheckpointId) -> list[BarrierCommand]:
        if self.aligning == checkpoint:
            return [*self._release(), Cancel(checkpoint)]
        if checkpoint > self._newest:
            # An older checkpoint may still be aligning and must not suffer for a newer one.
            self._aborted.add(checkpoint)
        return []

    def _complete_if_all(self, now_ms: int) -> list[BarrierCommand]:
        if self._pending is None or len(self._blocked) < len(self._open):
            return []
        assert self._pending.checkpoint == self._newest, "only the newest counts"
        assert self._blocked.keys() == self._open.keys(), "a barrier on each open channel"
        # The snapshot comes first: a channel that is read again brings what lies behind the cut.
        snapshot = Snapshot(self._pending, now_ms - self._started_ms)
        return [snapshot, *self._release()]

    def _pass_over(self, checkpoint: CheckpointId) -> list[BarrierCommand]:
        """Ignores everything up to this checkpoint."""
        assert checkpoint >= self._newest, "what is obsolete stays so"
        self._newest = checkpoint
        self._aborted.forget(checkpoint)
        return self._release()

    def _release(self) -> list[BarrierCommand]:
        blocked = tuple(self._blocked)
        self._blocked.clear()
        self._pending = None
        return [Unblock(blocked)] if blocked else []

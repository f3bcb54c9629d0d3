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

Where nothing need align, barriers may overtake the data in front of them (`AlternatingBarriers`).
A checkpoint starts unaligned, or turns so when its time to align is over. Then the subtask takes
its snapshot at once, and what its barriers have overtaken belongs to the checkpoint as well: data
that waits in an input channel or still comes there before the barrier (`Persist`), and data that
waits to leave, which is the outputs' part. A barrier counts as delivered when it has come into the
channel's queue, and so does a channel's end; neither waits to be read.

A checkpoint on an edge on which nothing may be overtaken (`FORCED_ALIGNED`) is aligned here, and
gets its own kind back for the subtask's outputs.

Source: checkpoint coordination §14.1, §14.3. Two things differ from Flink. Channels are read again
as soon as the snapshot is cut, not only when the last barrier has come: what lies behind the cut
may be processed. And a checkpoint that is announced turns unaligned when its time is over, though
none of its barriers has come yet: the cut may lie anywhere in front of them.
"""

from __future__ import annotations

from dataclasses import replace
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
    FinishPersisting,
    GivenUpAhead,
    GiveUp,
    Persist,
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


class AlternatingBarriers(AlignedBarriers):
    """Aligns where a barrier asks for it and its time lasts; else lets barriers overtake."""

    def __init__(self, channels: Collection[ChannelId], *, after_tasks_finish: bool = True) -> None:
        super().__init__(channels, after_tasks_finish=after_tasks_finish)
        self._unaligned = False
        self._timeout_at_ms: int | None = None
        self._delivered: dict[ChannelId, None] = {}
        self._ending: dict[ChannelId, None] = {}

    @property
    def wake_at_ms(self) -> int | None:
        """Time at which the pending checkpoint turns unaligned; None if it does not."""
        return self._timeout_at_ms

    def handle(self, event: BarrierEvent, now_ms: int) -> list[BarrierCommand]:
        match event:
            case BarrierAnnounced():
                return self._announced(event, now_ms)
            case EndAnnounced(channel):
                self._ending[channel] = None
                return self._finish_if_all(now_ms)
            case TriggeredByDriver(barrier, age_ms):
                return self._begin(barrier, now_ms, age_ms) + self._complete_if_all(now_ms)
            case TimeReached():
                due = self._timeout_at_ms is not None and now_ms >= self._timeout_at_ms
                return self._turn_unaligned(now_ms) if due else []
            case _:
                return super().handle(event, now_ms)

    def _announced(self, event: BarrierAnnounced, now_ms: int) -> list[BarrierCommand]:
        barrier = event.barrier
        if not (barrier.options.is_unaligned or barrier.options.is_timeoutable):
            return []
        commands = self._begin(barrier, now_ms, event.age_ms)
        if self.aligning != barrier.checkpoint:
            return commands  # obsolete
        if event.queued:
            self._delivered[event.channel] = None
        if barrier.options.is_unaligned and not self._unaligned:
            return commands + self._turn_unaligned(now_ms)
        return commands + self._finish_if_all(now_ms)

    def _begin(self, barrier: Barrier, now_ms: int, age_ms: int = 0) -> list[BarrierCommand]:
        newest = self._newest
        commands = super()._begin(barrier, now_ms)
        if self.aligning == barrier.checkpoint > newest:
            self._delivered.clear()
            timeout_ms = barrier.options.aligned_timeout_ms
            if barrier.options.is_timeoutable and timeout_ms is not None and self._open:
                self._timeout_at_ms = now_ms + max(0, timeout_ms - age_ms)
        return commands

    def _barrier_arrived(
        self, channel: ChannelId, barrier: Barrier, now_ms: int
    ) -> list[BarrierCommand]:
        if self._unaligned and self.aligning == barrier.checkpoint:
            return []  # it counted when it came into the queue
        return super()._barrier_arrived(channel, barrier, now_ms)

    def _channel_ended(self, channel: ChannelId, now_ms: int) -> list[BarrierCommand]:
        self._ending.pop(channel, None)
        self._delivered.pop(channel, None)
        return super()._channel_ended(channel, now_ms)

    def _complete_if_all(self, now_ms: int) -> list[BarrierCommand]:
        if self._unaligned:
            return self._finish_if_all(now_ms)
        if self._pending is not None and self._pending.options.is_unaligned:
            return self._turn_unaligned(now_ms)
        commands: list[BarrierCommand] = []
        for command in super()._complete_if_all(now_ms):
            if isinstance(command, Snapshot):
                commands += self._unforced(command)
            else:
                commands.append(command)
        return commands

    def _unforced(self, snapshot: Snapshot) -> list[BarrierCommand]:
        """Options of an aligned cut, for whose outputs the barrier may be unaligned again."""
        barrier = snapshot.barrier.under(snapshot.barrier.options.unforced())
        commands: list[BarrierCommand] = [replace(snapshot, barrier=barrier)]
        if barrier.options.is_unaligned:
            commands.append(FinishPersisting(barrier.checkpoint, snapshot.alignment_ms))
        return commands

    def _turn_unaligned(self, now_ms: int) -> list[BarrierCommand]:
        """Take the snapshot now, and have the data in front of the barriers persisted."""
        assert self._pending is not None, "a checkpoint is under way"
        assert not self._unaligned, "a subtask cuts once"
        self._unaligned = True
        self._timeout_at_ms = None
        barrier = self._pending.under(self._pending.options.turned_unaligned())
        read = tuple(self._blocked)  # their barriers have been read: nothing is overtaken there
        self._blocked.clear()
        self._delivered.update(dict.fromkeys(read))
        overtaken = tuple(channel for channel in self._open if channel not in read)
        commands: list[BarrierCommand] = [Snapshot(barrier, now_ms - self._started_ms)]
        if overtaken:
            commands.append(Persist(barrier.checkpoint, overtaken))
        if read:
            commands.append(Unblock(read))
        return commands + self._finish_if_all(now_ms)

    def _finish_if_all(self, now_ms: int) -> list[BarrierCommand]:
        pending = self.aligning
        if pending is None or not self._unaligned:
            return []
        assert self._timeout_at_ms is None and not self._blocked, "nothing is aligned any more"
        ended = self._ending if self._after_tasks_finish else ()
        if any(channel not in self._delivered and channel not in ended for channel in self._open):
            return []
        self._unaligned = False
        self._pending = None
        return [FinishPersisting(pending, now_ms - self._started_ms)]

    def _release(self) -> list[BarrierCommand]:
        given_up = self.aligning if self._unaligned else None
        self._unaligned = False
        self._timeout_at_ms = None
        commands = super()._release()
        assert self._pending is None, "nothing is under way"
        return commands if given_up is None else [GiveUp(given_up), *commands]

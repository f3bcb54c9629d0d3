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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidegate.model.elements import Barrier
    from tidegate.model.ids import ChannelId


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """A barrier is the next element of this channel."""

    channel: ChannelId
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class BarrierAnnounced:
    """A barrier is coming on this channel, behind data that may take its time.

    queued: it has come, with what it is to overtake. age_ms: time since the trigger.
    """

    channel: ChannelId
    barrier: Barrier
    queued: bool
    age_ms: int


@dataclass(frozen=True, slots=True)
class EndAnnounced:
    """The end of the partition has come on this channel, behind data."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class CancelArrived:
    """A cancel barrier is the next element of this channel."""

    channel: ChannelId
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class ChannelEnded:
    """The end of the partition has come on this channel: nothing follows."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class TriggeredByDriver:
    """The driver asks for a checkpoint: of a source, or where all producers have finished.

    age_ms: time since the trigger.
    """

    barrier: Barrier
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class AbortedByDriver:
    """The driver has given this checkpoint up."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class TimeReached:
    """The clock has reached ``wake_at_ms``."""


BarrierEvent = (
    BarrierArrived
    | BarrierAnnounced
    | EndAnnounced
    | CancelArrived
    | ChannelEnded
    | TriggeredByDriver
    | AbortedByDriver
    | TimeReached
)


@dataclass(frozen=True, slots=True)
class Block:
    """Read no more from this channel; not even what has arrived already."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class Unblock:
    """Read these channels again, in the order in which they were blocked."""

    channels: tuple[ChannelId, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Broadcast the barrier and take the snapshot, before anything else is read.

    alignment_ms: time since the first barrier of this checkpoint came, so the start delay is
    wall clock now − alignment_ms − barrier.triggered_ms.
    """

    barrier: Barrier
    alignment_ms: int


@dataclass(frozen=True, slots=True)
class Persist:
    """Data that wait in these channels, or still come, also belong to the checkpoint.

    Up to the barrier of the checkpoint, or the channel's end, wherever in the queue that stands.
    """

    checkpoint: CheckpointId
    channels: tuple[ChannelId, ...]


@dataclass(frozen=True, slots=True)
class FinishPersisting:
    """The barrier has come on every channel: the checkpoint has all of its in-flight data."""

    checkpoint: CheckpointId
    alignment_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Drop what was cut and persisted for the checkpoint; it is given up."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class Decline:
    """Tell the driver that this subtask takes no part in the checkpoint."""

    checkpoint: CheckpointId
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class Cancel:
    """Broadcast a cancel barrier: this subtask's barrier will not come."""

    checkpoint: CheckpointId


BarrierCommand = Block | Unblock | Snapshot | Persist | FinishPersisting | GiveUp | Decline | Cancel


class BarrierHandler(Protocol):
    """Interface of barrier handling in a subtask, for all modes."""

    @property
    def wake_at_ms(self) -> int | None:
        """Time for the next `TimeReached`; None for never."""
        ...

    @property
    def aligning(self) -> CheckpointId | None:
        """Checkpoint whose barriers have come in part; None if there is none."""
        ...

    def handle(self, event: BarrierEvent, now_ms: int) -> list[BarrierCommand]:
        """Commands for an event, in order."""
        ...


ABORTED_MAX: Final = 64
"""Given-up checkpoints that a subtask remembers one by one while their barriers are to come."""


class GivenUpAhead:
    """Checkpoints that the driver gave up before any of their barriers came here.

    Of too many only the newest are remembered, and whatever is older counts as given up.
    """

    def __init__(self) -> None:
        self._ids: dict[CheckpointId, None] = {}
        self._all_up_to = CheckpointId(0)

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        return checkpoint <= self._all_up_to or checkpoint in self._ids

    def add(self, checkpoint: CheckpointId) -> None:
        self._ids[checkpoint] = None
        if len(self._ids) > ABORTED_MAX:
            self._all_up_to = max(self._all_up_to, min(self._ids))
            self.forget(self._all_up_to)

    def forget(self, checkpoint: CheckpointId) -> None:
        """No barrier up to this checkpoint's counts any more."""
        for older in [known for known in self._ids if known <= checkpoint]:
            del self._ids[older]


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
        # The snapshot comes first: a channel that is read again brings what lies behind the cut.
        snapshot = Snapshot(self._pending, now_ms - self._started_ms)
        return [snapshot, *self._release()]

    def _pass_over(self, checkpoint: CheckpointId) -> list[BarrierCommand]:
        """Ignores everything up to this checkpoint."""
        self._newest = checkpoint
        self._aborted.forget(checkpoint)
        return self._release()

    def _release(self) -> list[BarrierCommand]:
        blocked = tuple(self._blocked)
        self._blocked.clear()
        self._pending = None
        return [Unblock(blocked)] if blocked else []

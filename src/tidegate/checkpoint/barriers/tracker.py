"""Barrier handling that never holds a channel back: at least once.

The snapshot is taken when the last barrier has come; what fast channels brought behind theirs is
in it, and comes again after a restore. Several checkpoints may be counted at a time.

Source: checkpoint coordination §14.4. As in `checkpoint.barriers.exactly_once`, a trigger from the
driver waits for the channels that are still open to end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

from tidegate.checkpoint.barriers.protocol import (
    AbortedByDriver,
    BarrierAnnounced,
    BarrierArrived,
    Cancel,
    CancelArrived,
    ChannelEnded,
    Decline,
    EndAnnounced,
    GivenUpAhead,
    Snapshot,
    TimeReached,
    TriggeredByDriver,
)
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidegate.checkpoint.barriers.protocol import BarrierCommand, BarrierEvent
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import ChannelId, CheckpointId

COUNTED_MAX: Final = 50
"""Checkpoints that are counted at a time; one more, and the oldest is forgotten."""


@dataclass(slots=True)
class _Count:
    """One checkpoint. barrier: None if it was given up before its first barrier came."""

    barrier: Barrier | None
    since_ms: int
    given_up: bool = False
    delivered: set[ChannelId] = field(default_factory=set)


class BarrierTracker:
    """Counts the barriers of each checkpoint over the channels that are open."""

    def __init__(self, channels: Collection[ChannelId], *, after_tasks_finish: bool = True) -> None:
        self._after_tasks_finish = after_tasks_finish
        self._open = dict.fromkeys(channels)
        self._newest = 0
        self._counts: dict[CheckpointId, _Count] = {}  # in the order of their ids
        self._aborted = GivenUpAhead()

    @property
    def wake_at_ms(self) -> int | None:
        return None

    @property
    def aligning(self) -> CheckpointId | None:
        pending = [id_ for id_, count in self._counts.items() if not count.given_up]
        return pending[-1] if pending else None

    def handle(self, event: BarrierEvent, now_ms: int) -> list[BarrierCommand]:
        match event:
            case BarrierArrived(channel, barrier):
                assert channel in self._open, f"a barrier came on {channel}, which is not open"
                commands = self._begin(barrier, now_ms)
                return commands + self._delivered(channel, barrier.checkpoint, now_ms)
            case CancelArrived(channel, checkpoint):
                assert channel in self._open, f"a cancel barrier came on {channel}, not open"
                return self._cancel_arrived(channel, checkpoint, now_ms)
            case ChannelEnded(channel):
                assert channel in self._open, f"{channel} has ended twice"
                return self._channel_ended(channel, now_ms)
            case TriggeredByDriver(barrier):
                commands = self._begin(barrier, now_ms)
                return commands + self._newest_complete(now_ms)
            case AbortedByDriver(checkpoint):
                return self._aborted_by_driver(checkpoint)
            case BarrierAnnounced() | EndAnnounced() | TimeReached():
                return []
            case _:
                assert_never(event)

    def _begin(self, barrier: Barrier, now_ms: int) -> list[BarrierCommand]:
        """Count a checkpoint from now on, unless it is obsolete or is counted already."""
        if barrier.checkpoint <= self._newest:
            return []
        aborted = barrier.checkpoint in self._aborted
        self._count(barrier.checkpoint, _Count(barrier, now_ms, given_up=aborted))
        return [Cancel(barrier.checkpoint)] if aborted else []

    def _count(self, checkpoint: CheckpointId, count: _Count) -> None:
        assert checkpoint > self._newest, "ids rise, so the counts stay in their order"
        self._newest = checkpoint
        self._aborted.forget(checkpoint)
        self._counts[checkpoint] = count
        if len(self._counts) > COUNTED_MAX:
            del self._counts[min(self._counts)]
        assert len(self._counts) <= COUNTED_MAX, "what is counted has a bound"

    def _delivered(
        self, channel: ChannelId, checkpoint: CheckpointId, now_ms: int
    ) -> list[BarrierCommand]:
        count = self._counts.get(checkpoint)
        if count is None:
            return []
        count.delivered.add(channel)
        return self._complete(checkpoint, now_ms) if self._is_complete(count) else []

    def _is_complete(self, count: _Count) -> bool:
        return self._open.keys() <= count.delivered

    def _complete(self, checkpoint: CheckpointId, now_ms: int) -> list[BarrierCommand]:
        """Its last barrier has come; older checkpoints can't complete any more."""
        count = self._counts[checkpoint]
        assert self._is_complete(count), "a channel has still to deliver"
        self._counts = {id_: each for id_, each in self._counts.items() if id_ > checkpoint}
        if count.given_up or count.barrier is None:
            return []
        return [Snapshot(count.barrier, now_ms - count.since_ms)]

    def _newest_complete(self, now_ms: int) -> list[BarrierCommand]:
        """The newest that waits for nothing any more, of those that are not given up."""
        full = [id_ for id_, count in self._counts.items() if self._is_complete(count)]
        wanted = [id_ for id_ in full if not self._counts[id_].given_up]
        if wanted:
            return self._complete(wanted[-1], now_ms)
        for checkpoint in full:
            del self._counts[checkpoint]
        return []

    def _cancel_arrived(
        self, channel: ChannelId, checkpoint: CheckpointId, now_ms: int
    ) -> list[BarrierCommand]:
        commands: list[BarrierCommand] = []
        for older in [id_ for id_ in self._counts if id_ < checkpoint]:
            commands += self._give_up(older, FailureReason.CHECKPOINT_DECLINED_SUBSUMED)
            del self._counts[older]
        if checkpoint > self._newest:
            self._count(checkpoint, _Count(None, now_ms))
        reason = FailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
        commands += self._give_up(checkpoint, reason)
        return commands + self._delivered(channel, checkpoint, now_ms)

    def _channel_ended(self, channel: ChannelId, now_ms: int) -> list[BarrierCommand]:
        del self._open[channel]
        if self._after_tasks_finish:
            return self._newest_complete(now_ms)
        reason = FailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
        commands = [command for id_ in self._counts for command in self._give_up(id_, reason)]
        self._counts.clear()
        return commands

    def _give_up(self, checkpoint: CheckpointId, reason: FailureReason) -> list[BarrierCommand]:
        count = self._counts.get(checkpoint)
        if count is None or count.given_up:
            return []
        count.given_up = True
        return [Decline(checkpoint, reason), Cancel(checkpoint)]

    def _aborted_by_driver(self, checkpoint: CheckpointId) -> list[BarrierCommand]:
        count = self._counts.get(checkpoint)
        if count is not None and not count.given_up:
            count.given_up = True
            return [Cancel(checkpoint)]
        if checkpoint > self._newest:
            self._aborted.add(checkpoint)
        return []

"""Barrier handling that need not align: barriers may overtake the data in front of them.

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
from typing import TYPE_CHECKING

from tidegate.checkpoint.barriers.aligned import AlignedBarriers
from tidegate.checkpoint.barriers.protocol import (
    BarrierAnnounced,
    EndAnnounced,
    FinishPersisting,
    GiveUp,
    Persist,
    Snapshot,
    TimeReached,
    TriggeredByDriver,
    Unblock,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidegate.checkpoint.barriers.protocol import BarrierCommand, BarrierEvent
    from tidegate.model.elements import Barrier
    from tidegate.model.ids import ChannelId


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

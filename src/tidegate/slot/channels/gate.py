"""The inputs of a subtask: a queue for each channel, and event time over all of them.

Restored in-flight data are read before anything that comes.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    MIN_TIMESTAMP_MS,
    ArrowBatch,
    Barrier,
    Batch,
    CancelBarrier,
    Element,
    EndOfPartition,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.transport.debloat import Backlog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.slot.channels.ends import Producer

_NAMED_MAX: Final = 4
"""Channels that are named when they hold back event time."""


class InputChannel:
    """One channel's queue. producer: its sending end, which gets credit and the size of batches.

    surplus: credit that the sender has in use and is not given again.
    rows_came, bytes_came: of row batches that came over a link. rows_read, arrow_bytes_read: by
    the subtask, rows of row batches and the memory of Arrow batches.
    """

    __slots__ = (
        "arrow_bytes_read",
        "blocked",
        "bytes_came",
        "id",
        "listed",
        "port",
        "producer",
        "queue",
        "rows_came",
        "rows_read",
        "surplus",
        "taken",
    )

    def __init__(self, channel: ChannelId, port: int, producer: Producer) -> None:
        self.id = channel
        self.port = port
        self.producer = producer
        self.queue: deque[Element] = deque()
        self.taken = self.surplus = 0
        self.blocked = False
        self.listed = False
        self.rows_came = self.bytes_came = 0
        self.rows_read = self.arrow_bytes_read = 0

    def took_batch(self) -> None:
        """A batch has left the queue whole."""
        if self.surplus:
            self.surplus -= 1
        else:
            self.producer.grant()


class Reader(Protocol):
    """The subtask that reads a gate."""

    def ready(self) -> None: ...


class Gate:
    """The input channels of one subtask, read in turn.

    reader: asked for a turn when something has come to a gate that had nothing to read. heard:
    called with each element before it is queued; True keeps it from the queue. It is set to
    `InFlight.heard` where barriers may overtake.
    """

    def __init__(self, channels: Collection[InputChannel], reader: Reader) -> None:
        self._channels = {channel.id: channel for channel in channels}
        self._ready: deque[InputChannel] = deque()
        self._reader = reader
        self._restored: deque[tuple[InputChannel, Batch]] = deque()
        self._restored_taken = 0
        self.heard: Callable[[InputChannel, Element], bool] | None = None

    @property
    def readable(self) -> bool:
        """True if ``poll`` would find something."""
        ready = self._ready
        while ready and ready[0].blocked:
            ready.popleft().listed = False
        return bool(ready or self._restored)

    @property
    def channels(self) -> tuple[ChannelId, ...]:
        return tuple(self._channels)

    @property
    def inputs(self) -> tuple[InputChannel, ...]:
        return tuple(self._channels.values())

    @property
    def backlog(self) -> Backlog:
        rows = batches = channels = 0
        for channel in self._channels.values():
            waiting = [len(each) for each in channel.queue if isinstance(each, RowBatch)]
            if waiting:
                begun = channel.taken if isinstance(channel.queue[0], RowBatch) else 0
                rows += sum(waiting) - begun
                batches += len(waiting)
                channels += 1
        return Backlog(rows, batches, channels)

    def put(self, channel: InputChannel, element: Element) -> None:
        if self.heard is not None and self.heard(channel, element):
            return
        channel.queue.append(element)
        if not channel.listed and not channel.blocked:
            channel.listed = True
            self._ready.append(channel)
            self._reader.ready()

    def add_credit(self, batches: int) -> None:
        """Each sender may have so many more batches on the way from now on; less if negative."""
        for channel in self._channels.values():
            channel.surplus -= batches
            while channel.surplus < 0:
                channel.surplus += 1
                channel.producer.grant()

    def poll(self, rows_max: int) -> tuple[InputChannel, Element] | None:
        """The next element of a channel that may be read; of a longer batch a piece.

        rows_max: rows of a piece. What is left of a cut batch stays at the head of its queue, and
        the sender gets its credit with the last piece.
        """
        if not self.readable:
            return None
        if self._restored:
            return self._poll_restored(rows_max)
        channel = self._ready.popleft()
        queue = channel.queue
        element = queue[0]
        if isinstance(element, RowBatch | ArrowBatch):
            taken = channel.taken
            if len(element) - taken > rows_max:
                channel.taken = taken + rows_max
                self._ready.appendleft(channel)
                return channel, element.piece(taken, taken + rows_max)
            if taken:
                element = element.piece(taken, len(element))
                channel.taken = 0
        queue.popleft()
        if queue:
            self._ready.append(channel)
        else:
            channel.listed = False
        if isinstance(element, RowBatch | ArrowBatch):
            channel.took_batch()
        return channel, element

    def poll_barrier(self) -> tuple[InputChannel, Element] | None:
        """The next element of the first channel where that is a barrier, or takes one back."""
        if self._restored:
            return None
        for channel in self._ready:
            if not channel.blocked and isinstance(channel.queue[0], Barrier | CancelBarrier):
                self._ready.remove(channel)
                self._ready.appendleft(channel)
                return self.poll(1)
        return None

    def restore(self, data: Collection[tuple[ChannelId, Batch]]) -> None:
        """Add data that were in flight when the checkpoint was taken; they cost no credit."""
        self._restored.extend((self._channels[channel], batch) for channel, batch in data)

    @property
    def recovering(self) -> bool:
        return bool(self._restored)

    def _poll_restored(self, rows_max: int) -> tuple[InputChannel, Element]:
        channel, batch = self._restored[0]
        taken = self._restored_taken
        if len(batch) - taken > rows_max:
            self._restored_taken = taken + rows_max
            return channel, batch.piece(taken, taken + rows_max)
        self._restored.popleft()
        self._restored_taken = 0
        return channel, self._rest(batch, taken)

    def restored_in(self, channel: ChannelId) -> list[Batch]:
        return [
            self._rest(batch, 0 if position else self._restored_taken)
            for position, (each, batch) in enumerate(self._restored)
            if each.id == channel
        ]

    def queued_in(self, channel: ChannelId, checkpoint: CheckpointId) -> tuple[list[Batch], bool]:
        """Data in a channel's queue up to a checkpoint's barrier, or to the channel's end.

        And whether one of these is there; else more data may come before it.
        """
        found = self._channels[channel]
        batches: list[Batch] = []
        for element in found.queue:
            if isinstance(element, RowBatch | ArrowBatch):
                batches.append(element if batches else self._rest(element, found.taken))
            elif isinstance(element, EndOfPartition) or (
                isinstance(element, Barrier) and element.checkpoint == checkpoint
            ):
                return batches, True
        return batches, False

    @staticmethod
    def _rest(batch: Batch, taken: int) -> Batch:
        return batch.piece(taken, len(batch)) if taken else batch

    def block(self, channel: ChannelId) -> None:
        self._channels[channel].blocked = True

    def unblock(self, channels: Collection[ChannelId]) -> None:
        for each in channels:
            channel = self._channels[each]
            channel.blocked = False
            if channel.queue and not channel.listed:
                channel.listed = True
                self._ready.append(channel)
        if self._ready:
            self._reader.ready()


class WatermarkValve:
    """Event time over several channels: the least of those that are not idle.

    Source: Flink, StatusWatermarkValve. A channel that has become idle is passed over, one that is
    active again holds event time back only once it has caught up.
    """

    def __init__(self, channels: Collection[ChannelId]) -> None:
        self._watermarks = dict.fromkeys(channels, MIN_TIMESTAMP_MS)
        self._idle: set[ChannelId] = set()
        self._behind: set[ChannelId] = set()
        self._current = MIN_TIMESTAMP_MS
        self._said_idle = False

    @property
    def current_ms(self) -> int:
        return self._current

    @property
    def furthest_ms(self) -> int:
        """The event time of the input that has come furthest and has not ended."""
        going_on = (ms for ms in self._watermarks.values() if ms < MAX_WATERMARK_MS)
        return max(going_on, default=self._current)

    @property
    def held_by(self) -> tuple[ChannelId, ...]:
        """The first channels that others are ahead of; none where none is."""
        counted = [
            channel
            for channel in self._watermarks
            if channel not in self._idle and channel not in self._behind
        ]
        least = min((self._watermarks[channel] for channel in counted), default=self._current)
        if least >= self.furthest_ms:
            return ()
        held = (channel for channel in counted if self._watermarks[channel] == least)
        return tuple(islice(held, _NAMED_MAX))

    def watermark(self, channel: ChannelId, ms: int) -> Watermark | None:
        """A watermark has come; the new one over all channels, where that has advanced."""
        if channel in self._idle or ms <= self._watermarks[channel]:
            return None
        self._watermarks[channel] = ms
        if channel in self._behind and ms >= self._current:
            self._behind.discard(channel)
        return self._advance()

    def status(self, channel: ChannelId, idle: bool) -> list[Watermark | WatermarkStatus]:
        """A channel has become idle or active; what is to be passed on, in order."""
        if idle == (channel in self._idle):
            return []
        if idle:
            self._idle.add(channel)
            self._behind.discard(channel)
            if len(self._idle) < len(self._watermarks):
                advanced = self._advance()
                return [advanced] if advanced else []
            return self._all_idle(self._watermarks[channel] == self._current)
        self._idle.discard(channel)
        if self._watermarks[channel] < self._current:
            self._behind.add(channel)
        if self._said_idle:
            self._said_idle = False
            return [WatermarkStatus(idle=False)]
        return []

    def _all_idle(self, led: bool) -> list[Watermark | WatermarkStatus]:
        """led: the last channel to become idle was the one that held event time back."""
        self._said_idle = True
        highest = max(self._watermarks.values())
        out: list[Watermark | WatermarkStatus] = []
        if led and highest > self._current:
            self._current = highest
            out.append(Watermark(highest))
        out.append(WatermarkStatus(idle=True))
        return out

    def _advance(self) -> Watermark | None:
        counted = [
            ms
            for channel, ms in self._watermarks.items()
            if channel not in self._idle and channel not in self._behind
        ]
        if not counted:
            return None
        least = min(counted)
        if least <= self._current:
            return None
        self._current = least
        return Watermark(least)

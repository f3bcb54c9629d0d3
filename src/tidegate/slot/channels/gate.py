"""The inputs of a subtask: a queue for each channel, read in turn.

Restored in-flight data are read before anything that comes.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

from tidegate.model.elements import (
    ArrowBatch,
    Barrier,
    Batch,
    CancelBarrier,
    Element,
    EndOfPartition,
    RowBatch,
)
from tidegate.transport.debloat import Backlog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidegate.model.ids import ChannelId, CheckpointId


class Producer(Protocol):
    """The sending end of a channel, in this slot or in another."""

    def grant(self) -> None: ...

    def resize(self, rows: int) -> None: ...


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

    def poll_barrier(self) -> tuple[ChannelId, Element] | None:
        """The next element of the first channel where that is a barrier, or takes one back."""
        if self._restored:
            return None
        for channel in self._ready:
            if not channel.blocked and isinstance(channel.queue[0], Barrier | CancelBarrier):
                self._ready.remove(channel)
                self._ready.appendleft(channel)
                found = self.poll(1)
                assert found is not None, "a channel is ready"
                return channel.id, found[1]
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


class ProcessedBytes:
    """Bytes read from the first barrier of each checkpoint on.

    A row counts with the mean size that the rows of its edge have had on the wire so far, for rows
    are not encoded again to be measured; where all of an edge stays within slots nothing ever
    was, and its rows count nothing. An Arrow batch counts with the memory of its columns.
    """

    def __init__(self, channels: Collection[InputChannel]) -> None:
        self._channels = channels
        self._begun: dict[CheckpointId, list[tuple[int, int]]] = {}

    def begin(self, checkpoint: CheckpointId) -> None:
        """Its first barrier came; later calls have no effect."""
        if checkpoint not in self._begun:
            read = [(channel.rows_read, channel.arrow_bytes_read) for channel in self._channels]
            self._begun[checkpoint] = read

    def of(self, checkpoint: CheckpointId) -> int:
        """Bytes read since its first barrier; 0 if all came at once."""
        begun = self._begun.get(checkpoint)
        if begun is None:
            return 0
        rows, came = Counter[int](), Counter[int]()
        for channel in self._channels:
            rows[channel.id.edge] += channel.rows_came
            came[channel.id.edge] += channel.bytes_came
        read = 0.0
        for channel, (rows_then, arrow_then) in zip(self._channels, begun, strict=True):
            edge = channel.id.edge
            row_bytes = came[edge] / rows[edge] if rows[edge] else 0.0
            read += (channel.rows_read - rows_then) * row_bytes
            read += channel.arrow_bytes_read - arrow_then
        return round(read)

    def end(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was cut or aborted; older ones are dropped too."""
        self._begun = {known: read for known, read in self._begun.items() if known > checkpoint}

"""The outputs of a subtask: rows gathered by channel, routed by each edge's partitioner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from tidegate.api.rows.batches import copied, take
from tidegate.api.rows.keys import keys_of_rows
from tidegate.errors import GraphError
from tidegate.model.elements import ArrowBatch, BarrierAnnouncement, RowBatch
from tidegate.model.topology import Partitioner
from tidegate.transport.credit import CreditedSender, credit_for
from tidegate.typeinfo.key_hash import KeyHasher, subtasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.operator import KeyBy, OutputPlan
    from tidegate.model.chance import Chance
    from tidegate.model.elements import Barrier, Batch, Element, Mark
    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.model.settings import SlotSettings
    from tidegate.slot.channels.ends import Consumer
    from tidegate.slot.channels.room import Room


class ChannelOutput:
    """The sending end of one channel: gathers rows, and sends what has credit.

    A batch begins with one row, and has as many as the reader asks for once it knows what they
    cost. consumer: the other end. room: shared by all channels of the subtask.
    aligned_only: no barrier may overtake data here.
    """

    __slots__ = (
        "_aligned_only",
        "_consumer",
        "_full",
        "_gathered",
        "_room",
        "_sender",
        "_since_ms",
        "id",
    )

    def __init__(
        self,
        channel: ChannelId,
        settings: SlotSettings,
        consumer: Consumer,
        room: Room,
        *,
        aligned_only: bool = False,
    ) -> None:
        self.id = channel
        self._aligned_only = aligned_only
        self._full = (settings.rows, settings.arrow_rows)
        self._consumer = consumer
        self._room = room
        self._sender = CreditedSender(credit_for(1, settings.credit), 1, 1)
        self._gathered: RowBatch | None = None
        self._since_ms = 0

    @property
    def gathering_since_ms(self) -> int | None:
        """Arrival of the first collected row; None if there is none."""
        return None if self._gathered is None else self._since_ms

    def rows(self, batch: RowBatch, now_ms: int) -> None:
        """Gather rows; a full batch is sent."""
        gathered = self._gathered
        if gathered is None:
            if len(batch) * 2 >= self._sender.rows:
                self._send(batch)
            else:
                self._gathered = RowBatch(
                    list(batch.values),
                    None if batch.timestamps_ms is None else list(batch.timestamps_ms),
                    None if batch.keys is None else list(batch.keys),
                    None if batch.key_groups is None else list(batch.key_groups),
                )
                self._since_ms = now_ms
            return
        if (gathered.timestamps_ms is None) != (batch.timestamps_ms is None):
            self.flush()
            self.rows(batch, now_ms)
            return
        gathered.values += batch.values
        if gathered.timestamps_ms is not None:
            gathered.timestamps_ms += cast("list[int]", batch.timestamps_ms)
        if gathered.keys is not None and gathered.key_groups is not None:
            gathered.keys += cast("list[object]", batch.keys)
            gathered.key_groups += cast("list[int]", batch.key_groups)
        if len(gathered) >= self._sender.rows:
            self.flush()

    def arrow(self, batch: ArrowBatch) -> None:
        self.flush()
        self._send(batch)

    def mark(self, mark: Mark) -> None:
        self.flush()
        self._send(mark)

    def barrier(self, barrier: Barrier) -> list[Batch]:
        """Sends a barrier, ahead of waiting data if it may overtake; returns what it overtook."""
        self.flush()
        options = barrier.options
        if self._aligned_only:
            self._send(barrier.under(options.forced_aligned()))
        elif options.is_unaligned:
            overtaken = self._sender.batches_waiting()
            self._consumer.send(barrier)
            return overtaken
        else:
            if options.is_timeoutable:
                self._consumer.send(BarrierAnnouncement(barrier))
            self._send(barrier)
        return []

    def holds(self, checkpoint: CheckpointId) -> bool:
        """True if the barrier of a checkpoint, which may still turn unaligned, waits to leave."""
        return not self._aligned_only and self._sender.holds(checkpoint)

    def hasten(self, checkpoint: CheckpointId) -> list[Batch]:
        """Turns a waiting barrier unaligned and sends it; returns the overtaken batches."""
        if self._aligned_only:
            return []
        barrier, overtaken = self._sender.take_barrier(checkpoint)
        if barrier is None:
            return []
        self._consumer.send(barrier.under(barrier.options.turned_unaligned()))
        return overtaken

    def flush(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._send(gathered)

    def resize(self, rows: int) -> None:
        """The reader wants batches of so many rows; none is longer than a full one."""
        full, arrow_full = self._full
        self._sender.rows, self._sender.arrow_rows = min(rows, full), min(rows, arrow_full)

    def granted(self, credit: int) -> None:
        had_room = self._sender.has_room
        for element in self._sender.grant(credit):
            self._consumer.send(element)
        if not had_room and self._sender.has_room:
            self._room.end_wait()

    def _send(self, element: Element) -> None:
        sender = self._sender
        had_room = sender.has_room
        for each in sender.offer(element):
            self._consumer.send(each)
        if not sender.has_room:
            if had_room:
                self._room.begin_wait()
            if batches := sender.batches_left():
                self._room.crowded(self.id, batches)


class Outputs:
    """All channels that a subtask writes. room: theirs."""

    def __init__(self, channels: Sequence[ChannelOutput], room: Room) -> None:
        self.channels = channels
        self.room = room

    def mark(self, mark: Mark) -> None:
        for channel in self.channels:
            channel.mark(mark)

    def flush(self) -> None:
        for channel in self.channels:
            channel.flush()

    def flush_older_than(self, monotonic_ms: int) -> None:
        """Send what has been gathered since before then."""
        for channel in self.channels:
            since_ms = channel.gathering_since_ms
            if since_ms is not None and since_ms <= monotonic_ms:
                channel.flush()

    @property
    def has_sent(self) -> bool:
        return self.room.waiting == 0


class Route(Protocol):
    """Spreads the output of one edge over its channels."""

    def batch(self, batch: Batch, now_ms: int) -> None: ...


class _Broadcast:
    """Every channel gets every row; also the way of an edge with one channel."""

    def __init__(self, channels: Sequence[ChannelOutput], *, share: bool) -> None:
        self._channels = channels
        self._share = share

    def batch(self, batch: Batch, now_ms: int) -> None:
        last = len(self._channels) - 1
        for index, channel in enumerate(self._channels):
            own = batch if index == last or self._share else copied(batch)
            if isinstance(own, RowBatch):
                channel.rows(own, now_ms)
            else:
                channel.arrow(own)


class _RoundRobin:
    """Rows are dealt out one by one, Arrow batches one by one.

    first: the channel that begins; a draw between batches where ``shuffled``.
    """

    def __init__(
        self, channels: Sequence[ChannelOutput], first: int, draw: Callable[[], int] | None
    ) -> None:
        self._channels = channels
        self._next = first % len(channels)
        self._draw = draw

    def batch(self, batch: Batch, now_ms: int) -> None:
        channels, count = self._channels, len(self._channels)
        if self._draw is not None:
            self._next = self._draw() % count
        if isinstance(batch, ArrowBatch):
            channels[self._next].arrow(batch)
            self._next = (self._next + 1) % count
            return
        for offset in range(min(count, len(batch))):
            times = batch.timestamps_ms
            part = RowBatch(
                batch.values[offset::count], None if times is None else times[offset::count]
            )
            channels[(self._next + offset) % count].rows(part, now_ms)
        self._next = (self._next + len(batch)) % count


class _Custom:
    """The user's partitioner chooses the channel of each row."""

    def __init__(
        self,
        channels: Sequence[ChannelOutput],
        key: KeyBy,
        partition: Callable[[object, int], int],
        where: str,
    ) -> None:
        self._channels = channels
        self._key = key
        self._partition = partition
        self._where = where

    def batch(self, batch: Batch, now_ms: int) -> None:
        rows = batch if isinstance(batch, RowBatch) else _rows_of(batch)
        count = len(self._channels)
        keys = keys_of_rows(rows.values, self._key, self._where)
        targets = np.array([self._partition(key, count) for key in keys], np.int64)
        wrong = np.nonzero((targets < 0) | (targets >= count))[0]
        if len(wrong):
            raise GraphError(
                f"the partitioner chose {targets[wrong[0]]} of {count} partitions",
                where=self._where,
                remedy="Return a number from 0 to num_partitions - 1.",
            )
        spread(rows, targets, self._channels, now_ms)


def _rows_of(batch: ArrowBatch) -> RowBatch:
    times = batch.timestamps_ms
    return RowBatch(batch.batch.to_pylist(), None if times is None else times.tolist())


class _Hash:
    """Each row goes to the subtask that holds its key group."""

    def __init__(
        self,
        channels: Sequence[ChannelOutput],
        key: KeyBy,
        max_parallelism: int,
        where: str,
    ) -> None:
        self._channels = channels
        self._key = key
        self._where = where
        self._hasher = KeyHasher(key.key_type, max_parallelism, where=where)
        # A look-up costs a nanosecond a row, the division that it stands for several.
        self._target_of_group = subtasks_of(
            np.arange(max_parallelism, dtype=np.int16), len(channels), max_parallelism
        )

    def batch(self, batch: Batch, now_ms: int) -> None:
        if isinstance(batch, ArrowBatch):
            self._arrow(batch)
        else:
            self._rows(batch, now_ms)

    def _rows(self, batch: RowBatch, now_ms: int) -> None:
        selected = keys_of_rows(batch.values, self._key, self._where)
        keys, groups = self._hasher.keyed(selected)
        keyed = RowBatch(batch.values, batch.timestamps_ms, list(keys), groups.tolist())
        count = len(self._channels)
        if count == 1:
            self._channels[0].rows(keyed, now_ms)
            return
        spread(keyed, self._target_of_group[groups], self._channels, now_ms)

    def _arrow(self, batch: ArrowBatch) -> None:
        column = self._key.column
        if column is None:
            raise GraphError(
                "Arrow batches reach a key_by that was given a function",
                where=self._where,
                remedy="Key Arrow batches by a column's name.",
            )
        position = batch.batch.schema.get_field_index(column)
        if position < 0:
            raise GraphError(
                f"there is no column '{column}'; there are {', '.join(batch.batch.schema.names)}",
                where=self._where,
                remedy="Give key_by the name of a column of the batches that reach it.",
            )
        groups = self._hasher.key_groups_of_column(batch.batch.column(position))
        count = len(self._channels)
        if count == 1:
            self._channels[0].arrow(ArrowBatch(batch.batch, batch.timestamps_ms, column, groups))
            return
        targets = self._target_of_group[groups]
        for index, channel in enumerate(self._channels):
            rows = np.flatnonzero(targets == index)
            if not len(rows):
                continue
            times = batch.timestamps_ms
            channel.arrow(
                ArrowBatch(
                    batch.batch.take(rows),
                    None if times is None else times[rows],
                    column,
                    groups[rows],
                )
            )


def make_route(
    plan: OutputPlan,
    partitioner: Partitioner,
    channels: Sequence[ChannelOutput],
    *,
    max_parallelism: int,
    subtask: int,
    share: bool,
    chance: Chance,
    where: str,
) -> Route:
    """The way in which an edge spreads its rows. share: whether values need no copies."""
    match partitioner:
        case Partitioner.HASH:
            assert plan.key is not None, "a keyed edge has a key"
            return _Hash(channels, plan.key, max_parallelism, where)
        case Partitioner.CUSTOM:
            assert plan.partition is not None and plan.key is not None, "checked by graph"
            return _Custom(channels, plan.key, plan.partition, where)
        case Partitioner.BROADCAST:
            return _Broadcast(channels, share=share)
        case Partitioner.REBALANCE if len(channels) > 1:
            return _RoundRobin(channels, subtask, None)
        case Partitioner.SHUFFLE if len(channels) > 1:
            return _RoundRobin(channels, 0, chance.bits64)
        case Partitioner.RESCALE if len(channels) > 1:
            return _RoundRobin(channels, 0, None)
        case _:
            return _Broadcast(channels[:1], share=share)


def spread(
    rows: RowBatch, targets: np.ndarray, channels: Sequence[ChannelOutput], now_ms: int
) -> None:
    """Give each row to the channel that ``targets`` (shape (rows,)) names, in order."""
    for index, channel in enumerate(channels):
        chosen = np.nonzero(targets == index)[0]
        if len(chosen):
            channel.rows(take(rows, chosen.tolist()), now_ms)

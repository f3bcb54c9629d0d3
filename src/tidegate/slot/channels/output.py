"""The sending ends of a subtask's channels: rows gathered by channel, and credit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from tidegate.api.pieces import Portion
from tidegate.api.rows.column_rows import ColumnRows, joined
from tidegate.model.elements import BarrierAnnouncement, RowBatch
from tidegate.transport.credit import CreditedSender, credit_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.clock import Clock
    from tidegate.model.elements import ArrowBatch, Barrier, Batch, Element, Mark
    from tidegate.model.ids import ChannelId, CheckpointId
    from tidegate.model.settings import SlotSettings


class Consumer(Protocol):
    """The reading end of a channel, in this slot or in another."""

    def send(self, element: Element) -> int:
        """Hand an element over; the sender has seen to it that there is credit.

        The result is the size of a row batch that becomes bytes, and 0 for all else.
        """
        ...


class Room:
    """Knows if the outputs of a subtask take more.

    waiting: its channels that wait for credit. overdraft: what is under way may go on all the
    same, so that the subtask comes to a point where it can be cut. clock: measures how long
    channels wait; None if nobody asks.
    """

    __slots__ = ("_clock", "_portions", "_since_s", "_waited_s", "overdraft", "waiting")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._portions: list[Portion] = []
        self._waited_s = self._since_s = 0.0
        self.waiting = 0
        self.overdraft = False

    @property
    def is_free(self) -> bool:
        return self.waiting == 0 or self.overdraft

    @property
    def waited_s(self) -> float:
        """How long at least one channel has waited for credit, in all."""
        now_s = self._now_s()
        return self._waited_s + (now_s - self._since_s if self.waiting else 0.0)

    def portion(self) -> Portion:
        """A new learner of how many rows to give at once to the channels of the subtask."""
        portion = Portion()
        self._portions.append(portion)
        return portion

    def crowded(self, channel: ChannelId, batches: float) -> None:
        """More batches have to wait in a channel."""
        for portion in self._portions:
            portion.crowded(channel, batches)

    def begin_wait(self) -> None:
        if not self.waiting:
            self._since_s = self._now_s()
        self.waiting += 1

    def end_wait(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self._waited_s += self._now_s() - self._since_s

    def _now_s(self) -> float:
        return 0.0 if self._clock is None else self._clock.precise_s()


class ChannelOutput:
    """The sending end of one channel: gathers rows, and sends what has credit.

    A batch begins with one row, and has as many as the reader asks for once it knows what they
    cost. consumer: the other end. room: shared by all channels of the subtask.
    aligned_only: no barrier may overtake data here. bytes_sent: of row batches those that
    crossed between slots, of Arrow batches their memory.
    """

    __slots__ = (
        "_aligned_only",
        "_consumer",
        "_full",
        "_gathered",
        "_room",
        "_sender",
        "_since_ms",
        "bytes_sent",
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
        self._since_ms = self.bytes_sent = 0

    @property
    def gathering_since_ms(self) -> int | None:
        """Arrival of the first collected row; None if there is none."""
        return None if self._gathered is None else self._since_ms

    def rows(self, batch: RowBatch, now_ms: int) -> None:
        """Gather rows; a full batch is sent."""
        gathered = self._gathered
        if isinstance(batch, ColumnRows):
            self._columns(batch, now_ms)
            return
        if isinstance(gathered, ColumnRows):
            self.flush()
            gathered = None
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

    def _columns(self, batch: ColumnRows, now_ms: int) -> None:
        gathered = self._gathered
        if gathered is not None and not (
            isinstance(gathered, ColumnRows) and gathered.shape == batch.shape
        ):
            self.flush()
            gathered = None
        if gathered is None:
            self._since_ms = now_ms
        self._gathered = batch if gathered is None else joined([gathered, batch])
        if len(self._gathered) * 2 >= self._sender.rows:
            self.flush()

    def arrow(self, batch: ArrowBatch) -> None:
        self.flush()
        self.bytes_sent += batch.batch.nbytes
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

    def granted(self, credit: int) -> bool:
        """Sends what has credit now; True if the subtask, which waited for room, has room again."""
        had_room = self._sender.has_room
        for element in self._sender.grant(credit):
            self.bytes_sent += self._consumer.send(element)
        if had_room or not self._sender.has_room:
            return False
        self._room.end_wait()
        return not self._room.waiting

    def _send(self, element: Element) -> None:
        sender = self._sender
        had_room = sender.has_room
        for each in sender.offer(element):
            self.bytes_sent += self._consumer.send(each)
        if not sender.has_room:
            if had_room:
                self._room.begin_wait()
            if batches := sender.batches_left():
                self._room.crowded(self.id, batches)


class Holding(Protocol):
    """A route that holds rows back."""

    def flush(self, now_ms: int) -> None:
        """Gives what it holds to the channels."""
        ...


class Outputs:
    """All channels that a subtask writes. room: theirs. combined: routes that hold rows back."""

    def __init__(
        self, channels: Sequence[ChannelOutput], room: Room, combined: Sequence[Holding] = ()
    ) -> None:
        self.channels = channels
        self.room = room
        self._combined = combined

    def release_combined(self, now_ms: int) -> None:
        """Have routes that combine rows give what they hold to the channels."""
        for route in self._combined:
            route.flush(now_ms)

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
    def gathers(self) -> bool:
        """True if rows are gathered in a channel."""
        return any(channel.gathering_since_ms is not None for channel in self.channels)

    @property
    def has_sent(self) -> bool:
        return self.room.waiting == 0

"""The input of one subtask: elements of its gate, or what its source gives when it is polled."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.api.operator import Polled, SourceOperator
from tidegate.checkpoint.barriers.protocol import BarrierArrived, CancelArrived, ChannelEnded
from tidegate.model.elements import (
    ArrowBatch,
    Barrier,
    CancelBarrier,
    EndOfData,
    EndOfPartition,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.slot.channels.gate import WatermarkValve

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.clock import Clock
    from tidegate.model.elements import Batch, Element
    from tidegate.slot.channels.asked_size import AskedSize
    from tidegate.slot.channels.gate import Gate, InputChannel
    from tidegate.slot.channels.room import Room
    from tidegate.slot.subtask.chain import Chain
    from tidegate.slot.subtask.checkpointing import Checkpointing
    from tidegate.slot.subtask.deployment import Deployment
    from tidegate.slot.subtask.ending import Ending


class Input:
    """Takes in as many rows at a time as the operators work off in a few milliseconds.

    rows_skipped: rows of the source that an operator has passed over.
    """

    def __init__(
        self,
        deployment: Deployment,
        clock: Clock,
        gate: Gate,
        asked: AskedSize,
        chain: Chain,
        room: Room,
        checkpointing: Checkpointing,
        ending: Ending,
    ) -> None:
        self.gate = gate
        self.is_source = not gate.channels
        self.valve = WatermarkValve(gate.channels)
        self.rows = self.batches = self.rows_skipped = 0
        self._chain = chain
        self._checkpointing = checkpointing
        self._ending = ending
        self._clock = clock
        self._asked = asked
        settings = deployment.settings.slot
        self._intake = chain.intake(settings, room.portion(), is_source=self.is_source)
        self._source_ready = self.is_source
        self._paused = deployment.settings.checkpoints.pause_sources and self.is_source

    def begin(self) -> None:
        """All subtasks run: tell the senders how many rows a batch should have."""
        self._asked.fits(self._intake.batch_rows)

    # --- turns ---

    @property
    def is_idle(self) -> bool:
        return not self.gate.readable and not self._source_ready

    def next(self) -> Callable[[], None] | None:
        """The next piece of work; None if there is none, or no room for what comes of it."""
        if not self._chain.head.out.has_room or not self._chain.takes_input:
            return None
        if self.is_source and not self._ending.operators_finished:
            ready = self._source_ready and not self._paused and not self._ending.has_begun
            return self._poll_source if ready else None
        return self.next_element()

    def next_element(self) -> Callable[[], None] | None:
        """The next piece of work of the gate alone."""
        return self._read_gate if self.gate.readable else None

    def wake(self) -> None:
        self._source_ready = self.is_source

    def unpause(self) -> bool:
        """Poll a source that waited for the first checkpoint; False if none waited."""
        paused, self._paused = self._paused, False
        return paused

    # --- the work itself ---

    def go_on(self) -> None:
        """Go on with the work in progress; a barrier that is next is read all the same."""
        began_s = self._clock.precise_s()
        # A cut may be possible before the work is done, at a pause of an operator.
        if not self._checkpointing.is_cutting and (found := self.gate.poll_barrier()) is not None:
            self._mark(*found)
        self._chain.advance()
        self._intake.worked(self._clock.precise_s() - began_s)

    def _poll_source(self) -> None:
        head = self._chain.head
        self._source_ready = False  # before the poll: a wake-up within it counts
        self._intake.settle()
        head.out.piece_rows = self._intake.rows
        rows, worked_s = head.out.rows, head.out.worked_s
        polled = cast("SourceOperator", head.operator).poll(head.out)
        # The source's own time is left out: it may be as long for one row as for many.
        self._intake.take(head.out.rows - rows)
        self._intake.worked(head.out.worked_s - worked_s)
        if polled is Polled.MORE:
            self._source_ready = True
        elif polled is Polled.END:
            self._ending.end_data()

    def _read_gate(self) -> None:
        self._intake.settle()
        self._asked.fits(self._intake.batch_rows)
        found = self.gate.poll(self._intake.rows)
        if found is None:
            return
        channel, element = found
        if isinstance(element, RowBatch | ArrowBatch):
            self._batch(channel, element)
        else:
            self._mark(channel, element)

    def _batch(self, channel: InputChannel, batch: Batch) -> None:
        """Process a batch, and learn from how long it took how many rows to take next."""
        rows = len(batch)
        self.batches += 1
        self.rows += rows
        if isinstance(batch, RowBatch):
            channel.rows_read += rows
        else:
            channel.arrow_bytes_read += batch.batch.nbytes
        self._intake.take(rows)
        began_s = self._clock.precise_s()
        self._chain.head.accept(batch, channel.port)
        self._intake.worked(self._clock.precise_s() - began_s)

    def _mark(self, channel: InputChannel, element: Element) -> None:
        match element:
            case Watermark(ms):
                advanced = self.valve.watermark(channel.id, ms)
                if advanced is not None:
                    self._chain.head.accept_watermark(advanced)
            case WatermarkStatus(idle):
                for passed in self.valve.status(channel.id, idle):
                    self._chain.head.accept_watermark(passed)
            case Barrier():
                self._checkpointing.happened(BarrierArrived(channel.id, element))
            case CancelBarrier(checkpoint):
                self._checkpointing.happened(CancelArrived(channel.id, checkpoint))
            case EndOfData():
                self._ending.data_ended_on(channel.id)
            case EndOfPartition():
                self._ending.when.channel_ended(channel.id)
                self._checkpointing.happened(ChannelEnded(channel.id))
            case _:
                raise AssertionError(f"{type(element).__name__} does not travel in channels")

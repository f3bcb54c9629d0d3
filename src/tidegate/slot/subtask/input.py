"""The input of one subtask: elements of its gate, or what its source gives when it is polled.

Batches and event time enter the operators. Other marks are the subtask's to act upon, to which
they are handed back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.api.operator import Polled, SourceOperator
from tidegate.model.elements import ArrowBatch, RowBatch, Watermark, WatermarkStatus
from tidegate.slot.channels.batch_size import AskedSize, Debloater
from tidegate.slot.channels.valve import WatermarkValve

if TYPE_CHECKING:
    from tidegate.clock import Clock
    from tidegate.model.deployment import Deployment
    from tidegate.model.elements import Batch, Element
    from tidegate.model.ids import ChannelId
    from tidegate.slot.channels.gate import Gate, InputChannel
    from tidegate.slot.channels.output import Room
    from tidegate.slot.subtask.chain import Chain

    Mark = tuple[ChannelId, Element]


class Input:
    """Takes in as many rows at a time as the operators work off in a few milliseconds.

    rows_skipped: rows of the source that an operator has passed over. debloater: None if nothing
    is debloated.
    """

    def __init__(
        self, deployment: Deployment, clock: Clock, gate: Gate, chain: Chain, room: Room
    ) -> None:
        settings = deployment.settings.slot
        self.gate = gate
        self.is_source = not gate.channels
        self.valve = WatermarkValve(gate.channels)
        self.rows = self.batches = self.rows_skipped = 0
        self._chain = chain
        self._clock = clock
        self._asked = AskedSize(settings, gate)
        self.debloater: Debloater | None = None
        if settings.debloat is not None and gate.channels:
            self.debloater = Debloater(settings.debloat, settings.rows, gate, self._asked)
        self._intake = chain.intake(settings, room.portion(), is_source=self.is_source)
        self._source_ready = self.is_source
        self._paused = deployment.settings.checkpoints.pause_sources and self.is_source

    def begin(self) -> None:
        """All subtasks run: tell the senders how many rows a batch should have."""
        self._asked.fits(self._intake.batch_rows)

    @property
    def is_idle(self) -> bool:
        return not self.gate.readable and not self._source_ready

    @property
    def has_room(self) -> bool:
        """True if what comes of more input has room."""
        return self._chain.head.out.has_room and self._chain.takes_input

    @property
    def source_ready(self) -> bool:
        return self._source_ready and not self._paused

    def wake(self) -> None:
        self._source_ready = self.is_source

    def unpause(self) -> bool:
        """Poll a source that waited for the first checkpoint; False if none waited."""
        paused, self._paused = self._paused, False
        return paused

    # --- pieces of work ---

    def go_on(self) -> None:
        """Go on with the work in progress."""
        began_s = self._clock.precise_s()
        self._chain.advance()
        self._intake.worked(self._clock.precise_s() - began_s)

    def poll_source(self) -> bool:
        """Take what the source has; True if that is its end."""
        head = self._chain.head
        self._source_ready = False  # before the poll: a wake-up within it counts
        self._intake.settle()
        head.out.piece_rows = self._intake.rows
        rows, worked_s = head.out.rows, head.out.worked_s
        began_s, below_s = self._clock.precise_s(), head.out.below_s
        polled = cast("SourceOperator", head.operator).poll(head.out)
        took_s = self._clock.precise_s() - began_s
        head.work.worked(took_s - (head.out.below_s - below_s))
        # The source's own time is left out: it may be as long for one row as for many.
        self._intake.take(head.out.rows - rows)
        self._intake.worked(head.out.worked_s - worked_s)
        if polled is Polled.MORE:
            self._source_ready = True
        return polled is Polled.END

    def read_gate(self) -> Mark | None:
        """Take the next element of the gate; the result is a mark that the subtask acts upon."""
        self._intake.settle()
        self._asked.fits(self._intake.batch_rows)
        found = self.gate.poll(self._intake.rows)
        if found is None:
            return None
        channel, element = found
        match element:
            case RowBatch() | ArrowBatch():
                self._batch(channel, element)
            case Watermark(ms):
                advanced = self.valve.watermark(channel.id, ms)
                if advanced is not None:
                    self._chain.head.accept_watermark(advanced)
            case WatermarkStatus(idle):
                for passed in self.valve.status(channel.id, idle):
                    self._chain.head.accept_watermark(passed)
            case _:
                return channel.id, element
        return None

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

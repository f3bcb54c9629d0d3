"""Data that barriers overtake at one subtask: found in its channels, passed to the writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.checkpoint.barriers.protocol import BarrierAnnounced, EndAnnounced
from tidegate.checkpoint.channel_state.group import Side
from tidegate.model.elements import (
    ArrowBatch,
    Barrier,
    BarrierAnnouncement,
    EndOfPartition,
    RowBatch,
)
from tidegate.slot.channel_state import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidegate.checkpoint.barriers.protocol import BarrierEvent
    from tidegate.checkpoint.channel_state.file_format import ChannelInfo
    from tidegate.model.elements import Element
    from tidegate.model.ids import ChannelId, CheckpointId, OperatorId
    from tidegate.slot.channel_state import ChannelStateResult, ChannelStateWriter
    from tidegate.slot.channels.gate import Gate, InputChannel
    from tidegate.slot.channels.output import ChannelOutput


@frozen
class InFlightPlaces:
    """Where a subtask's in-flight data go.

    infos: the place of each of its channels. head, sender: the operators at which they come in and
    leave.
    """

    writer: ChannelStateWriter
    infos: Mapping[ChannelId, ChannelInfo]
    head: OperatorId
    sender: OperatorId


@frozen
class OutputTimeout:
    """The checkpoint's barrier has run out of time to leave after the data before it."""

    checkpoint: CheckpointId


class InFlight:
    """The in-flight data of one subtask, checkpoint by checkpoint.

    announce: told of barriers and ends as soon as they come, ahead of the data before them.
    """

    def __init__(
        self,
        gate: Gate,
        outputs: Sequence[ChannelOutput],
        places: InFlightPlaces,
        announce: Callable[[BarrierEvent], None],
        age_ms: Callable[[Barrier], int],
    ) -> None:
        self._gate = gate
        self._outputs = outputs
        self._writer = places.writer
        self._infos = places.infos
        self._announce = announce
        self._age_ms = age_ms
        self._persisting: dict[ChannelId, CheckpointId] = {}
        self._leaving: CheckpointId | None = None

    def heard(self, channel: InputChannel, element: Element) -> bool:
        """Sees each arriving element; True if it does not belong in the queue."""
        match element:
            case RowBatch() | ArrowBatch():
                checkpoint = self._persisting.get(channel.id)
                if checkpoint is not None:
                    self._save(checkpoint, channel.id, [element])
            case BarrierAnnouncement(barrier):
                age = self._age_ms(barrier)
                self._announce(BarrierAnnounced(channel.id, barrier, queued=False, age_ms=age))
                return True
            case Barrier(checkpoint):
                if self._persisting.get(channel.id, checkpoint) <= checkpoint:
                    self._persisting.pop(channel.id, None)
                age = self._age_ms(element)
                self._announce(BarrierAnnounced(channel.id, element, queued=True, age_ms=age))
            case EndOfPartition():
                self._persisting.pop(channel.id, None)
                self._announce(EndAnnounced(channel.id))
            case _:
                pass
        return False

    def send(self, barrier: Barrier) -> None:
        """Starts a checkpoint, and sends its barrier."""
        checkpoint, options = barrier.checkpoint, barrier.options
        if options.may_overtake:
            self._writer.start(barrier)
        for output in self._outputs:
            self._save(checkpoint, output.id, output.barrier(barrier))
        if not options.may_overtake:
            return
        if not options.is_unaligned:
            self._writer.finish(checkpoint, Side.INPUT)
        if options.is_timeoutable:
            self._leaving = checkpoint
            self.finish_output_if_left()
        else:
            self._writer.finish(checkpoint, Side.OUTPUT)

    @property
    def leaving(self) -> bool:
        """True if a barrier that may still turn unaligned waits to leave."""
        return self._leaving is not None

    def finish_output_if_left(self) -> None:
        """Once the barrier has left on every channel, there are no more output data."""
        leaving = self._leaving
        if leaving is not None and not any(output.holds(leaving) for output in self._outputs):
            self._writer.finish(leaving, Side.OUTPUT)
            self._leaving = None

    def hasten(self, checkpoint: CheckpointId) -> None:
        """The time to align is over: let the barrier overtake what it waits behind."""
        if self._leaving == checkpoint:
            for output in self._outputs:
                self._save(checkpoint, output.id, output.hasten(checkpoint))
            self.finish_output_if_left()

    def result(self, barrier: Barrier) -> ChannelStateResult:
        """The result of the checkpoint's in-flight data; to be taken once its barrier is sent."""
        if not barrier.options.may_overtake:
            return EMPTY
        return self._writer.take_result(barrier.checkpoint)

    def persist(self, checkpoint: CheckpointId, channels: Collection[ChannelId]) -> None:
        """Save what waits in these channels, and what comes there before the barrier."""
        for channel in channels:
            # Restored data are nowhere else once this checkpoint is the newest: keep them again.
            self._save(checkpoint, channel, self._gate.restored_in(channel))
            queued, is_whole = self._gate.queued_in(channel, checkpoint)
            self._save(checkpoint, channel, queued)
            if not is_whole:
                self._persisting[channel] = checkpoint

    def finish_input(self, checkpoint: CheckpointId) -> None:
        """The barrier has come on every channel."""
        self._persisting.clear()
        self._writer.finish(checkpoint, Side.INPUT)

    def give_up(self, checkpoint: CheckpointId, cause: str) -> None:
        """Save nothing more for the checkpoint; a newer one may have begun before this is heard."""
        for channel in [one for one, known in self._persisting.items() if known == checkpoint]:
            del self._persisting[channel]
        if self._leaving == checkpoint:
            self._leaving = None
        self._writer.abort(checkpoint, cause)

    def _save(
        self, checkpoint: CheckpointId, channel: ChannelId, data: Collection[Element]
    ) -> None:
        if data:
            self._writer.add(checkpoint, self._infos[channel], data)

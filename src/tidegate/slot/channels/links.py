"""Data links between slots: one a pair, many channels, fenced by epoch and attempt."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from flinkformat.frozen import frozen
from tidegate.errors import PeerLost
from tidegate.model.elements import RowBatch
from tidegate.model.ids import ChannelId, Epoch, ExecutionId, SlotId
from tidegate.transport import codec, protocol
from tidegate.transport.protocol import HEADER_BYTES, FrameHeader, FrameKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tidegate.model.elements import Element
    from tidegate.slot.channels.gate import Gate, InputChannel, Producer
    from tidegate.slot.channels.output import ChannelOutput, Consumer
    from tidegate.transport.wire import Buffer, Network, Wire

ChannelKey = tuple[ChannelId, int, Epoch]


class Linked(Protocol):
    """A subtask whose channels lead over the links of its slot."""

    @property
    def execution(self) -> ExecutionId: ...

    def granted(self) -> None:
        """One of its channels may have sent more."""
        ...

    def ready(self) -> None:
        """Nothing that it has to send waits any more: it may go on."""
        ...

    def fail(self, error: Exception) -> None:
        """An element of one of its channels could not be read or sent."""
        ...


class Links:
    """The links of one slot to its peers.

    Of two slots the one with the lesser id dials, the other waits. lost: called with the peer and
    the reason when a link breaks.
    """

    def __init__(
        self,
        slot: SlotId,
        network: Network,
        *,
        lost: Callable[[SlotId, PeerLost], None],
        timeout_s: float,
    ) -> None:
        self._slot = slot
        self._network = network
        self._lost = lost
        self._timeout_s = timeout_s
        self._wires: dict[SlotId, Wire] = {}
        self._waiting: dict[SlotId, asyncio.Future[None]] = {}
        self._dialling: defaultdict[SlotId, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closed = False
        self._inputs: dict[ChannelKey, _Input] = {}
        self._outputs: dict[ChannelKey, _Output] = {}

    # --- links ---

    def accept(self, wire: Wire) -> _PeerHandler:
        peer = SlotId(wire.peer)
        handler = _PeerHandler(self, peer)
        self._joined(peer, handler, wire)
        return handler

    async def ensure(self, peers: Collection[SlotId], addresses: Mapping[SlotId, str]) -> None:
        """Makes a link to each of these slots. Raises PeerLost within the deadline."""
        for peer in sorted(set(peers) - {self._slot}):
            if self._slot < peer:
                await self._dial(peer, addresses[peer])
            else:
                await self._dialled_by(peer)

    async def _dial(self, peer: SlotId, address: str) -> None:
        # Subtasks are deployed side by side; of those that need the same link one dials.
        async with self._dialling[peer]:
            if peer not in self._wires:
                handler = _PeerHandler(self, peer)
                wire = await self._network.connect(address, self._slot, handler)
                self._joined(peer, handler, wire)

    async def _dialled_by(self, peer: SlotId) -> None:
        if peer in self._wires:
            return
        waiting = self._waiting.get(peer)
        if waiting is None:
            waiting = self._waiting[peer] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(waiting)
        except TimeoutError as error:
            raise PeerLost(
                f"slot {peer} has not connected within {self._timeout_s:g} s",
                where=f"slot {self._slot}",
                remedy="Check that slots can reach each other on tidegate.net.port-range, and that "
                "no function there, such as an open(), is in one call for so long.",
            ) from error

    def _joined(self, peer: SlotId, handler: _PeerHandler, wire: Wire) -> None:
        handler.wire = wire
        if handler.closed or self._closed:
            wire.close()
            return
        former = self._wires.get(peer)
        self._wires[peer] = wire
        if former is not None:
            former.close()  # it is broken, only this side has not heard of it yet
        waiting = self._waiting.pop(peer, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def closed(self, peer: SlotId, wire: Wire | None, error: PeerLost | None) -> None:
        if wire is not None and self._wires.get(peer) is wire:
            del self._wires[peer]
            if error is not None:
                self._lost(peer, PeerLost(f"the link to slot {peer} is over: {error.what}"))

    def close(self) -> None:
        self._closed = True
        wires = list(self._wires.values())
        self._wires.clear()
        for wire in wires:
            wire.close()

    # --- channels ---

    def add_input(self, linked: Linked, gate: Gate, channel: InputChannel) -> None:
        """Elements of this channel come to this gate from now on."""
        found = _Input(linked, gate, channel, codec.Decoder())
        self._inputs[_key(channel.id, linked.execution)] = found

    def add_output(self, linked: Linked, output: ChannelOutput) -> None:
        """Credit for this channel goes to this output from now on."""
        self._outputs[_key(output.id, linked.execution)] = _Output(linked, output)

    def remove(self, execution: ExecutionId, channels: Collection[ChannelId]) -> None:
        """Drop what still comes for these channels of this deployment."""
        for channel in channels:
            key = _key(channel, execution)
            self._inputs.pop(key, None)
            self._outputs.pop(key, None)

    def to_consumer(self, execution: ExecutionId, channel: ChannelId, slot: SlotId) -> Consumer:
        if slot == self._slot:
            return _NearConsumer(self._inputs, _key(channel, execution))
        header = _frame(FrameKind.ELEMENT, execution, channel)
        return _FarConsumer(self._wires, slot, header, codec.Encoder())

    def to_producer(self, execution: ExecutionId, channel: ChannelId, slot: SlotId) -> Producer:
        if slot == self._slot:
            return _NearProducer(self._outputs, _key(channel, execution))
        credit = _frame(FrameKind.CREDIT, execution, channel, 1)
        return _FarProducer(self._wires, slot, execution, channel, credit)

    def frame(self, frame: memoryview) -> None:
        """A frame has come over a link; one of a deployment that is not here is dropped."""
        header = protocol.unpack(frame)
        key = (header.channel, header.attempt, header.epoch)
        if header.kind is not FrameKind.ELEMENT:
            output = self._outputs.get(key)
            if output is None:
                return
            if header.kind is FrameKind.CREDIT:
                output.grant(header.number)
            else:
                output.output.resize(header.number)
            return
        found = self._inputs.get(key)
        if found is None:
            return
        try:
            element = found.decoder.decode(frame[HEADER_BYTES:])
        except Exception as error:
            found.linked.fail(error)
        else:
            if isinstance(element, RowBatch):
                found.channel.rows_came += len(element)
                found.channel.bytes_came += len(frame) - HEADER_BYTES
            found.gate.put(found.channel, element)


def _size(part: Buffer) -> int:
    return len(part) if isinstance(part, bytes) else memoryview(part).nbytes


def _key(channel: ChannelId, execution: ExecutionId) -> ChannelKey:
    return (channel, execution.attempt, execution.epoch)


@frozen
class _Input:
    """The reading end of a channel, here."""

    linked: Linked
    gate: Gate
    channel: InputChannel
    decoder: codec.Decoder


@frozen
class _Output:
    """The sending end of a channel, here."""

    linked: Linked
    output: ChannelOutput

    def grant(self, credit: int) -> None:
        try:
            has_room_again = self.output.granted(credit)
        except Exception as error:
            self.linked.fail(error)
            return
        self.linked.granted()
        if has_room_again:
            self.linked.ready()


@frozen
class _NearConsumer:
    """The reading end of a channel within the slot; gone once its subtask is over."""

    inputs: Mapping[ChannelKey, _Input]
    key: ChannelKey

    def send(self, element: Element) -> int:
        found = self.inputs.get(self.key)
        if found is not None:
            found.gate.put(found.channel, element)
        return 0


@frozen
class _FarConsumer:
    """The reading end of a channel in another slot.

    A link that is broken takes nothing: the subtasks that need it are about to fail.
    """

    wires: Mapping[SlotId, Wire]
    slot: SlotId
    header: bytes
    encoder: codec.Encoder

    def send(self, element: Element) -> int:
        wire = self.wires.get(self.slot)
        if wire is None:
            return 0
        parts = self.encoder.encode(element, wire)
        wire.send([self.header, *parts])
        return sum(map(_size, parts)) if isinstance(element, RowBatch) else 0


@frozen
class _NearProducer:
    """The sending end of a channel within the slot; gone once its subtask is over."""

    outputs: Mapping[ChannelKey, _Output]
    key: ChannelKey

    def grant(self) -> None:
        found = self.outputs.get(self.key)
        if found is not None:
            found.grant(1)

    def resize(self, rows: int) -> None:
        found = self.outputs.get(self.key)
        if found is not None:
            found.output.resize(rows)


@frozen
class _FarProducer:
    """The sending end of a channel in another slot; as `_FarConsumer` where its link is broken."""

    wires: Mapping[SlotId, Wire]
    slot: SlotId
    execution: ExecutionId
    channel: ChannelId
    credit: bytes

    def grant(self) -> None:
        self._send(self.credit)

    def resize(self, rows: int) -> None:
        self._send(_frame(FrameKind.SIZE, self.execution, self.channel, rows))

    def _send(self, frame: bytes) -> None:
        wire = self.wires.get(self.slot)
        if wire is not None:
            wire.send([frame])


def _frame(kind: FrameKind, execution: ExecutionId, channel: ChannelId, number: int = 0) -> bytes:
    return protocol.pack(FrameHeader(kind, channel, execution.epoch, execution.attempt, number))


class _PeerHandler:
    """Hears what comes from one peer."""

    def __init__(self, links: Links, peer: SlotId) -> None:
        self._links = links
        self._peer = peer
        self.wire: Wire | None = None
        self.closed = False

    def on_frame(self, frame: memoryview) -> None:
        self._links.frame(frame)

    def on_closed(self, error: PeerLost | None) -> None:
        self.closed = True
        self._links.closed(self._peer, self.wire, error)

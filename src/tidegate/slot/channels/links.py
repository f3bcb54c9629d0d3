"""Data links between slots: one a pair, many channels, fenced by epoch and attempt."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.errors import PeerLost
from tidegate.model.elements import RowBatch
from tidegate.model.ids import ChannelId, Epoch, ExecutionId, SlotId
from tidegate.transport import codec, protocol
from tidegate.transport.protocol import HEADER_BYTES, FrameHeader, FrameKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tidegate.model.elements import Element
    from tidegate.slot.channels.gate import Gate, InputChannel
    from tidegate.slot.channels.output import ChannelOutput
    from tidegate.transport.wire import Network, Wire

ChannelKey = tuple[ChannelId, int, Epoch]


class Links:
    """The links of one slot to its peers.

    Of two slots the one with the lesser id dials, the other waits. lost: called with the peer and
    the reason when a link breaks. failed: called with a subtask and what was raised when one of its
    elements could not be read or sent.
    """

    def __init__(
        self,
        slot: SlotId,
        network: Network,
        *,
        lost: Callable[[SlotId, PeerLost], None],
        failed: Callable[[ExecutionId, Exception], None],
        timeout_s: float,
    ) -> None:
        self._slot = slot
        self._network = network
        self._lost = lost
        self._failed = failed
        self._timeout_s = timeout_s
        self._wires: dict[SlotId, Wire] = {}
        self._waiting: dict[SlotId, asyncio.Future[None]] = {}
        self._dialling = asyncio.Lock()
        self._closed = False
        self._inputs: dict[ChannelKey, _Input] = {}
        self._outputs: dict[ChannelKey, _Output] = {}

    # --- links ---

    def accept(self, wire: Wire) -> _PeerHandler:
        """A peer has dialled."""
        peer = SlotId(wire.peer)
        handler = _PeerHandler(self, peer)
        self._joined(peer, handler, wire)
        return handler

    async def ensure(self, peers: Collection[SlotId], addresses: Mapping[SlotId, str]) -> None:
        """Have a link to each of these slots. Raises PeerLost within the deadline."""
        for peer in sorted(set(peers) - {self._slot}):
            if self._slot < peer:
                await self._dial(peer, addresses[peer])
            else:
                await self._dialled_by(peer)

    async def _dial(self, peer: SlotId, address: str) -> None:
        # Subtasks are deployed side by side; of those that need the same link one dials.
        async with self._dialling:
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
                remedy="Check that slots can reach each other on tidegate.net.port-range.",
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
        """A link is over."""
        if wire is not None and self._wires.get(peer) is wire:
            del self._wires[peer]
            if error is not None:
                self._lost(peer, PeerLost(f"the link to slot {peer} is over: {error.what}"))

    def close(self) -> None:
        """End all links, and those that are still being made."""
        self._closed = True
        wires, self._wires = self._wires, {}
        for wire in wires.values():
            wire.close()

    # --- channels ---

    def add_input(self, execution: ExecutionId, gate: Gate, channel: InputChannel) -> None:
        """Elements of this channel come to this gate from now on."""
        key = (channel.id, execution.attempt, execution.epoch)
        self._inputs[key] = _Input(execution, gate, channel)

    def add_output(
        self, execution: ExecutionId, output: ChannelOutput, granted: Callable[[], None]
    ) -> None:
        """Credit for this channel goes to this output; ``granted`` is called after it."""
        key = (output.id, execution.attempt, execution.epoch)
        self._outputs[key] = _Output(execution, output, granted)

    def remove(self, execution: ExecutionId, channels: Collection[ChannelId]) -> None:
        """What still comes for these channels of this deployment is dropped."""
        for channel in channels:
            key = (channel, execution.attempt, execution.epoch)
            self._inputs.pop(key, None)
            self._outputs.pop(key, None)

    def sender(
        self, execution: ExecutionId, channel: ChannelId, consumer: SlotId
    ) -> Callable[[Element], None]:
        """What sends elements of a channel: to a subtask here, or over the link to a slot."""
        if consumer == self._slot:
            return self._local_sender((channel, execution.attempt, execution.epoch))
        header = protocol.pack(
            FrameHeader(FrameKind.ELEMENT, channel, execution.epoch, execution.attempt)
        )

        def send(element: Element) -> None:
            wire = self._wires.get(consumer)
            if wire is not None:
                wire.send([header, *codec.encode(element)])

        return send

    def _local_sender(self, key: ChannelKey) -> Callable[[Element], None]:
        def send(element: Element) -> None:
            found = self._inputs.get(key)
            if found is not None:
                found.gate.put(found.channel, element)

        return send

    def granter(
        self, execution: ExecutionId, channel: ChannelId, producer: SlotId
    ) -> Callable[[], None]:
        """What gives the sender of a channel one credit."""
        key = (channel, execution.attempt, execution.epoch)
        if producer == self._slot:
            return lambda: self._grant(key, 1)
        frame = protocol.pack(
            FrameHeader(FrameKind.CREDIT, channel, execution.epoch, execution.attempt, 1)
        )

        def grant() -> None:
            wire = self._wires.get(producer)
            if wire is not None:
                wire.send([frame])

        return grant

    def sizer(
        self, execution: ExecutionId, channel: ChannelId, producer: SlotId
    ) -> Callable[[int], None]:
        """What tells the sender of a channel how many rows to put in a batch."""
        key = (channel, execution.attempt, execution.epoch)
        if producer == self._slot:
            return lambda rows: self._resize(key, rows)

        def resize(rows: int) -> None:
            wire = self._wires.get(producer)
            if wire is not None:
                header = FrameHeader(
                    FrameKind.SIZE, channel, execution.epoch, execution.attempt, rows
                )
                wire.send([protocol.pack(header)])

        return resize

    def frame(self, frame: memoryview) -> None:
        """A frame has come over a link; one of a deployment that is not here is dropped."""
        header = protocol.unpack(frame)
        key = (header.channel, header.attempt, header.epoch)
        if header.kind is FrameKind.CREDIT:
            self._grant(key, header.number)
            return
        if header.kind is FrameKind.SIZE:
            self._resize(key, header.number)
            return
        found = self._inputs.get(key)
        if found is None:
            return
        try:
            element = codec.decode(frame[HEADER_BYTES:])
        except Exception as error:
            self._failed(found.execution, error)
        else:
            if isinstance(element, RowBatch):
                found.channel.rows_came += len(element)
                found.channel.bytes_came += len(frame) - HEADER_BYTES
            found.gate.put(found.channel, element)

    def _resize(self, key: ChannelKey, rows: int) -> None:
        found = self._outputs.get(key)
        if found is not None:
            found.output.resize(rows)

    def _grant(self, key: ChannelKey, credit: int) -> None:
        found = self._outputs.get(key)
        if found is None:
            return
        try:
            found.output.granted(credit)
        except Exception as error:
            self._failed(found.execution, error)
        else:
            found.granted()


@dataclass(frozen=True, slots=True)
class _Input:
    """The reading end of a channel."""

    execution: ExecutionId
    gate: Gate
    channel: InputChannel


@dataclass(frozen=True, slots=True)
class _Output:
    """The sending end of a channel."""

    execution: ExecutionId
    output: ChannelOutput
    granted: Callable[[], None]


class _PeerHandler:
    """What comes from one peer."""

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

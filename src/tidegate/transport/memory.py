"""Links inside one process: the faithful twin of ``transport.tcp``.

Frames are copied into bytes and delivered by the loop, one call a frame, in order.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidegate.errors import PeerLost
from tidegate.transport.wire import frame_bytes, not_understood

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.transport.wire import Accept, Buffer, Wire, WireHandler


class MemoryNetwork:
    """A network of one process: addresses are ``memory:<n>``."""

    def __init__(self) -> None:
        self.listeners: dict[str, Accept] = {}
        self._next = 0

    async def listen(self, accept: Accept) -> MemoryListener:
        address = f"memory:{self._next}"
        self._next += 1
        self.listeners[address] = accept
        return MemoryListener(self.listeners, address)

    async def connect(self, address: str, name: str, handler: WireHandler) -> Wire:
        accept = self.listeners.get(address)
        if accept is None:
            raise PeerLost(f"nobody listens at {address}")
        loop = asyncio.get_running_loop()
        ours, theirs = MemoryWire(loop, address), MemoryWire(loop, name)
        ours.join(theirs)
        theirs.join(ours)
        ours.handled_by(handler)
        theirs.handled_by(accept(theirs))
        return ours


class MemoryListener:
    """An address of a ``MemoryNetwork``."""

    def __init__(self, listeners: dict[str, Accept], address: str) -> None:
        self._listeners = listeners
        self.address = address

    async def close(self) -> None:
        self._listeners.pop(self.address, None)


class MemoryWire:
    """One end of a link inside a process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, peer: str) -> None:
        self._loop = loop
        self.peer = peer
        self._other: MemoryWire | None = None
        self._handler: WireHandler | None = None
        self._open = True

    def join(self, other: MemoryWire) -> None:
        self._other = other

    def handled_by(self, handler: WireHandler) -> None:
        """Sets the handler of incoming frames; its creator may have closed the link already."""
        self._handler = handler
        if not self._open:
            self._loop.call_soon(handler.on_closed, None)

    def send(self, parts: Sequence[Buffer]) -> None:
        other = self._other
        if self._open and other is not None:
            frame_bytes(parts, self.peer)
            self._loop.call_soon(other.deliver, b"".join(parts))

    def deliver(self, frame: bytes) -> None:
        if self._open and self._handler is not None:
            try:
                self._handler.on_frame(memoryview(frame))
            except Exception as error:
                self._end_both(not_understood(self.peer, error))

    def close(self) -> None:
        self._end_both(None)

    def _end_both(self, reason: PeerLost | None) -> None:
        if self._open and self._other is not None:
            closed = PeerLost(f"{self._other.peer} closed the connection")
            self._loop.call_soon(self._other.end, closed)
        self.end(reason)

    def end(self, error: PeerLost | None) -> None:
        if not self._open:
            return
        self._open = False
        if self._handler is not None:
            self._handler.on_closed(error)

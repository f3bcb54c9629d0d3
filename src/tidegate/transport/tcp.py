"""Links over TCP: frames of a four-byte length and a body, after the handshake."""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

from tidegate.errors import ConfigError, PeerLost
from tidegate.transport.handshake import NONCE_BYTES, Handshake
from tidegate.transport.wire import (
    FRAME_BYTES_MAX,
    Accept,
    Buffer,
    Wire,
    WireHandler,
    frame_bytes,
    not_understood,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_LENGTH = struct.Struct("!I")
_HANDSHAKE_FRAME_MAX = 4096


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop of a process: uvloop's where it is installed."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


class TcpNetwork:
    """Makes TCP links between processes that share a secret.

    host: the address to bind and to announce. ports: first and last port to try; (0, 0) takes any.
    draw: 64 random bits a call, for nonces. connect_timeout_s bounds connecting and proving.
    """

    def __init__(
        self,
        *,
        secret: bytes,
        host: str,
        draw: Callable[[], int],
        announce: str | None = None,
        ports: tuple[int, int] = (0, 0),
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._secret = secret
        self._host = host
        self._announce = announce or host
        self._draw = draw
        self._ports = ports
        self._timeout_s = connect_timeout_s

    async def listen(self, accept: Accept) -> TcpListener:
        """Take links from peers that know the secret. Raises ConfigError where no port is free."""
        loop = asyncio.get_running_loop()
        unproved: WeakSet[_TcpWire] = WeakSet()

        def proved(wire: _TcpWire) -> WireHandler:
            unproved.discard(wire)
            return accept(wire)

        def make() -> _TcpWire:
            handshake = self._handshake(server=True, name="")
            wire = _TcpWire(loop, handshake, proved, None, self._timeout_s)
            unproved.add(wire)
            return wire

        first, last = self._ports
        for port in range(first, last + 1):
            try:
                server = await loop.create_server(make, self._host, port)
            except OSError:
                continue
            bound = server.sockets[0].getsockname()[1]
            return TcpListener(server, f"{self._announce}:{bound}", unproved)
        raise ConfigError(
            f"no port from {first} to {last} is free on {self._host}",
            where="tidegate.net.port-range",
            remedy="Give a wider range, or 0 for any port.",
        )

    async def connect(self, address: str, name: str, handler: WireHandler) -> Wire:
        """Open a link and prove both sides. Raises PeerLost within the deadline."""
        loop = asyncio.get_running_loop()
        host, _, port = address.rpartition(":")
        proved: asyncio.Future[None] = loop.create_future()
        handshake = self._handshake(server=False, name=name)

        def make() -> _TcpWire:
            return _TcpWire(loop, handshake, lambda _: handler, proved, self._timeout_s)

        wire: _TcpWire | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                _, wire = await loop.create_connection(make, host, int(port))
                await proved
        except (OSError, TimeoutError) as error:
            raise PeerLost(
                f"cannot connect to {address}: {error or 'no answer in time'}",
                where=f"{name} to {address}",
                remedy="Check that the address can be reached from there, "
                "and that tidegate.net.port-range is open between the machines.",
            ) from error
        finally:
            if not proved.done() or proved.cancelled():
                proved.cancel()
                if wire is not None:
                    wire.close()  # given up, or too slow: nobody would own the link
        assert wire is not None, "connected, or an error was raised"
        return wire

    def _handshake(self, *, server: bool, name: str) -> Handshake:
        nonce = self._draw().to_bytes(8, "big") + self._draw().to_bytes(8, "big")
        return Handshake(secret=self._secret, server=server, name=name, nonce=nonce[:NONCE_BYTES])


class TcpListener:
    """A bound server socket. unproved: links that nobody but the listener knows of yet."""

    def __init__(
        self, server: asyncio.AbstractServer, address: str, unproved: Iterable[_TcpWire]
    ) -> None:
        self._server = server
        self._unproved = unproved
        self.address = address

    async def close(self) -> None:
        """Take no more links, and give up those that are being made."""
        self._server.close()
        for wire in list(self._unproved):
            wire.close()


class _TcpWire(asyncio.Protocol):
    """One end of a link: first the handshake, then frames."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handshake: Handshake,
        accept: Callable[[_TcpWire], WireHandler],
        proved: asyncio.Future[None] | None,
        timeout_s: float,
    ) -> None:
        self._loop = loop
        self._handshake: Handshake | None = handshake
        self._accept = accept
        self._proved = proved
        self._handler: WireHandler | None = None
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        self._have = 0
        self._want = _LENGTH.size
        self._closing = False
        self._timeout_s = timeout_s
        self._broken: PeerLost | None = None
        self._deadline = loop.call_later(timeout_s, self._expire)
        self.peer = ""

    # --- the wire ---

    def send(self, parts: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.writelines([_LENGTH.pack(frame_bytes(parts, self.peer)), *parts])

    def close(self) -> None:
        self._closing = True
        if self._transport is not None:
            # What was sent still goes out; a peer that does not read it is not waited for long.
            self._transport.close()
            self._deadline.cancel()
            self._deadline = self._loop.call_later(self._timeout_s, self._transport.abort)

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=FRAME_BYTES_MAX)
        greeting = self._handshake.greeting() if self._handshake else None
        if greeting is not None:
            self.send([greeting])

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._have += len(data)
        if self._have >= self._want:
            self._take_frames()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._transport = None
        reason = self._broken or PeerLost(
            f"the connection to {self.peer or 'a peer'} broke: {exc or 'closed'}"
        )
        if self._proved is not None and not self._proved.done():
            self._proved.set_exception(reason)
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_closed(None if self._closing else reason)

    # --- frames ---

    def _take_frames(self) -> None:
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        view = memoryview(data)
        at, end = 0, len(data)
        while end - at >= _LENGTH.size and not self._closing and self._broken is None:
            (size,) = _LENGTH.unpack_from(data, at)
            if size > (_HANDSHAKE_FRAME_MAX if self._handshake else FRAME_BYTES_MAX):
                self._abort(PeerLost(f"{self.peer or 'a peer'} sent a frame of {size} bytes"))
                return
            if end - at < _LENGTH.size + size:
                self._want = _LENGTH.size + size
                break
            frame = view[at + _LENGTH.size : at + _LENGTH.size + size]
            at += _LENGTH.size + size
            self._on_frame(frame)
        else:
            self._want = _LENGTH.size
        rest = data[at:]
        self._chunks = [rest] if rest else []
        self._have = len(rest)

    def _on_frame(self, frame: memoryview) -> None:
        if self._handshake is not None:
            self._prove(bytes(frame))
        elif self._handler is not None:
            try:
                self._handler.on_frame(frame)
            except Exception as error:
                self._abort(not_understood(self.peer, error))

    def _prove(self, frame: bytes) -> None:
        handshake = self._handshake
        assert handshake is not None, "frames after the proof are not the handshake's"
        try:
            answer = handshake.receive(frame)
        except PeerLost as error:
            self._abort(error)
            return
        if answer is not None:
            self.send([answer])
        if handshake.done:
            self._handshake = None
            self._deadline.cancel()
            self.peer = handshake.peer
            self._handler = self._accept(self)
            if self._proved is not None and not self._proved.done():
                self._proved.set_result(None)

    def _expire(self) -> None:
        if self._handshake is not None:
            self._abort(PeerLost("a peer has not proved itself in time"))

    def _abort(self, reason: PeerLost) -> None:
        self._broken = self._broken or reason
        if self._transport is not None:
            self._transport.abort()

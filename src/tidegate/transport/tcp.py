"""Links over TCP: frames of a four-byte length and a body, after the handshake."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import struct
import sys
from typing import TYPE_CHECKING, cast

from tidegate.errors import ConfigError, PeerLost
from tidegate.model.addresses import address_of, host_and_port, parted
from tidegate.transport.accepting import BACKLOG, Acceptor, Guest, takes_ipv4_too
from tidegate.transport.handshake import HANDSHAKE_FRAME_MAX, NONCE_BYTES, TAG_BYTES, Handshake
from tidegate.transport.keys import TLS_NAME, fingerprint, link_contexts, own_fingerprint
from tidegate.transport.standard import fill_standard
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
    import ssl
    from collections.abc import Callable, Sequence

    from tidegate.model.keys import Keys
    from tidegate.transport.handshake import Seal

_LENGTH = struct.Struct("!I")
_LATE_S = 0.5
_HEAR_FIRST_S = 1.0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Loop factory of a process: uvloop's if installed."""
    fill_standard()
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


class _Deadline:
    """Calls ``over`` after some time; a moment later where this process stood still until then.

    What was waited for may have come meanwhile, and wait unread.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, after_s: float, over: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._over = over
        self._due_s = loop.time() + after_s
        self._timer = loop.call_at(self._due_s, self._come)

    def cancel(self) -> None:
        self._timer.cancel()

    def _come(self) -> None:
        now_s = self._loop.time()
        if now_s - self._due_s > _LATE_S:
            self._due_s = now_s + _HEAR_FIRST_S
            self._timer = self._loop.call_at(self._due_s, self._come)
        else:
            self._over()


async def _reached(host: str, port: int) -> socket.socket:
    """A connection to the first address of a host that takes it. Raises OSError."""
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        link = socket.socket(family, kind, protocol)
        try:
            link.setblocking(False)
            await loop.sock_connect(link, address)
        except BaseException as error:
            link.close()
            if not isinstance(error, OSError):
                raise
            failed = error
        else:
            return link
    raise failed or OSError(f"{host} has no address")


class TcpNetwork:
    """Makes TCP links between processes that share a secret.

    host: the address to bind. announce: another one that leads here, with a port if that differs,
    too. ports: first and last port to try; (0, 0) takes any. keys: for TLS; None for plain links,
    whose frames carry tags where they are ``sealed``. connect_timeout_s bounds connecting, and the
    proof of who connects here; answer_timeout_s that of who was dialled, whose process may be busy.
    """

    def __init__(
        self,
        *,
        secret: bytes,
        host: str,
        announce: str | None = None,
        ports: tuple[int, int] = (0, 0),
        keys: Keys | None = None,
        sealed: bool = False,
        connect_timeout_s: float = 10.0,
        answer_timeout_s: float = 10.0,
    ) -> None:
        self._secret = secret
        self._host = host
        self._announce, self._announced_port = parted(announce or host)
        self._ports = ports
        self._sealed = sealed
        self._greeting: ssl.SSLContext | None = None
        self._dialling: ssl.SSLContext | None = None
        self._fingerprint = b""
        if keys is not None:
            self._greeting, self._dialling = link_contexts(keys)
            self._fingerprint = own_fingerprint(keys)
        self._timeout_s = connect_timeout_s
        self._answer_s = answer_timeout_s

    async def listen(self, accept: Accept) -> TcpListener:
        loop = asyncio.get_running_loop()
        listening = await self._bound()

        def handshake(transport: asyncio.Transport) -> Handshake:
            return self._handshake("", self._fingerprint, server=True)

        def make(guest: Guest) -> _TcpWire:
            def proved(wire: _TcpWire) -> WireHandler:
                guest.proved = True
                return accept(wire)

            return _TcpWire(loop, handshake, proved, None, self._timeout_s)

        port = listening.getsockname()[1]
        acceptor = Acceptor(listening, make, timeout_s=self._timeout_s, tls=self._greeting)
        return TcpListener(acceptor, address_of(self._announce, self._announced_port or port))

    async def _bound(self) -> socket.socket:
        first, last = self._ports
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise self._not_ours(error) from error
        # Spark takes the address of IPv4, too, where a name has one of each.
        found.sort(key=lambda each: each[0] != socket.AF_INET)
        family, _, _, _, (host, _, *scope) = found[0]
        for port in range(first, last + 1):
            try:
                return socket.create_server(
                    (host, port, *scope),
                    family=family,
                    backlog=BACKLOG,
                    dualstack_ipv6=takes_ipv4_too(str(host)),
                )
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise self._not_ours(error) from error
        raise ConfigError(
            f"no port from {first} to {last} is free on {self._host}",
            where="tidegate.net.port-range",
            remedy="Give a wider range, or 0 for any port. A driver has the port of "
            "tidegate.net.driver-bind-address, or of tidegate.net.driver-address, if there is one.",
        )

    def _not_ours(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"nobody can listen at {self._host} on {socket.gethostname()}: {error}",
            where="tidegate.net.driver-bind-address",
            remedy="Name an address of this machine. Where another one leads here, give that as "
            "tidegate.net.driver-address; on a node of slots, see tidegate.net.network.",
        )

    async def connect(self, address: str, name: str, handler: WireHandler) -> Wire:
        loop = asyncio.get_running_loop()
        host, port = host_and_port(address)
        proved: asyncio.Future[None] = loop.create_future()

        def handshake(transport: asyncio.Transport) -> Handshake:
            link: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
            theirs = b"" if link is None else fingerprint(link.getpeercert(binary_form=True))
            return self._handshake(name, theirs, server=False)

        def make() -> _TcpWire:
            return _TcpWire(loop, handshake, lambda _: handler, proved, self._timeout_s)

        wire: _TcpWire | None = None
        limit, limit_s = asyncio.timeout(None), self._timeout_s

        def over() -> None:
            limit.reschedule(loop.time())

        deadline = _Deadline(loop, limit_s, over)
        try:
            async with limit:
                link = await _reached(host, port)
                # From here on the peer's loop has to turn, which a function may hold up.
                deadline.cancel()
                limit_s = self._answer_s
                deadline = _Deadline(loop, limit_s, over)
                tls = self._dialling
                _, wire = await loop.create_connection(
                    make,
                    sock=link,
                    ssl=tls,
                    server_hostname=None if tls is None else TLS_NAME,
                    ssl_handshake_timeout=None if tls is None else limit_s,
                )
                await proved
        except (OSError, TimeoutError) as error:
            raise PeerLost(
                f"cannot connect to {address}: {str(error) or f'no answer within {limit_s:g} s'}",
                where=f"{name} to {address}",
                remedy="Check that the address can be reached from there, that "
                "tidegate.net.port-range is open between the machines, and that no function there, "
                "such as an open(), is in one call for so long.",
            ) from error
        finally:
            deadline.cancel()
            if not proved.done() or proved.cancelled():
                proved.cancel()
                if wire is not None:
                    wire.close()  # given up, or too slow: nobody would own the link
        assert wire is not None, "connected, or an error was raised"
        return wire

    def _handshake(self, name: str, binding: bytes, *, server: bool) -> Handshake:
        return Handshake(
            secret=self._secret,
            server=server,
            name=name,
            nonce=secrets.token_bytes(NONCE_BYTES),
            binding=binding,
            sealed=self._sealed,
        )


class TcpListener:
    """A bound server socket."""

    def __init__(self, acceptor: Acceptor, address: str) -> None:
        self._acceptor = acceptor
        self.address = address

    async def close(self) -> None:
        await self._acceptor.close()


class _TcpWire(asyncio.Protocol):
    """One end of a link: first the handshake, then frames."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin: Callable[[asyncio.Transport], Handshake],
        accept: Callable[[_TcpWire], WireHandler],
        proved: asyncio.Future[None] | None,
        timeout_s: float,
    ) -> None:
        self._loop = loop
        self._begin = begin
        self._handshake: Handshake | None = None
        self._trusted = False
        self._frame_max = HANDSHAKE_FRAME_MAX
        self._seals: tuple[Seal, Seal] | None = None
        self._encrypted = False
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
        self._deadline: _Deadline | asyncio.TimerHandle = _Deadline(loop, timeout_s, self._expire)
        self.peer = ""

    # --- the wire ---

    def send(self, parts: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        size = frame_bytes(parts, self.peer)
        if self._seals is not None:
            parts, size = [*parts, self._seals[0].tag(parts)], size + TAG_BYTES
        whole = [_LENGTH.pack(size), *parts]
        if self._encrypted:
            transport.write(b"".join(whole))  # else each part is a TLS record of its own
        else:
            transport.writelines(whole)

    def close(self) -> None:
        self._closing = True
        if self._transport is not None:
            # Sent data still go out, but we don't wait long for a peer that does not read.
            self._transport.close()
            self._deadline.cancel()
            self._deadline = self._loop.call_later(self._timeout_s, self._transport.abort)

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._broken is not None:  # the time for the proof was over before there was a link
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=FRAME_BYTES_MAX)
        self._encrypted = transport.get_extra_info("ssl_object") is not None
        self._handshake = self._begin(self._transport)
        greeting = self._handshake.greeting()
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
            if size > self._frame_max:
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
        if self._seals is not None:
            try:
                frame = self._seals[1].opened(frame)
            except PeerLost as error:
                self._abort(error)
                return
        if not self._trusted:
            self._prove(bytes(frame))
        elif self._handler is not None:
            try:
                self._handler.on_frame(frame)
            except Exception as error:
                self._abort(not_understood(self.peer, error))

    def _prove(self, frame: bytes) -> None:
        handshake = self._handshake
        assert handshake is not None, "a frame comes over a link that was made"
        try:
            answer = handshake.receive(frame)
        except PeerLost as error:
            self._abort(error)
            return
        if answer is not None:
            self.send([answer])
        if handshake.done:
            self._handshake, self._trusted = None, True
            self._seals = handshake.seals
            self._frame_max = FRAME_BYTES_MAX + (TAG_BYTES if self._seals else 0)
            self._deadline.cancel()
            self.peer = handshake.peer
            self._handler = self._accept(self)
            if self._proved is not None and not self._proved.done():
                self._proved.set_result(None)

    def _expire(self) -> None:
        if not self._trusted and self._proved is None:  # who has dialled has limits of its own
            self._abort(PeerLost("a peer has not proved itself in time"))

    def _abort(self, reason: PeerLost) -> None:
        self._broken = self._broken or reason
        if self._transport is not None:
            self._transport.abort()

"""What comes over a link before and after its proof."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, cast

from tests.fuzzing.cases import Opened, Reader
from tidegate.errors import FormatError, PeerLost
from tidegate.model.ids import Attempt, ChannelId, Epoch
from tidegate.transport.handshake import Handshake
from tidegate.transport.protocol import FrameHeader, FrameKind, pack, unpack
from tidegate.transport.tcp import _TcpWire  # pyright: ignore[reportPrivateUsage]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.transport.wire import Buffer

SECRET = b"k" * 32
_LENGTH = struct.Struct("!I")


def readers_of_links() -> list[Reader]:
    """A peer that is not understood is lost; a link never raises into the loop."""
    return [
        Reader("handshake, as server", lambda: _handshake(server=True), (PeerLost,)),
        Reader("handshake, as client", lambda: _handshake(server=False), (PeerLost,)),
        Reader("frames", _frames, (FormatError,)),
        Reader("link, as server", lambda: _link(server=True), ()),
        Reader("link, as client", lambda: _link(server=False), ()),
    ]


def _side(*, server: bool) -> Handshake:
    nonce = b"s" * 16 if server else b"c" * 16
    return Handshake(secret=SECRET, server=server, name="" if server else "slot-1", nonce=nonce)


def _exchanged() -> tuple[bytes, bytes, bytes]:
    """Greeting of a server, answer of a client, proof of the server."""
    server, client = _side(server=True), _side(server=False)
    greeting = server.greeting()
    assert greeting is not None
    answer = client.receive(greeting)
    assert answer is not None
    proof = server.receive(answer)
    assert proof is not None
    return greeting, answer, proof


def _handshake(*, server: bool) -> Opened:
    greeting, answer, proof = _exchanged()
    seeds = [answer] if server else [greeting, proof]

    def read(index: int, data: bytes) -> None:
        side = _side(server=server)
        if index == 1:
            side.receive(greeting)
        side.receive(data)
        # Only what both know makes the proof, so nothing that was changed may pass.
        assert not side.done or data[:-32] in (answer[:-32], proof[:-32]), "a changed proof passed"
        if side.done:
            side.peer  # noqa: B018 (it is decoded here)

    return Opened(seeds, read)


def _frames() -> Opened:
    headers = [FrameHeader(kind, ChannelId(1, 2, 3), Epoch(4), Attempt(5), 6) for kind in FrameKind]
    return Opened([pack(h) + b"body" for h in headers], lambda _, data: unpack(memoryview(data)))


class _Transport:
    """Takes what is written."""

    def __init__(self) -> None:
        self.over = False

    def writelines(self, parts: Sequence[Buffer]) -> None:
        pass

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        self.over = True

    def abort(self) -> None:
        self.over = True

    def get_extra_info(self, name: str) -> None:
        """Knows of no encryption."""


class _Timer:
    def cancel(self) -> None:
        pass


class _Loop:
    """Never wakes anybody, and stands still."""

    def time(self) -> float:
        return 0.0

    def call_at(self, when_s: float, call: Callable[[], None]) -> _Timer:
        return _Timer()


class _Handler:
    """Reads frames as a data link does."""

    def on_frame(self, frame: memoryview) -> None:
        unpack(frame)

    def on_closed(self, error: PeerLost | None) -> None:
        pass


def _link(*, server: bool) -> Opened:
    greeting, answer, proof = _exchanged()
    header = FrameHeader(FrameKind.ELEMENT, ChannelId(1, 2, 3), Epoch(4), Attempt(5))
    frames = [pack(header) + b"x" * size for size in (0, 1, 300)]
    opening = [answer] if server else [greeting, proof]
    whole = b"".join(_LENGTH.pack(len(f)) + f for f in (*opening, *frames))

    def read(_: int, data: bytes) -> None:
        loop, transport = _Loop(), _Transport()
        wire = _TcpWire(
            cast("Any", loop),
            lambda _: _side(server=server),
            lambda _: _Handler(),
            None,
            timeout_s=1.0,
        )
        wire.connection_made(cast("Any", transport))
        step = 1 + zlib.crc32(data) % 40
        for begin in range(0, len(data), step):
            if transport.over:
                break
            wire.data_received(data[begin : begin + step])
        wire.connection_lost(None)

    return Opened([whole, whole[: len(whole) // 2]], read)

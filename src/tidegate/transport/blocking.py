"""A link to a driver for threads that block: the same handshake and frames as the loop's links."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
from typing import TYPE_CHECKING, Final

from tidegate.errors import PeerLost
from tidegate.model.addresses import host_and_port
from tidegate.transport.handshake import HANDSHAKE_FRAME_MAX, Handshake
from tidegate.transport.keys import TLS_NAME, dialling_context, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.model.keys import Keys

READ_BYTES: Final = 65_536

_LENGTH: Final = struct.Struct("!I")


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> list[bytes]:
        self._data += data
        frames: list[bytes] = []
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            frames.append(self._data[_LENGTH.size : end])
            self._data = self._data[end:]
        return frames


def framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


class BlockingLink:
    """A proved link on which frames are sent. Raises OSError or PeerLost if it cannot be made.

    nonce: sixteen random bytes. timeout_s: of each step. lease_ms: so long may sent bytes stay
    unacknowledged. keys, sealed: as in the slot's invitation.
    """

    def __init__(
        self,
        driver: str,
        *,
        secret: bytes,
        name: str,
        nonce: Callable[[], bytes],
        timeout_s: float,
        lease_ms: int,
        keys: Keys | None = None,
        sealed: bool = False,
    ) -> None:
        self._timeout_s = timeout_s
        self._frames = Frames()
        self._socket = socket.create_connection(host_and_port(driver), timeout=timeout_s)
        try:
            if sys.platform == "linux":
                # Without a limit, frames to a vanished peer would seem to arrive for minutes.
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, lease_ms)
            binding = b"" if keys is None else self._encrypt(keys)
            handshake = Handshake(
                secret=secret,
                server=False,
                name=name,
                nonce=nonce(),
                binding=binding,
                sealed=sealed,
            )
            while not handshake.done:
                answer = handshake.receive(self._read_frame())
                if answer is not None:
                    self._socket.sendall(framed(answer))
        except BaseException:
            self._socket.close()
            raise
        seals = handshake.seals
        self._seal, self._checks = (None, None) if seals is None else seals

    @property
    def waits_on(self) -> socket.socket:
        """Object to pass to ``select``; readable once the other end has sent something."""
        return self._socket

    def send(self, frame: bytes) -> None:
        if self._seal is not None:
            frame += self._seal.tag([frame])
        self._socket.sendall(framed(frame))

    def receive(self) -> list[bytes]:
        """The frames that have come by now; does not wait.

        Raises PeerLost if the other end has closed the link, or a frame is not its own.
        """
        frames: list[bytes] = []
        self._socket.settimeout(0)
        try:
            # TLS may hold decrypted bytes that ``select`` does not see.
            while data := self._socket.recv(READ_BYTES):
                frames += self._frames.feed(data)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            pass
        else:
            raise PeerLost("the driver closed the link")
        finally:
            self._socket.settimeout(self._timeout_s)
        if self._checks is None:
            return frames
        return [bytes(self._checks.opened(memoryview(frame))) for frame in frames]

    def close(self) -> None:
        self._socket.close()

    def _encrypt(self, keys: Keys) -> bytes:
        """Puts TLS on the connection; returns the bytes to which its proof is bound."""
        link = dialling_context(keys).wrap_socket(self._socket, server_hostname=TLS_NAME)
        self._socket = link
        return fingerprint(link.getpeercert(binary_form=True))

    def _read_frame(self) -> bytes:
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if size > HANDSHAKE_FRAME_MAX:
            raise PeerLost("the driver answered with no handshake")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise PeerLost("the driver closed the link")
            data += piece
        return data

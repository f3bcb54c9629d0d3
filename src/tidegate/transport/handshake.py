"""Proof that both ends of a link know the job's secret, before a byte is unpickled.

Both sides send a nonce; each answers the other's with an HMAC-SHA256 over both nonces, its role
and its name. From then on frames carry tags on links without TLS: a changed, missing or repeated
one is detected. Bytes: docs/formats/wire.md.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from tidegate.errors import PeerLost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.transport.wire import Buffer

MAGIC = b"TGW1"
NONCE_BYTES = 16
PROOF_BYTES = 32
HANDSHAKE_FRAME_MAX: Final = 4096
_NAME_LENGTH = struct.Struct("!H")

TAG_BYTES: Final = 16
_COUNT: Final = struct.Struct("!Q")


class Handshake:
    """One side of the exchange, without IO: give it frames, send what it returns.

    Order: the server sends its greeting at once; the client answers with greeting and proof; the
    server sends its proof. binding: what both ends know of the TLS link below, the same on both,
    so that nobody passes on the proofs from one link to another; empty if there is none. sealed:
    whether frames carry tags from the proof on.
    """

    def __init__(
        self,
        *,
        secret: bytes,
        server: bool,
        name: str,
        nonce: bytes,
        binding: bytes = b"",
        sealed: bool = False,
    ) -> None:
        assert len(nonce) == NONCE_BYTES, "a nonce has sixteen bytes"
        self._secret = secret
        self._binding = binding
        self._sealed = sealed
        self._server = server
        self._name = name.encode()
        self._nonce = nonce
        self._peer_nonce = b""
        self._peer_name = b""
        self.done = False

    @property
    def peer(self) -> str:
        return self._peer_name.decode()

    def greeting(self) -> bytes | None:
        """Bytes that this side sends before it has received anything."""
        return MAGIC + self._nonce if self._server else None

    def receive(self, frame: bytes) -> bytes | None:
        """Takes a frame of the exchange; returns the reply to send, if any. Raises PeerLost."""
        if self._server:
            return self._receive_as_server(frame)
        return self._receive_as_client(frame)

    def _receive_as_client(self, frame: bytes) -> bytes | None:
        if not self._peer_nonce:
            self._peer_nonce = _nonce_of(frame)
            # The caller proves itself first, so a stranger gets no proof of the server to work on.
            name = _NAME_LENGTH.pack(len(self._name)) + self._name
            return MAGIC + self._nonce + name + self._proof(b"client", self._name)
        self._check(frame, b"server", b"")
        self.done = True
        return None

    def _receive_as_server(self, frame: bytes) -> bytes:
        self._peer_nonce = _nonce_of(frame)
        rest = frame[len(MAGIC) + NONCE_BYTES :]
        if len(rest) < _NAME_LENGTH.size + PROOF_BYTES:
            raise PeerLost("a peer sent a handshake that is too short")
        (length,) = _NAME_LENGTH.unpack_from(rest)
        self._peer_name = rest[_NAME_LENGTH.size : _NAME_LENGTH.size + length]
        self._check(rest[_NAME_LENGTH.size + length :], b"client", self._peer_name)
        self.done = True
        return self._proof(b"server", b"")

    @property
    def seals(self) -> tuple[Seal, Seal] | None:
        """Seals for sending and receiving after the proof; None on links without tags."""
        assert self.done, "keys come from both nonces"
        if not self._sealed:
            return None
        of_server = Seal(self._proof(b"seal of server", b""))
        of_client = Seal(self._proof(b"seal of client", b""))
        return (of_server, of_client) if self._server else (of_client, of_server)

    def _proof(self, role: bytes, name: bytes) -> bytes:
        ours, theirs = (self._nonce, self._peer_nonce)
        nonces = ours + theirs if self._server else theirs + ours
        # With the role in it, a proof cannot be sent back to the one who made it.
        said = role + nonces + self._binding + name
        return hmac.new(self._secret, said, hashlib.sha256).digest()

    def _check(self, proof: bytes, role: bytes, name: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(role, name)):
            raise PeerLost(
                "a peer does not know the job's secret",
                remedy="Look for a program of another job, or a scanner, at this port.",
            )


def _nonce_of(frame: bytes) -> bytes:
    if frame[: len(MAGIC)] != MAGIC or len(frame) < len(MAGIC) + NONCE_BYTES:
        raise PeerLost("a peer speaks another protocol, or another version of this one")
    return frame[len(MAGIC) : len(MAGIC) + NONCE_BYTES]


class Seal:
    """Makes or checks tags of one direction by counting its frames. key: at most 64 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def tag(self, parts: Iterable[Buffer]) -> bytes:
        digest = blake2b(_COUNT.pack(self._count), digest_size=TAG_BYTES, key=self._key)
        self._count += 1
        for part in parts:
            digest.update(part)
        return digest.digest()

    def opened(self, frame: memoryview) -> memoryview:
        """The next frame without its tag. Raises PeerLost if the tag is wrong."""
        body, tag = frame[:-TAG_BYTES], frame[-TAG_BYTES:]
        if len(frame) < TAG_BYTES or not hmac.compare_digest(self.tag([body]), tag):
            raise PeerLost(
                "a frame was changed on its way, or put there by somebody else",
                remedy="Find out who can write into connections between the machines; "
                "tidegate.security.internal: auto encrypts them.",
            )
        return body

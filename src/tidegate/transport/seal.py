"""Tags on the frames of links without TLS: a changed, missing or repeated frame is detected.

Each direction of each link has a key of its own, and its frames are counted.
"""

from __future__ import annotations

import hmac
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from tidegate.errors import PeerLost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.transport.wire import Buffer

TAG_BYTES: Final = 16
_COUNT: Final = struct.Struct("!Q")


class Seal:
    """Makes or checks the tags of one direction. key: at most 64 bytes."""

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

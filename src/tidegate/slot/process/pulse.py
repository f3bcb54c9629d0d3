"""The link that a slot's heartbeats take to the driver; apart from the slot's own, and blocking."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from tidegate.errors import PeerLost
from tidegate.transport.blocking import BlockingLink

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tidegate.model.keys import Keys

PULSE_PREFIX = "pulse:"
"""The name of a pulse link begins with this; the slot's id follows."""


class PulseLink:
    """Dials the driver when there is something to send, and again after the link broke.

    nonce: sixteen random bytes. timeout_s: of each step. lease_ms: as long may sent bytes stay
    unacknowledged. keys, sealed: as in the slot's invitation.
    """

    def __init__(
        self,
        *,
        driver: str,
        secret: bytes,
        name: str,
        nonce: Callable[[], bytes],
        timeout_s: float,
        lease_ms: int,
        keys: Keys | None = None,
        sealed: bool = False,
    ) -> None:
        self._driver = driver
        self._secret = secret
        self._name = f"{PULSE_PREFIX}{name}"
        self._nonce = nonce
        self._timeout_s = timeout_s
        self._lease_ms = lease_ms
        self._keys = keys
        self._sealed = sealed
        self._link: BlockingLink | None = None

    @property
    def waits_on(self) -> socket.socket | None:
        """Becomes readable when the driver has said something; None without a link."""
        return None if self._link is None else self._link.waits_on

    def send(self, frame: bytes) -> bool:
        """Sends a frame; False if the driver was not reached."""
        try:
            link = self._link = self._link or self._connect()
            link.send(frame)
        except (OSError, PeerLost):
            self.close()
            return False
        return True

    def receive(self) -> list[object]:
        """Take the messages that have come from the driver."""
        if self._link is None:
            return []
        try:
            return [pickle.loads(frame) for frame in self._link.receive()]
        except (OSError, PeerLost):
            self.close()
            return []

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connect(self) -> BlockingLink:
        return BlockingLink(
            self._driver,
            secret=self._secret,
            name=self._name,
            nonce=self._nonce(),
            timeout_s=self._timeout_s,
            lease_ms=self._lease_ms,
            keys=self._keys,
            sealed=self._sealed,
        )

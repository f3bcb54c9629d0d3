"""The link that a slot's heartbeats take to the driver; apart from the slot's own, and blocking."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from tidegate.errors import PeerLost

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tidegate.transport.blocking import BlockingLink

PULSE_PREFIX = "pulse:"
"""The name of a pulse link begins with this; the slot's id follows."""


class PulseLink:
    """Dials the driver when there is something to send, and again after the link broke.

    dial: makes a link to the driver, under a name that begins with `PULSE_PREFIX`.
    """

    def __init__(self, dial: Callable[[], BlockingLink]) -> None:
        self._dial = dial
        self._link: BlockingLink | None = None

    @property
    def waits_on(self) -> socket.socket | None:
        """Becomes readable when the driver has said something; None without a link."""
        return None if self._link is None else self._link.waits_on

    @property
    def is_open(self) -> bool:
        """True if the driver has what was sent before, as far as is known."""
        return self._link is not None

    def send(self, frame: bytes) -> bool:
        """Sends a frame; False if the driver was not reached."""
        try:
            link = self._link = self._link or self._dial()
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

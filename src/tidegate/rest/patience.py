"""Limits the time in which a connection must send its next request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidegate.transport.accepting import Guest

REQUEST_TIMEOUT_S: Final = 10.0
"""Time for the head of a request, counted from the last answer, and again for its body."""


class Patience:
    """Ends connections that do not send a whole request in time.

    A connection is known by its protocol, which is what a request of aiohttp names.
    """

    def __init__(self, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.timeout_s: Final = timeout_s
        self._waiting: dict[object, asyncio.TimerHandle] = {}
        self._guests: dict[object, Guest] = {}

    def came(self, protocol: object, guest: Guest) -> None:
        self._guests[protocol] = guest
        self._wait(protocol)

    def asked(self, protocol: object) -> None:
        waiting = self._waiting.pop(protocol, None)
        if waiting is not None:
            waiting.cancel()

    def answered(self, protocol: object) -> None:
        if protocol in self._guests:
            self._wait(protocol)

    def close(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()

    def _wait(self, protocol: object) -> None:
        self.asked(protocol)  # requests sent ahead are answered in a row
        loop = asyncio.get_running_loop()
        self._waiting[protocol] = loop.call_later(self.timeout_s, self._give_up, protocol)

    def _give_up(self, protocol: object) -> None:
        del self._waiting[protocol]
        self._guests.pop(protocol).cut()

"""Accepts connections on a listening socket, however many strangers connect.

Connections whose other end has not proved itself are few, and the oldest makes room for the next.
Strangers never get the last descriptors of the process: the files of checkpoints need them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

BACKLOG: Final = 128
UNPROVED_MAX: Final = 128
"""How many unproved connections one port has; fewer where the process may open few files."""

_AGE_S: Final = 1.0
"""How long a connection is left to prove itself before it has to make room."""

_PAUSE_S: Final = 0.1
_SHARE: Final = 8
"""One in so many descriptors is for strangers of one port, and as many stay in reserve."""

_RESERVE_MAX: Final = 64


def listening_at(address: str, port: int) -> socket.socket:
    """A socket that listens at a name or an address; ``::`` takes IPv4 too. Raises OSError."""
    return socket.create_server(
        (address, port),
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        backlog=BACKLOG,
        dualstack_ipv6=takes_ipv4_too(address),
    )


def takes_ipv4_too(address: str) -> bool:
    """True for all addresses as IPv6 writes them, where the system can do it."""
    return address == "::" and socket.has_dualstack_ipv6()


class Guest:
    """A connection whose other end has not proved itself yet."""

    def __init__(self, link: socket.socket, since_s: float) -> None:
        self.link = link
        self.since_s = since_s
        self.proved = False

    @property
    def waiting(self) -> bool:
        return not self.proved and self.link.fileno() >= 0

    def cut(self) -> None:
        """Ends the connection; its protocol is told as for any lost connection."""
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_RDWR)


class Acceptor:
    """Accepts until it is closed; a shortage of descriptors makes it pause.

    make: the protocol of a connection, which sets ``proved`` on the guest once it trusts the other
    end. tls: None for plain connections. timeout_s bounds a TLS handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[Guest], asyncio.BaseProtocol],
        *,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        unproved_max: int = UNPROVED_MAX,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._make = make
        self._timeout_s = timeout_s
        self._tls = tls
        self._last_fd, share = _descriptors()
        self._unproved_max = min(unproved_max, share)
        self._guests: list[Guest] = []
        self._greeting: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)

    async def close(self) -> None:
        """Stops accepting, and drops connections that have not proved themselves."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for guest in self._guests:
            if guest.waiting:
                guest.cut()
        await asyncio.gather(*self._greeting, return_exceptions=True)

    def _accept(self) -> None:
        # Accept one in each turn of the loop, so that earlier guests can prove themselves first.
        if not self._has_room():
            return
        try:
            link, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:
            self._pause(_PAUSE_S)
            return
        # The kernel gives the lowest free number, so a high one says that few are left.
        if link.fileno() > self._last_fd:
            link.close()
            self._pause(_PAUSE_S)
            return
        guest = Guest(link, self._loop.time())
        self._guests.append(guest)
        greeting = self._loop.create_task(self._greet(guest))
        self._greeting.add(greeting)
        greeting.add_done_callback(self._greeting.discard)

    def _has_room(self) -> bool:
        self._guests = [guest for guest in self._guests if guest.waiting]
        if len(self._guests) < self._unproved_max:
            return True
        age_s = self._loop.time() - self._guests[0].since_s
        if age_s < _AGE_S:
            self._pause(_AGE_S - age_s)
            return False
        self._guests.pop(0).cut()
        return True

    async def _greet(self, guest: Guest) -> None:
        link = guest.link
        link.setblocking(False)
        # A peer that disconnects, or does not speak TLS, needs no report.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(
                lambda: self._make(guest),
                link,
                ssl=self._tls,
                ssl_handshake_timeout=self._timeout_s if self._tls else None,
            )

    def _pause(self, for_s: float) -> None:
        self._loop.remove_reader(self._listening)
        self._resuming = self._loop.call_later(for_s, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._listening, self._accept)


def _descriptors() -> tuple[int, int]:
    """The highest descriptor that a stranger may get, and how many strangers may have one."""
    if sys.platform == "win32":
        return sys.maxsize, UNPROVED_MAX
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize, UNPROVED_MAX
    share = max(soft // _SHARE, 1)
    return soft - min(share, _RESERVE_MAX), share

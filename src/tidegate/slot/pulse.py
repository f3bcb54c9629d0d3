"""The slot's heartbeat, on a thread and a link of its own.

A slow user function holds the loop; the pulse goes on and says for how long. It also watches: a
slot whose parent process is gone, or whose driver cannot be reached for the lease, ends at once,
since whatever it would still write counts for nothing.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import sys
import threading
from typing import TYPE_CHECKING

from tidegate.errors import PeerLost
from tidegate.model.control import Pulse
from tidegate.model.ids import SlotId
from tidegate.transport.handshake import Handshake

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.clock import Clock

PULSE_PREFIX = "pulse:"
"""What a pulse link calls itself: this and the slot's id."""

_LENGTH = struct.Struct("!I")


class PulseThread:
    """Beats each ``every_ms`` until stopped.

    give_up: called, on this thread, when the slot must end at once. nonce: sixteen random bytes.
    """

    def __init__(
        self,
        *,
        driver: str,
        secret: bytes,
        name: str,
        nonce: Callable[[], bytes],
        read: Callable[[], Pulse],
        clock: Clock,
        every_ms: int,
        lease_ms: int,
        give_up: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._secret = secret
        self._name = f"{PULSE_PREFIX}{name}"
        self._nonce = nonce
        self._read = read
        self._clock = clock
        self._every_ms = every_ms
        self._lease_ms = lease_ms
        self._give_up = give_up
        self._newest = pickle.dumps(Pulse(SlotId(name)), protocol=5)
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._beat, name="tidegate-pulse", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the thread."""
        self._stopped.set()
        self._thread.join(timeout=5)
        self._disconnect()

    def _beat(self) -> None:
        parent = os.getppid()
        reached_ms = self._clock.monotonic_ms()
        while not self._stopped.wait(self._every_ms / 1000):
            if os.getppid() != parent:
                self._give_up("the process that started this slot is gone")
                return
            now = self._clock.monotonic_ms()
            if self._send(self._frame()):
                reached_ms = now
            elif now - reached_ms > self._lease_ms:
                self._give_up(f"the driver was not reached for {self._lease_ms} ms")
                return

    def _frame(self) -> bytes:
        # Where the loop changes what is being read, older figures are still a sign of life.
        with contextlib.suppress(RuntimeError):
            self._newest = pickle.dumps(self._read(), protocol=5)
        return self._newest

    def _send(self, frame: bytes) -> bool:
        try:
            link = self._socket or self._connect()
            link.sendall(_LENGTH.pack(len(frame)) + frame)
        except (OSError, PeerLost):
            self._disconnect()
            return False
        return True

    def _connect(self) -> socket.socket:
        host, _, port = self._driver.rpartition(":")
        link = socket.create_connection((host, int(port)), timeout=self._every_ms / 1000 + 2)
        self._socket = link
        if sys.platform == "linux":
            # Else beats into a link whose other end has vanished seem to arrive for minutes.
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._lease_ms)
        handshake = Handshake(
            secret=self._secret, server=False, name=self._name, nonce=self._nonce()
        )
        while not handshake.done:
            answer = handshake.receive(_read_frame(link))
            if answer is not None:
                link.sendall(_LENGTH.pack(len(answer)) + answer)
        return link

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _read_frame(link: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(_read(link, _LENGTH.size))
    if size > 4096:
        raise PeerLost("the driver answered with no handshake")
    return _read(link, size)


def _read(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            raise PeerLost("the driver closed the pulse link")
        data += piece
    return data

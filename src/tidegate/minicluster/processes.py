"""Slots as processes of this machine, each forked from the program's fork server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import ConfigError, PeerLost, SlotLost
from tidegate.minicluster.messages import JobStart, KillSlot, SlotEnded, StartSlot, receive, send
from tidegate.model.descriptors import shortage
from tidegate.model.versions import versions
from tidegate.slot.process.preload import modules_of_job, modules_of_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.errors import TidegateError
    from tidegate.minicluster.forking import Forking
    from tidegate.model.control import SlotInvitation
    from tidegate.transport.security import LinkSecurity

CLOSE_TIMEOUT_S = 10.0

EXIT_MISPLACED: Final = 78
"""Exit status of a slot without an address or port as the settings ask for; C's EX_CONFIG."""

LISTEN_MS: Final = 60_000
"""Longest single wait for news of the fork server; after it the wait is repeated."""


class ProcessProvider:
    """The `SlotProvider` that forks processes."""

    tells_ends = True

    def __init__(self, forking: Forking, security: LinkSecurity) -> None:
        self._forking = forking
        self._security = security
        self._invitation: SlotInvitation | None = None
        self._failed: Callable[[str, TidegateError, bool], None] | None = None
        self._channel: socket.socket | None = None
        self._listeners: list[threading.Thread] = []
        self._requests = 0
        self._alive: dict[str, socket.socket] = {}
        self._changed = threading.Condition()
        self._released = False

    def start(
        self,
        invitation: SlotInvitation,
        failed: Callable[[str, TidegateError, bool], None],
        ended: Callable[[str], None],
    ) -> None:
        # Slots are forked by a process of the same interpreter, which is there for this program.
        self._invitation = replace(invitation, driver_process=os.getpid(), versions=versions())
        self._failed = failed

    def request(self, count: int) -> None:
        for _ in range(count):
            request = f"process-{self._requests}"
            self._requests += 1
            try:
                self._start_one(request)
            except OSError as error:
                if (short := shortage(error)) is not None:
                    self._missed(request, short)
                else:
                    text, final = self._forking.why_it_ended()
                    self._missed(request, SlotLost(text), final=final)

    def release(self) -> None:
        self._released = True

    async def close(self) -> None:
        self._released = True
        await asyncio.get_running_loop().run_in_executor(None, self._end_processes)

    def _end_processes(self) -> None:
        if not self._wait_for_all():
            with self._changed:
                left = dict(self._alive)
            for request, channel in left.items():
                with contextlib.suppress(OSError):  # a server that is gone took its slots along
                    send(channel, KillSlot(request))
            self._wait_for_all()
        if (channel := self._channel) is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
        for listener in self._listeners:
            listener.join(CLOSE_TIMEOUT_S)

    def _wait_for_all(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._alive, CLOSE_TIMEOUT_S)

    async def hint(self) -> str:
        return "slot processes are slow to start: the machine may be busy"

    def _start_one(self, request: str) -> None:
        assert self._invitation is not None, "started before anything is requested"
        channel = self._channel or self._open()
        with self._changed:
            self._alive[request] = channel
        send(channel, StartSlot(self._security.invite(self._invitation, request)))

    def _open(self) -> socket.socket:
        channel = self._channel = self._forking.channel()
        modules, later = modules_of_job(), modules_of_program()
        path, folder = tuple(sys.path), str(Path.cwd())
        send(channel, JobStart(path, modules, later, dict(os.environ), folder))
        listener = threading.Thread(
            target=self._listen, args=(channel,), name="tidegate-slots", daemon=True
        )
        self._listeners.append(listener)
        listener.start()
        return channel

    def _listen(self, channel: socket.socket) -> None:
        """Watches for slots that end, until the server or the channel does."""
        with channel:
            while isinstance(message := _next(channel), SlotEnded):
                if message.how.endswith(f" {EXIT_MISPLACED}"):
                    self._missed(message.request, _misplaced(), final=True)
                else:
                    self._missed(message.request, SlotLost(f"slot {message.how}"))
            if self._channel is channel:
                self._channel = None
        with self._changed:
            lost = [request for request, its in self._alive.items() if its is channel]
        if lost:
            text, final = self._forking.why_it_ended()
            for request in lost:
                self._missed(request, SlotLost(text), final=final)

    def _missed(self, request: str, lost: TidegateError, *, final: bool = False) -> None:
        # Report normal ends too: the driver misses a slot whose link broke before its offer.
        with self._changed:
            self._alive.pop(request, None)
            self._changed.notify_all()
        if not self._released and self._failed is not None:
            self._failed(request, lost, final)


def _misplaced() -> ConfigError:
    return ConfigError(
        "a slot cannot listen where it is told to; its process has printed why",
        where="tidegate.net.port-range, tidegate.net.network",
        remedy="Give a wider range of ports, or a network that this machine is in.",
    )


def _next(channel: socket.socket) -> object:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while not poll.poll(LISTEN_MS):
        pass
    return receive(channel)


def slot_process(invitation: SlotInvitation) -> int:
    """Life of a slot process; returns its exit status."""
    from tidegate.slot.process.serve import serve

    try:
        serve(invitation)
    except ConfigError as error:
        sys.stderr.write(f"tidegate: {error}\n")
        return EXIT_MISPLACED
    except PeerLost as error:
        # Nobody listens on this machine any more: the job was ended while its slots started.
        if not isinstance(error.__cause__, ConnectionRefusedError):
            sys.stderr.write(f"tidegate: {error}\n")
        return 1
    return 0

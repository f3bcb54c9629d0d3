"""The program's end of its fork server, which is started once and gives each job a channel."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import flinkformat
from tidegate.minicluster.messages import CHANNEL_TIMEOUT_S
from tidegate.transport.standard import fill_standard

END_TIMEOUT_S: Final = 0.5
"""How long the end of a program waits for its fork server, which may wait for slots longer."""

FOR_THE_PROGRAM: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that a terminal, ``timeout`` or systemd sends to all processes of a group at once.

The program decides what comes of them: its last checkpoint needs its slots.
"""

ANSWER_TIMEOUT_S: Final = 5.0
"""How long a server that does not take what it is sent may take to be gone."""


class Forking:
    """Starts the fork server of this process on first use, and again if it died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None

    def prepare(self) -> None:
        """Starts loading modules for slots in the server while the program goes on."""
        with self._lock:
            self._ensure()

    def channel(self) -> socket.socket:
        """A channel to the server for one job, whose slots print to this process's outputs.

        Raises OSError if the server cannot be reached; see `why_it_ended`.
        """
        ours, servers = socket.socketpair()
        with contextlib.ExitStack() as copies, contextlib.ExitStack() as failing:
            failing.callback(ours.close)
            copies.callback(servers.close)
            outputs = [_duplicate(descriptor) for descriptor in (1, 2)]
            for output in outputs:
                copies.callback(os.close, output)
            with self._lock:
                socket.send_fds(self._ensure(), [b"j"], [servers.fileno(), *outputs])
            failing.pop_all()
        ours.settimeout(CHANNEL_TIMEOUT_S)
        return ours

    def why_it_ended(self) -> tuple[str, bool]:
        """How a dead server ended, and whether a new one would end in the same way."""
        with self._lock:
            process = self._process
        try:
            status = None if process is None else process.wait(ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "the process that slots are forked from does not answer", False
        text = f"the process that slots are forked from has ended with status {status}"
        return text, status is not None and status > 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def end(self) -> None:
        """Ends the server soon; slots that still run get a moment to tidy up."""
        with self._lock:
            process, self._process = self._process, None
            if process is None or self._owner != os.getpid():
                return
            if self._link is not None:
                self._link.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)

    def _ensure(self) -> socket.socket:
        # A fork of the program inherits this memory, but the server belongs to its parent.
        mine = self._owner == os.getpid()
        if mine and self._process is not None and self._process.poll() is None:
            assert self._link is not None, "a server that runs has a link"
            return self._link
        if mine and self._process is not None:
            from tidegate.config.log import process_log  # not before the server loads too

            process_log().warning(
                "the process that slots are forked from has ended; another one is started",
                process=self._process.pid,
                status=self._process.returncode,
            )
        if self._link is not None:
            self._link.close()
        fill_standard()
        self._link, servers = socket.socketpair()
        self._link.settimeout(CHANNEL_TIMEOUT_S)
        with servers:
            self._process = _spawn(servers)
        self._owner = os.getpid()
        return self._link


@functools.cache
def forking() -> Forking:
    """The fork server of this process, which starts it and ends with it."""
    made = Forking()
    atexit.register(made.end)
    return made


def _spawn(servers: socket.socket) -> subprocess.Popen[bytes]:
    # The child has the mask of this thread, so that no signal can come before it ignores them.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_PROGRAM)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tidegate.minicluster", str(servers.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[servers.fileno()],
            env=_environment(),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _environment() -> dict[str, str]:
    """The parent's environment, with the folders of our own packages on the import path."""
    assert flinkformat.__file__ is not None, "it is a package with an __init__"
    folders = [Path(__file__).resolve().parents[2], Path(flinkformat.__file__).resolve().parents[1]]
    paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _duplicate(descriptor: int) -> int:
    """A copy of a descriptor, or the null device if it is closed, as a daemon's may be."""
    try:
        return os.dup(descriptor)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)

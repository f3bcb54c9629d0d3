"""Messages between a program and its fork server, over one channel a job."""

from __future__ import annotations

import pickle
import struct
from dataclasses import field
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from tidegate.model.control import SlotInvitation

_LENGTH = struct.Struct("!I")

CHANNEL_TIMEOUT_S = 10.0
"""How long one end of a channel waits for the rest of a message, or for room for one."""


@frozen
class JobStart:
    """Facts for all slots of a job: the program's import path, environment and folder.

    modules: of ours, which its slots are likely to load; later: which they may load.
    """

    path: tuple[str, ...]
    modules: tuple[str, ...]
    later: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: str


@frozen
class StartSlot:
    """Fork a slot. invitation: for this slot alone, since its keys are its own."""

    invitation: SlotInvitation


@frozen
class KillSlot:
    """End a slot's process at once."""

    request: str


@frozen
class SlotEnded:
    """A slot's process has ended, or could not be forked. how: in words."""

    request: str
    how: str


ToServer = JobStart | StartSlot | KillSlot


def send(channel: socket.socket, message: ToServer | SlotEnded) -> None:
    """Sends a message. Raises OSError if nobody reads it."""
    data = pickle.dumps(message, protocol=5)
    channel.sendall(_LENGTH.pack(len(data)) + data)


def receive(channel: socket.socket) -> object:
    """The next message; None if the other end is gone."""
    try:
        head = _read(channel, _LENGTH.size)
        return pickle.loads(_read(channel, _LENGTH.unpack(head)[0]))
    except (OSError, EOFError):
        return None


def _read(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data

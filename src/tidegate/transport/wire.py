"""A link between two processes: frames arrive whole and in order, or the link ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tidegate.errors import BadRecord, PeerLost

Buffer = bytes | bytearray | memoryview

FRAME_BYTES_MAX = 1 << 30
"""A frame longer than this is refused: no batch, message or state comes near it."""


def frame_bytes(parts: Sequence[Buffer], peer: str) -> int:
    """Length of a frame in bytes. Raises BadRecord if no peer would accept it."""
    size = sum(len(part) for part in parts)
    if size > FRAME_BYTES_MAX:
        raise BadRecord(
            f"a batch or message of {size} bytes is too long to be sent; the limit is "
            f"{FRAME_BYTES_MAX}",
            where=f"the link to {peer}",
            remedy="Make the values of a row smaller, or put fewer rows into a batch.",
        )
    return size


def not_understood(peer: str, error: Exception) -> PeerLost:
    """Reason given for ending a link whose handler has raised."""
    return PeerLost(f"a frame of {peer} was not understood: {type(error).__name__}: {error}")


class Wire(Protocol):
    """An open, authenticated link. Frames arrive whole and in order, or the link ends."""

    @property
    def peer(self) -> str:
        """Name that the other side gave."""
        ...

    def send(self, parts: Sequence[Buffer]) -> None:
        """Sends one frame made of these parts; never waits, and drops it if the link is over."""
        ...

    def close(self) -> None:
        """Ends the link after what was sent; calls the own handler's ``on_closed`` too."""
        ...


class WireHandler(Protocol):
    """Receives frames of a wire; called on the loop."""

    def on_frame(self, frame: memoryview) -> None:
        """Receives a frame; the handler may keep its memory."""
        ...

    def on_closed(self, error: PeerLost | None) -> None:
        """The link is over; error is None if this side closed it. Called once."""
        ...


Accept = Callable[[Wire], WireHandler]
"""Makes the handler of a link that a peer has opened and proved itself on."""


class Listener(Protocol):
    """A place that peers can connect to."""

    @property
    def address(self) -> str:
        """``host:port`` as peers must dial it."""
        ...

    async def close(self) -> None:
        """Take no more links; open ones stay."""
        ...


class Network(Protocol):
    """Makes wires; the door that the simulator and the tests replace."""

    def listen(self, accept: Accept) -> Awaitable[Listener]:
        """Take links from peers that know the job's secret."""
        ...

    def connect(self, address: str, name: str, handler: WireHandler) -> Awaitable[Wire]:
        """Open a link. name: what this side calls itself. Raises PeerLost within the deadline."""
        ...

"""What a link between two processes offers: whole frames, in order, or a clear end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tidegate.errors import BadRecord, PeerLost

Buffer = bytes | bytearray | memoryview

FRAME_BYTES_MAX = 1 << 30
"""A frame longer than this is refused: no batch, message or state comes near it."""


def frame_bytes(parts: Sequence[Buffer], peer: str) -> int:
    """Bytes of a frame. Raises BadRecord where no peer would take it."""
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
    """Why a link is ended whose handler has raised."""
    return PeerLost(f"a frame of {peer} was not understood: {type(error).__name__}: {error}")


class Wire(Protocol):
    """An open, authenticated link. Frames arrive whole and in order, or the link ends."""

    @property
    def peer(self) -> str:
        """What the other side called itself."""
        ...

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send one frame made of these parts; never waits, and drops it once the link is over."""
        ...

    def close(self) -> None:
        """End the link after what was sent. The own handler's ``on_closed`` is called."""
        ...


class WireHandler(Protocol):
    """Gets what comes over a wire; called on the loop."""

    def on_frame(self, frame: memoryview) -> None:
        """A frame has come; the memory is the handler's to keep."""
        ...

    def on_closed(self, error: PeerLost | None) -> None:
        """The link is over; error is None where this side closed it. Called once."""
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

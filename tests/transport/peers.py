"""Both ends of a link over a real network."""

import asyncio
from collections.abc import Awaitable, Callable

from tidegate.errors import PeerLost
from tidegate.transport.tcp import loop_factory
from tidegate.transport.wire import Wire

SECRET = b"k" * 32


class Peer:
    """A handler that keeps what comes. grumbles: raise on each frame."""

    def __init__(self, *, grumbles: bool = False) -> None:
        self.frames: list[bytes] = []
        self.ends: list[PeerLost | None] = []
        self.wire: Wire | None = None
        self._grumbles = grumbles
        self._changed = asyncio.Event()

    def on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self._changed.set()
        if self._grumbles:
            raise KeyError("what is this?")

    def on_closed(self, error: PeerLost | None) -> None:
        self.ends.append(error)
        self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

    async def has(self, frames: int) -> None:
        await self.until(lambda: len(self.frames) >= frames)

    async def ended(self) -> PeerLost | None:
        await self.until(lambda: bool(self.ends))
        return self.ends[0]


class Server:
    """Takes links and keeps their handlers."""

    def __init__(self, *, grumbles: bool = False) -> None:
        self.peers: list[Peer] = []
        self._grumbles = grumbles
        self._joined = asyncio.Event()

    def accept(self, wire: Wire) -> Peer:
        peer = Peer(grumbles=self._grumbles)
        peer.wire = wire
        self.peers.append(peer)
        self._joined.set()
        return peer

    async def joined(self) -> Peer:
        async with asyncio.timeout(5):
            await self._joined.wait()
        return self.peers[0]


def run(work: Awaitable[None]) -> None:
    async def main() -> None:
        await work

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())

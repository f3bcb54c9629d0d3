"""Links between simulated processes: frames in order, each after a drawn delay, or a broken link.

What a real TCP link can do, these do: a frame that was sent may never arrive, but then nothing
after it does, and sooner or later both ends hear of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidegate.errors import PeerLost
from tidegate.transport.wire import Accept, Buffer, Wire, WireHandler, frame_bytes, not_understood

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.loop import Process, SimulatedLoop

CONNECT_TIMEOUT_S = 10.0

SLOWEST = 20
"""By what factor some frames take longer than most."""

MAY_BE_LOST = (
    b"TriggerCheckpoint",
    b"CheckpointComplete",
    b"CheckpointAborted",
    b"CheckpointAcknowledged",
    b"CheckpointDeclined",
)
"""Names of messages, as they stand in the frames of control links."""

NEVER_LOST = b"SubtaskChanged"
"""It may carry an error of one of those names."""


class Switchboard:
    """All links of a run.

    losses: how often a message about a checkpoint that may be lost is lost. held_until_s: when
    something arrives again from one process at another. slow: pairs with longer delays, and by what
    factor. breaks: whether a link breaks as this frame is sent on it. heard: is told of what a
    process gets to hear, since when it could have, and the frame.
    """

    def __init__(
        self, loop: SimulatedLoop, chance: Random, delay_s: float, losses: float = 0.0
    ) -> None:
        self.loop = loop
        self.chance = chance
        self.delay_s = delay_s
        self.losses = losses
        self.slow: dict[frozenset[Process], float] = {}
        self.breaks: Callable[[bytes], bool] = lambda _: False
        self.heard: Callable[[Process, float, bytes], None] = lambda process, since_s, frame: None
        self.listeners: dict[str, tuple[Process, Accept]] = {}
        self.links: list[Link] = []
        self.held_until_s: dict[tuple[Process, Process], float] = {}
        self._next = 0

    def draw_delay_s(self) -> float:
        """Mostly short, now and then long."""
        if self.chance.random() < 0.02:
            return self.chance.uniform(0, SLOWEST * self.delay_s)
        return self.chance.uniform(0, self.delay_s)

    def new_address(self) -> str:
        self._next += 1
        return f"simulated:{self._next}"

    def links_of(self, process: Process) -> list[Link]:
        return [link for link in self.links if process in link.ends]

    def hold(self, sender: Process, receiver: Process, for_s: float) -> None:
        """Nothing passes that way for a while; what was sent arrives afterwards."""
        self.held_until_s[sender, receiver] = self.loop.now_s + for_s

    def arrival_s(self, sender: Process, receiver: Process) -> float:
        held_s = self.held_until_s.get((sender, receiver), 0.0)
        factor = self.slow.get(frozenset((sender, receiver)), 1.0) if self.slow else 1.0
        return max(self.loop.now_s, held_s) + factor * self.draw_delay_s()

    def loses(self, frame: bytes) -> bool:
        """Whether this frame gets lost: a message about a checkpoint, which nobody may rely on."""
        return (
            self.losses > 0
            and NEVER_LOST not in frame
            and any(name in frame for name in MAY_BE_LOST)
            and self.chance.random() < self.losses
        )

    def killed(self, process: Process) -> None:
        """The process is gone: its peers hear of it, most at once, some late."""
        for address, (owner, _) in list(self.listeners.items()):
            if owner is process:
                del self.listeners[address]
        for link in self.links_of(process):
            link.broken(f"{process} died")


class SimulatedNetwork:
    """The network as one process has it."""

    def __init__(self, board: Switchboard, process: Process) -> None:
        self._board = board
        self._process = process

    async def listen(self, accept: Accept) -> SimulatedListener:
        address = self._board.new_address()
        self._board.listeners[address] = (self._process, accept)
        return SimulatedListener(self._board, address)

    async def connect(self, address: str, name: str, handler: WireHandler) -> Wire:
        board = self._board
        await asyncio.sleep(board.draw_delay_s())
        found = board.listeners.get(address)
        if found is None or not found[0].alive:
            raise PeerLost(f"nobody listens at {address}")
        peer, accept = found
        link = Link(board, self._process, peer)
        ours, theirs = link.wires
        ours.peer, theirs.peer = address, name
        ours.handler = handler
        accepted: asyncio.Future[None] = board.loop.create_future()

        def take() -> None:
            theirs.handler = accept(theirs)
            board.loop.call_in(self._process, board.draw_delay_s(), done)

        def done() -> None:
            if not accepted.done():
                accepted.set_result(None)

        board.loop.call_in(peer, board.draw_delay_s(), take)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await accepted
        except TimeoutError as error:
            ours.close()
            raise PeerLost(f"no answer from {address}") from error
        return ours


class SimulatedListener:
    """An address; closing it leaves its links."""

    def __init__(self, board: Switchboard, address: str) -> None:
        self._board = board
        self.address = address

    async def close(self) -> None:
        self._board.listeners.pop(self.address, None)


class Link:
    """A link and its two ends."""

    def __init__(self, board: Switchboard, one: Process, other: Process) -> None:
        self.board = board
        self.ends = (one, other)
        self.wires = (SimulatedWire(self, 0), SimulatedWire(self, 1))
        self.open = True
        board.links.append(self)

    def broken(self, why: str) -> None:
        """Nothing arrives any more, and both ends hear of it."""
        if not self.open:
            return
        self.open = False
        self.board.links.remove(self)
        for wire in self.wires:
            wire.arrive(lambda wire=wire: wire.end(PeerLost(why)))


class SimulatedWire:
    """One end of a link."""

    def __init__(self, link: Link, side: int) -> None:
        self._link = link
        self._side = side
        self._last_arrival_s = 0.0
        self._closed = False
        self.peer = ""
        self.handler: WireHandler | None = None

    @property
    def _process(self) -> Process:
        return self._link.ends[self._side]

    @property
    def _other(self) -> SimulatedWire:
        return self._link.wires[1 - self._side]

    def send(self, parts: Sequence[Buffer]) -> None:
        if self._link.open and self._process.alive and not self._closed:
            frame_bytes(parts, self.peer)
            frame = b"".join(parts)
            if self._link.board.breaks(frame):
                self._link.broken("simulated: the link broke as it was used")
            elif not self._link.board.loses(frame):
                at_s = self._other.arrive(lambda: self._other.deliver(frame, at_s))

    def arrive(self, event: Callable[[], None]) -> float:
        """Something happens at this end, behind everything that was on its way before; when."""
        board = self._link.board
        at_s = max(self._last_arrival_s, board.arrival_s(self._other._process, self._process))
        self._last_arrival_s = at_s
        board.loop.call_at(at_s, event, context=self._process.context.copy())
        return at_s

    def deliver(self, frame: bytes, since_s: float) -> None:
        if self._closed or not self._link.open or self.handler is None:
            return
        self._link.board.heard(self._process, since_s, frame)
        try:
            self.handler.on_frame(memoryview(frame))
        except Exception as error:
            self._link.board.loop.faults.append(f"{self._process}: {error!r}")
            self._link.broken(str(not_understood(self.peer, error)))

    def close(self) -> None:
        """What was sent still arrives; then the other end hears of the end."""
        if self._closed:
            return
        if self._link.open:
            other = self._other
            other.arrive(lambda: other.end(PeerLost(f"{self._process} closed the connection")))
        self.end(None)

    def end(self, error: PeerLost | None) -> None:
        if self._closed:
            return
        self._closed = True
        if self.handler is not None:
            self.handler.on_closed(error)
        if self._other._closed and self._link.open:
            self._link.open = False
            self._link.board.links.remove(self._link)

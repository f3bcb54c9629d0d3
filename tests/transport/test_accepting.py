"""A port that many strangers knock at."""

import asyncio
import errno
import socket
import warnings
from collections.abc import Awaitable, Callable

import pytest

from tidegate.transport import accepting
from tidegate.transport.accepting import Acceptor, Guest
from tidegate.transport.tcp import TcpNetwork, loop_factory
from tidegate.transport.wire import Wire

LOOPS = {"uvloop": loop_factory(), "asyncio": asyncio.SelectorEventLoop}
LIMIT_S = 100.0
SECRET = b"k" * 32


class Link(asyncio.Protocol):
    """A connection that is there, then gone."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.gone = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


class Port:
    """A port with an acceptor, and its connections in the order in which they came."""

    def __init__(self, unproved_max: int = 4) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = self.socket.getsockname()
        self.links: list[Link] = []
        self.acceptor = Acceptor(self.socket, self._make, timeout_s=5, unproved_max=unproved_max)
        self._clients: list[socket.socket] = []

    def _make(self, guest: Guest) -> Link:
        self.links.append(Link(guest))
        return self.links[-1]

    def knock(self) -> socket.socket:
        client = socket.create_connection(self.address, timeout=5)
        self._clients.append(client)
        return client

    async def has(self, links: int) -> None:
        await until(lambda: len(self.links) >= links)

    async def close(self) -> None:
        await self.acceptor.close()
        await self.hang_up()

    async def hang_up(self) -> None:
        for client in self._clients:
            client.close()
        for link in self.links:
            await link.gone.wait()


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not reached():  # noqa: ASYNC110  sockets tell of nothing that could be waited for
            await asyncio.sleep(0.01)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def run(work: Awaitable[None]) -> None:
        async def main() -> None:
            await work

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            try:
                runner.run(main())
            except BaseException:
                # As an error, the warning of what a failed test left open keeps uvloop from closing
                # it, and the end of the loop waits for that for ever.
                warnings.simplefilter("ignore", ResourceWarning)
                raise

    return run


Run = Callable[[Awaitable[None]], None]


def test_the_oldest_of_too_many_strangers_makes_room(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "_AGE_S", 0.0)

    async def work() -> None:
        port = Port(unproved_max=3)
        for each in range(7):
            port.knock()
            await port.has(each + 1)
        for link in port.links[:4]:
            async with asyncio.timeout(LIMIT_S):
                await link.gone.wait()
        assert [link.gone.is_set() for link in port.links] == [True] * 4 + [False] * 3
        await port.close()

    run(work())


@pytest.mark.slow
def test_strangers_who_have_only_just_come_are_left_their_time(run: Run) -> None:
    async def work() -> None:
        port = Port(unproved_max=2)
        for _ in range(3):
            port.knock()
        await port.has(3)
        first, second, third = (link.guest for link in port.links)
        async with asyncio.timeout(LIMIT_S):  # the loop tells of a cut in a later turn
            await port.links[0].gone.wait()
        assert third.since_s - first.since_s >= accepting._AGE_S
        assert not first.waiting and second.waiting
        await port.close()

    run(work())


def test_who_has_proved_himself_counts_no_more_and_stays(run: Run) -> None:
    async def work() -> None:
        port = Port(unproved_max=1)
        for each in range(5):
            port.knock()
            await port.has(each + 1)
            port.links[-1].guest.proved = True
        assert not any(link.gone.is_set() for link in port.links)
        await port.acceptor.close()
        assert not any(link.gone.is_set() for link in port.links)
        await port.hang_up()

    run(work())


def test_without_descriptors_it_waits_until_there_are_some(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = socket.socket.accept, []

    def accept(self: socket.socket) -> tuple[socket.socket, object]:
        tries.append(1)
        if len(tries) < 4:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    async def work() -> None:
        port = Port()
        monkeypatch.setattr(socket.socket, "accept", accept)
        port.knock()
        await port.has(1)
        assert len(tries) >= 4
        monkeypatch.undo()
        await port.close()

    run(work())


def test_the_last_descriptors_are_not_for_strangers(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        monkeypatch.setattr(accepting, "_descriptors", lambda: (0, 100))
        port = Port()
        client = port.knock()
        client.setblocking(False)
        async with asyncio.timeout(LIMIT_S):
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        assert port.links == []
        await port.close()

    run(work())


@pytest.mark.slow
def test_peers_get_in_beside_hundreds_of_silent_connections(run: Run) -> None:
    class Peer:
        def on_frame(self, frame: memoryview) -> None:
            pass

        def on_closed(self, error: object) -> None:
            ends.append(error)

    ends: list[object] = []
    wires: list[Wire] = []

    def accept(wire: Wire) -> Peer:
        wires.append(wire)
        return Peer()

    async def work() -> None:
        network = TcpNetwork(secret=SECRET, host="127.0.0.1", answer_timeout_s=LIMIT_S)
        listener = await network.listen(accept)
        port = int(listener.address.rpartition(":")[2])
        silent: list[socket.socket] = []
        for _ in range(300):
            link = socket.socket()
            link.setblocking(False)
            link.connect_ex(("127.0.0.1", port))
            silent.append(link)
        wire = await network.connect(listener.address, "slot-1", Peer())
        await until(lambda: wires)
        assert [each.peer for each in wires] == ["slot-1"] and ends == []
        wire.close()
        await until(lambda: len(ends) == 2)
        await listener.close()
        for link in silent:
            link.close()

    run(work())

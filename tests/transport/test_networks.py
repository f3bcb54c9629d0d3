"""What every network promises: whole frames, in order, or a clear end."""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transport.peers import SECRET, Peer, Server, run
from tidegate.errors import BadRecord, ConfigError, PeerLost
from tidegate.transport import tcp as tcps
from tidegate.transport import wire as wires
from tidegate.transport.authority import Authority
from tidegate.transport.handshake import Handshake
from tidegate.transport.memory import MemoryNetwork
from tidegate.transport.tcp import TcpNetwork
from tidegate.transport.wire import Network, Wire

LIMIT_S = 100.0
LENGTH = struct.Struct("!I")


AUTHORITY = Authority()


def tcp(secret: bytes = SECRET, timeout_s: float = 5.0, **protection: Any) -> TcpNetwork:
    given = {"connect_timeout_s": timeout_s, "answer_timeout_s": timeout_s, **protection}
    return TcpNetwork(secret=secret, host="127.0.0.1", **given)


def tls() -> TcpNetwork:
    return tcp(keys=AUTHORITY.issue("one"), timeout_s=30.0)


NETWORKS: dict[str, Callable[[], Network]] = {
    "memory": MemoryNetwork,
    "tcp": tcp,
    "sealed": lambda: tcp(sealed=True),
    "tls": tls,
}


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    return NETWORKS[request.param]()


@asynccontextmanager
async def linked(
    network: Network, *, grumbles: bool = False
) -> AsyncIterator[tuple[Wire, Peer, Wire, Peer]]:
    """Our wire and handler, and the other side's."""
    server = Server(grumbles=grumbles)
    listener = await network.listen(server.accept)
    ours = Peer()
    wire = await network.connect(listener.address, "slot-1", ours)
    theirs = await server.joined()
    assert theirs.wire is not None
    yield wire, ours, theirs.wire, theirs
    for each in (wire, theirs.wire):
        each.close()
    await ours.ended()
    await theirs.ended()
    await listener.close()


def test_frames_arrive_whole_and_in_order_both_ways(network: Network) -> None:
    async def work() -> None:
        async with linked(network) as (here, ours, there, theirs):
            sent = [bytes([n % 251]) * (n * 37) for n in range(60)]
            for frame in sent:
                here.send([frame[:5], memoryview(frame)[5:]])
                there.send([bytearray(frame)])
            await theirs.has(len(sent))
            await ours.has(len(sent))
            assert theirs.frames == sent and ours.frames == sent

    run(work())


def test_the_one_that_is_dialled_learns_the_other_ones_name(network: Network) -> None:
    async def work() -> None:
        async with linked(network) as (_, _, there, _):
            assert there.peer == "slot-1"

    run(work())


@pytest.mark.parametrize("announce", ["127.0.0.1", "::1"])
def test_all_addresses_of_ipv6_are_those_of_ipv4_too(announce: str) -> None:
    async def work() -> None:
        network = TcpNetwork(secret=SECRET, host="::", announce=announce)
        async with linked(network) as (_, _, there, _):
            assert there.peer == "slot-1"

    run(work())


def test_a_frame_of_many_megabytes_arrives(network: Network) -> None:
    async def work() -> None:
        async with linked(network) as (here, _, _, theirs):
            big = b"\x07" * (5 << 20)
            here.send([b"head", big])
            here.send([b"next"])
            await theirs.has(2)
            assert theirs.frames == [b"head" + big, b"next"]

    run(work())


def test_what_was_sent_before_the_close_arrives_before_it(network: Network) -> None:
    async def work() -> None:
        async with linked(network) as (here, ours, _, theirs):
            for n in range(20):
                here.send([b"%d" % n * 1000])
            here.close()
            error = await theirs.ended()
            assert len(theirs.frames) == 20
            assert isinstance(error, PeerLost)
            assert await ours.ended() is None  # this side closed it

    run(work())


def test_each_side_hears_of_the_end_once(network: Network) -> None:
    async def work() -> None:
        async with linked(network) as (here, ours, there, theirs):
            here.close()
            here.close()
            there.close()
            await ours.ended()
            await theirs.ended()
        assert len(ours.ends) == len(theirs.ends) == 1

    run(work())


def test_a_send_over_a_closed_link_is_dropped(network: Network) -> None:
    async def work() -> None:
        async with linked(network) as (here, ours, there, theirs):
            here.close()
            await ours.ended()
            await theirs.ended()
            here.send([b"late"])
            there.send([b"late"])
            assert ours.frames == theirs.frames == []

    run(work())


def test_a_handler_that_raises_ends_the_link_and_both_hear_why(network: Network) -> None:
    async def work() -> None:
        async with linked(network, grumbles=True) as (here, ours, _, theirs):
            here.send([b"one"])
            here.send([b"two"])
            error = await theirs.ended()
            assert theirs.frames == [b"one"]
            assert error is not None and "what is this?" in str(error)
            assert isinstance(await ours.ended(), PeerLost)

    run(work())


def test_a_link_can_be_ended_where_it_is_accepted(network: Network) -> None:
    async def work() -> None:
        theirs, ours = Peer(), Peer()

        def accept(wire: Wire) -> Peer:
            wire.close()
            return theirs

        listener = await network.listen(accept)
        await network.connect(listener.address, "slot-1", ours)
        assert await theirs.ended() is None
        assert isinstance(await ours.ended(), PeerLost)
        await listener.close()

    run(work())


def test_nobody_listens_is_peer_lost(network: Network) -> None:
    async def work() -> None:
        listener = await network.listen(Server().accept)
        await listener.close()
        with pytest.raises(PeerLost):
            await network.connect(listener.address, "slot-1", Peer())

    run(work())


def test_open_links_outlive_the_listener(network: Network) -> None:
    async def work() -> None:
        server = Server()
        listener = await network.listen(server.accept)
        ours = Peer()
        wire = await network.connect(listener.address, "slot-1", ours)
        theirs = await server.joined()
        await listener.close()
        wire.send([b"still here"])
        await theirs.has(1)
        assert theirs.frames == [b"still here"]
        wire.close()
        await theirs.ended()
        await ours.ended()

    run(work())


def test_a_frame_that_no_peer_would_take_is_refused_at_once(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wires, "FRAME_BYTES_MAX", 100)

    async def work() -> None:
        async with linked(network) as (here, _, _, theirs):
            here.send([b"x" * 100])
            with pytest.raises(BadRecord, match="101 bytes is too long"):
                here.send([b"x" * 50, b"y" * 51])
            await theirs.has(1)

    run(work())


# --- over TCP -------------------------------------------------------------------------------------


def test_a_wrong_secret_is_refused_and_no_handler_is_made() -> None:
    async def work() -> None:
        server, stranger = Server(), Peer()
        listener = await tcp().listen(server.accept)
        with pytest.raises(PeerLost):
            await tcp(secret=b"x" * 32).connect(listener.address, "slot-1", stranger)
        assert server.peers == [] and stranger.frames == []
        await listener.close()

    run(work())


async def dial(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(size)


@pytest.mark.parametrize(
    "said",
    [
        LENGTH.pack(4) + b"HTTP",
        LENGTH.pack(1 << 20),
        LENGTH.pack((1 << 32) - 1),
        LENGTH.pack(64) + b"TGW1" + b"n" * 60,
    ],
    ids=["another protocol", "a long greeting", "a longer one", "no proof"],
)
def test_a_stranger_is_cut_off_before_anybody_hears_of_him(said: bytes) -> None:
    async def work() -> None:
        server = Server()
        listener = await tcp().listen(server.accept)
        reader, writer = await dial(listener.address)
        await read_frame(reader)
        writer.write(said)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            async with asyncio.timeout(5):
                await reader.readexactly(1)
        assert server.peers == []
        writer.close()
        await listener.close()

    run(work())


def test_a_silent_stranger_is_cut_off_at_the_deadline() -> None:
    async def work() -> None:
        listener = await tcp(timeout_s=0.05).listen(Server().accept)
        reader, writer = await dial(listener.address)
        async with asyncio.timeout(5):
            await read_frame(reader)
            assert await reader.read() == b""
        writer.close()
        await listener.close()

    run(work())


async def hang_up_when_they_do(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()
    await writer.wait_closed()


def test_a_server_that_never_answers_is_peer_lost_with_both_names() -> None:
    async def work() -> None:
        server = await asyncio.start_server(hang_up_when_they_do, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(
            PeerLost, match=f"no answer within 0.05 s\n.*slot-1 to 127.0.0.1:{port}"
        ):
            await tcp(timeout_s=0.05).connect(f"127.0.0.1:{port}", "slot-1", Peer())
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)

    run(work())


class Elsewhere:
    """A peer with a loop on a thread of its own, which is in a call until ``returns`` is set."""

    def __init__(self, **protection: Any) -> None:
        self.returns = threading.Event()
        self._protection = protection
        self._listening: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        server = Server()
        listener = await tcp(timeout_s=LIMIT_S, **self._protection).listen(server.accept)
        self._listening.set_result(listener.address)
        self.returns.wait(LIMIT_S)
        await (await server.joined()).ended()
        await listener.close()

    async def dialled(self, network: TcpNetwork, ours: Peer) -> asyncio.Task[Wire]:
        self._thread.start()
        address = await asyncio.wrap_future(self._listening)
        return asyncio.create_task(network.connect(address, "slot-1", ours))

    def ended(self) -> None:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("protection", [{}, {"keys": AUTHORITY.issue("one")}], ids=["plain", "tls"])
def test_a_peer_that_is_in_a_call_is_waited_for(protection: dict[str, Any]) -> None:
    """Its system takes the connection at once; the peer answers when the call has returned."""
    peer = Elsewhere(**protection)

    async def work() -> None:
        ours = Peer()
        network = tcp(connect_timeout_s=0.1, answer_timeout_s=LIMIT_S, **protection)
        dialling = await peer.dialled(network, ours)
        done, _ = await asyncio.wait([dialling], timeout=1.0)
        peer.returns.set()
        assert not done
        (await dialling).close()
        await ours.ended()

    run(work())
    peer.ended()


def test_an_answer_that_came_while_the_dialling_process_stood_still_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcps, "_HEAR_FIRST_S", LIMIT_S)
    peer = Elsewhere()
    peer.returns.set()

    async def work() -> None:
        ours = Peer()
        dialling = await peer.dialled(tcp(timeout_s=0.3), ours)
        await asyncio.sleep(0)
        threading.Event().wait(1.0)
        (await dialling).close()
        assert await ours.ended() is None

    run(work())
    peer.ended()


def test_a_proved_peer_that_announces_too_long_a_frame_is_cut_off() -> None:
    async def work() -> None:
        server = Server()
        listener = await tcp().listen(server.accept)
        reader, writer = await dial(listener.address)
        await prove(reader, writer)
        theirs = await server.joined()
        writer.write(LENGTH.pack(wires.FRAME_BYTES_MAX + 1))
        error = await theirs.ended()
        assert error is not None and str(wires.FRAME_BYTES_MAX + 1) in str(error)
        writer.close()
        await listener.close()

    run(work())


async def prove(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    handshake = Handshake(secret=SECRET, server=False, name="raw", nonce=b"n" * 16)
    while not handshake.done:
        answer = handshake.receive(await read_frame(reader))
        if answer is not None:
            writer.write(LENGTH.pack(len(answer)) + answer)


@given(
    frames=st.lists(st.binary(max_size=40), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 30), max_size=12),
)
def test_frames_may_be_split_at_any_byte(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)

    async def work() -> None:
        server = Server()
        listener = await tcp().listen(server.accept)
        reader, writer = await dial(listener.address)
        await prove(reader, writer)
        theirs = await server.joined()
        at = 0
        for cut in cuts:
            writer.write(stream[at : at + cut])
            at += cut
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        writer.write(stream[at:])
        await theirs.has(len(frames))
        assert theirs.frames == frames
        writer.close()
        await theirs.ended()
        await listener.close()

    run(work())


def test_a_range_of_ports_is_tried_in_order_and_its_end_is_an_error() -> None:
    async def work() -> None:
        first = await tcp().listen(Server().accept)
        taken = int(first.address.rpartition(":")[2])
        narrow = TcpNetwork(secret=SECRET, host="127.0.0.1", ports=(taken, taken))
        with pytest.raises(ConfigError, match=f"no port from {taken} to {taken} is free"):
            await narrow.listen(Server().accept)
        await first.close()

    run(work())


def test_a_name_with_addresses_of_both_kinds_is_listened_at_by_ipv4(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_ipv6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
    of_ipv4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))

    async def work() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", lambda *name, **wanted: [of_ipv6, of_ipv4])
            listener = await TcpNetwork(secret=SECRET, host="both.example").listen(Server().accept)
        port = int(listener.address.rpartition(":")[2])
        assert listener.address == f"both.example:{port}"
        _, link = await asyncio.open_connection("127.0.0.1", port)
        link.close()
        await listener.close()

    asyncio.run(work())  # the loop whose names can be made up


def test_another_address_than_the_bound_one_can_be_announced() -> None:
    async def work() -> None:
        network = TcpNetwork(secret=SECRET, host="127.0.0.1", announce="localhost")
        listener = await network.listen(Server().accept)
        assert listener.address.startswith("localhost:")
        await listener.close()

    run(work())


def test_a_listener_that_closes_gives_up_links_that_are_being_made() -> None:
    async def work() -> None:
        listener = await tcp().listen(Server().accept)
        host, _, port = listener.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readexactly(4)  # the server has begun its handshake, which we do not answer
        await listener.close()
        async with asyncio.timeout(2):
            assert await reader.read(), "the rest of the greeting, then the end"
        writer.close()

    run(work())

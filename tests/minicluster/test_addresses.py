"""Jobs at addresses that are told: of IPv6, of another interface, behind a port elsewhere."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from tests.e2e.watch import until, wait_running
from tidegate import ConfigError, JobFailed, StreamExecutionEnvironment

LIMIT_S = 60


def sums(**settings: object) -> set[int]:
    """Sums of a job whose rows go from slot to slot, those on the way included."""
    env = StreamExecutionEnvironment.local(2, configuration=settings)
    numbers = env.from_sequence(1, 100).rebalance().key_by(lambda n: n % 3)
    with numbers.reduce(lambda a, b: a + b).execute_and_collect() as found:
        return set(found)


TOTALS = {1650, 1683, 1717}


@pytest.mark.feature("F308")
@pytest.mark.parametrize(
    "settings",
    [
        {"tidegate.net.driver-bind-address": "::1"},
        {"tidegate.net.driver-bind-address": "[::1]", "tidegate.net.network": "::1/128"},
        {"tidegate.net.driver-bind-address": "127.0.0.2", "tidegate.net.network": "127.0.0.3/32"},
        {"tidegate.net.driver-address": "127.0.0.2"},
        {"tidegate.net.driver-address": "localhost", "tidegate.security.internal": "on"},
        {"tidegate.net.driver-bind-address": "::1", "tidegate.security.internal": "on"},
        {"tidegate.net.network": "127.0.0.4"},
    ],
    ids=lambda settings: " ".join(settings.values()),
)
def test_a_job_runs_at_the_addresses_that_are_told(settings: dict[str, object]) -> None:
    assert sums(**settings) >= TOTALS


def test_slots_listen_at_the_address_that_lies_in_the_network() -> None:
    settings = {"tidegate.net.network": "127.0.0.3/32"}
    env = StreamExecutionEnvironment.local(2, configuration=settings)
    env.generate(lambda n: n, rate=100).rebalance().filter(lambda n: False).print()
    client = env.execute_async("endless")
    seen = wait_running(client)
    client.cancel().result(LIMIT_S)
    assert [slot.id.startswith("127.0.0.3-") for slot in seen.slots] == [True, True]


@contextmanager
def forwarded(port: int) -> Iterator[int]:
    """A port of this machine whose connections another one takes, as of a NAT."""
    listening = socket.create_server(("127.0.0.1", 0))
    loops: list[asyncio.AbstractEventLoop] = []
    stopped = asyncio.Event()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:  # the job has ended
            writer.close()
            return
        with suppress(asyncio.CancelledError):
            await asyncio.gather(copy(reader, back), copy(there, writer))
        for end in (writer, back):
            end.close()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with await asyncio.start_server(take, sock=listening):
            await stopped.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        until(lambda: loops, "it listens")
        loops[0].call_soon_threadsafe(stopped.set)
        thread.join()


@contextmanager
def taken() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.mark.feature("F308")
def test_slots_find_a_driver_behind_a_port_that_leads_to_its_own() -> None:
    with taken() as port:
        pass
    with forwarded(port) as outside:
        found = sums(
            **{
                "tidegate.net.driver-bind-address": f"127.0.0.1:{port}",
                "tidegate.net.driver-address": f"127.0.0.1:{outside}",
            }
        )
    assert found >= TOTALS


@pytest.mark.feature("F308")
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tidegate.net.driver-bind-address": "198.51.100.7"}, "nobody can listen at 198.51.100.7"),
        ({"tidegate.net.driver-bind-address": "nowhere.invalid"}, "nobody can listen at nowhere"),
        ({"tidegate.net.network": "198.51.100.0/24"}, "has no address in the network 198.51"),
        ({"tidegate.net.driver-address": "a:b:c"}, "neither a host nor a host with a port"),
        ({"tidegate.net.driver-bind-address": "[::1"}, "neither a host nor a host with a port"),
        ({"tidegate.net.network": "10.1"}, "not a network of addresses"),
        ({"tidegate.net.network": "10.0.0.0/99"}, "not a network of addresses"),
    ],
)
def test_an_address_that_cannot_be_is_one_clear_error(
    settings: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        sums(**settings)


@pytest.mark.feature("F308")
def test_slots_without_a_free_port_end_the_job_at_once() -> None:
    with taken() as port, pytest.raises(JobFailed, match="a slot cannot listen where it is told"):
        sums(**{"tidegate.net.port-range": str(port)})


def test_a_driver_whose_port_is_taken_says_so() -> None:
    with (
        taken() as port,
        pytest.raises(ConfigError, match=f"no port from {port} to {port} is free") as refused,
    ):
        sums(**{"tidegate.net.driver-bind-address": f"127.0.0.1:{port}"})
    assert "tidegate.net.driver-bind-address" in refused.value.remedy

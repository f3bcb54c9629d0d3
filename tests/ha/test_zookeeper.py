"""What only a real ZooKeeper shows: lost answers, hung servers, sessions that expire."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.e2e.zookeeper import ZooKeeperServer
from tests.ha.led import leads, run
from tests.ha.world import over_zookeeper
from tidegate import Configuration, StreamExecutionEnvironment
from tidegate.errors import ConfigError, LeadershipLost, OutcomeUnknown, StorageFailed
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import ZooKeeperSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tidegate.ha.leadership import Leadership


pytestmark = pytest.mark.slow


class Line:
    """A line to the server that can be cut: what was asked, or what was answered, is lost."""

    def __init__(self, server: ZooKeeperServer) -> None:
        host, port = server.quorum.split(":")
        self._to = (host, int(port))
        self._door = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._door]
        self._threads: list[threading.Thread] = []
        self.cut_at: bytes | None = None
        self.lose_answer = False
        self.cuts = 0
        self.down = False
        self._dropped = threading.Event()
        self._spawn(self._accept)

    @property
    def quorum(self) -> str:
        return f"127.0.0.1:{self._door.getsockname()[1]}"

    def close(self) -> None:
        self._hang_up(self._sockets)
        for thread in self._threads:
            thread.join(5)

    def cut_off(self) -> None:
        """Nobody comes through until `down` is taken back."""
        self.down = True
        self._hang_up(self._sockets[1:])

    def _hang_up(self, sockets: list[socket.socket]) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                if self.down:
                    client.close()
                    continue
                server = socket.create_connection(self._to)
                self._sockets += [client, server]
                answers = threading.Event()
                answers.set()
                self._spawn(self._asked, client, server, answers)
                self._spawn(self._answered, server, client, answers)

    def _asked(
        self, client: socket.socket, server: socket.socket, answers: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.cut_at is not None and self.cut_at in data:
                    self.cut_at = None
                    self.cuts += 1
                    answers.clear()
                    if self.lose_answer:
                        server.sendall(data)
                        self._dropped.wait(10)
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(data)

    def _answered(
        self, server: socket.socket, client: socket.socket, answers: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if answers.is_set():
                    client.sendall(data)
                else:
                    self._dropped.set()


@pytest.fixture
def line(zookeeper: ZooKeeperServer) -> Iterator[Line]:
    line = Line(zookeeper)
    yield line
    line.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A server that a test may ill-treat."""
    server = ZooKeeperServer(tmp_path / "server")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("lose_answer", [True, False], ids=["answer lost", "question lost"])
def test_a_connection_lost_while_a_pointer_is_added_leaves_it_there_once(
    zookeeper: ZooKeeperServer, line: Line, lose_answer: bool
) -> None:
    async def work() -> None:
        settings = zookeeper.settings(quorum=line.quorum)
        async with over_zookeeper(settings) as store:
            leader = await leads(store, 1)
            checkpoint = await leader.next_checkpoint_id()
            line.lose_answer, line.cut_at = lose_answer, b"/c/chk-1"
            await leader.add(checkpoint, "/c/chk-1")
            assert line.cuts == 1
            assert [pointer.location for pointer in leader.completed] == ["/c/chk-1"]
            assert not leader.is_lost
            assert await leader.next_checkpoint_id() == 2
            await leader.close()

    run(work())


def test_a_deposed_leader_that_lives_on_can_complete_nothing(zookeeper: ZooKeeperServer) -> None:
    """The first one lives, but shows no sign of it, as one that was paused or cut off."""

    async def work() -> None:
        settings = zookeeper.settings()
        async with over_zookeeper(settings) as one, over_zookeeper(settings) as other:
            first = await leads(one, 1, beat_ms=60_000)
            taken = await first.next_checkpoint_id()
            await first.add(taken, "/c/chk-1")
            under_way = await first.next_checkpoint_id()
            second = await leads(other, 2)
            assert (second.job, second.epoch) == (first.job, first.epoch + 1)
            assert [pointer.location for pointer in second.completed] == ["/c/chk-1"]
            with pytest.raises(LeadershipLost, match="Another driver leads"):
                await first.add(under_way, "/c/chk-2")
            with pytest.raises(LeadershipLost):
                await first.next_checkpoint_id()
            assert [pointer.checkpoint for pointer in second.completed] == [1]
            assert await second.next_checkpoint_id() > under_way
            await first.close()
            await second.close()

    run(work())


def test_a_server_that_hangs_leaves_the_outcome_unknown_until_it_goes_on(
    own_server: ZooKeeperServer,
) -> None:
    async def work() -> None:
        async with over_zookeeper(own_server.settings(answers_within_ms=2_000)) as store:
            leader = await leads(store, 1, beat_ms=60_000)
            checkpoint = await leader.next_checkpoint_id()
            own_server.hang()
            try:
                with pytest.raises(OutcomeUnknown, match="unknown whether") as unknown:
                    await leader.add(checkpoint, "/c/chk-1")
                assert own_server.quorum in unknown.value.where
                assert "have a quorum" in unknown.value.remedy
                with pytest.raises(OutcomeUnknown):
                    await leader.next_checkpoint_id()
                assert leader.completed == ()
            finally:
                own_server.go_on()
            assert await settled(leader) > checkpoint
            assert [pointer.location for pointer in leader.completed] == ["/c/chk-1"]
            await leader.close()

    run(work())


async def settled(leader: Leadership) -> CheckpointId:
    """The next id, once the store answers again."""
    while True:
        with suppress(OutcomeUnknown):
            return await leader.next_checkpoint_id()


def test_a_server_that_is_started_again_still_knows_who_leads(own_server: ZooKeeperServer) -> None:
    async def work() -> None:
        async with over_zookeeper(own_server.settings(answers_within_ms=5_000)) as store:
            leader = await leads(store, 1)
            await leader.add(await leader.next_checkpoint_id(), "/c/chk-1")
            own_server.stop()
            await asyncio.to_thread(own_server.start)
            assert await settled(leader) == 2
            assert not leader.is_lost
            await leader.add(CheckpointId(2), "/c/chk-2")
            await leader.close()

    run(work())


def test_a_session_that_expires_costs_a_new_one_and_no_more(
    zookeeper: ZooKeeperServer, line: Line
) -> None:
    async def work() -> None:
        settings = replace(zookeeper.settings(quorum=line.quorum), session_timeout_ms=1_000)
        async with over_zookeeper(settings) as store:
            leader = await leads(store, 1)
            before = store._client.client_id
            line.cut_off()
            await asyncio.sleep(3)  # the server's own time; it gives up a session after one second
            line.down = False
            await leader.add(await leader.next_checkpoint_id(), "/c/chk-1")
            assert store._client.client_id != before
            assert not leader.is_lost
            await leader.close()

    run(work())


def test_a_chain_that_somebody_deleted_is_not_guessed_at(zookeeper: ZooKeeperServer) -> None:
    async def work() -> None:
        async with over_zookeeper(zookeeper.settings()) as store:
            leader = await leads(store, 1)
            await leader.close()
            await asyncio.to_thread(store._client.delete, store.node, recursive=True)
            with pytest.raises(StorageFailed, match="is gone"):
                await store.list("claims/")
            with pytest.raises(OutcomeUnknown, match="is gone"):
                await leader.add(CheckpointId(1), "/c/chk-1")

    run(work())


@pytest.mark.parametrize("name", ["my orders/2", "..", "größe", "a.b", "x" * 400])
def test_any_name_of_a_job_has_a_node_of_its_own(zookeeper: ZooKeeperServer, name: str) -> None:
    async def work() -> None:
        settings = zookeeper.settings()
        async with over_zookeeper(settings, name) as store, over_zookeeper(settings) as other:
            assert await store.create("claims/0000000001", b"x")
            assert await store.list("claims/") == ["claims/0000000001"]
            assert await store.read("claims/0000000001") == b"x"
            assert await other.list("claims/") == []

    run(work())


def test_no_server_is_said_within_the_limit_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections, says nothing
        nobody = f"127.0.0.1:{deaf.getsockname()[1]}"

        async def work() -> None:
            settings = ZooKeeperSettings(nobody, "/t", 1_000, connection_timeout_ms=500)
            async with over_zookeeper(settings):
                pytest.fail("nobody answers")

        with pytest.raises(StorageFailed, match="No ZooKeeper server has answered within") as told:
            run(work())
        assert told.value.where == nobody
        assert "high-availability.zookeeper.quorum" in told.value.remedy


def job(tmp_path: Path, quorum: str) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict(
        {
            "high-availability.type": "ZOOKEEPER",
            "high-availability.zookeeper.quorum": quorum,
            "high-availability.zookeeper.client.connection-timeout": "500 ms",
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        }
    )
    env = StreamExecutionEnvironment.local(1, configuration=configuration)
    env.from_sequence(1, 10).print()
    return env


@pytest.mark.feature("F053")
def test_a_job_whose_store_does_not_answer_is_refused_at_its_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(StorageFailed, match=r"No ZooKeeper server has answered within 0\.5 s"):
        job(tmp_path, f"127.0.0.1:{port}").execute("orders")
    assert not capfd.readouterr().out


def test_without_its_client_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tidegate.ha.zookeeper", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(ConfigError, match="not installed") as missing:
        job(tmp_path, "127.0.0.1:1").execute("orders")
    assert "pip install 'tidegate[zookeeper]'" in missing.value.remedy

"""ZooKeeper that asks who one is, over links that nobody reads: real servers, with SASL and TLS."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.e2e.certificates import Authority
from tests.e2e.zookeeper import PASSWORD, USER, ZooKeeperServer, sasl_only, tls_only
from tests.ha.led import leads, run
from tests.ha.world import over_zookeeper
from tidegate.errors import StorageFailed
from tidegate.ha.zookeeper import open_chain
from tidegate.model.settings import TlsStores, ZooKeeperLogin, ZooKeeperSettings, ZooKeeperTls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tidegate.ha.zookeeper import ZooKeeperHaStore

pytestmark = pytest.mark.slow

T = TypeVar("T")

LOGIN = ZooKeeperLogin(USER, PASSWORD)


@pytest.fixture(scope="module")
def asking(
    tmp_path_factory: pytest.TempPathFactory, known_processes: set[psutil.Process]
) -> Iterator[ZooKeeperServer]:
    """A server that serves nobody who has not logged in."""
    folder = tmp_path_factory.mktemp("asking")
    yield from started(ZooKeeperServer(folder, sasl_only(folder)), known_processes)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def encrypted(
    tmp_path_factory: pytest.TempPathFactory,
    authority: Authority,
    known_processes: set[psutil.Process],
) -> Iterator[ZooKeeperServer]:
    """A server that speaks TLS alone, with whoever has a certificate."""
    folder = tmp_path_factory.mktemp("encrypted")
    yield from started(ZooKeeperServer(folder, tls_only(authority)), known_processes)


def started(
    server: ZooKeeperServer, known_processes: set[psutil.Process]
) -> Iterator[ZooKeeperServer]:
    try:
        server.start()
        known_processes.update(psutil.Process().children())
        yield server
    finally:
        server.stop()


def stranger(server: ZooKeeperServer, name: str = "other") -> KazooClient:
    """Another user of the same server."""
    sasl = {"mechanism": "DIGEST-MD5", "username": name, "password": PASSWORD}
    client = KazooClient(server.quorum, sasl_options=sasl)
    client.start(60)
    return client


async def acl_of(store: ZooKeeperHaStore, path: str) -> set[str]:
    """Who may do anything with a node."""
    acls, _ = await asyncio.to_thread(store._client.get_acls, path)
    return {f"{acl.id.scheme}:{acl.id.id}" for acl in acls}


@pytest.mark.feature("F278")
def test_a_chain_is_kept_where_only_its_user_reads_and_changes_it(asking: ZooKeeperServer) -> None:
    async def work() -> None:
        settings = replace(asking.settings(), login=LOGIN, creator_only=True)
        async with over_zookeeper(settings) as store:
            leader = await leads(store, 1)
            await leader.add(await leader.next_checkpoint_id(), "/c/chk-1")
            assert await acl_of(store, store.node) == {f"sasl:{USER}"}
            assert await store.list("") != []
            other = await asyncio.to_thread(stranger, asking)
            try:
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(other.get_children, store.node)
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(other.delete, store.node, recursive=True)
            finally:
                other.stop()
                other.close()
            await leader.close()

    run(work())


def test_what_was_left_open_is_locked_by_the_next_driver(asking: ZooKeeperServer) -> None:
    async def work() -> None:
        settings = replace(asking.settings(), login=LOGIN)
        async with over_zookeeper(settings) as store:
            await store.create("claims/0000000001", b"x")
            assert await acl_of(store, store.node) == {"world:anyone"}
        async with over_zookeeper(replace(settings, creator_only=True)) as store:
            assert await acl_of(store, store.node) == {f"sasl:{USER}"}
            assert await acl_of(store, f"{store.node}/claims.0000000001") == {f"sasl:{USER}"}
            assert await store.read("claims/0000000001") == b"x"

    run(work())


def test_a_node_that_is_another_users_is_not_taken(asking: ZooKeeperServer) -> None:
    settings = replace(asking.settings(), login=LOGIN, creator_only=True)
    theirs = replace(settings, login=ZooKeeperLogin("other", PASSWORD))

    async def work() -> None:
        async with over_zookeeper(theirs):
            pass
        with pytest.raises(StorageFailed, match="does not permit this user to"):
            async with over_zookeeper(settings):
                pytest.fail("it is another's")

    run(work())


def test_a_wrong_password_is_told_as_that(asking: ZooKeeperServer) -> None:
    settings = replace(asking.settings(), login=ZooKeeperLogin(USER, "guessed"))

    async def work() -> None:
        async with over_zookeeper(settings):
            pytest.fail("nobody is let in")

    with pytest.raises(StorageFailed, match="does not accept the driver's login") as told:
        run(work())
    assert "tidegate.ha.zookeeper.username" in told.value.remedy
    assert "guessed" not in repr(settings)


def test_a_wrong_password_is_told_to_a_driver_that_looks_late(asking: ZooKeeperServer) -> None:
    settings = replace(asking.settings(), login=ZooKeeperLogin(USER, "guessed"))

    def late(call: Callable[[], T]) -> T:
        time.sleep(1)  # by then the server has refused, and the client has given up
        return call()

    async def work() -> None:
        store = await open_chain(settings, "orders", lambda call: asyncio.to_thread(late, call))
        await store.close()

    with pytest.raises(StorageFailed, match="does not accept the driver's login"):
        run(work())


def test_a_chain_is_kept_over_tls(
    encrypted: ZooKeeperServer, authority: Authority, tmp_path: Path
) -> None:
    own = TlsStores(str(authority.issue("driver.p12", password="shut")), "shut")
    tls = ZooKeeperTls(replace(own, truststore=str(authority.pem)))

    async def work() -> None:
        settings = replace(encrypted.settings(), tls=tls, creator_only=True)
        async with over_zookeeper(settings) as store:
            leader = await leads(store, 1)
            for number in range(1, 21):
                await leader.add(await leader.next_checkpoint_id(), f"/c/chk-{number}")
            await leader.close()
            assert all(who.startswith("x509:") for who in await acl_of(store, store.node))

    run(work())


def refused(settings: ZooKeeperSettings) -> str:
    async def work() -> None:
        async with over_zookeeper(settings):
            pytest.fail("there is no such link")

    with pytest.raises(StorageFailed, match="No ZooKeeper server has answered") as told:
        run(work())
    return told.value.remedy


def test_a_server_of_another_authority_gets_no_answer(
    encrypted: ZooKeeperServer, authority: Authority, tmp_path: Path
) -> None:
    """Nor does a client without a certificate."""
    settings = replace(encrypted.settings(), connection_timeout_ms=2_000)
    own = TlsStores(str(authority.issue("driver.pem")))
    good = replace(own, truststore=str(authority.pem))
    other = Authority(tmp_path, name="other")
    for stores in (replace(own, truststore=str(other.pem)), own, replace(good, keystore=None)):
        assert "over TLS" in refused(replace(settings, tls=ZooKeeperTls(stores)))


def test_a_server_has_the_certificate_of_its_host_unless_that_is_not_asked(
    encrypted: ZooKeeperServer, authority: Authority
) -> None:
    stores = TlsStores(str(authority.issue("driver.pem")), truststore=str(authority.pem))
    _, port = encrypted.quorum.split(":")
    settings = encrypted.settings(quorum=f"127.0.0.2:{port}")
    checked = replace(settings, tls=ZooKeeperTls(stores), connection_timeout_ms=2_000)
    assert "over TLS" in refused(checked)

    async def work() -> None:
        tls = ZooKeeperTls(stores, check_names=False)
        async with over_zookeeper(replace(settings, tls=tls)) as store:
            assert await store.create("claims/0000000001", b"x")

    run(work())

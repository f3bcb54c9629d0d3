"""Record chains in ZooKeeper: a job is one node, its files are that node's children.

All nodes are persistent and nothing depends on the session: the chain alone decides who leads,
so a session that expires costs a new one and no more. A file's slashes become dots, so that one
call lists a whole chain, as it was at one moment.

ZooKeeper creates a node on a quorum and only once, but a server that lags behind may answer a
reading from its own past. So each reading comes right behind a write of the same session: what
stood before it is seen. (A ``sync`` would nearly do, but it asks no quorum.)

Needs tidegate[zookeeper].
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    SessionClosedRequireSaslError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL

from tidegate.config.high_availability import ZOOKEEPER_STORES
from tidegate.errors import StorageFailed
from tidegate.model.settings import TlsStores
from tidegate.storage import paths
from tidegate.transport.keys import read_keys, service_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kazoo.handlers.utils import AsyncResult

    from tidegate.ha.filesystem import RunBlocking
    from tidegate.model.settings import ZooKeeperSettings, ZooKeeperTls


class Links(SequentialThreadingHandler):
    """The client's way to its servers: over TCP, or over TLS where there are settings for it.

    TLS of the client itself trusts every authority that this machine trusts beside those that are
    named, and reads keys from plain files alone. Raises ConfigError for keys that cannot be read.
    """

    def __init__(self, tls: ZooKeeperTls | None) -> None:
        super().__init__()
        self._context: ssl.SSLContext | None = None
        if tls is not None:
            keys = read_keys(tls.stores or TlsStores(), prefix=ZOOKEEPER_STORES.prefix)
            self._context = service_context(keys, check_names=tls.check_names)
        self.login_refused = threading.Event()

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> socket.socket:
        """Connects to a server. A failed handshake raises OSError."""
        with contextlib.ExitStack() as undo:
            link = undo.enter_context(socket.create_connection(address, timeout))
            if self._context is not None:
                link = self._context.wrap_socket(link, server_hostname=hostname)
            undo.pop_all()
        return link

    def select(self, readable: list[Any], *rest: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Waits for a socket; one with decrypted bytes left is ready at once."""
        waiting = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        return (waiting, [], []) if waiting else super().select(readable, *rest)

    def spawn(
        self, func: Callable[..., object], *args: object, **kwargs: object
    ) -> threading.Thread:
        """Starts a thread; the links' thread ends for good if a server refuses the login."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except SessionClosedRequireSaslError:
                self.login_refused.set()

        return super().spawn(run)


T = TypeVar("T")

RECONNECT_MAX_S: Final = 1.0
"""Longest wait between two tries to reach a server."""

REASON_MAX_S: Final = 1.0
"""Longest wait for the links' thread to say why the session is closed."""


class ZooKeeperHaStore:
    """One job's chain. Used on one loop; `close` ends its session.

    node: of the job; there once `open` has returned.
    """

    def __init__(self, settings: ZooKeeperSettings, node: str, run_blocking: RunBlocking) -> None:
        self._settings = settings
        self.node = node
        self._run_blocking = run_blocking
        self._limit_s = settings.connection_timeout_ms / 1000
        self._links = Links(settings.tls)
        self._client = _client(settings, self._links)
        self._answered = threading.Event()
        self._client.add_listener(self._hear)

    async def open(self) -> None:
        """Connects, and creates the job's node. Raises StorageFailed on failure."""
        self._client.start_async()
        if not await self._run_blocking(lambda: self._answered.wait(self._limit_s)):
            await self.close()
            raise StorageFailed(
                f"No ZooKeeper server has answered within {self._limit_s:g} s",
                where=self._settings.quorum,
                remedy="Check high-availability.zookeeper.quorum, and that the servers run, have a "
                f"quorum and can be reached from the driver{self._over_tls}.",
            )
        try:
            await self._answer("make the job's node", self._client.ensure_path_async(self.node))
            if self._settings.creator_only:
                await self._lock()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the session and the threads behind it; calls under way fail."""

        def close() -> None:
            # If closing fails, the session expires by itself.
            with contextlib.suppress(KazooException):
                self._client.stop()
            self._client.close()

        await self._run_blocking(close)

    async def create(self, path: str, data: bytes) -> bool:
        """Creates a node unless it exists. After StorageFailed the node may exist."""
        try:
            await self._answer(f"create {path}", self._client.create_async(self._child(path), data))
        except NodeExistsError:
            return False
        except NoNodeError as error:
            raise self._gone() from error
        return True

    async def read(self, path: str) -> bytes | None:
        get = self._client.get_async
        try:
            found = await self._read(f"read {path}", lambda: get(self._child(path)))
        except NoNodeError:
            return None
        return cast("tuple[bytes, object]", found)[0]

    async def list(self, prefix: str) -> list[str]:
        get_children = self._client.get_children_async
        found = await self._read(f"list {prefix}", lambda: get_children(self.node))
        listed = (name.replace(".", "/") for name in cast("list[str]", found))
        return sorted(path for path in listed if path.startswith(prefix))

    async def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with contextlib.suppress(NoNodeError):
                await self._answer(f"delete {path}", self._client.delete_async(self._child(path)))

    async def _lock(self) -> None:
        """Restricts the job's nodes to this user, including those that somebody left open."""
        what = "lock the job's node"
        found = await self._answer(what, self._client.get_children_async(self.node))
        children = [f"{self.node}/{name}" for name in cast("list[str]", found)]
        for node in (self.node, *children):
            with contextlib.suppress(NoNodeError):  # a leader deletes old records meanwhile
                await self._answer(what, self._client.set_acls_async(node, CREATOR_ALL_ACL))

    def _child(self, path: str) -> str:
        return f"{self.node}/{path.replace('/', '.')}"

    async def _read(self, what: str, read: Callable[[], AsyncResult]) -> object:
        """Result of a read that sees every earlier write, by whichever client."""
        session = self._client.client_id
        written, found = self._client.set_async(self.node, b""), read()
        try:
            await self._answer(what, written)
        except NoNodeError as error:
            raise self._gone() from error
        answer = await self._answer(what, found)
        if session is None or self._client.client_id != session:
            raise self._failed(what, "the session has ended meanwhile")
        return answer

    async def _answer(self, what: str, result: AsyncResult) -> object:
        try:
            async with asyncio.timeout(self._limit_s):
                return await _awaitable(result)
        except TimeoutError:
            raise self._failed(what, f"there was no answer within {self._limit_s:g} s") from None
        except (NodeExistsError, NoNodeError):
            raise
        except (AuthFailedError, InvalidACLError) as error:
            raise self._unknown_user() from error
        except NoAuthError as error:
            raise StorageFailed(
                f"ZooKeeper does not permit this user to {what}",
                where=self._where,
                remedy="Let the driver create, read, write and delete below "
                "high-availability.zookeeper.path.root, or name another root; servers may ask "
                "for tidegate.ha.zookeeper.username.",
            ) from error
        except KazooException as error:
            if await self._run_blocking(self._login_refused):
                raise self._unknown_user() from error
            raise self._failed(what, f"{type(error).__name__} {error}".rstrip()) from error

    def _hear(self, state: str) -> None:
        """A server that refuses a login has answered first; the client soon forgets both."""
        if state == KazooState.CONNECTED:
            self._answered.set()
        elif self._client.client_state == KeeperState.AUTH_FAILED:
            self._links.login_refused.set()

    def _login_refused(self) -> bool:
        closed = self._client.client_state == KeeperState.CLOSED
        return self._links.login_refused.wait(REASON_MAX_S if closed else 0)

    def _failed(self, what: str, why: str) -> StorageFailed:
        return StorageFailed(
            f"ZooKeeper could not be asked to {what}: {why}",
            where=self._where,
            remedy="Check that the servers run, have a quorum and can be reached from the driver.",
        )

    def _unknown_user(self) -> StorageFailed:
        return StorageFailed(
            "ZooKeeper does not accept the driver's login",
            where=self._where,
            remedy="Check tidegate.ha.zookeeper.username and its password, and that the servers "
            "know that user; or that they take the driver's certificate for one.",
        )

    def _gone(self) -> StorageFailed:
        return StorageFailed(
            "The job's node in ZooKeeper is gone, and with it the record of its leader",
            where=self._where,
            remedy="Somebody has deleted it. Start the job again from the path of a checkpoint.",
        )

    @property
    def _over_tls(self) -> str:
        return "" if self._settings.tls is None else " over TLS (the log has what it says)"

    @property
    def _where(self) -> str:
        return f"{self._settings.quorum}{self.node}"


def _client(settings: ZooKeeperSettings, links: Links) -> KazooClient:
    sasl = None
    if settings.login is not None:
        sasl = {"mechanism": "DIGEST-MD5"} | asdict(settings.login)
    return KazooClient(
        settings.quorum,
        timeout=settings.session_timeout_ms / 1000,
        handler=links,
        default_acl=CREATOR_ALL_ACL if settings.creator_only else None,
        sasl_options=sasl,
        connection_retry={"max_tries": -1, "max_delay": RECONNECT_MAX_S},
    )


async def open_chain(
    settings: ZooKeeperSettings, job_name: str, run_blocking: RunBlocking
) -> ZooKeeperHaStore:
    """The chain of a named job. Raises StorageFailed if no server answers."""
    node = paths.join(settings.path, "jobs", paths.quoted_name(job_name))
    store = ZooKeeperHaStore(settings, node, run_blocking)
    await store.open()
    return store


def _awaitable(answer: AsyncResult) -> Awaitable[object]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def settle() -> None:
        if future.done():
            return
        try:
            future.set_result(answer.get_nowait())
        except Exception as error:
            future.set_exception(error)

    def tell(_: AsyncResult) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; nobody waits any more
            loop.call_soon_threadsafe(settle)

    answer.rawlink(tell)
    return future

"""A driver on a thread of its own: what every runtime starts a job with."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from typing import TYPE_CHECKING, TypeVar

from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.driver.client.driver_client import DriverClient
from tidegate.driver.client.onlookers import Onlookers
from tidegate.driver.driver import Driver
from tidegate.driver.pool import DriverPool
from tidegate.driver.telling.report import tell_end
from tidegate.driver.world import DriverWorld
from tidegate.errors import ConfigError
from tidegate.ha.chain import MemoryHaStore
from tidegate.ha.filesystem import open_chain
from tidegate.model.chance import SeededChance
from tidegate.model.control import FailedStep, Logged
from tidegate.model.descriptors import make_room
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores
from tidegate.transport.tcp import loop_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tidegate.driver.client.onlookers import Onlooker, WayIn
    from tidegate.driver.telling.job_log import JobLog
    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.runtime import SlotProvider
    from tidegate.ha.chain import HaStore
    from tidegate.ha.filesystem import RunBlocking
    from tidegate.ha.zookeeper import ZooKeeperHaStore
    from tidegate.model.settings import ZooKeeperSettings
    from tidegate.transport.wire import Network

T = TypeVar("T")

ACCEPT_TIMEOUT_S = 60.0
"""How long a submission waits for the driver to lead the job and to read what it starts from."""

DRIVER_IO_THREADS = 8

POOL_END_S = 5.0
"""How long the pool's calls are waited for once the job is over."""


def start_driver(
    graph: JobGraph,
    provider: SlotProvider,
    network: Network,
    *,
    secret: bytes = b"",
    rest: WayIn | None = None,
    archive: Onlooker | None = None,
) -> DriverClient:
    """Start a job; returns once its driver leads it and has read what it starts from.

    rest: a way in beside the door. archive: keeps what the job shows. Both, and the reporters of
    metrics, end with it. Raises what stands in its way: ConfigError, StorageFailed, RestoreRefused.
    """
    make_room()
    clients: list[DriverClient] = []
    failures: list[BaseException] = []
    ready = threading.Event()
    onlookers = Onlookers(graph, rest, archive)
    log = onlookers.job_log

    async def live() -> None:
        # Stores are closed before the pool, on whose threads they do so.
        with _pool(graph.name) as pool, _pool(graph.name) as users:
            async with contextlib.AsyncExitStack() as stack:
                world = _world(graph, network, secret, pool, users, stack, log)
                driver = Driver(graph, world, provider)
                clients.append(_client(graph, driver, log))
                ready.set()
                await driver.run()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(live())
        except BaseException as error:
            failures.append(error)
        onlookers.shut()
        for client in clients:
            if client.summary is not None:
                tell_end(client.get_job_id(), client.summary, graph.settings)
            client.conclude(failures[0] if failures else None)
        onlookers.close()
        ready.set()

    thread = threading.Thread(target=run, name="tidegate-driver", daemon=True)
    thread.start()
    with _given_up(clients):
        ready.wait()
        if not clients:
            thread.join()
            raise failures[0]
        client = clients[0]
        client.belongs_to(thread)
        client.wait_accepted(ACCEPT_TIMEOUT_S)
        onlookers.open(client, client.epoch)
    client.served_at(onlookers.url)
    return client


@contextlib.contextmanager
def _given_up(clients: list[DriverClient]) -> Generator[None]:
    """Suspends jobs whose start is broken off, as by Ctrl-C: nobody would have them in hand."""
    try:
        yield
    except BaseException:
        for each in clients:
            each.break_off("its start was broken off")
        raise


def _client(graph: JobGraph, driver: Driver, log: JobLog) -> DriverClient:
    loop = asyncio.get_running_loop()
    return DriverClient(graph.name, driver.accepted, driver.result, loop, log)


@contextlib.contextmanager
def _pool(job_name: str) -> Generator[DriverPool]:
    pool = DriverPool(DRIVER_IO_THREADS, SystemClock())
    try:
        yield pool
    finally:
        if left := pool.close(POOL_END_S):
            log = process_log().bind(job=job_name)
            log.warning("calls that do not end are abandoned", threads=left)


def _world(
    graph: JobGraph,
    network: Network,
    secret: bytes,
    pool: DriverPool,
    users: DriverPool,
    stack: contextlib.AsyncExitStack,
    job_log: JobLog,
) -> DriverWorld:
    job_log.begin(graph.settings.slot.log, pool.submit)
    stack.callback(job_log.end)
    stores = Stores(MemoryFiles())

    return DriverWorld(
        network=network,
        clock=SystemClock(),
        chance=SeededChance(secrets.randbits(64)),
        run_blocking=pool.run,
        call_user=users.run,
        chain=lambda graph: record_chain(graph, stores, pool.run, stack),
        storage=lambda graph, job: CheckpointStorage(job, graph.settings.checkpoints, stores),
        log=job_log.log,
        secret=secret,
        heard=_heard_by(graph, job_log, pool),
    )


def _heard_by(
    graph: JobGraph, job_log: JobLog, pool: DriverPool
) -> Callable[[Logged | FailedStep], None]:
    written = 0

    def heard(message: Logged | FailedStep) -> None:
        nonlocal written
        if isinstance(message, Logged):
            job_log.heard(message)
            return
        from tidegate.driver.telling.bundles import keep  # few jobs keep what fails

        written += 1
        number, settings = written, graph.settings.slot.replay
        assert settings is not None, "slots keep what the job is to keep"
        pool.submit(lambda: keep(message, graph.name, settings, number, job_log.log))

    return heard


async def record_chain(
    graph: JobGraph, stores: Stores, run_blocking: RunBlocking, stack: contextlib.AsyncExitStack
) -> HaStore:
    """The store of a job's record chain; what has to be closed is closed with ``stack``."""
    settings, directory = graph.settings, graph.settings.checkpoints.directory
    if settings.zookeeper is not None:
        store = await _zookeeper_chain(settings.zookeeper, graph.name, run_blocking)
        stack.push_async_callback(store.close)
        return store
    if directory is None:
        return MemoryHaStore()
    return await open_chain(stores, directory, graph.name, run_blocking)


async def _zookeeper_chain(
    settings: ZooKeeperSettings, job_name: str, run_blocking: RunBlocking
) -> ZooKeeperHaStore:
    try:
        from tidegate.ha.zookeeper import open_chain as open_zookeeper_chain
    except ModuleNotFoundError as error:
        raise ConfigError(
            "ZooKeeper's client for Python is not installed where the driver runs",
            where="high-availability.type",
            remedy=f"Install it: pip install 'tidegate[zookeeper]'. {error}",
        ) from error
    return await open_zookeeper_chain(settings, job_name, run_blocking)

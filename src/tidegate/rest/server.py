"""Serves the REST interface of one job, on a thread and a loop of its own.

The port is taken before the job is submitted, so that one that cannot be had is told before
anything starts. Results of operations that somebody waits for, such as the path of the savepoint
that has ended the job, can still be read when the job is over, within a limit.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from aiohttp import web

from tidegate.config.rest import REST_STORES, REST_TOKEN_FILE
from tidegate.errors import ConfigError
from tidegate.rest.app import make_app
from tidegate.rest.guard import Guard
from tidegate.rest.operations import Operations
from tidegate.rest.patience import Patience
from tidegate.rest.routes import checkpoints, jobs, login, metrics, savepoints
from tidegate.rest.served import ServedJob
from tidegate.snapshots.folders import dispose_savepoint
from tidegate.storage.secret_file import read_secret
from tidegate.transport.accepting import BACKLOG, Acceptor
from tidegate.transport.keys import read_keys, server_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import structlog

    from tidegate.api.job import JobClient
    from tidegate.clock import Clock
    from tidegate.model.chance import Chance
    from tidegate.model.ids import Epoch
    from tidegate.model.settings import RestSettings
    from tidegate.transport.accepting import Guest

T = TypeVar("T")

_SHUTDOWN_S: Final = 1.0
_CONNECTIONS_MAX: Final = 64
_THREADS: Final = 4
_TOKEN_MIN: Final = 16


class RestServer:
    """Serves one job. Binds its port at once; raises ConfigError if no port is free."""

    def __init__(
        self,
        settings: RestSettings,
        clock: Clock,
        chance: Chance,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._operations = Operations(clock, settings.store_ms)
        token = None
        if settings.token_file is not None:
            token = read_secret(settings.token_file, "the token", where=REST_TOKEN_FILE.key)
        self._guard = Guard(settings, token, clock)
        self._tls = None
        if settings.tls is not None:
            keys = read_keys(settings.tls, prefix=REST_STORES.prefix)
            self._tls = server_context(keys, oldest=ssl.TLSVersion.TLSv1_2)
        self._clock = clock
        self._chance = chance
        self._log = log
        self._socket = _bound(settings)
        host = settings.address or settings.bind_address
        scheme = "http" if self._tls is None else "https"
        self.url: Final = f"{scheme}://{host}:{self._socket.getsockname()[1]}"
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidegate-rest-io")
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._ending: Future[None] = Future()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = False

    def open(self, client: JobClient, epoch: Epoch) -> None:
        served = ServedJob(client, self._operations, self._clock, self._chance, self._run_blocking)
        with self._lock:
            if self._ended:
                return
            self._thread = threading.Thread(
                target=self._live, args=(served,), name="tidegate-rest", daemon=True
            )
            self._thread.start()
            self._ready.result()
        self._log.info("rest endpoint listens", url=self.url, epoch=epoch)

    def shut(self) -> None:
        """Ends with the job, or as soon as the last results were read. Blocking."""
        with self._lock:
            self._ended = True
        if self._thread is None:
            self._release()
            return
        loop, over = self._ready.result()
        awaited = self._operations.awaited
        loop.call_soon_threadsafe(over.set)
        self._ending.result()
        if not awaited:
            self._thread.join()

    def _live(self, served: ServedJob) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve(served))

    async def _serve(self, served: ServedJob) -> None:
        patience = Patience()
        routes = (
            *checkpoints.routes(served),
            *savepoints.routes(served, self._dispose),
            *metrics.routes(served),
            *jobs.routes(served),
            *login.routes(self._guard),
        )
        app = make_app(routes, self._log, self._guard, patience)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        acceptor = self._accept(runner, patience)
        over = asyncio.Event()
        self._ready.set_result((asyncio.get_running_loop(), over))
        watching = asyncio.create_task(served.watch())
        await over.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        # The process waits for this thread if the program ends meanwhile.
        read = asyncio.get_running_loop().run_in_executor(
            self._pool, self._operations.wait_until_read
        )
        self._ending.set_result(None)
        await read
        await acceptor.close()
        await runner.cleanup()
        patience.close()
        self._release()

    def _accept(self, runner: web.AppRunner, patience: Patience) -> Acceptor:
        server = runner.server
        assert server is not None, "the runner is set up"

        def make(guest: Guest) -> asyncio.BaseProtocol:
            protocol = server()
            patience.came(protocol, guest)
            return protocol

        return Acceptor(
            self._socket,
            make,
            timeout_s=patience.timeout_s,
            tls=self._tls,
            unproved_max=_CONNECTIONS_MAX,
        )

    def _release(self) -> None:
        self._pool.shutdown(wait=False)
        self._socket.close()

    def _dispose(self, path: str) -> Future[None]:
        return self._pool.submit(partial(dispose_savepoint, path))

    def _run_blocking(self, call: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, call)


def _bound(settings: RestSettings) -> socket.socket:
    first, last = settings.ports
    problem: OSError | None = None
    for port in range(first, last + 1):
        try:
            return socket.create_server((settings.bind_address, port), backlog=BACKLOG)
        except OSError as error:
            problem = error
    raise ConfigError(
        f"The REST interface cannot listen at {settings.bind_address}, "
        f"{f'port {first}' if first == last else f'ports {first} to {last}'}: {problem}",
        where="rest.bind-port, rest.bind-address",
        remedy="Give a range of ports with room for all jobs of this machine, such as 8081-8099, "
        "or 0 for any.",
    ) from problem

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
from tidegate.rest.guard import Guard
from tidegate.rest.messages import (
    REQUEST_TIMEOUT_S,
    Accepted,
    RestError,
    Unauthorized,
    error_response,
    response,
)
from tidegate.rest.routes import jobs, login, snapshots
from tidegate.rest.served import Operations, ServedJob
from tidegate.snapshots.folders import dispose_savepoint
from tidegate.storage.secret_file import read_secret
from tidegate.transport.accepting import BACKLOG, Acceptor
from tidegate.transport.keys import read_keys, server_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    import structlog

    from tidegate.api.job import JobClient
    from tidegate.clock import Clock
    from tidegate.model.chance import Chance
    from tidegate.model.ids import Epoch
    from tidegate.model.settings import RestSettings
    from tidegate.rest.served import Route
    from tidegate.transport.accepting import Guest

T = TypeVar("T")

_SHUTDOWN_S: Final = 1.0
_CONNECTIONS_MAX: Final = 64
_THREADS: Final = 4
BODY_BYTES_MAX: Final = 1 << 20
PREFIXES: Final = ("", "/v1")


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
            *snapshots.routes(served, self._dispose),
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


def make_app(
    routes: Iterable[Route],
    log: structlog.typing.FilteringBoundLogger,
    guard: Guard,
    patience: Patience,
) -> web.Application:
    """Makes an application that answers requests at these routes, and below ``/v1`` too."""

    @web.middleware
    async def errors_answered(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        patience.asked(request.protocol)
        try:
            guard.check(
                request.method,
                request.path.removeprefix(PREFIXES[1]),
                request.headers,
                here=_dialled(request),
                has_body=request.body_exists,
            )
            return await handler(request)
        except RestError as error:
            refused = error_response(error.status, *error.texts)
            if isinstance(error, Unauthorized):
                refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        except web.HTTPRequestEntityTooLarge as error:
            return error_response(413, error.text or "The request is too large.")
        except web.HTTPException:
            return error_response(404, f"Unable to load requested file {request.path}.")
        except Exception:
            log.exception("a request could not be answered", path=request.path)
            return error_response(500, "Internal server error.", "The job's log says more.")
        finally:
            patience.answered(request.protocol)

    app = web.Application(middlewares=[errors_answered], client_max_size=BODY_BYTES_MAX)
    for route in routes:
        for prefix in PREFIXES:
            app.router.add_route(route.method, prefix + route.path, _handler(route))
    return app


def _dialled(request: web.Request) -> str:
    """Address of this machine at which the connection arrived."""
    transport = request.transport
    name = None if transport is None else transport.get_extra_info("sockname")
    return str(name[0]) if name else ""


def _handler(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await route.answer(request)
        if isinstance(body, web.StreamResponse):
            return body
        if isinstance(body, Accepted):
            return response(body.body, 202)
        return response(body)

    return handle


class Patience:
    """Ends connections that do not send a whole request in time.

    A connection is known by its protocol, which is what a request of aiohttp names.
    """

    def __init__(self, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.timeout_s: Final = timeout_s
        self._waiting: dict[object, asyncio.TimerHandle] = {}
        self._guests: dict[object, Guest] = {}

    def came(self, protocol: object, guest: Guest) -> None:
        self._guests[protocol] = guest
        self._wait(protocol)

    def asked(self, protocol: object) -> None:
        waiting = self._waiting.pop(protocol, None)
        if waiting is not None:
            waiting.cancel()

    def answered(self, protocol: object) -> None:
        if protocol in self._guests:
            self._wait(protocol)

    def close(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()

    def _wait(self, protocol: object) -> None:
        self.asked(protocol)  # requests sent ahead are answered in a row
        loop = asyncio.get_running_loop()
        self._waiting[protocol] = loop.call_later(self.timeout_s, self._give_up, protocol)

    def _give_up(self, protocol: object) -> None:
        del self._waiting[protocol]
        self._guests.pop(protocol).cut()

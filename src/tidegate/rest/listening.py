"""A port at which routes are answered: who may ask, over what, and for how long it is waited."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from tidegate.config.rest import REST_STORES, REST_TOKEN_FILE
from tidegate.errors import ConfigError, PeerLost
from tidegate.rest.guard import Guard
from tidegate.rest.messages import REQUEST_TIMEOUT_S, Accepted, error_response, response
from tidegate.rest.names import announced
from tidegate.rest.refusals import RestError, Unauthorized
from tidegate.storage.secret_file import read_secret
from tidegate.transport.accepting import Acceptor, listening_at
from tidegate.transport.keys import read_keys, server_context

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    import structlog

    from tidegate.clock import Clock
    from tidegate.model.settings import RestSettings
    from tidegate.rest.served import Route
    from tidegate.transport.accepting import Guest

_SHUTDOWN_S: Final = 1.0
_CONNECTIONS_MAX: Final = 64
BODY_BYTES_MAX: Final = 1 << 20
PREFIXES: Final = ("", "/v1")


class Listener:
    """Binds its port at once. Raises ConfigError if no port is free, or keys cannot be read.

    url: under which it is reached. token: that requests must bring, if there is one.
    """

    def __init__(self, settings: RestSettings, clock: Clock) -> None:
        self.token: Final = token_of(settings)
        self.guard: Final = Guard(settings, self.token, clock)
        self._tls = None
        if settings.tls is not None:
            keys = read_keys(settings.tls, prefix=REST_STORES.prefix)
            self._tls = server_context(keys, oldest=ssl.TLSVersion.TLSv1_2)
        self._socket = _bound(settings)
        host = announced(settings)
        host = f"[{host}]" if ":" in host else host
        scheme = "http" if self._tls is None else "https"
        self.url: Final = f"{scheme}://{host}:{self._socket.getsockname()[1]}"

    @asynccontextmanager
    async def answering(
        self, routes: Iterable[Route], log: structlog.typing.FilteringBoundLogger
    ) -> AsyncGenerator[None]:
        """Answers requests within the block."""
        patience = Patience()
        app = make_app(routes, log, self.guard, patience)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        acceptor = self._accept(runner, patience)
        try:
            yield
        finally:
            await acceptor.close()
            await runner.cleanup()
            patience.close()

    def close(self) -> None:
        self._socket.close()

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


def token_of(settings: RestSettings) -> str | None:
    """The token of the settings; None if they name none. Raises ConfigError."""
    if settings.token_file is None:
        return None
    return read_secret(settings.token_file, "the token", where=REST_TOKEN_FILE.key)


def _bound(settings: RestSettings) -> socket.socket:
    first, last = settings.ports
    problem: OSError | None = None
    for port in range(first, last + 1):
        try:
            return listening_at(settings.bind_address, port)
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
        except PeerLost as error:  # the driver's loop is busy, or has ended
            return error_response(503, *filter(None, (error.what, error.remedy)))
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
    """Ends connections that do not send a whole request, or read an answer, in time.

    A connection is known by its protocol, which is what a request of aiohttp names. Whoever reads
    slowly has as long again each time they have taken some of the answer.
    """

    def __init__(self, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.timeout_s: Final = timeout_s
        self._waiting: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._guests: dict[web.RequestHandler, Guest] = {}

    def came(self, protocol: web.RequestHandler, guest: Guest) -> None:
        self._guests[protocol] = guest
        self._wait(protocol)

    def asked(self, protocol: web.RequestHandler) -> None:
        waiting = self._waiting.pop(protocol, None)
        if waiting is not None:
            waiting.cancel()

    def answered(self, protocol: web.RequestHandler) -> None:
        if protocol in self._guests:
            self._wait(protocol)

    def close(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()

    def _wait(self, protocol: web.RequestHandler, unsent: int | None = None) -> None:
        """unsent: bytes of the answer that were left at the last look."""
        self.asked(protocol)  # requests sent ahead are answered in a row
        loop = asyncio.get_running_loop()
        self._waiting[protocol] = loop.call_later(self.timeout_s, self._late, protocol, unsent)

    def _late(self, protocol: web.RequestHandler, before: int | None) -> None:
        del self._waiting[protocol]
        link = protocol.transport
        unsent = 0 if link is None else link.get_write_buffer_size()
        if unsent > 0 if before is None else unsent < before:
            self._wait(protocol, unsent)
        else:
            self._guests.pop(protocol).cut()

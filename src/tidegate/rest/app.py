"""The application: every route, and errors as answers."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from tidegate.rest.answers import Accepted, Forbidden, RestError, error_response, response
from tidegate.rest.routes import checkpoints, jobs, metrics, savepoints

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

    import structlog

    from tidegate.rest.served import Route, ServedJob

BODY_BYTES_MAX: Final = 1 << 20
PREFIXES: Final = ("", "/v1")


def make_app(
    served: ServedJob,
    dispose: Callable[[str], Future[Any]],
    log: structlog.typing.FilteringBoundLogger,
) -> web.Application:
    """What answers the requests about one job. dispose: begins to delete a savepoint."""

    @web.middleware
    async def errors_answered(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            _refuse_other_sites(request)
            return await handler(request)
        except RestError as error:
            return error_response(error.status, *error.texts)
        except web.HTTPRequestEntityTooLarge as error:
            return error_response(413, error.text or "The request is too large.")
        except web.HTTPException:
            return error_response(404, f"Unable to load requested file {request.path}.")
        except Exception as error:
            log.exception("a request could not be answered", path=request.path)
            told = "".join(traceback.format_exception(error))
            text = f"<Exception on server side:\n{told}\nEnd of exception on server side>"
            return error_response(500, "Internal server error.", text)

    app = web.Application(middlewares=[errors_answered], client_max_size=BODY_BYTES_MAX)
    for route in (
        *checkpoints.routes(served),
        *savepoints.routes(served, dispose),
        *metrics.routes(served),
        *jobs.routes(served),
    ):
        for prefix in PREFIXES:
            app.router.add_route(route.method, prefix + route.path, _handler(route))
    return app


def _refuse_other_sites(request: web.Request) -> None:
    """A page of another site, open in a browser of this machine, is not to end a job."""
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.host:
        raise Forbidden(f"A page of {origin} may not ask the job.")


def _handler(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await route.answer(request)
        if isinstance(body, Accepted):
            return response(body.body, 202)
        return response(body)

    return handle

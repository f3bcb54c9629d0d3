"""The application: routes that are guarded, and errors as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web

from tidegate.rest.answers import Accepted, RestError, Unauthorized, error_response, response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    import structlog

    from tidegate.rest.guard import Guard
    from tidegate.rest.patience import Patience
    from tidegate.rest.served import Route

BODY_BYTES_MAX: Final = 1 << 20
PREFIXES: Final = ("", "/v1")


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

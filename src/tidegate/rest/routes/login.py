"""A browser gets in by a link that works once, since it cannot send a token by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web

from tidegate.rest.guard import LOGIN
from tidegate.rest.served import Route

if TYPE_CHECKING:
    from tidegate.rest.guard import Guard

_FIRST_PAGE: Final = "/"


def routes(guard: Guard) -> list[Route]:
    async def link(request: web.Request) -> object:
        return {"url": f"{request.scheme}://{request.headers['Host']}{guard.new_link()}"}

    async def login(request: web.Request) -> object:
        _, port = request.transport.get_extra_info("sockname")[:2] if request.transport else ("", 0)
        cookie = guard.cookie_for(request.query.get("code", ""), port, tls=request.secure)
        headers = {"Location": _FIRST_PAGE, "Set-Cookie": cookie, "Referrer-Policy": "no-referrer"}
        return web.Response(status=303, headers=headers)

    return [Route("POST", "/login-links", link), Route("GET", LOGIN, login)]

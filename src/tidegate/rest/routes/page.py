"""The job's own page: its files, and the picture that it asks for each second."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from aiohttp import web

from tidegate.rest.refusals import BadRequest, NotFound
from tidegate.rest.served import Route
from tidegate.telemetry.picture import picture

if TYPE_CHECKING:
    from tidegate.rest.served import ServedJob

_FIRST: Final = "index.html"
_NUMBER: Final = re.compile("[0-9]{1,18}")
_FILES: Final = resources.files("tidegate.rest") / "page"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' "
    "data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def routes(served: ServedJob) -> list[Route]:
    async def seen(request: web.Request) -> object:
        since = request.query.get("checkpoints", "0")
        if not _NUMBER.fullmatch(since):
            raise BadRequest(f"checkpoints is the id of a checkpoint, and '{since}' is none.")
        job = await served.job(request)
        return picture(job, served.now_ms, since=int(since))

    return [*file_routes(), Route("GET", "/jobs/{jobid}/picture", seen)]


def file_routes() -> list[Route]:
    """Routes of the files of the page."""

    async def first(request: web.Request) -> object:
        return _file(request, _FIRST)

    async def part(request: web.Request) -> object:
        return _file(request, request.match_info["name"])

    return [Route("GET", "/", first), Route("GET", "/page/{name:.+}", part)]


def _file(request: web.Request, name: str) -> web.Response:
    """A file of the page; its hash tells a browser that it has it. Raises NotFound."""
    found = _files().get(name)
    if found is None:
        raise NotFound(f"Unable to load requested file {request.path}.")
    content, kind, tag = found
    headers = {**_HEADERS, "ETag": tag}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=content, content_type=kind, charset="utf-8", headers=headers)


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Content, media type and tag by name; whatever is asked for is one of these names."""
    files: dict[str, tuple[bytes, str, str]] = {}
    folders = [("", _FILES)]
    while folders:
        prefix, folder = folders.pop()
        for each in folder.iterdir():
            name = f"{prefix}{each.name}"
            if each.is_dir():
                folders.append((f"{name}/", each))
                continue
            content = each.read_bytes()
            kind = mimetypes.guess_type(name)[0] or "text/plain"
            kind = "text/javascript" if name.endswith(".js") else kind
            files[name] = content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return files

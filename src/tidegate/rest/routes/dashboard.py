"""Flink's own dashboard, from the user's copy of it: static files read out of a jar.

Nothing is unpacked, and no name is served that the archive does not list. It begins at
``/index.html``, since it asks its questions beside that; ``/`` is the job's own page. Source:
dashboard §1.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from aiohttp import web

from tidegate.config.rest import REST_WEB_JAR
from tidegate.errors import ConfigError
from tidegate.rest.refusals import NotFound
from tidegate.rest.served import Route

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.ha.filesystem import RunBlocking

FOLDER: Final = "web/"
_INDEX: Final = "index.html"
_HASHED: Final = re.compile(r".*\.[0-9a-f]{16}\.\w+")
"""Names that change with what the file holds."""

_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".txt": "text/plain",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
_TEXTS: Final = ("text/css", "text/html", "text/javascript", "text/plain")


class Dashboard:
    """Static files of a jar. Raises ConfigError if it cannot be read, or holds no dashboard."""

    def __init__(self, jar: str) -> None:
        self._jar = jar
        try:
            with zipfile.ZipFile(jar) as archive:
                listed = archive.namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise _no_dashboard(f"{jar} cannot be read as a jar: {error}") from error
        self._names = {
            name.removeprefix(FOLDER)
            for name in listed
            if name.startswith(FOLDER) and not name.endswith("/")
        }
        if _INDEX not in self._names:
            raise _no_dashboard(f"{jar} has no {FOLDER}{_INDEX}")

    def routes(self, apart: RunBlocking) -> list[Route]:
        """Routes behind all others: what these do not answer may be a file."""

        async def file(request: Request) -> object:
            name = request.match_info["file"]
            if name not in self._names:
                raise NotFound(f"Unable to load requested file {request.path}.")
            return _answer(name, await apart(lambda: self._read(name)))

        return [Route("GET", "/{file:.+}", file)]

    def _read(self, name: str) -> bytes:
        with zipfile.ZipFile(self._jar) as archive:
            return archive.read(FOLDER + name)


def _answer(name: str, data: bytes) -> web.Response:
    kind = _TYPES.get(PurePosixPath(name).suffix, "application/octet-stream")
    lasting = _HASHED.fullmatch(name) is not None
    return web.Response(
        body=data,
        content_type=kind,
        charset="utf-8" if kind in _TEXTS else None,
        headers={
            "Cache-Control": "public, max-age=31536000, immutable" if lasting else "no-cache",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _no_dashboard(what: str) -> ConfigError:
    return ConfigError(
        what,
        where=REST_WEB_JAR.key,
        remedy="Name Flink's own jar of its dashboard, such as flink-runtime-web-2.3.0.jar of "
        "Maven's org.apache.flink:flink-runtime-web.",
    )

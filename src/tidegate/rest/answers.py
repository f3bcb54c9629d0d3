"""Answers: JSON with a status; errors are answers too. Source: REST §1."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_TYPE: Final = "application/json; charset=UTF-8"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Status 202: the requested operation has begun."""

    body: Mapping[str, object]


class RestError(Exception):
    """An error as an answer. status: of HTTP."""

    status = 500

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.texts = texts


class BadRequest(RestError):
    """The request is malformed."""

    status = 400


class Unauthorized(RestError):
    """The request carries no valid token."""

    status = 401


class UnsupportedMediaType(RestError):
    """The body is declared as something else than JSON."""

    status = 415


class Forbidden(RestError):
    """The request is not allowed."""

    status = 403


class NotFound(RestError):
    """The requested thing does not exist."""

    status = 404


class RequestTimeout(RestError):
    """The request did not arrive in time."""

    status = 408


class Conflict(RestError):
    """The job's state does not allow the request."""

    status = 409


class Moved(RestError):
    """The requested page is elsewhere."""

    status = 308


def response(body: object, status: int = 200) -> web.Response:
    """A body as JSON; numbers that JSON lacks become their names, as in Flink."""
    data = json.dumps(_finite(body), separators=(",", ":"), allow_nan=False).encode()
    return web.Response(body=data, status=status, headers={"Content-Type": CONTENT_TYPE})


def error_response(status: int, *texts: str) -> web.Response:
    """An error as an answer, in one text or several."""
    return response({"errors": texts}, status)


def _finite(value: Any) -> Any:
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case dict():
            return {key: _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case _:
            return value

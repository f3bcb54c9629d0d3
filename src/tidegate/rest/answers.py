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
    """What was asked for is being done."""

    body: Mapping[str, object]


class RestError(Exception):
    """A request that cannot be answered as it would like. status: of HTTP."""

    status = 500

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.texts = texts


class BadRequest(RestError):
    """The request is faulty."""

    status = 400


class Unauthorized(RestError):
    """The asker has not said who he is."""

    status = 401


class UnsupportedMediaType(RestError):
    """The request says that its body is something else than JSON."""

    status = 415


class Forbidden(RestError):
    """The asker may not ask."""

    status = 403


class NotFound(RestError):
    """There is no such thing."""

    status = 404


class RequestTimeout(RestError):
    """The request is not there in time."""

    status = 408


class Conflict(RestError):
    """The job's state does not allow it."""

    status = 409


class Moved(RestError):
    """What is asked for stands elsewhere."""

    status = 308


def response(body: object, status: int = 200) -> web.Response:
    """A body as JSON; what is no number is its name, as in Flink."""
    data = json.dumps(_finite(body), separators=(",", ":"), allow_nan=False).encode()
    return web.Response(body=data, status=status, headers={"Content-Type": CONTENT_TYPE})


def error_response(status: int, *texts: str) -> web.Response:
    """An error, in one text or more."""
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

"""Bodies of requests, and answers: JSON with a status. Errors are answers too.

Unknown fields of a body are ignored. Source: REST §1, §4, §5.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from aiohttp import web

from flinkformat.snapshots import SavepointFormatType
from tidegate.typeinfo.decoders import json_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.web import Request

CONTENT_TYPE: Final = "application/json; charset=UTF-8"

REQUEST_TIMEOUT_S: Final = 10.0
"""Time for the head of a request, counted from the last answer, and again for its body."""


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


_ID: Final = re.compile("[0-9a-f]{32}")

Body = TypeVar("Body", bound="_Body")


class _Body(msgspec.Struct, frozen=True):
    def faulty(self) -> bool:
        """True if a field has an impossible value."""
        return False


class Triggering(_Body, frozen=True):
    """Body of a request that begins an operation, under an id that the client may choose."""

    trigger_id: str | None = msgspec.field(default=None, name="triggerId")

    def faulty(self) -> bool:
        return self.trigger_id is not None and not _ID.fullmatch(self.trigger_id)


class _Saving(Triggering, frozen=True):
    format: str = msgspec.field(default="CANONICAL", name="formatType")

    def faulty(self) -> bool:
        return super().faulty() or self.format not in SavepointFormatType.__members__


class SavepointTriggerRequestBody(_Saving, frozen=True):
    """``POST /jobs/:jobid/savepoints``."""

    directory: str | None = msgspec.field(default=None, name="target-directory")
    cancels: bool = msgspec.field(default=False, name="cancel-job")


class StopWithSavepointRequestBody(_Saving, frozen=True):
    """``POST /jobs/:jobid/stop``."""

    directory: str | None = msgspec.field(default=None, name="targetDirectory")
    drain: bool = False


class CheckpointTriggerRequestBody(Triggering, frozen=True):
    """``POST /jobs/:jobid/checkpoints``."""

    type: str = msgspec.field(default="CONFIGURED", name="checkpointType")

    def faulty(self) -> bool:
        return super().faulty() or self.type not in ("CONFIGURED", "FULL", "INCREMENTAL")


class SavepointDisposalRequest(_Body, frozen=True):
    """``POST /savepoint-disposal``."""

    path: str | None = msgspec.field(default=None, name="savepoint-path")


async def read_body(request: Request, kind: type[Body]) -> Body:
    """Reads the body of a request; an empty one has no fields.

    Raises BadRequest, and RequestTimeout for half a body.
    """
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            data = await request.read()
    except TimeoutError as error:
        raise RequestTimeout("The body of the request has not come in time.") from error
    try:
        body = json_decoder(kind).decode(data or b"{}")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest(
            "Bad request received. Request did not conform to expected format."
        ) from error
    if body.faulty():
        raise BadRequest(f"Request did not match expected format {kind.__name__}.")
    return body

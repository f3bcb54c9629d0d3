"""Bodies of requests, and answers: JSON with a status. Errors are answers too.

Unknown fields of a body are ignored. Source: REST §1, §4, §5.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from aiohttp import web

from flinkformat.frozen import frozen
from flinkformat.snapshots import SavepointFormatType
from tidegate.rest.refusals import BadRequest, RequestTimeout
from tidegate.rest.shapes.finite import finite
from tidegate.typeinfo.decoders import json_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.web import Request

CONTENT_TYPE: Final = "application/json; charset=UTF-8"

REQUEST_TIMEOUT_S: Final = 10.0
"""Time for the head of a request, counted from the last answer, and again for its body."""


@frozen
class Accepted:
    """Status 202: the requested operation has begun."""

    body: Mapping[str, object]


def response(body: object, status: int = 200) -> web.Response:
    """A body as JSON; numbers that JSON lacks become their names, as in Flink."""
    data = json.dumps(finite(body), separators=(",", ":"), allow_nan=False).encode()
    return web.Response(body=data, status=status, headers={"Content-Type": CONTENT_TYPE})


def text_response(text: str) -> web.Response:
    """A body as plain text; "?" stands for half a surrogate pair, which has no bytes in UTF-8."""
    body = text.encode(errors="replace")
    return web.Response(body=body, content_type="text/plain", charset="utf-8")


def error_response(status: int, *texts: str) -> web.Response:
    """An error as an answer, in one text or several."""
    return response({"errors": texts}, status)


_ID: Final = re.compile("[0-9a-f]{32}")

T = TypeVar("T")
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


class Bounds(msgspec.Struct, frozen=True):
    """The parallelism that a vertex may have."""

    upper: int = msgspec.field(name="upperBound")
    lower: int = msgspec.field(default=1, name="lowerBound")


class Requirements(msgspec.Struct, frozen=True):
    """Requirements of one vertex."""

    parallelism: Bounds


async def read_body(request: Request, kind: type[Body]) -> Body:
    """Reads the body of a request; an empty one has no fields.

    Raises BadRequest, and RequestTimeout for half a body.
    """
    body = await _read(request, kind)
    if body.faulty():
        raise BadRequest(f"Request did not match expected format {kind.__name__}.")
    return body


async def read_requirements(request: Request) -> dict[str, Requirements]:
    """Reads what ``PUT …/resource-requirements`` asks for, by vertex. Raises as `read_body`."""
    return await _read(request, dict[str, Requirements])


async def _read(request: Request, kind: type[T]) -> T:
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            data = await request.read()
    except TimeoutError as error:
        raise RequestTimeout("The body of the request has not come in time.") from error
    try:
        return json_decoder(kind).decode(data or b"{}")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest(
            "Bad request received. Request did not conform to expected format."
        ) from error

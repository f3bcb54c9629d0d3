"""Bodies of requests; unknown fields are ignored. Source: REST §4, §5."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from flinkformat.snapshots import SavepointFormatType
from tidegate.rest.answers import BadRequest, RequestTimeout
from tidegate.rest.patience import REQUEST_TIMEOUT_S
from tidegate.typeinfo.decoders import json_decoder

if TYPE_CHECKING:
    from aiohttp.web import Request

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

"""What other processes may ask of a running job: one way in, whichever door they come through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.errors import UserError
from tidegate.model.snapshots import SavepointFormatType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from tidegate.api.client import CheckpointDone, JobClient
    from tidegate.model.control import JobStatus


def begin(
    client: JobClient, request: Mapping[str, Any]
) -> Future[str] | Future[None] | Future[CheckpointDone] | Future[JobStatus]:
    """Begin what a request asks for; its result comes when that is done.

    request: plain values by name; ``do`` says what. Raises UserError for what cannot be asked for.
    """
    target, trigger_id = request.get("directory"), request.get("trigger_id")
    format = SavepointFormatType[request.get("format", "CANONICAL")]
    match request["do"]:
        case "savepoint":
            return client.trigger_savepoint(target, format=format, trigger_id=trigger_id)
        case "stop":
            drain = bool(request["drain"])
            return client.stop_with_savepoint(drain, target, format=format, trigger_id=trigger_id)
        case "cancel with savepoint":
            return client.cancel_with_savepoint(target, format=format, trigger_id=trigger_id)
        case "cancel":
            return client.cancel()
        case "checkpoint":
            return client.trigger_checkpoint(full=bool(request.get("full")))
        case "status":
            return client.get_job_status()
        case other:
            raise UserError(
                f"The job's driver does not know the request {other!r}",
                remedy="Use the version of Tidegate that runs the job.",
            )

"""Requests of other processes to a running job: one entry for all doors."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from flinkformat.snapshots import SavepointFormatType
from tidegate.errors import UserError
from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.api.job import CheckpointDone, JobClient
    from tidegate.jobmaster.view import JobView


def begin(
    client: JobClient, request: Mapping[str, Any]
) -> (
    Future[str]
    | Future[None]
    | Future[CheckpointDone]
    | Future[JobStatus]
    | Future[dict[str, object]]
):
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
        case "status" if request.get("figures"):
            figures: Future[dict[str, object]] = Future()
            figures.set_result(_figures(client.view()))
            return figures
        case "status":
            return client.get_job_status()
        case other:
            raise UserError(
                f"The job's driver does not know the request {other!r}",
                remedy="Use the version of Tidegate that runs the job.",
            )


def _figures(job: JobView) -> dict[str, object]:
    """Its status, and in ms of the wall clock when it began and since when it runs."""
    running = job.status is JobStatus.RUNNING
    return {
        "status": job.status.value,
        "start_ms": job.timestamps_ms.get(JobStatus.INITIALIZING),
        "running_since_ms": job.timestamps_ms.get(JobStatus.RUNNING) if running else None,
        "parallelism": max((vertex.parallelism for vertex in job.vertices), default=1),
        "restarts": job.restarts,
    }

"""Savepoints: asked for, ended with, disposed of. Source: REST §5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidegate.driver.client.requests import begin
from tidegate.rest.answers import Accepted, BadRequest
from tidegate.rest.bodies import (
    SavepointDisposalRequest,
    SavepointTriggerRequestBody,
    StopWithSavepointRequestBody,
    read_body,
)
from tidegate.rest.guard import check_target
from tidegate.rest.served import Route, path_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from aiohttp.web import Request

    from tidegate.jobmaster.view import JobView
    from tidegate.rest.served import ServedJob

_KIND: Final = "savepoint"
_DISPOSAL: Final = "savepoint disposal"


def routes(served: ServedJob, dispose: Callable[[str], Future[Any]]) -> list[Route]:
    async def trigger(request: Request) -> object:
        job = await served.job(request)
        body = await read_body(request, SavepointTriggerRequestBody)
        _check_directory(job, body.directory, "target-directory")
        do = "cancel with savepoint" if body.cancels else "savepoint"
        return ask(body, {"do": do})

    async def stop(request: Request) -> object:
        job = await served.job(request)
        body = await read_body(request, StopWithSavepointRequestBody)
        _check_directory(job, body.directory, "targetDirectory")
        return ask(body, {"do": "stop", "drain": body.drain})

    def ask(
        body: SavepointTriggerRequestBody | StopWithSavepointRequestBody, asked: dict[str, object]
    ) -> Accepted:
        asked |= {"directory": body.directory, "format": body.format}
        return Accepted(
            served.begin(
                _KIND,
                body.trigger_id,
                lambda id: begin(served.client, {**asked, "trigger_id": id}),
            )
        )

    async def status(request: Request) -> object:
        job, id = served.job_id(request), path_id(request, "triggerid")
        return served.outcome(_KIND, id, lambda path: {"location": path}, whose=f" for job {job}")

    async def begin_disposal(request: Request) -> object:
        body = await read_body(request, SavepointDisposalRequest)
        path = body.path
        if path is None:
            raise BadRequest("Field savepoint-path must not be omitted or be null.")
        _check_place(await served.view(), path)
        return served.begin(_DISPOSAL, None, lambda _: dispose(path))

    async def disposal(request: Request) -> object:
        return served.outcome(_DISPOSAL, path_id(request, "triggerid"), lambda _: {})

    return [
        Route("POST", "/jobs/{jobid}/savepoints", trigger),
        Route("GET", "/jobs/{jobid}/savepoints/{triggerid}", status),
        Route("POST", "/jobs/{jobid}/stop", stop),
        Route("POST", "/savepoint-disposal", begin_disposal),
        Route("GET", "/savepoint-disposal/{triggerid}", disposal),
    ]


def _check_directory(job: JobView, given: str | None, field: str) -> None:
    _check_place(job, given)
    if given is None and job.settings.checkpoints.savepoint_directory is None:
        raise BadRequest(
            "Config key [execution.checkpointing.savepoint-dir] is not set. Property "
            f"[{field}] must be provided."
        )


def _check_place(job: JobView, given: str | None) -> None:
    """Raises Forbidden for a place that requests may not send the driver to."""
    folder, rest = job.settings.checkpoints.savepoint_directory, job.settings.rest
    others = () if rest is None else rest.savepoint_directories
    check_target(given, others if folder is None else (folder, *others))

"""Checkpoints and savepoints: history, requests for one, disposal. Source: REST §4, §5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidegate.driver.client.requests import begin
from tidegate.model.ids import CheckpointId
from tidegate.rest.guard import check_target
from tidegate.rest.messages import (
    Accepted,
    CheckpointTriggerRequestBody,
    SavepointDisposalRequest,
    SavepointTriggerRequestBody,
    StopWithSavepointRequestBody,
    read_body,
)
from tidegate.rest.refusals import BadRequest, NotFound, RestError
from tidegate.rest.served import Route, path_id, path_number
from tidegate.rest.shapes import checkpoint_shapes as shapes

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from aiohttp.web import Request

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.jobmaster.view import JobView
    from tidegate.rest.served import ServedJob

_CHECKPOINT: Final = "checkpoint"
_SAVEPOINT: Final = "savepoint"
_DISPOSAL: Final = "savepoint disposal"


def routes(served: ServedJob, dispose: Callable[[str], Future[Any]]) -> list[Route]:
    """Routes of snapshots; paths that end in a word stand before those that end in an id."""
    return [*_checkpoints(served), *_savepoints(served, dispose)]


def _savepoints(served: ServedJob, dispose: Callable[[str], Future[Any]]) -> list[Route]:
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
                _SAVEPOINT,
                body.trigger_id,
                lambda id: begin(served.client, {**asked, "trigger_id": id}),
            )
        )

    async def status(request: Request) -> object:
        job, id = served.job_id(request), path_id(request, "triggerid")
        return served.outcome(
            _SAVEPOINT, id, lambda path: {"location": path}, whose=f" for job {job}"
        )

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


def _checkpoints(served: ServedJob) -> list[Route]:
    async def found(request: Request) -> CheckpointStatistics:
        wanted = path_number(request, "checkpointid")
        one = (await served.job(request)).checkpoints.find(CheckpointId(wanted))
        if one is None:
            raise NotFound(f"Could not find checkpointing statistics for checkpoint {wanted}.")
        return one

    async def details(request: Request) -> object:
        return shapes.checkpoint(await found(request), tasks=True)

    async def subtasks(request: Request) -> object:
        one = await found(request)
        _, vertex = await served.vertex(request)
        share = one.vertex(vertex.id)
        if share is None:
            raise NotFound(f"There is no checkpoint statistics for task {vertex.id.hex()}.")
        return shapes.subtasks(one, share)

    async def trigger(request: Request) -> object:
        served.job_id(request)
        body = await read_body(request, CheckpointTriggerRequestBody)
        if body.type == "INCREMENTAL":
            raise RestError("Flink does not support triggering incremental checkpoint explicitly.")
        asked = {"do": "checkpoint", "full": body.type == "FULL"}
        return Accepted(
            served.begin(_CHECKPOINT, body.trigger_id, lambda _: begin(served.client, asked))
        )

    async def status(request: Request) -> object:
        job, id = served.job_id(request), path_id(request, "triggerid")
        return served.outcome(
            _CHECKPOINT,
            id,
            lambda done: {"checkpointId": done.checkpoint},
            whose=f" for job {job}",
            failure="failureCause",
        )

    base = "/jobs/{jobid}/checkpoints"
    return [
        served.shows("/checkpoints", lambda job: shapes.overview(job.checkpoints)),
        Route("POST", base, trigger),
        served.shows("/checkpoints/config", lambda job: shapes.config(job.settings)),
        Route("GET", f"{base}/details/{{checkpointid}}", details),
        Route("GET", f"{base}/details/{{checkpointid}}/subtasks/{{vertexid}}", subtasks),
        Route("GET", f"{base}/{{triggerid}}", status),
    ]

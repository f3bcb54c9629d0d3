"""Checkpoints: their history, and requests for one. Source: REST §4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.driver.client.requests import begin
from tidegate.model.ids import CheckpointId
from tidegate.rest.answers import Accepted, NotFound, RestError
from tidegate.rest.bodies import CheckpointTriggerRequestBody, read_body
from tidegate.rest.served import Route, path_id, path_number
from tidegate.rest.shapes import checkpoint_shapes as shapes

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
    from tidegate.rest.served import ServedJob

_KIND: Final = "checkpoint"


def routes(served: ServedJob) -> list[Route]:
    async def overview(request: Request) -> object:
        return shapes.overview((await served.job(request)).checkpoints)

    async def config(request: Request) -> object:
        return shapes.config((await served.job(request)).settings)

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
        return Accepted(served.begin(_KIND, body.trigger_id, lambda _: begin(served.client, asked)))

    async def status(request: Request) -> object:
        job, id = served.job_id(request), path_id(request, "triggerid")
        return served.outcome(
            _KIND,
            id,
            lambda done: {"checkpointId": done.checkpoint},
            whose=f" for job {job}",
            failure="failureCause",
        )

    base = "/jobs/{jobid}/checkpoints"
    return [
        Route("GET", base, overview),
        Route("POST", base, trigger),
        Route("GET", f"{base}/config", config),
        Route("GET", f"{base}/details/{{checkpointid}}", details),
        Route("GET", f"{base}/details/{{checkpointid}}/subtasks/{{vertexid}}", subtasks),
        Route("GET", f"{base}/{{triggerid}}", status),
    ]

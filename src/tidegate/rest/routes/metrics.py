"""Metrics of the job, of a vertex, of a subtask. Source: REST §3.6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.rest.served import Route
from tidegate.rest.shapes import metric_shapes as shapes

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
    from tidegate.rest.served import ServedJob


def routes(served: ServedJob) -> list[Route]:
    def known(job: JobView, vertex: VertexView, subtask: SubtaskView) -> shapes.Metrics:
        return shapes.of_subtask(job, vertex, subtask, served.rates.of(vertex.id, subtask))

    async def of_job(request: Request) -> object:
        found = shapes.of_job(await served.job(request), served.now_ms)
        return shapes.answer(found, request.query.get("get"))

    async def of_vertex(request: Request) -> object:
        job, vertex = await served.vertex(request)
        found = {
            f"{subtask.index}.{name}": value
            for subtask in vertex.subtasks
            for name, value in known(job, vertex, subtask).items()
        }
        return shapes.answer(found, request.query.get("get"))

    async def of_subtask(request: Request) -> object:
        job, vertex, subtask = await served.subtask(request)
        return shapes.answer(known(job, vertex, subtask), request.query.get("get"))

    vertex = "/jobs/{jobid}/vertices/{vertexid}"
    return [
        Route("GET", "/jobs/{jobid}/metrics", of_job),
        Route("GET", f"{vertex}/metrics", of_vertex),
        Route("GET", f"{vertex}/subtasks/{{index}}/metrics", of_subtask),
    ]

"""The parallelism of the job, and its change. Source: dashboard §3.12."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.errors import TidegateError, UserError
from tidegate.rest.messages import read_requirements
from tidegate.rest.refusals import BadRequest, RestError
from tidegate.rest.served import Route
from tidegate.rest.shapes.job_shapes import requirements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.web import Request

    from tidegate.jobmaster.view import JobView, VertexView
    from tidegate.rest.messages import Requirements
    from tidegate.rest.served import ServedJob

_PATH: Final = "/resource-requirements"
REFUSED_WITHIN_S: Final = 1.0
"""A rescaling that is not refused so soon is under way, and may take as long as slots need."""


def routes(served: ServedJob) -> list[Route]:
    async def change(request: Request) -> object:
        job = await served.job(request)
        wanted = parallelism_asked(job, await read_requirements(request))
        if wanted is not None:
            await _rescale(served, wanted)
        return {}

    return [served.shows(_PATH, requirements), Route("PUT", f"/jobs/{{jobid}}{_PATH}", change)]


async def _rescale(served: ServedJob, parallelism: int) -> None:
    rescaled = asyncio.wrap_future(served.client.rescale(parallelism))
    # Whoever asked is not told of what comes later; the job's log is.
    rescaled.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait([rescaled], timeout=REFUSED_WITHIN_S)
    error = rescaled.exception() if rescaled.done() else None
    if isinstance(error, UserError):
        raise BadRequest(str(error)) from error
    if isinstance(error, TidegateError):
        raise RestError(str(error)) from error


def parallelism_asked(job: JobView, asked: Mapping[str, Requirements]) -> int | None:
    """The parallelism of the job that gives each vertex what is asked; None for no change.

    Raises BadRequest for what no parallelism of the whole job gives.
    """
    vertices = {vertex.id.hex(): vertex for vertex in job.vertices}
    for id, each in asked.items():
        _check(id, vertices.get(id), each)
    following = [vertex for vertex in job.vertices if not vertex.parallelism_set]
    wanted = {
        asked[id].parallelism.upper if (id := vertex.id.hex()) in asked else vertex.parallelism
        for vertex in following
    }
    if len(wanted) > 1:
        names = ", ".join(f"'{vertex.name}'" for vertex in following)
        raise BadRequest(
            "Steps that follow the parallelism of the job change together. Give each of them the "
            f"same upperBound: {names}."
        )
    changed = wanted - {vertex.parallelism for vertex in following}
    return changed.pop() if changed else None


def _check(id: str, vertex: VertexView | None, asked: Requirements) -> None:
    if vertex is None:
        raise BadRequest(f"The job has no vertex {id}.")
    upper, lower = asked.parallelism.upper, asked.parallelism.lower
    if not 1 <= lower <= upper <= vertex.max_parallelism:
        raise BadRequest(
            f"'{vertex.name}' can have a parallelism from 1 to {vertex.max_parallelism}, not "
            f"from {lower} to {upper}."
        )
    if vertex.parallelism_set and upper != vertex.parallelism:
        raise BadRequest(
            f"'{vertex.name}' keeps the parallelism {vertex.parallelism}, which the program has "
            "set with set_parallelism for a step in it."
        )

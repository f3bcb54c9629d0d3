"""The job, its vertices, and its end. Source: REST §2, §3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidegate import __version__
from tidegate.driver.client.requests import begin
from tidegate.model.control import JobStatus
from tidegate.rest.answers import Accepted, BadRequest, Conflict, Moved
from tidegate.rest.guard import check_own_page
from tidegate.rest.served import Route
from tidegate.rest.shapes import job_shapes as shapes
from tidegate.rest.shapes import pressure

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.rest.served import ServedJob

_REFRESH_MS: Final = 3_000
_EXCEPTIONS_MAX: Final = 20
_ENTRIES: Final = re.compile("[0-9]{1,9}")


def routes(served: ServedJob) -> list[Route]:
    """Routes of the job; paths that end in a word stand before those that end in an id."""
    base = "/jobs/{jobid}"
    reading = [*_reading_jobs(served), *_reading(served, base), *_reading_vertices(served, base)]
    return [*reading, *_cancelling(served, base)]


def _reading_jobs(served: ServedJob) -> list[Route]:
    async def cluster(request: Request) -> object:
        return shapes.cluster(await served.view(), __version__)

    async def config(request: Request) -> object:
        return {
            "refresh-interval": _REFRESH_MS,
            "timezone-name": "UTC",
            "timezone-offset": 0,
            "flink-version": __version__,
            "flink-revision": "unknown",
            "features": {
                "web-submit": False,
                "web-cancel": True,
                "web-history": False,
                "web-rescale": False,
            },
        }

    async def jobs(request: Request) -> object:
        job = await served.view()
        return {"jobs": [{"id": job.job, "status": job.status.value}]}

    async def overview(request: Request) -> object:
        return {"jobs": [shapes.overview(await served.view(), served.now_ms)]}

    return [
        Route("GET", "/overview", cluster),
        Route("GET", "/config", config),
        Route("GET", "/jobs", jobs),
        Route("GET", "/jobs/overview", overview),
    ]


def _reading(served: ServedJob, base: str) -> list[Route]:
    async def details(request: Request) -> object:
        return shapes.details(await served.job(request), served.now_ms)

    async def status(request: Request) -> object:
        return {"status": (await served.job(request)).status.value}

    async def plan(request: Request) -> object:
        return {"plan": shapes.plan(await served.job(request))}

    async def job_config(request: Request) -> object:
        return shapes.config(await served.job(request))

    async def exceptions(request: Request) -> object:
        job, query = await served.job(request), request.query
        entries_max = query.get("maxExceptions", str(_EXCEPTIONS_MAX))
        key, colon, value = query.get("failureLabelFilter", "").partition(":")
        if not _ENTRIES.fullmatch(entries_max) or bool(key) != bool(colon):
            raise BadRequest(
                "Bad request, could not parse parameters: Cannot resolve query parameter "
                f'from "{request.query_string}".'
            )
        label = (key, value) if key else None
        return shapes.exceptions(job, int(entries_max), label)

    async def waits(request: Request) -> object:
        return shapes.waits(await served.job(request))

    return [
        Route("GET", base, details),
        Route("GET", f"{base}/waits", waits),
        Route("GET", f"{base}/status", status),
        Route("GET", f"{base}/plan", plan),
        Route("GET", f"{base}/config", job_config),
        Route("GET", f"{base}/exceptions", exceptions),
    ]


def _reading_vertices(served: ServedJob, base: str) -> list[Route]:
    async def vertex(request: Request) -> object:
        job, vertex = await served.vertex(request)
        return shapes.vertex_details(job, vertex, served.now_ms)

    async def times(request: Request) -> object:
        return shapes.subtask_times(*await served.vertex(request), served.now_ms)

    async def subtask(request: Request) -> object:
        job, _, subtask = await served.subtask(request)
        return shapes.subtask_of(job, subtask, served.now_ms)

    async def watermarks(request: Request) -> object:
        return pressure.watermarks((await served.vertex(request))[1])

    async def backpressure(request: Request) -> object:
        _, vertex = await served.vertex(request)
        known = {s.index: served.rates.of(vertex.id, s) for s in vertex.subtasks}
        shares = {index: share for index, share in known.items() if share is not None}
        return pressure.backpressure(shares, served.now_ms)

    at = f"{base}/vertices/{{vertexid}}"
    return [
        Route("GET", at, vertex),
        Route("GET", f"{at}/subtasktimes", times),
        Route("GET", f"{at}/subtasks/{{index}}", subtask),
        Route("GET", f"{at}/watermarks", watermarks),
        Route("GET", f"{at}/backpressure", backpressure),
    ]


def _cancelling(served: ServedJob, base: str) -> list[Route]:
    async def cancel(request: Request) -> object:
        job, mode = await served.job(request), request.query.get("mode", "cancel")
        if mode == "stop":
            raise Moved(
                'The termination mode "stop" is gone; post to /jobs/:jobid/stop, which takes a '
                "savepoint."
            )
        if mode != "cancel":
            raise BadRequest(
                "Bad request, could not parse parameters: Cannot resolve query parameter (mode) "
                f'from value "{mode}".'
            )
        if job.status.is_terminal and job.status is not JobStatus.CANCELED:
            raise Conflict(
                "Job cancellation failed because the job has already reached another terminal "
                f"state ({job.status.value})."
            )
        begin(served.client, {"do": "cancel"})
        return Accepted({})

    async def cancel_by_button(request: Request) -> object:
        check_own_page(request.headers)
        return await cancel(request)

    # Flink's dashboard cancels by GET, since the proxy of YARN passes nothing else on.
    by_button = Route("GET", f"{base}/yarn-cancel", cancel_by_button)
    return [Route("PATCH", base, cancel), by_button]

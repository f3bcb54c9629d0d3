"""The job, its vertices, their metrics, and its end. Source: REST §2, §3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidegate import __version__
from tidegate.driver.client.requests import begin
from tidegate.model.control import JobStatus
from tidegate.rest.guard import check_own_page
from tidegate.rest.messages import Accepted, BadRequest, Conflict, Moved
from tidegate.rest.served import Route
from tidegate.rest.shapes import job_shapes as shapes
from tidegate.rest.shapes import metric_shapes as metrics

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
    from tidegate.rest.served import ServedJob

_JOB: Final = "/jobs/{jobid}"
_REFRESH_MS: Final = 3_000
_EXCEPTIONS_MAX: Final = 20
_ENTRIES: Final = re.compile("[0-9]{1,9}")


def routes(served: ServedJob) -> list[Route]:
    """Routes of the job; paths that end in a word stand before those that end in an id."""
    reading = [*_reading_jobs(served), *_reading(served), *_reading_vertices(served)]
    return [*reading, *_cancelling(served)]


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


def _reading(served: ServedJob) -> list[Route]:
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

    async def job_metrics(request: Request) -> object:
        found = metrics.of_job(await served.job(request), served.now_ms)
        return metrics.answer(found, request.query.get("get"))

    return [
        served.shows("", lambda job: shapes.details(job, served.now_ms)),
        served.shows("/waits", shapes.waits),
        served.shows("/status", lambda job: {"status": job.status.value}),
        served.shows("/plan", lambda job: {"plan": shapes.plan(job)}),
        served.shows("/config", shapes.config),
        Route("GET", f"{_JOB}/exceptions", exceptions),
        Route("GET", f"{_JOB}/metrics", job_metrics),
    ]


def _reading_vertices(served: ServedJob) -> list[Route]:
    def known(job: JobView, vertex: VertexView, subtask: SubtaskView) -> metrics.Metrics:
        return metrics.of_subtask(job, vertex, subtask, served.rates.of(vertex.id, subtask))

    def backpressure(_: JobView, vertex: VertexView) -> object:
        known = {s.index: served.rates.of(vertex.id, s) for s in vertex.subtasks}
        shares = {index: share for index, share in known.items() if share is not None}
        return metrics.backpressure(shares, served.now_ms)

    async def vertex_metrics(request: Request) -> object:
        job, vertex = await served.vertex(request)
        found = {
            f"{subtask.index}.{name}": value
            for subtask in vertex.subtasks
            for name, value in known(job, vertex, subtask).items()
        }
        return metrics.answer(found, request.query.get("get"))

    async def subtask(request: Request) -> object:
        job, _, subtask = await served.subtask(request)
        return shapes.subtask_of(job, subtask, served.now_ms)

    async def subtask_metrics(request: Request) -> object:
        found = known(*await served.subtask(request))
        return metrics.answer(found, request.query.get("get"))

    at = f"{_JOB}/vertices/{{vertexid}}"
    return [
        served.shows_vertex("", lambda job, v: shapes.vertex_details(job, v, served.now_ms)),
        served.shows_vertex(
            "/subtasktimes", lambda job, v: shapes.subtask_times(job, v, served.now_ms)
        ),
        served.shows_vertex("/watermarks", lambda _, vertex: metrics.watermarks(vertex)),
        served.shows_vertex("/backpressure", backpressure),
        Route("GET", f"{at}/metrics", vertex_metrics),
        Route("GET", f"{at}/subtasks/{{index}}", subtask),
        Route("GET", f"{at}/subtasks/{{index}}/metrics", subtask_metrics),
    ]


def _cancelling(served: ServedJob) -> list[Route]:
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
    by_button = Route("GET", f"{_JOB}/yarn-cancel", cancel_by_button)
    return [Route("PATCH", _JOB, cancel), by_button]

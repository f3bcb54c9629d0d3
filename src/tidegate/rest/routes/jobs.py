"""The job, its vertices, their metrics, and its end. Source: REST §2, §3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidegate import __version__
from tidegate.driver.client.requests import begin
from tidegate.model.control import JobStatus
from tidegate.rest.guard import check_own_page
from tidegate.rest.messages import Accepted
from tidegate.rest.refusals import BadRequest, Conflict, Moved, NotFound, unresolved
from tidegate.rest.served import Route, path_number
from tidegate.rest.shapes import job_shapes as shapes
from tidegate.rest.shapes import metric_shapes as metrics
from tidegate.telemetry.held import held_state
from tidegate.telemetry.own import own_metrics
from tidegate.telemetry.picture import waits

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.rest.served import ServedJob

_JOB: Final = "/jobs/{jobid}"
_EXCEPTIONS_MAX: Final = 20
_ENTRIES: Final = re.compile("[0-9]{1,9}")
_RANGE: Final = re.compile("(?P<first>[0-9]{1,5})(-(?P<last>[0-9]{1,5}))?")


def routes(served: ServedJob) -> list[Route]:
    """Routes of the job; paths that end in a word stand before those that end in an id."""
    reading = [*_reading_jobs(served), *_reading(served), *_reading_vertices(served)]
    return [*reading, *_of_slots(served), *_cancelling(served)]


def _reading_jobs(served: ServedJob) -> list[Route]:
    async def cluster(request: Request) -> object:
        return shapes.cluster(await served.view(), __version__)

    async def config(request: Request) -> object:
        return shapes.server(__version__)

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

    async def metrics_of_jobs(request: Request) -> object:
        found = [metrics.of_job(await served.view(), served.now_ms)]
        return metrics.aggregated(found, request.query.get("get"), request.query.get("agg"))

    async def job_metrics(request: Request) -> object:
        found = metrics.of_job(await served.job(request), served.now_ms)
        return metrics.answer(found, request.query.get("get"))

    return [
        Route("GET", "/jobs/metrics", metrics_of_jobs),
        served.shows("", lambda job: shapes.details(job, served.now_ms)),
        served.shows("/waits", waits),
        served.shows("/state", held_state),
        served.shows("/own-metrics", lambda job: own_metrics(job, served.now_ms)),
        served.shows("/status", lambda job: {"status": job.status.value}),
        served.shows("/plan", lambda job: {"plan": shapes.plan(job)}),
        served.shows("/config", shapes.config),
        served.shows("/execution-result", lambda job: shapes.execution_result(job, served.now_ms)),
        Route("GET", f"{_JOB}/exceptions", exceptions),
        Route("GET", f"{_JOB}/metrics", job_metrics),
    ]


def _reading_vertices(served: ServedJob) -> list[Route]:
    async def vertex_metrics(request: Request) -> object:
        job, vertex = await served.vertex(request)
        found = {
            f"{subtask.index}.{name}": value
            for subtask in vertex.subtasks
            for name, value in metrics.of_subtask(job, vertex, subtask).items()
        }
        return metrics.answer(found, request.query.get("get"))

    async def metrics_of_subtasks(request: Request) -> object:
        job, vertex = await served.vertex(request)
        wanted = _indexes(request)
        found = [
            metrics.of_subtask(job, vertex, subtask)
            for subtask in vertex.subtasks
            if wanted is None or subtask.index in wanted
        ]
        return metrics.aggregated(found, request.query.get("get"), request.query.get("agg"))

    async def subtask(request: Request) -> object:
        job, _, subtask = await served.subtask(request)
        return shapes.subtask_of(shapes.hosts(job), subtask, served.now_ms)

    async def attempt(request: Request) -> object:
        job, _, subtask = await served.subtask(request)
        wanted = path_number(request, "attempt")
        if wanted != subtask.attempt:
            raise NotFound(
                f"Could not find attempt {wanted} of subtask {subtask.index}; only the newest, "
                f"{subtask.attempt}, is known."
            )
        return shapes.subtask_of(shapes.hosts(job), subtask, served.now_ms)

    async def subtask_metrics(request: Request) -> object:
        found = metrics.of_subtask(*await served.subtask(request))
        return metrics.answer(found, request.query.get("get"))

    at = f"{_JOB}/vertices/{{vertexid}}"
    return [
        served.shows_vertex("", lambda job, v: shapes.vertex_details(job, v, served.now_ms)),
        served.shows_vertex(
            "/subtasktimes", lambda job, v: shapes.subtask_times(job, v, served.now_ms)
        ),
        served.shows_vertex("/watermarks", lambda _, vertex: metrics.watermarks(vertex)),
        served.shows_vertex(
            "/backpressure", lambda _, vertex: metrics.backpressure(vertex, served.now_ms)
        ),
        Route("GET", f"{at}/metrics", vertex_metrics),
        Route("GET", f"{at}/subtasks/metrics", metrics_of_subtasks),
        Route("GET", f"{at}/subtasks/{{index}}", subtask),
        Route("GET", f"{at}/subtasks/{{index}}/attempts/{{attempt}}", attempt),
        Route("GET", f"{at}/subtasks/{{index}}/metrics", subtask_metrics),
    ]


def _indexes(request: Request) -> set[int] | None:
    """Subtasks that a request asks for, such as ``0-3,7``; None for all. Raises BadRequest."""
    asked = request.query.get("subtasks")
    if asked is None:
        return None
    found: set[int] = set()
    for part in asked.split(","):
        parsed = _RANGE.fullmatch(part)
        if parsed is None:
            raise unresolved("query", "subtasks", asked)
        first = int(parsed["first"])
        found |= set(range(first, int(parsed["last"] or first) + 1))
    return found


def _of_slots(served: ServedJob) -> list[Route]:
    async def metrics_of_slots(request: Request) -> object:
        chosen, query = request.query.get("taskmanagers"), request.query
        slots = (await served.view()).slots
        wanted = None if chosen is None else chosen.split(",")
        found = [metrics.of_slot(slot) for slot in slots if wanted is None or slot.id in wanted]
        return metrics.aggregated(found, query.get("get"), query.get("agg"))

    async def metrics_of_slot(request: Request) -> object:
        _, slot = await served.slot(request)
        return metrics.answer(metrics.of_slot(slot), request.query.get("get"))

    return [
        Route("GET", "/taskmanagers/metrics", metrics_of_slots),
        Route("GET", "/taskmanagers/{taskmanagerid}/metrics", metrics_of_slot),
    ]


def _cancelling(served: ServedJob) -> list[Route]:
    async def by_request(request: Request) -> object:
        return await _cancel(served, request)

    async def by_button(request: Request) -> object:
        check_own_page(request.headers)
        return await _cancel(served, request)

    # Flink's dashboard cancels by GET, since the proxy of YARN passes nothing else on.
    paths = (f"{_JOB}/yarn-cancel", f"{_JOB}/yarn-stop")
    return [
        Route("PATCH", _JOB, by_request),
        Route("POST", "/applications/{jobid}/cancel", by_request),
        *(Route("GET", path, by_button) for path in paths),
    ]


async def _cancel(served: ServedJob, request: Request) -> Accepted:
    """Cancels the job that a request names. Raises Conflict if it has ended in another way."""
    job, mode = await served.job(request), request.query.get("mode", "cancel")
    if mode == "stop":
        raise Moved(
            'The termination mode "stop" is gone; post to /jobs/:jobid/stop, which takes a '
            "savepoint."
        )
    if mode != "cancel":
        raise unresolved("query", "mode", mode)
    if job.status.is_terminal and job.status is not JobStatus.CANCELED:
        raise Conflict(
            "Job cancellation failed because the job has already reached another terminal "
            f"state ({job.status.value})."
        )
    begin(served.client, {"do": "cancel"})
    return Accepted({})

"""Routes over many jobs: lists are put together, what is asked of one job goes to its driver.

The answers have the form that a single job gives, so both pages work over them.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from tidegate import __version__
from tidegate.config.configuration import shown_settings
from tidegate.model.control import JobStatus
from tidegate.rest.cluster.archived_answers import answer_of
from tidegate.rest.cluster.asking import NoAnswer
from tidegate.rest.guard import check_own_page
from tidegate.rest.messages import text_response
from tidegate.rest.refusals import Conflict, NotFound, RestError
from tidegate.rest.served import NO_RESOURCE, Route, lacking, path_id
from tidegate.rest.shapes import cluster_shapes, job_shapes, metric_shapes
from tidegate.rest.shapes.log_shapes import is_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.web import Request

    from tidegate.rest.cluster.known_jobs import KnownJobs, SeenJob

_CANCELLING: Final = ("/yarn-cancel", "/yarn-stop")
_PASSED_ON: Final = ("Accept", "Content-Type", "If-None-Match")


class Unanswered(RestError):
    """The driver that was asked has not answered."""

    status = 504


def routes(known: KnownJobs, given: Mapping[str, str]) -> list[Route]:
    """Routes of many jobs. given: settings of this process."""
    return [*_lists(known), *_slots(known), *_process(known, given), *_one_job(known)]


def _lists(known: KnownJobs) -> list[Route]:
    async def overview(request: Request) -> object:
        shown = [job.shown() for job in await known.all()]
        return {"jobs": shown, **({"troubles": known.troubles} if known.troubles else {})}

    async def jobs(request: Request) -> object:
        found = await known.all()
        return {"jobs": [{"id": job.found.id, "status": job.state} for job in found]}

    async def cluster(request: Request) -> object:
        jobs = await known.all()
        told = await _from_each(known, jobs, "/overview")
        slots = ("taskmanagers", "slots-total", "slots-available")
        counted = job_shapes.counted_jobs([JobStatus(job.state) for job in jobs], __version__)
        running = {"jobs-running": sum(job.runs for job in jobs)}
        return {name: sum(one[name] for _, one in told) for name in slots} | counted | running

    async def applications(request: Request) -> object:
        found = await known.all()
        shapes = [cluster_shapes.application_of(job.overview) for job in found]
        return {"applications": shapes}

    async def config(request: Request) -> object:
        return job_shapes.server(__version__, many=True)

    async def metrics_of_jobs(request: Request) -> object:
        wanted, query = request.query.get("jobs"), request.query
        asked = [
            (job, f"/jobs/{job.found.id}/metrics")
            for job in await known.all()
            if wanted is None or job.found.id in wanted.split(",")
        ]
        found = await _metrics(known, asked, query)
        return metric_shapes.aggregated(found, query.get("get"), query.get("agg"))

    return [
        Route("GET", "/overview", cluster),
        Route("GET", "/config", config),
        Route("GET", "/jobs", jobs),
        Route("GET", "/jobs/overview", overview),
        Route("GET", "/jobs/metrics", metrics_of_jobs),
        Route("GET", "/applications/overview", applications),
    ]


def _slots(known: KnownJobs) -> list[Route]:
    async def listed() -> list[tuple[SeenJob, dict[str, Any]]]:
        told = await _from_each(known, await known.all(), "/taskmanagers")
        return [(job, slot) for job, one in told for slot in one["taskmanagers"]]

    async def all_slots(request: Request) -> object:
        return {"taskmanagers": [slot for _, slot in await listed()]}

    async def metrics_of_slots(request: Request) -> object:
        wanted, query = request.query.get("taskmanagers"), request.query
        asked = [
            (job, f"/taskmanagers/{slot['id']}/metrics")
            for job, slot in await listed()
            if wanted is None or slot["id"] in wanted.split(",")
        ]
        found = await _metrics(known, asked, query)
        return metric_shapes.aggregated(found, query.get("get"), query.get("agg"))

    async def one_slot(request: Request) -> object:
        wanted = request.match_info["taskmanagerid"]
        for job, slot in await listed():
            if slot["id"] == wanted:
                return await _passed_on(known, job, request, request.method, _path(request))
        raise NotFound(f"TaskExecutor with ID {wanted} could not be found.")

    one = "/taskmanagers/{taskmanagerid:[^/]+}"
    return [
        Route("GET", "/taskmanagers", all_slots),
        Route("GET", "/taskmanagers/metrics", metrics_of_slots),
        Route("GET", f"{one}{{rest:(/.*)?}}", one_slot),
    ]


def _process(known: KnownJobs, given: Mapping[str, str]) -> list[Route]:
    """Routes of this process, in the place of a job manager."""

    async def config(request: Request) -> object:
        settings = sorted(shown_settings(given).items())
        return [{"key": key, "value": value} for key, value in settings]

    async def figures(request: Request) -> object:
        running = sum(job.runs for job in await known.all())
        found = {
            "numRunningJobs": running,
            **cluster_shapes.collections_of(cluster_shapes.collections()),
        }
        return metric_shapes.answer(found, request.query.get("get"))

    return [
        Route("GET", "/jobmanager/config", config),
        Route("GET", "/jobmanager/metrics", figures),
        lacking("/jobs/{jobid}/rescales/{page:.*}", NO_RESOURCE),
    ]


def _one_job(known: KnownJobs) -> list[Route]:
    async def asked(request: Request) -> web.StreamResponse:
        job, path = await known.one(path_id(request, "jobid")), _path(request)
        method = request.method
        if path.endswith(_CANCELLING):
            check_own_page(request.headers)
            method, path = "PATCH", path.rpartition("/")[0]
        if job.live:
            try:
                return await _passed_on(known, job, request, method, path)
            except Unanswered:
                job = await known.after(job)
                if job.live or method != "GET":
                    raise
        return await _left(known, job, request, method)

    any_method = ("GET", "POST", "PUT", "PATCH", "DELETE")
    kinds = ("/jobs/{jobid}{rest:(/.*)?}", "/applications/{jobid}{rest:(/.*)?}")
    return [Route(method, kind, asked) for kind in kinds for method in any_method]


async def _left(
    known: KnownJobs, job: SeenJob, request: Request, method: str
) -> web.StreamResponse:
    """An answer out of the archive of a job that cannot be asked. Raises RestError."""
    if method != "GET":
        raise Conflict(job.trouble or f"The job has ended: {job.state}.")
    answers = await known.archived(job)
    path, query = _path(request), request.query
    text = answer_of(answers, path, query, state=job.state, trouble=job.trouble)
    if text is None:
        raise NotFound(job.trouble or "A job that is over has left no answer to this.")
    if path.endswith("/log") and is_text(query):
        return text_response(text)
    return web.Response(text=text, content_type="application/json", charset="UTF-8")


async def _passed_on(
    known: KnownJobs, job: SeenJob, request: Request, method: str, path: str
) -> web.StreamResponse:
    """A job's own answer. Raises Unanswered."""
    assert job.found.sign is not None, "a job that has answered has a sign"
    headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    query = f"?{request.query_string}" if request.query_string else ""
    body = await request.read()
    try:
        answer = await known.asking.ask(
            job.found.sign, method, f"{path}{query}", body=body, headers=headers
        )
    except NoAnswer as error:
        raise Unanswered(str(error)) from error
    return answer.passed_on()


async def _from_each(
    known: KnownJobs, jobs: list[SeenJob], path: str
) -> list[tuple[SeenJob, dict[str, Any]]]:
    """Answers of all jobs that answer in time."""
    return [
        (job, told)
        for job, told in await _told(known, [(job, path) for job in jobs])
        if isinstance(told, dict)
    ]


async def _told(known: KnownJobs, asked: list[tuple[SeenJob, str]]) -> list[tuple[SeenJob, Any]]:
    """The answer to each question, None where there is none in time."""

    async def of(job: SeenJob, path: str) -> Any:
        if not job.live or job.found.sign is None:
            return None
        try:
            return await known.asking.json(job.found.sign, path)
        except NoAnswer:
            return None

    told = await asyncio.gather(*(of(job, path) for job, path in asked))
    return [(job, one) for (job, _), one in zip(asked, told, strict=True)]


async def _metrics(
    known: KnownJobs, asked: list[tuple[SeenJob, str]], query: Mapping[str, str]
) -> list[metric_shapes.Metrics]:
    """Metrics of several places, each with its values where some are wanted."""
    wanted = query.get("get")
    suffix = "" if wanted is None else f"?get={wanted}"
    told = await _told(known, [(job, f"{path}{suffix}") for job, path in asked])
    return [
        {each["id"]: _number(each.get("value", "")) for each in one}
        for _, one in told
        if isinstance(one, list)
    ]


def _number(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _path(request: Request) -> str:
    """Path of a request as it was sent, without the version."""
    return request.rel_url.raw_path.removeprefix("/v1")

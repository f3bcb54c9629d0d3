"""The job as an application of its own, as Flink's dashboard lists it. Source: dashboard §3.4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.rest.served import Route
from tidegate.rest.shapes import cluster_shapes as shapes

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.rest.served import ServedJob

_ONE: Final = "/applications/{jobid}"


def routes(served: ServedJob) -> list[Route]:
    async def overview(request: Request) -> object:
        return {"applications": [shapes.application(await served.view(), served.now_ms)]}

    async def details(request: Request) -> object:
        return shapes.application_details(await served.job(request), served.now_ms)

    async def exceptions(request: Request) -> object:
        return shapes.application_exceptions(await served.job(request))

    async def config(request: Request) -> object:
        return shapes.settings_of(await served.job(request))

    return [
        Route("GET", "/applications/overview", overview),
        Route("GET", _ONE, details),
        Route("GET", f"{_ONE}/exceptions", exceptions),
        Route("GET", f"{_ONE}/jobmanager/config", config),
    ]

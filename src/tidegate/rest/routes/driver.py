"""The driver, as job manager: its settings, surroundings and threads.

Source: dashboard §3.9.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import TYPE_CHECKING, Final

from tidegate.config.option import without_secrets
from tidegate.config.threads import thread_stacks
from tidegate.rest.served import NO_FILE, NO_RESOURCE, Route, lacking
from tidegate.rest.shapes import cluster_shapes as shapes
from tidegate.rest.shapes.metric_shapes import answer

if TYPE_CHECKING:
    from aiohttp.web import Request

    from tidegate.ha.filesystem import RunBlocking
    from tidegate.rest.served import ServedJob

_DRIVER: Final = "/jobmanager"
_LACKING: Final = ("stdout", "profiler", "profiler/{file}")
_SHOWN: Final = ("PYTHON", "TIDEGATE_")
"""Starts of the names of environment variables that say how Python runs."""
_SETTINGS: Final = "TIDEGATE_SETTINGS"
"""All settings of the command line in one text; ``/jobmanager/config`` has them without secrets."""


def routes(served: ServedJob) -> list[Route]:
    async def config(request: Request) -> object:
        return shapes.settings_of(await served.view())

    async def figures(request: Request) -> object:
        known = shapes.driver_metrics(await served.view(), shapes.collections())
        return answer(known, request.query.get("get"))

    return [
        Route("GET", f"{_DRIVER}/config", config),
        served.shows("/jobmanager/config", shapes.settings_of),
        Route("GET", f"{_DRIVER}/metrics", figures),
        *process_routes(served.apart),
        lacking("/jobs/{jobid}/rescales/{page:.*}", NO_RESOURCE),
    ]


def process_routes(apart: RunBlocking) -> list[Route]:
    """Routes of what is known of this process without a job."""

    async def surroundings(request: Request) -> object:
        return await apart(environment)

    async def threads(request: Request) -> object:
        return shapes.threads(thread_stacks())

    return [
        Route("GET", f"{_DRIVER}/environment", surroundings),
        Route("GET", f"{_DRIVER}/thread-dump", threads),
        *(lacking(f"{_DRIVER}/{path}", NO_FILE) for path in _LACKING),
    ]


def environment() -> dict[str, object]:
    """The Python that runs the driver, in the place of Flink's JVM. Reads files."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_SHOWN) and name != _SETTINGS
    }
    options = [f"{name}={value}" for name, value in sorted(without_secrets(variables).items())]
    installed = {f"{each.name} {each.version}" for each in importlib.metadata.distributions()}
    return {
        "jvm": {
            "version": f"{platform.python_implementation()} {platform.python_version()}",
            "arch": platform.machine(),
            "options": options,
        },
        "classpath": [*filter(None, sys.path), *sorted(installed)],
    }

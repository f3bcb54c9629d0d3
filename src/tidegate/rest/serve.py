"""Decides whether a job is served and archived; every runtime asks before it starts a driver."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from tidegate.clock import SystemClock
from tidegate.config.log import process_log
from tidegate.errors import ConfigError
from tidegate.model.chance import SeededChance
from tidegate.storage import paths

if TYPE_CHECKING:
    from tidegate.graph.job_graph import JobGraph
    from tidegate.rest.archive import Archive
    from tidegate.rest.server import RestServer


def rest_server(graph: JobGraph) -> RestServer | None:
    """Server of a job's REST interface, with its port bound; None if the settings ask for none.

    Raises ConfigError if it cannot be served.
    """
    settings = graph.settings.rest
    if settings is None:
        return None
    try:
        from tidegate.rest.server import RestServer
    except ModuleNotFoundError as error:
        raise ConfigError(
            "The HTTP server's package is not installed where the driver runs",
            where="rest.port, rest.bind-port",
            remedy=f"Install it: pip install 'tidegate[rest]'. {error}",
        ) from error
    chance = SeededChance(secrets.randbits(64))
    return RestServer(settings, SystemClock(), chance, process_log().bind(job=graph.name))


def archive(graph: JobGraph) -> Archive | None:
    """Leaves what a job has last shown in its folder; None where it has none."""
    directory = graph.settings.archive_directory
    if directory is None:
        checkpoints = graph.settings.checkpoints.directory
        if checkpoints is None:
            return None
        directory = paths.join(checkpoints, paths.history_folder())
    from tidegate.rest.archive import Archive

    return Archive(paths.absolute(directory), SystemClock(), process_log().bind(job=graph.name))

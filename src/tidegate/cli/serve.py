"""``tidegate serve``: many jobs behind one address, running ones and those that are over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from tidegate.cli.options import with_settings
from tidegate.clock import SystemClock
from tidegate.config import checkpointing, history
from tidegate.config import rest as rest_options
from tidegate.config.load import load_configuration
from tidegate.config.log import process_log
from tidegate.errors import ConfigError
from tidegate.storage import paths

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.config.configuration import Configuration
    from tidegate.rest.cluster.cluster_server import ClusterServer

PORT: Final = 8081


@click.command(short_help="Serve a page and REST over many jobs.")
@click.option(
    "-d",
    "--checkpoints",
    metavar="FOLDER",
    multiple=True,
    help="Checkpoint folder whose jobs are served; several may be given. By default "
    "execution.checkpointing.dir.",
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help=f"Port; by default rest.port, or {PORT}."
)
@with_settings
def serve(
    checkpoints: tuple[str, ...],
    port: int | None,
    dynamic: tuple[str, ...],
    config: Path | None,
) -> None:
    """Serve the jobs of checkpoint folders at one address, until Ctrl-C or SIGTERM.

    The page, REST and Flink's dashboard (rest.web.jar) show all jobs: those that run with a REST
    interface of their own (rest.port), as their drivers answer, and those that have ended, as they
    have left themselves. What rest.* and security.ssl.rest.* say of a job's interface holds for
    this one too; jobs are asked with the same token.
    """
    configuration = load_configuration(config, dynamic)
    if port is not None:
        configuration.set(rest_options.REST_BIND_PORT, str(port), where="command line, --port")
    server = _server(configuration, checkpoints)
    missing = server.folders.missing()

    def ready() -> None:
        told = "Ctrl-C stops this server, the jobs keep running"
        click.echo(f"serving jobs at {server.url}; {told}", err=True)
        if (link := server.login_url()) is not None:
            click.echo(
                "open in a browser (works once, for one minute; POST /login-links gives another): "
                f"{link}",
                err=True,
            )
        for folder in missing:
            click.echo(f"there is no folder {folder} yet", err=True)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(server.serve(ready))


def _server(configuration: Configuration, checkpoints: tuple[str, ...]) -> ClusterServer:
    configured = configuration.get(checkpointing.CHECKPOINT_DIRECTORY)
    folders = checkpoints or ([] if configured is None else [configured])
    archives = list(configuration.get(history.HISTORY_DIRECTORIES))
    own = configuration.get(history.ARCHIVE_DIRECTORY)
    archives += [] if own is None else [own]
    if not folders and not archives:
        raise ConfigError(
            "No folder of jobs is given",
            where="command line",
            remedy="Name checkpoint folders with -d, or set "
            f"{checkpointing.CHECKPOINT_DIRECTORY.key}"
            f" or {history.HISTORY_DIRECTORIES.key}.",
        )
    try:
        from tidegate.rest.cluster.cluster_server import ClusterServer
    except ModuleNotFoundError as error:
        raise ConfigError(
            "The HTTP server's package is not installed here",
            where="tidegate serve",
            remedy=f"Install it: pip install 'tidegate[rest]'. {error}",
        ) from error
    from tidegate.rest.cluster.folders import JobFolders

    if configuration.get(rest_options.REST_PORT) is None:
        configuration.set(rest_options.REST_PORT, str(PORT), where="tidegate serve")
    settings = rest_options.rest_settings(configuration)
    assert settings is not None, "a port is set"
    return ClusterServer(
        JobFolders(
            [paths.absolute(each) for each in folders],
            [paths.absolute(each) for each in archives],
            retained=configuration.get(history.HISTORY_RETAINED),
        ),
        settings,
        configuration.to_dict(),
        rest_options.REST_STORES.named(configuration),
        configuration.get(history.HISTORY_REFRESH),
        SystemClock(),
        process_log(),
    )

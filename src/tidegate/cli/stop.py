"""``tidegate stop`` and ``tidegate cancel``: a running job comes to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidegate.cli.jobs import folder_of
from tidegate.cli.options import tell, with_folder, with_json
from tidegate.cli.savepoint import FORMATS

if TYPE_CHECKING:
    from pathlib import Path


@click.command(short_help="Stop a running job with a savepoint.")
@click.argument("job")
@click.option("--drain", is_flag=True, help="First fire all windows and event-time timers.")
@click.option(
    "-p", "--savepoint-path", "target", metavar="TARGET", help="Folder for the savepoint."
)
@click.option(
    "-t", "--type", "format", type=FORMATS, default="canonical", help="Format of the savepoint."
)
@with_json
@with_folder
def stop(
    job: str,
    drain: bool,
    target: str | None,
    format: str,
    as_json: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
) -> None:
    """Stop JOB, a name or an id, with a savepoint, and print its path once the job has ended.

    Its sources stop, and the output up to the savepoint is committed. The default for TARGET is the
    job's execution.checkpointing.savepoint-dir.
    """
    request = {"do": "stop", "drain": drain, "directory": target, "format": format.upper()}
    path = str(folder_of(dynamic, config, checkpoints).ask(job, request))
    tell(path, as_json=as_json, savepoint=path)


@click.command(short_help="End a running job at once.")
@click.argument("job")
@click.option(
    "-s",
    "--with-savepoint",
    metavar="TARGET",
    help="First take a savepoint below TARGET, and print its path.",
)
@with_json
@with_folder
def cancel(
    job: str,
    with_savepoint: str | None,
    as_json: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
) -> None:
    """End JOB, a name or an id, at once.

    Output that its sinks have not committed stays uncommitted, unless a later run goes on from the
    job's checkpoints.
    """
    folder = folder_of(dynamic, config, checkpoints)
    if with_savepoint is None:
        folder.ask(job, {"do": "cancel"})
        tell(f"cancelled {job}", as_json=as_json, savepoint=None)
    else:
        request = {"do": "cancel with savepoint", "directory": with_savepoint}
        path = str(folder.ask(job, request))
        tell(path, as_json=as_json, savepoint=path)

"""Commands for a running job: a checkpoint, a savepoint, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click
from rich.console import Console

from flinkformat.snapshots import SavepointFormatType
from tidegate.cli.jobs import folder_of
from tidegate.cli.options import tell, with_folder, with_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidegate.cli.jobs import JobFolder

FORMATS = click.Choice([format.value.lower() for format in SavepointFormatType])

_with_format = click.option(
    "-t", "--type", "format", type=FORMATS, default="canonical", help="Format of the savepoint."
)


@click.command(short_help="Take a savepoint of a running job, or delete one.")
@click.argument("job", required=False)
@click.argument("target", required=False)
@_with_format
@click.option(
    "--trigger-id",
    help="Id of this request; repeating it with the same id takes no second savepoint.",
)
@click.option("--dispose", metavar="PATH", help="Delete this savepoint instead.")
@with_json
@with_folder
def savepoint(
    job: str | None,
    target: str | None,
    format: str,
    trigger_id: str | None,
    dispose: str | None,
    as_json: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
) -> None:
    """Take a savepoint of JOB, a name or an id, in a folder of its own below TARGET.

    Prints its path. The job keeps running. The default for TARGET is the job's
    execution.checkpointing.savepoint-dir.
    """
    if (job is None) == (dispose is None):
        raise click.UsageError("Name either a job, or a savepoint with --dispose.")
    if dispose is not None:
        from tidegate.snapshots.folders import dispose_savepoint  # nothing else here reads files

        dispose_savepoint(dispose)
        tell(f"deleted {dispose}", as_json=as_json, deleted=dispose)
        return
    assert job is not None, "asked for above"
    request = {
        "do": "savepoint",
        "directory": target,
        "format": format.upper(),
        "trigger_id": trigger_id,
    }
    path = str(_asked(folder_of(dynamic, config, checkpoints), job, request))
    tell(path, as_json=as_json, savepoint=path)


@click.command(short_help="Take a checkpoint of a running job now.")
@click.argument("job")
@click.option(
    "--full", is_flag=True, help="Write the whole state, without references to older checkpoints."
)
@with_json
@with_folder
def checkpoint(
    job: str,
    full: bool,
    as_json: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
) -> None:
    """Take a checkpoint of JOB, a name or an id, now, and print its path.

    The checkpoint belongs to the job, which deletes it like any other.
    """
    request = {"do": "checkpoint", "full": full}
    asked = _asked(folder_of(dynamic, config, checkpoints), job, request)
    done = cast("Mapping[str, object]", asked)
    in_memory = f"checkpoint {done['checkpoint']} in the driver's memory"
    facts = {"checkpoint": done["checkpoint"], "path": done["pointer"]}
    tell(str(done["pointer"] or in_memory), as_json=as_json, **facts)


@click.command(short_help="Stop a running job with a savepoint.")
@click.argument("job")
@click.option("--drain", is_flag=True, help="First fire all windows and event-time timers.")
@click.option(
    "-p", "--savepoint-path", "target", metavar="TARGET", help="Folder for the savepoint."
)
@_with_format
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
    path = str(_asked(folder_of(dynamic, config, checkpoints), job, request))
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
        path = str(_asked(folder, job, request))
        tell(path, as_json=as_json, savepoint=path)


def _asked(folder: JobFolder, job: str, request: Mapping[str, object]) -> object:
    """Asks a job for what may take long; a terminal shows meanwhile that it is waited for."""
    with Console(stderr=True).status(f"{request['do']} of '{job}'"):
        return folder.ask(job, request)

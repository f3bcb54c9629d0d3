"""``tidegate savepoint``: of a running job, or the disposal of one that there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flinkformat.snapshots import SavepointFormatType
from tidegate.cli.jobs import folder_of
from tidegate.cli.options import tell, with_folder, with_json
from tidegate.snapshots.folders import dispose_savepoint

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = click.Choice([format.value.lower() for format in SavepointFormatType])


@click.command(short_help="Take a savepoint of a running job, or delete one.")
@click.argument("job", required=False)
@click.argument("target", required=False)
@click.option(
    "-t", "--type", "format", type=FORMATS, default="canonical", help="Format of the savepoint."
)
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
    path = str(folder_of(dynamic, config, checkpoints).ask(job, request))
    tell(path, as_json=as_json, savepoint=path)

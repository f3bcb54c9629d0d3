"""``tidegate checkpoint``: of a running job, beside those that it takes by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from tidegate.cli.jobs import folder_of
from tidegate.cli.options import tell, with_folder, with_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


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
    asked = folder_of(dynamic, config, checkpoints).ask(job, {"do": "checkpoint", "full": full})
    done = cast("Mapping[str, object]", asked)
    in_memory = f"checkpoint {done['checkpoint']} in the driver's memory"
    facts = {"checkpoint": done["checkpoint"], "path": done["pointer"]}
    tell(str(done["pointer"] or in_memory), as_json=as_json, **facts)

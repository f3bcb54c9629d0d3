"""``tidegate fork``: a second job from a running one, which goes on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tidegate.cli.jobs import folder_of
from tidegate.cli.options import (
    AS_PROGRAM,
    with_folder,
    with_program,
    with_runtime,
    with_summary_file,
)
from tidegate.cli.run import pyflink_modules, run_program, settings_of, write_summaries_to
from tidegate.cli.running import FORMATS
from tidegate.config import checkpointing, recovery
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.errors import UserError
from tidegate.model.settings import ClaimMode

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_WHERE = "command line, fork"


@click.command(
    short_help="Start a second job from the state of a running one.",
    context_settings=AS_PROGRAM,
)
@click.option("--name", help="Name of the fork; by default the job's name and '-fork'.")
@click.option(
    "--savepoint-path",
    "target",
    metavar="TARGET",
    help="Folder for the savepoint that the fork starts from.",
)
@click.option(
    "-t", "--type", "format", type=FORMATS, default="canonical", help="Format of that savepoint."
)
@with_runtime
@with_summary_file
@with_folder
@click.argument("job")
@with_program
def fork(
    name: str | None,
    target: str | None,
    format: str,
    runtime: str | None,
    allow_non_restored: bool,
    parallelism: int | None,
    as_pyflink: bool,
    summary_file: Path | None,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
    job: str,
    script: Path,
    args: tuple[str, ...],
) -> None:
    """Run the program SCRIPT with its arguments ARGS from the current state of JOB.

    JOB is a name or an id, and keeps running. The fork starts from a savepoint of JOB, taken below
    TARGET or else in JOB's execution.checkpointing.savepoint-dir. That savepoint belongs to the
    fork, which deletes it when it is no longer needed. The fork's sinks start empty; SCRIPT must
    not write to where JOB writes.
    """
    folder = folder_of(dynamic, config, checkpoints)
    settings = settings_of(dynamic, config, parallelism, allow_non_restored)
    known = folder.job(job).name
    forked = name or f"{known}-fork"
    if forked == known:
        raise UserError(
            "A fork needs a name of its own",
            where=f"job '{known}'",
            remedy="Give it another one with --name.",
        )
    if folder.lives(forked):
        raise UserError(
            f"There is a job '{forked}' that runs",
            where=folder.directory,
            remedy="Give this fork another name with --name, or end that one with "
            f"'tidegate cancel {forked}'.",
        )
    settings.set(recovery.FORK_NAME, forked, where=_WHERE)
    settings.set(recovery.RESTORE_CLAIM_MODE, ClaimMode.CLAIM, where=_WHERE)
    settings.set(checkpointing.CHECKPOINT_DIRECTORY, folder.directory, where=_WHERE)
    write_summaries_to(summary_file, settings)
    request = {"do": "savepoint", "directory": target, "format": format.upper()}
    path = str(folder.ask(job, request))
    settings.set(recovery.RESTORE_PATH, path, where=_WHERE)
    click.echo(f"'{forked}' begins at {path}", err=True)
    with _left_told(path, script), pyflink_modules(as_pyflink):
        run_program(script, args, runtime, config, settings)


@contextmanager
def _left_told(path: str, script: Path) -> Generator[None]:
    """Says that the savepoint is left where no job has taken it over.

    Raises UserError if the block has begun none.
    """
    jobs = running_jobs()
    before = jobs.begun
    try:
        yield
        if jobs.begun == before:
            raise UserError(
                "The program has ended and started no job",
                where=str(script),
                remedy="See that it calls env.execute(), and fork once more.",
            )
    except BaseException as error:
        if isinstance(error, UserError) or jobs.begun == before:
            click.echo(
                f"{path} is still there: 'tidegate savepoint --dispose' deletes it", err=True
            )
        raise

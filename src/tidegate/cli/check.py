"""``tidegate check``: whether a program fits a snapshot, with nothing started."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from tidegate.cli.options import AS_PROGRAM, with_program, with_settings
from tidegate.cli.plan import no_job
from tidegate.cli.run import pyflink_modules, run_program, settings_of
from tidegate.cli.unpickling import state_as_data, unsafe_unpickle
from tidegate.datastream.program import CHECK_VARIABLE
from tidegate.upgrade.check import Checked

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = 1
"""Exit code where the program does not fit."""

NOT_JUDGED = 2
"""Exit code where the program failed before its first job."""


@click.command(
    short_help="Check whether a changed program fits a snapshot.", context_settings=AS_PROGRAM
)
@click.option(
    "-s",
    "--from",
    "snapshot",
    metavar="PATH",
    required=True,
    help="Checkpoint or savepoint to check the program against.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@unsafe_unpickle
@with_settings
@with_program
def check(
    snapshot: str,
    as_json: bool,
    trusted: bool,
    allow_non_restored: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    parallelism: int | None,
    as_pyflink: bool,
    script: Path,
    args: tuple[str, ...],
) -> None:
    """Check whether the program SCRIPT can start from a snapshot, and show what does not fit.

    The program runs with its arguments ARGS up to its first job, which is checked and not started.
    Its output goes to standard error. Pickled state of the program's own classes is checked only
    with --unsafe-unpickle.

    Exit code: 0 if the program fits, 1 if something would be refused, 2 if it could not be checked.
    """
    settings = settings_of(dynamic, config, parallelism, allow_non_restored)
    try:
        with (
            redirect_stdout(sys.stderr),
            pyflink_modules(as_pyflink),
            state_as_data(trusted=trusted),
        ):
            run_program(script, args, None, config, settings, {CHECK_VARIABLE: snapshot})
    except Checked as done:
        report = done.report
    except click.exceptions.Exit as failed:
        raise click.exceptions.Exit(NOT_JUDGED) from failed
    except SystemExit as ended:
        raise no_job(script, "check", ended) from ended
    else:
        raise no_job(script, "check")
    click.echo(json.dumps(report.to_dict(), indent=2) if as_json else str(report))
    if not report.fits:
        raise click.exceptions.Exit(REFUSED)

"""``tidegate plan``: the job that a program would run, with nothing started."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import click

from tidegate.cli.options import AS_PROGRAM, with_json, with_program, with_runtime, with_settings
from tidegate.cli.run import pyflink_modules, run_program, settings_of
from tidegate.datastream.process.outside import PLAN_VARIABLE, Planned
from tidegate.errors import ConfigError
from tidegate.graph.explain import execution_plan, explain_mermaid, explain_text

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.config.configuration import Configuration


@click.command(short_help="Show the job that a program would run.", context_settings=AS_PROGRAM)
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flow chart.")
@with_json
@with_runtime
@with_settings
@with_program
def plan(
    mermaid: bool,
    as_json: bool,
    runtime: str | None,
    allow_non_restored: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    parallelism: int | None,
    as_pyflink: bool,
    script: Path,
    args: tuple[str, ...],
) -> None:
    """Show the first job of the program SCRIPT without starting it.

    The program runs with its arguments ARGS up to that job. Its output goes to standard error.
    """
    settings = settings_of(dynamic, config, parallelism, allow_non_restored)
    with pyflink_modules(as_pyflink):
        planned = planned_by(script, args, runtime, config, settings)
    if as_json:
        click.echo(execution_plan(planned.stream_graph, planned.graph))
    elif mermaid:
        click.echo(explain_mermaid(planned.graph))
    else:
        click.echo(explain_text(planned.graph))


def planned_by(
    script: Path,
    args: tuple[str, ...],
    runtime: str | None,
    config: Path | None,
    settings: Configuration,
) -> Planned:
    """Runs a program up to its first job. Raises ConfigError if it executes none."""
    try:
        with redirect_stdout(sys.stderr):
            run_program(script, args, runtime, config, settings, {PLAN_VARIABLE: "1"})
    except Planned as planned:
        return planned
    except SystemExit as ended:
        raise no_job(script, "show", ended) from ended
    raise no_job(script, "show")


def no_job(script: Path, purpose: str, ended: SystemExit | None = None) -> ConfigError:
    """The error for a program that has come to its end, or to sys.exit(), without a job."""
    before = "" if ended is None else f" before it called sys.exit({ended.code!r})"
    return ConfigError(
        f"The program has executed no job{before}, so there is nothing to {purpose}",
        where=str(script),
        remedy="Pass the arguments with which it runs a job.",
    )

"""``tidegate run``: a program, with the settings given on the command line."""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.cli.options import (
    AS_PROGRAM,
    with_program,
    with_runtime,
    with_settings,
    with_summary_file,
)
from tidegate.config import execution, recovery, reporting
from tidegate.config.load import load_configuration, read_dynamic
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.datastream.process.outside import (
    CONFIGURATION_VARIABLE,
    RUNTIME_VARIABLE,
    SETTINGS_VARIABLE,
    START_TOLD_TO,
)
from tidegate.errors import TidegateError, UserError
from tidegate.graph.runtime import load_runtime
from tidegate.pyflink import install, uninstall

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from contextlib import AbstractContextManager

    from tidegate.config.configuration import Configuration


class RunCommand(click.Command):
    """Remembers its arguments as they were given, for a process that is given the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = tuple(args)
        return super().parse_args(ctx, args)


@click.command(cls=RunCommand, context_settings=AS_PROGRAM)
@with_runtime
@click.option(
    "-s",
    "--from",
    "restore",
    metavar="PATH|latest",
    help="Start from this checkpoint or savepoint, or from the job's newest checkpoint.",
)
@click.option(
    "--claim-mode",
    "--claimMode",
    metavar="MODE",
    help="Who owns that snapshot and may delete it: you (no_claim, the default) or the job "
    "(claim).",
)
@click.option(
    "--end-with-savepoint",
    metavar="FOLDER",
    help="Of a batch on Spark, leave its state in a savepoint in FOLDER, for a live job.",
)
@click.option(
    "--ship",
    is_flag=True,
    help="On a cluster of Spark, give Tidegate and what it needs to executors without it.",
)
@click.option("--watch", is_flag=True, help="Draw the job in the terminal as it runs.")
@click.option(
    "-d",
    "--detached",
    is_flag=True,
    help="Run it in the background, and return once its job runs.",
)
@click.option(
    "--log-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With -d, file to which the output is added; by default a new one in this folder.",
)
@with_summary_file
@with_settings
@with_program
@click.pass_obj
def run(
    given: tuple[str, ...],
    runtime: str | None,
    restore: str | None,
    claim_mode: str | None,
    end_with_savepoint: str | None,
    ship: bool,
    watch: bool,
    detached: bool,
    log_file: Path | None,
    allow_non_restored: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    parallelism: int | None,
    as_pyflink: bool,
    summary_file: Path | None,
    script: Path,
    args: tuple[str, ...],
) -> None:
    """Run the program SCRIPT with its arguments ARGS.

    The program receives these options through get_execution_environment(). What it sets itself
    takes precedence.

    With -d the program runs in a process of its own that outlives the shell. The command prints the
    job's id, the address of its page, and the file with its output; if the program ends before its
    job runs, it prints the end of that output and ends with the program's code. Unless a port is
    set, the page gets a free one on this machine.
    """
    if detached and START_TOLD_TO not in os.environ:
        if watch:
            raise click.UsageError("--watch draws here, and with -d the job runs elsewhere.")
        from tidegate.cli.detached import start_detached

        start_detached(given, script, log_file, load_configuration(config, dynamic))
        return
    settings = settings_of(dynamic, config, parallelism, allow_non_restored)
    if restore is not None:
        settings.set(recovery.RESTORE_PATH, restore, where="command line, --from")
    if claim_mode is not None:
        settings.set(recovery.RESTORE_CLAIM_MODE, claim_mode, where="command line, --claim-mode")
    if end_with_savepoint is not None:
        where = "command line, --end-with-savepoint"
        settings.set(execution.END_WITH_SAVEPOINT, end_with_savepoint, where=where)
    if ship:
        settings.set(execution.SHIP, True)
    write_summaries_to(summary_file, settings)
    with pyflink_modules(as_pyflink), _told(), _watching() if watch else nullcontext():
        run_program(script, args, runtime, config, settings)


def _watching() -> AbstractContextManager[None]:
    from tidegate.cli.drawn import watching  # loads what else is not needed

    return watching()


def _told() -> AbstractContextManager[None]:
    """Tells how the job starts, if this process was started detached."""
    if START_TOLD_TO not in os.environ:
        return nullcontext()
    from tidegate.cli.detached import telling_start  # loads what else is not needed

    return telling_start(int(os.environ.pop(START_TOLD_TO)))


def settings_of(
    dynamic: tuple[str, ...],
    config: Path | None,
    parallelism: int | None,
    allow_non_restored: bool,
) -> Configuration:
    """Settings of the command line. Raises ConfigError for unusable ones, also in the file."""
    load_configuration(config, dynamic)  # before the program starts
    settings = read_dynamic(dynamic)
    if parallelism is not None:
        settings.set(execution.PARALLELISM, parallelism, where="command line, -p")
    if allow_non_restored:
        settings.set(recovery.IGNORE_UNCLAIMED_STATE, True, where="command line, -n")
    return settings


def write_summaries_to(file: Path | None, settings: Configuration) -> None:
    """Starts the file to which drivers add summaries of their jobs. Raises UserError."""
    if file is None:
        return
    try:
        file.write_text("", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"The summary cannot be written: {error}",
            where="command line, --json",
            remedy="Name a file that can be written to.",
        ) from None
    settings.set(reporting.SUMMARY_FILE, str(file.absolute()), where="command line, --json")


@contextmanager
def pyflink_modules(wanted: bool) -> Generator[None]:
    """Makes ``import pyflink`` give Tidegate's classes within the block, if wanted.

    Raises ConfigError.
    """
    if not wanted:
        yield
        return
    install()
    try:
        yield
    finally:
        uninstall()


def run_program(
    script: Path,
    args: tuple[str, ...],
    runtime: str | None,
    config: Path | None,
    settings: Configuration,
    more: Mapping[str, str] | None = None,
) -> None:
    """Runs a script as Python would; its environments take these settings. Raises what it raises.

    more: variables of its process.
    """
    if runtime is not None:
        load_runtime(runtime)  # a program may never ask for it, and would not see the mistake
    variables = {**_variables(runtime, config, settings), **(more or {})}
    with _process_of(script, args, variables):
        _run_as_main(script)


def _variables(
    runtime: str | None, config: Path | None, settings: Configuration
) -> Mapping[str, str]:
    """Environment variables that pass the command line to ``get_execution_environment``."""
    variables = {SETTINGS_VARIABLE: json.dumps(settings.to_dict())}
    if runtime is not None:
        variables[RUNTIME_VARIABLE] = runtime
    if config is not None:
        variables[CONFIGURATION_VARIABLE] = str(config.absolute())
    return variables


@contextmanager
def _process_of(
    script: Path, args: tuple[str, ...], variables: Mapping[str, str]
) -> Generator[None]:
    """Makes this process look as if Python had been started with the script."""
    before = dict(os.environ), sys.argv, list(sys.path)
    folder = str(script.resolve().parent)  # as Python, which follows a link to the script
    # Slots are processes of their own; they too have to find the modules beside the script.
    inherited = os.environ.get("PYTHONPATH")
    search = folder if not inherited else os.pathsep.join([folder, inherited])
    os.environ.update(variables, PYTHONPATH=search)
    sys.argv = [str(script), *args]
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        environ, sys.argv, sys.path[:] = before
        os.environ.clear()
        os.environ.update(environ)


def _run_as_main(script: Path) -> None:
    try:
        runpy.run_path(str(script), run_name="__main__")
    except (TidegateError, click.ClickException) as error:
        sys.last_value = error  # as Python does it; steps that have not run are no news then
        raise
    except KeyboardInterrupt as told:
        sys.last_value = told
        running_jobs().suspend_for(told)
        raise
    except Exception as error:
        sys.last_value = error
        _show_from_script(error, script)
        if isinstance(error, ModuleNotFoundError) and error.name == "pyflink":
            click.echo(
                "PyFlink is not installed: --pyflink runs its programs as they are", err=True
            )
        raise click.exceptions.Exit(1) from error


def _show_from_script(error: Exception, script: Path) -> None:
    """Prints a traceback as Python does for a script.

    There is none where it could not be compiled.
    """
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename != str(script):
        shown = shown.tb_next
    traceback.print_exception(error.with_traceback(shown))

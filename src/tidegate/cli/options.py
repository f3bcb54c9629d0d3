"""Options and arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

Command = TypeVar("Command", bound="Callable[..., object]")

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_SETTINGS = (
    click.option(
        "-D",
        "dynamic",
        metavar="KEY=VALUE",
        multiple=True,
        help="Set an option, such as execution.checkpointing.dir.",
    ),
    click.option("-c", "--config", type=_FILE, help="File with options, as YAML."),
)

_PROGRAM = (
    click.option(
        "-n",
        "--allow-non-restored",
        "--allow-non-restored-state",
        is_flag=True,
        help="Allow state there that no operator takes.",
    ),
    click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism."),
    click.option(
        "--pyflink",
        "as_pyflink",
        is_flag=True,
        help="SCRIPT is for PyFlink: what it imports from pyflink comes from Tidegate.",
    ),
    click.argument("script", type=_FILE),
    click.argument("args", nargs=-1, type=click.UNPROCESSED),
)

_FOLDER = click.option(
    "-d",
    "--checkpoints",
    metavar="FOLDER",
    help="Checkpoint folder of the job; else execution.checkpointing.dir.",
)

AS_PROGRAM = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Context settings of commands whose last arguments are the program's."""


def with_settings(command: Command) -> Command:
    """Options as ``dynamic`` and out of a file ``config``."""
    return _with(_SETTINGS, command)


def with_program(command: Command) -> Command:
    """A program ``script`` with ``args``, and how it is run.

    ``parallelism``, ``allow_non_restored`` and ``as_pyflink``.
    """
    return _with(_PROGRAM, command)


def with_folder(command: Command) -> Command:
    """Which checkpoint folder is meant; `cli.jobs.folder_of` reads it."""
    return _with((*_SETTINGS, _FOLDER), command)


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command

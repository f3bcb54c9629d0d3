"""Options and arguments that several commands take."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tidegate.config.values import span_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound="Callable[..., object]")

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def complete_keys(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Option keys that begin with the typed text, for completion in the shell."""
    from click.shell_completion import CompletionItem

    from tidegate.config.configuration import ALL

    return [
        CompletionItem(option.key, help=option.description)
        for option in ALL
        if option.key.startswith(begun)
    ]


class Ago(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]
    """An age in milliseconds. A number without a unit would be milliseconds, so it is refused."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value).strip()
        with contextlib.suppress(ValueError):
            if not text[-1:].isdecimal() and (age_ms := span_ms(text)) >= 0:
                return age_ms
        return self.fail(f"'{text}' is no duration such as 30s, 10m, 2h or 1d", param, ctx)


_SETTINGS = (
    click.option(
        "-D",
        "dynamic",
        metavar="KEY=VALUE",
        multiple=True,
        shell_complete=complete_keys,
        help="Set an option, such as execution.checkpointing.dir=checkpoints.",
    ),
    click.option("-c", "--config", type=_FILE, help="File with options, as YAML."),
)

_PROGRAM = (
    click.option(
        "-n",
        "--allow-non-restored",
        "--allow-non-restored-state",
        is_flag=True,
        help="Allow state in the snapshot that no operator takes; it is dropped.",
    ),
    click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism."),
    click.option(
        "--pyflink",
        "as_pyflink",
        is_flag=True,
        help="Run a PyFlink program: its imports of pyflink get Tidegate instead.",
    ),
    click.argument("script", type=_FILE),
    click.argument("args", nargs=-1, type=click.UNPROCESSED),
)

_FOLDER = click.option(
    "-d",
    "--checkpoints",
    metavar="FOLDER",
    help="Checkpoint folder of the job; by default execution.checkpointing.dir.",
)

with_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")

with_key_file = click.option(
    "--key-file",
    type=_FILE,
    help="File with the key that signs the snapshots; snapshots not signed with it are refused.",
)

with_runtime = click.option(
    "--runtime",
    metavar="NAME",
    shell_complete=lambda context, parameter, begun: [
        name for name in ("local", "spark") if name.startswith(begun)
    ],
    help="Where the job runs: local or spark.",
)

with_summary_file = click.option(
    "--json",
    "summary_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a line of JSON to FILE for each job that ends: status, rows, checkpoints, "
    "restarts. Standard output is left to the program.",
)

AS_PROGRAM = {"allow_interspersed_args": False}
"""Context settings of commands whose last arguments are the program's."""


def with_settings(command: Command) -> Command:
    """Adds ``-D`` as ``dynamic`` and a settings file as ``config``."""
    return _with(_SETTINGS, command)


def with_program(command: Command) -> Command:
    """Adds a program ``script`` with ``args``, and the options of its run.

    ``parallelism``, ``allow_non_restored`` and ``as_pyflink``.
    """
    return _with(_PROGRAM, command)


def with_folder(command: Command) -> Command:
    """Adds the checkpoint folder; `cli.jobs.folder_of` reads it."""
    return _with((*_SETTINGS, _FOLDER), command)


def tell(text: str, *, as_json: bool, **facts: object) -> None:
    """Prints the result of a command, as text or as JSON."""
    click.echo(json.dumps(facts) if as_json else text)


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command

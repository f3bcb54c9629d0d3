"""The command line: ``tidegate COMMAND``, a file a command.

An error of ours is printed as what happened, where, and what to do; 2 is the exit code where the
caller can put it right, 1 for the rest, 130 after Ctrl-C.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from tidegate import __version__
from tidegate.errors import TidegateError, UserError

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells have it."""

_PLACES: Final = {
    "cancel": "tidegate.cli.stop:cancel",
    "check": "tidegate.cli.check:check",
    "checkpoint": "tidegate.cli.checkpoint:checkpoint",
    "demo": "tidegate.cli.demo.command:demo",
    "diff": "tidegate.cli.diff:diff",
    "fork": "tidegate.cli.fork:fork",
    "fsck": "tidegate.cli.fsck:fsck",
    "inspect": "tidegate.cli.inspect:inspect",
    "list": "tidegate.cli.list:list_jobs",
    "migrate": "tidegate.cli.migrate:migrate",
    "run": "tidegate.cli.run:run",
    "savepoint": "tidegate.cli.savepoint:savepoint",
    "stop": "tidegate.cli.stop:stop",
}


class Commands(click.Group):
    """Commands that are loaded when they are named; their errors become text and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        place = _PLACES.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), place
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except TidegateError as error:
            if ctx.params["debug"]:
                raise
            click.secho("error: ", fg="red", bold=True, nl=False, err=True)
            click.echo(str(error), err=True)
            ctx.exit(2 if isinstance(error, UserError) else 1)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=Commands)
@click.version_option(__version__, prog_name="tidegate", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def commands(debug: bool) -> None:
    """Stateful stream processing with Flink-grade checkpoints, on Spark or on this machine."""


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    commands.main(prog_name="tidegate")


if __name__ == "__main__":
    main()

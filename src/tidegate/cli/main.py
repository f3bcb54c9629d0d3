"""The command line: ``tidegate COMMAND``, a file a command.

Every error is printed as what happened, where, and what to do; 2 is the exit code where the caller
can put it right, 1 for the rest, 130 after Ctrl-C.
"""

from __future__ import annotations

from difflib import get_close_matches
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EPIPE, EROFS
from importlib import import_module
from typing import Final

import click

from tidegate import __version__
from tidegate.errors import TidegateError, UserError

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells have it."""

_OF_FILES: Final = (EDQUOT, EFBIG, EIO, ENOSPC, EROFS)
"""Errors of files, also where they name none; connections have others."""

# Module and function of each command, and its line, which is repeated here so that the list of
# commands appears without loading them.
SECTIONS: Final = {
    "Running": {
        "run": ("run:run", "Run the program SCRIPT with its arguments ARGS."),
        "fork": ("fork:fork", "Start a second job from the state of a running one."),
        "plan": ("plan:plan", "Show the job that a program would run."),
        "profile": ("profile:profile", "Run a program for a while, and say where its time went."),
        "check": ("check:check", "Check whether a changed program fits a snapshot."),
    },
    "Running jobs": {
        "list": ("list:list_jobs", "List the jobs of a checkpoint folder."),
        "serve": ("serve:serve", "Serve a page and REST over many jobs."),
        "top": ("top:top", "Watch a running job in the terminal."),
        "logs": ("logs:logs", "Show the log of a job."),
        "checkpoint": ("running:checkpoint", "Take a checkpoint of a running job now."),
        "savepoint": ("running:savepoint", "Take a savepoint of a running job, or delete one."),
        "stop": ("running:stop", "Stop a running job with a savepoint."),
        "cancel": ("running:cancel", "End a running job at once."),
    },
    "Snapshots": {
        "inspect": ("inspect:inspect", "Show what a checkpoint or savepoint holds."),
        "diff": ("diff:diff", "Show how two snapshots differ."),
        "fsck": ("fsck:fsck", "Check that no file of a snapshot is missing or damaged."),
        "prune": ("prune:prune", "Remove kept checkpoints that no job needs."),
        "migrate": ("migrate:migrate", "Turn a savepoint of Flink into one of Tidegate."),
    },
    "Setting up": {
        "init": ("init:init", "Start a new project in FOLDER."),
        "replay": ("replay:replay", "Run a step that failed again, from its bundle."),
        "doctor": ("doctor:doctor", "Check this machine, or say what is slow in a running job."),
        "compile": ("compile:compile_loops", "Compile the loops around user functions."),
        "options": ("option_list:options", "List the options that can be set."),
        "config": ("config:config", "Show the settings in effect."),
        "completion": (
            "completion:completion",
            "Print the script that makes a shell complete commands.",
        ),
    },
}
_PLACES: Final = {name: at for section in SECTIONS.values() for name, (at, _) in section.items()}

_EPILOG: Final = """\b
Examples:
  tidegate init orders
  tidegate run -p 2 job.py
  tidegate run -D execution.checkpointing.dir=checkpoints job.py
  tidegate run --from latest -D execution.checkpointing.dir=checkpoints job.py
  tidegate COMMAND -h
"""


class Commands(click.Group):
    """Commands that are loaded on first use; their errors become text and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = _PLACES.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(import_module(f"tidegate.cli.{module}"), attribute)
        assert isinstance(command, click.Command), place
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The requested command; the error for an unknown one names the nearest."""
        name = args[0]
        if name not in _PLACES and (near := get_close_matches(name, _PLACES, n=1)):
            ctx.fail(f"No such command '{name}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _PLACES))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(
                    [(name.ljust(width), line) for name, (_, line) in commands.items()]
                )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the options before the command's name; without any arguments shows the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx))
            ctx.exit()
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            ctx.exit(told(error))

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            ctx.exit(told(error))
        except TidegateError as error:
            if ctx.params["debug"]:
                raise
            ctx.exit(told(error))
        except OSError as error:
            if ctx.params["debug"] or error.errno == EPIPE:  # click ends quietly without a reader
                raise
            from tidegate.datastream.process.interrupts import forget_output  # few come here

            forget_output()
            ctx.exit(told(_of_the_system(error)))
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


def told(error: TidegateError | click.ClickException) -> int:
    """Prints an error as cause, place and remedy; returns its exit code."""
    if isinstance(error, click.ClickException):
        exit_code, error = error.exit_code, _in_our_words(error)
    else:
        exit_code = 2 if isinstance(error, UserError) else 1
    click.secho("error: ", fg="red", bold=True, nl=False, err=True)
    click.echo(str(error), err=True)
    return exit_code


def _of_the_system(error: OSError) -> TidegateError:
    what = f"The system has refused a call: {error.strerror or str(error) or type(error).__name__}"
    debug = "'tidegate --debug' shows the call."
    if error.filename is None and error.errno not in _OF_FILES:
        return TidegateError(
            what, remedy=f"If it was a connection, see that the other end answers; {debug}"
        )
    return TidegateError(
        what,
        where="standard output, or a file" if error.filename is None else str(error.filename),
        remedy=f"See that there is room, and that this user may read and write there; {debug}",
    )


def _in_our_words(error: click.ClickException) -> TidegateError:
    what, context = error.format_message().rstrip("."), getattr(error, "ctx", None)
    if not isinstance(context, click.Context):
        return UserError(what)
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    remedy = f"Write '{usage}'; '{context.command_path} -h' says what each part is."
    return UserError(what, where=f"command line, {context.command_path}", remedy=remedy)


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidegate", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def commands(debug: bool) -> None:
    """Stateful stream processing with Flink-grade checkpoints, on Spark or on this machine."""


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    commands.main(prog_name="tidegate")


if __name__ == "__main__":
    main()

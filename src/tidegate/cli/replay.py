"""``tidegate replay``: a step that failed in a job, run again on this machine."""

from __future__ import annotations

import json
import pdb
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate.cli.options import with_settings
from tidegate.cli.plan import planned_by
from tidegate.cli.run import settings_of
from tidegate.errors import UserCodeFailed, UserError
from tidegate.testing.replay import ReplayBundle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from tidegate.api.operator import Operator
    from tidegate.testing.replay import Replayed

FAILS: Final = 1
"""Exit code where the step fails again."""

WAITS: Final = 2
"""Exit code where it waits for something outside, so that nobody knows whether it would fail."""

_INPUTS_SHOWN: Final = 5


@click.command(short_help="Run a step that failed again, from its bundle.")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--program",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="SCRIPT",
    help="Take the step from this program as it is now, which ARGS are given to.",
)
@click.option("--pdb", "debugs", is_flag=True, help="Stop in a debugger where it fails.")
@click.option("--show", is_flag=True, help="Show what the bundle holds, and run nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --show: print it as JSON.")
@with_settings
def replay(
    bundle: Path,
    args: tuple[str, ...],
    program: Path | None,
    debugs: bool,
    show: bool,
    as_json: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
) -> None:
    """Run the step in BUNDLE again: its row, with the state of its key, at the time of then.

    Jobs write bundles of failures to their tidegate.replay.dir. This runs the code in the bundle:
    use bundles of your own jobs only.

    Exit code: 0 if the step passes, 1 if it fails again, 2 if it waits for something outside.
    """
    _check_options(args, program, dynamic, config, debugs=debugs, show=show, as_json=as_json)
    read = ReplayBundle.read(bundle)
    if show and as_json:
        click.echo(json.dumps(read.facts, indent=2))
        return
    _show(read.facts)
    if show:
        return
    operator = None
    if program is not None:
        operator = _of_program(program, args, config, dynamic, read.facts)
    click.secho(f"\nrunning it again, {_whose(program)}", bold=True)
    _tell(read.run() if operator is None else read.run_operator(operator), debugs=debugs)


def _check_options(
    args: tuple[str, ...],
    program: Path | None,
    dynamic: tuple[str, ...],
    config: Path | None,
    *,
    debugs: bool,
    show: bool,
    as_json: bool,
) -> None:
    """Raises UsageError for what would be ignored."""
    if as_json and not show:
        raise click.UsageError("--json prints what the bundle holds, and goes with --show.")
    if show and (debugs or program is not None):
        raise click.UsageError("--show runs nothing; leave out --pdb and --program, or --show.")
    if program is None and (args or dynamic or config is not None):
        raise click.UsageError(
            "Arguments and options of a job go with --program: the bundle holds its own."
        )


def _whose(program: Path | None) -> str:
    return "with the code of the bundle" if program is None else f"with the code of {program}"


def _show(facts: Mapping[str, Any]) -> None:
    uid = f", uid '{facts['uid']}'" if facts["uid"] else ""
    failed = datetime.fromtimestamp(facts["failed_ms"] / 1000, UTC).isoformat(" ", "milliseconds")
    lines = [
        ("step", f"{facts['operator']}{uid}, in {facts['task']}, attempt {facts['attempt']}"),
        ("failed", failed[:-6] + " UTC"),
        ("row" if facts["rows"] == 1 else f"row, of {facts['rows']} given", facts["row"]),
        ("event time", facts["timestamp_ms"]),
        ("watermark", facts["watermark_ms"]),
        ("timer", facts["timer_ms"]),
        ("key", facts["key"]),
        *((f"state {name}", ", ".join(held)) for name, held in facts["state"].items() if held),
        *((f"timers {name}", ", ".join(held)) for name, held in facts["timers"].items() if held),
        *(("last inputs", text) for text in facts["last_inputs"][:_INPUTS_SHOWN]),
        *(("left out", what) for what in facts["left_out"]),
    ]
    for what, text in lines:
        if text is not None:
            click.echo(f"{click.style(f'{what:<14}', fg='cyan')} {text}")
    click.echo(f"\n{facts['error']}")
    here = sys.version.split()[0]
    if facts["versions"]["python"] != here:
        click.echo(f"note: it failed with Python {facts['versions']['python']}, here is {here}")


def _of_program(
    program: Path,
    args: tuple[str, ...],
    config: Path | None,
    dynamic: tuple[str, ...],
    facts: Mapping[str, Any],
) -> Operator:
    """The step of a program as it is now: the one with the uid, else with the name."""
    graph = planned_by(program, args, None, config, settings_of(dynamic, config, None, False)).graph
    found: list[Operator] = []
    for vertex in graph.topology.vertices:
        for index, info in enumerate(vertex.operators):
            same = info.uid == facts["uid"] if facts["uid"] else info.name == facts["operator"]
            if same:
                found.append(graph.plan(vertex.id).operators[index])
    if len(found) == 1:
        return found[0]
    wanted = f"the uid '{facts['uid']}'" if facts["uid"] else f"the name '{facts['operator']}'"
    raise UserError(
        f"The program has {len(found) or 'no'} steps with {wanted}",
        where=str(program),
        remedy="Give the step a uid, and the program the arguments with which it was run.",
    )


def _tell(done: Replayed, *, debugs: bool) -> None:
    if done.error is None:
        if done.waits:
            click.secho("it has not failed so far", fg="yellow", bold=True)
        else:
            click.secho("it passes", fg="green", bold=True)
        for value, ms in done.results:
            click.echo(f"  result {value!r}{'' if ms is None else f' at {ms}'}")
        for tag, rows in done.side_results.items():
            for value, _ in rows:
                click.echo(f"  side output {tag}: {value!r}")
        if done.waits:
            click.echo("  and waits for something outside, which a replay does not wait for")
            raise click.exceptions.Exit(WAITS)
        return
    click.secho("it fails again", fg="red", bold=True)
    click.echo(str(done.error))
    if debugs and (trace := _users(done.error)) is not None:
        pdb.post_mortem(trace)
    raise click.exceptions.Exit(FAILS)


def _users(error: BaseException) -> TracebackType | None:
    """The traceback of what the user's function has raised."""
    cause = error.__cause__ if isinstance(error, UserCodeFailed) and error.__cause__ else error
    return cause.__traceback__

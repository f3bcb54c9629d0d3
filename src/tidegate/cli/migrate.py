"""``tidegate migrate``: a savepoint of Flink as one to start a job of ours from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from tidegate.cli.tables import show
from tidegate.cli.unpickling import state_as_data, unsafe_unpickle
from tidegate.migration.declarations import declared_states
from tidegate.migration.from_flink import migrate_savepoint
from tidegate.migration.rewrite import rewrite_flink_savepoint

if TYPE_CHECKING:
    from tidegate.migration.from_flink import MigrationReport

_KEY: Final = click.Path(exists=True, dir_okay=False, path_type=Path)

INCOMPLETE: Final = 1
"""Exit code where some state was not taken."""


@click.command(short_help="Turn a savepoint of Flink into one of Tidegate.")
@click.argument("source", metavar="FLINK_SAVEPOINT")
@click.argument("target", required=False)
@click.option(
    "--state",
    "states",
    metavar="UID/NAME=KIND:TYPE",
    multiple=True,
    help="Kind and type of a state of a PyFlink job, such as orders/total=value:LONG.",
)
@click.option("--map", "uids", metavar="OLD=NEW", multiple=True, help="Give an operator a new uid.")
@click.option(
    "--moved",
    metavar="OLD=NEW",
    multiple=True,
    help="New place of a folder to which the savepoint refers.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be migrated, and write nothing.")
@click.option(
    "--for-flink",
    is_flag=True,
    help="Write a canonical savepoint of Flink instead, whichever state backend wrote this one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--key-file", type=_KEY, help="File with a key that signs the savepoint.")
@unsafe_unpickle
def migrate(
    source: str,
    target: str | None,
    states: tuple[str, ...],
    uids: tuple[str, ...],
    moved: tuple[str, ...],
    dry_run: bool,
    for_flink: bool,
    as_json: bool,
    key_file: Path | None,
    trusted: bool,
) -> None:
    """Turn FLINK_SAVEPOINT into a savepoint in the folder TARGET.

    Operators are matched by uid, and keep their max parallelism. Pickled keys and values are
    unpickled; classes beyond the common ones are refused without --unsafe-unpickle.

    Exit code: 0 if all state was migrated, 1 if some was not, 2 if nothing could be done.
    """
    if (target is None) != dry_run:
        raise click.UsageError("Name either a folder to write to, or --dry-run.")
    if for_flink:
        if target is None or states or uids or as_json or key_file:
            raise click.UsageError("--for-flink takes a folder to write to, and --moved alone.")
        rewrite_flink_savepoint(source, target, moved=_pairs("--moved", moved))
        click.echo(f"savepoint of Flink: {target}")
        return
    with state_as_data(trusted=trusted), Console(stderr=True).status(source) as status:
        report = migrate_savepoint(
            source,
            target,
            states=declared_states(states),
            uids=_pairs("--map", uids),
            moved=_pairs("--moved", moved),
            key_file=key_file,
            on_operator=lambda what: status.update(f"{what} of {source}"),
        )
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        _print(report)
    if not report.complete:
        click.get_current_context().exit(INCOMPLETE)


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(old and new for old, _, new in pairs):
        raise click.UsageError(f"{option} is to have the form OLD=NEW.")
    return {old: new for old, _, new in pairs}


def _print(report: MigrationReport) -> None:
    show(
        ("taken from", "state", "kind", "type", "entries"),
        (
            (each.operator, each.state, each.kind, each.type, each.entries)
            for each in report.states
            if each.taken
        ),
    )
    left = [each for each in report.states if not each.taken]
    if left and len(left) < len(report.states):
        click.echo()
    show(
        ("not taken from", "state", "entries", "why"),
        ((each.operator, each.state, each.entries, each.why) for each in left),
    )
    hints = [each.hint for each in left if each.hint]
    if hints:
        click.echo("\nto take more, as the job has declared it:")
    for hint in hints:
        click.echo(f"  {hint}")
    if report.target is not None:
        click.echo(f"\nsavepoint: {report.target}")

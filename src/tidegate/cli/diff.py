"""``tidegate diff``: what is different in two snapshots."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from tidegate.cli.options import with_key_file
from tidegate.cli.tables import counted, show
from tidegate.cli.unpickling import state_as_data, unsafe_unpickle
from tidegate.snapshots.differences import SAME, diff_snapshots

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.snapshots.differences import SnapshotDiff

DIFFERENT: Final = 1
"""Exit code where the snapshots do not hold the same."""

_KEYS: Final = 10


@click.command(short_help="Show how two snapshots differ.")
@click.argument("before")
@click.argument("after")
@click.option("--keys", is_flag=True, help="Show some of the entries that differ.")
@click.option(
    "--keys-max",
    type=click.IntRange(1),
    default=_KEYS,
    show_default=True,
    help="Entries to show of each state.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@with_key_file
@unsafe_unpickle
def diff(
    before: str,
    after: str,
    keys: bool,
    keys_max: int,
    as_json: bool,
    key_file: Path | None,
    trusted: bool,
) -> None:
    """Show how the snapshots BEFORE and AFTER differ.

    State of the program's own classes is compared only with --unsafe-unpickle.

    Exit code: 0 if both hold the same, 1 if they differ, 2 if one of them is missing, or was
    written by Flink.
    """
    with state_as_data(trusted=trusted):
        keys_max = keys_max if keys else 0
        found = diff_snapshots(before, after, keys_max=keys_max, key_file=key_file)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
    else:
        _print(found)
    if not found.same:
        click.get_current_context().exit(DIFFERENT)


def _print(found: SnapshotDiff) -> None:
    click.echo(f"before: {found.before}\nafter: {found.after}\n")
    show(
        ("operator", "", "parallelism", "of", "coordinator"),
        (
            (
                each.name,
                each.change,
                _both(*each.parallelism),
                _both(*each.max_parallelism),
                "changed" if each.coordinator else None,
            )
            for each in found.operators
        ),
    )
    states = [(operator, state) for operator in found.operators for state in operator.states]
    states.sort(key=lambda each: each[1].change == SAME)  # what differs comes first
    if states:
        click.echo()
    head = "of", "state", "", "type", "added", "removed", "changed", "same", "note"
    show(
        head,
        (
            (
                operator.name,
                state.name,
                state.change,
                _both(state.types_before, state.types_after),
                state.added,
                state.removed,
                state.changed,
                state.same,
                state.note,
            )
            for operator, state in states
        ),
    )
    entries = [
        (operator.name, state.name, each.change, each.key, each.namespace, value)
        for operator, state in states
        for each in state.entries
        for value in [_both(each.before, each.after)]
    ]
    if entries:
        click.echo()
    show(("of", "state", "", "key", "namespace", "value"), entries)
    files = found.files
    click.echo(
        f"\nfiles: {files.both} in both ({files.both_bytes:,} bytes), {files.only_before} before "
        f"alone ({files.only_before_bytes:,}), {files.only_after} after alone "
        f"({files.only_after_bytes:,})"
    )
    if found.same:
        click.echo("both hold the same")
    else:
        differing = sum(operator.change != SAME for operator in found.operators)
        click.echo(f"{counted(differing, 'operator')} differing")


def _both(before: object, after: object) -> str:
    if before is None or after is None:
        return str(after if before is None else before)
    return str(before) if before == after else f"{before} -> {after}"

"""``tidegate inspect``: what a checkpoint or savepoint holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from flinkformat import metadata as codec
from flinkformat.description import describe
from tidegate.cli.tables import counted, show
from tidegate.cli.unpickling import state_as_data, unsafe_unpickle
from tidegate.snapshots.summary import inspect_snapshot
from tidegate.storage.state_files import StateFiles

if TYPE_CHECKING:
    from tidegate.snapshots.summary import OperatorSummary, SnapshotSummary


_NO_ID: Final = "<random>"
"""Stands where an old file has no id for a handle, and a reader makes one up."""


@click.command(short_help="Show what a checkpoint or savepoint holds.")
@click.argument("path")
@click.option("--raw", is_flag=True, help="Print its _metadata as JSON, in full, and nothing else.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print everything as JSON, key groups included."
)
@click.option("--key-groups", is_flag=True, help="Show each key group that has entries.")
@unsafe_unpickle
def inspect(path: str, raw: bool, as_json: bool, key_groups: bool, trusted: bool) -> None:
    """Show what the checkpoint or savepoint at PATH holds, per operator and state.

    Sizes are stored bytes. Skew is the size of the largest key group over the mean size. Values are
    not unpickled; keys are, if a key may have been written more than once.
    """
    if raw:
        click.echo(json.dumps(_raw(path), indent=2))
        return
    with state_as_data(trusted=trusted):
        summary = inspect_snapshot(path)
    if as_json:
        click.echo(json.dumps(summary.to_json(), indent=2))
        return
    _print_snapshot(summary)
    _print_operators(summary)
    _print_states(summary)
    if key_groups:
        _print_key_groups(summary)


def _raw(pointer: str) -> dict[str, object]:
    """Everything that a ``_metadata`` says, its version first. pointer: it, or its folder."""
    file = StateFiles().read_metadata(pointer)
    with file.being_decoded():
        decoded = codec.decode(file.data, lambda: _NO_ID)
        shown = describe(decoded, directory=file.directory)
    return {"version": codec.version_of(file.data)} | shown


def _print_snapshot(summary: SnapshotSummary) -> None:
    form = f", {summary.format.lower()}" if summary.format else ""
    written = " ".join(f"{name} {version}" for name, version in summary.versions.items())
    by = "Flink, and can be migrated" if summary.job is None else f"job {summary.job!r}, {written}"
    click.echo(f"{summary.path}: {summary.kind} {summary.checkpoint}{form}")
    files, size = counted(summary.files, "file"), counted(summary.size_bytes, "byte")
    click.echo(f"written by {by}; {files}, {size} of state")
    if summary.hooks:
        click.echo(f"hooks: {', '.join(summary.hooks)}")
    click.echo()


def _print_operators(summary: SnapshotSummary) -> None:
    head = (
        "operator",
        "uid",
        "parallelism",
        "of",
        "backend",
        "finished",
        "timers",
        "in flight",
        "files",
        "bytes",
    )
    show(
        head,
        (
            (
                each.name or each.operator_id,
                each.uid,
                each.parallelism,
                each.max_parallelism,
                each.backend,
                each.finished,
                each.timers,
                each.in_flight_bytes,
                each.files,
                each.size_bytes,
            )
            for each in summary.operators
        ),
    )
    for each in summary.operators:
        if each.states is None:
            click.echo(f"The states of {_name(each)} can't be read: {each.note}")


def _print_states(summary: SnapshotSummary) -> None:
    states = [
        (operator, state) for operator in summary.operators for state in operator.states or ()
    ]
    states.sort(key=lambda each: each[1].entries == 0)  # what holds nothing comes last
    rows = [
        (
            _name(operator),
            state.name,
            f"{state.kind}, expires" if state.expires else state.kind,
            state.key,
            state.namespace,
            state.value,
            state.entries,
            state.size_bytes,
            len(state.key_groups),
            state.skew,
            state.largest_key_group,
        )
        for operator, state in states
    ]
    head = "of", "state", "kind", "key", "namespace", "value", "entries", "bytes", "key groups"
    if rows:
        click.echo()
    show((*head, "skew", "largest"), rows)


def _print_key_groups(summary: SnapshotSummary) -> None:
    click.echo()
    show(
        ("of", "state", "key group", "entries", "bytes"),
        (
            (_name(operator), state.name, each.key_group, each.entries, each.size_bytes)
            for operator in summary.operators
            for state in operator.states or ()
            for each in state.key_groups
        ),
    )


def _name(operator: OperatorSummary) -> str:
    return operator.uid or operator.name or operator.operator_id

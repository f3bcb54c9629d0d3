"""``tidegate prune``: removing the checkpoints that ended jobs have kept."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from rich.console import Console

from tidegate.cli.options import Ago, with_json
from tidegate.cli.tables import counted, show
from tidegate.clock import SystemClock
from tidegate.snapshots.jobs import PruneRule
from tidegate.snapshots.prune import Pruning
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from tidegate.snapshots.prune import PrunePlan


@click.command(short_help="Remove kept checkpoints that no job needs.")
@click.argument("folder")
@click.option(
    "--older-than",
    type=Ago(),
    metavar="AGE",
    help="Only checkpoints older than this, such as 12h or 7d.",
)
@click.option(
    "--keep", type=click.IntRange(0), metavar="N", help="Keep the newest N checkpoints of each job."
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@with_json
def prune(
    folder: str, older_than: int | None, keep: int | None, dry_run: bool, as_json: bool
) -> None:
    """Remove checkpoints that ended jobs have left in FOLDER, a checkpoint folder.

    By default only checkpoints are removed that '--from latest' no longer starts from. With
    --older-than or --keep, checkpoints that an ended job could still start from are removed too.
    Left-over records, files and empty folders are removed as well. Savepoints stay, and so does
    everything that belongs to a running job.
    """
    rule = PruneRule(older_than, keep)
    with Console(stderr=True).status(f"looking through {folder}") as status:
        pruning = Pruning(Stores(MemoryFiles()), folder, rule, SystemClock())
        if not dry_run:
            status.update(f"removing from {folder}")
            pruning.remove()
    if as_json:
        plan = {"removed": not dry_run, "bytes": pruning.plan.size_bytes, **asdict(pruning.plan)}
        click.echo(json.dumps(plan, indent=2))
        return
    _print(pruning.plan, "to remove" if dry_run else "removed")


def _print(plan: PrunePlan, done: str) -> None:
    show(
        (done, "job", "where", "written", "files", "bytes"),
        (
            (each.what, each.job, each.path, _time(each.written_ms), len(each.files), size)
            for each in plan.removals
            for size in [each.size_bytes]
        ),
    )
    for note in plan.notes:
        click.echo(f"note: {note}")
    checkpoints = sum(each.what == "checkpoint" for each in plan.removals)
    files = sum(len(each.files) for each in plan.removals)
    told = ", ".join(
        (
            counted(checkpoints, "checkpoint"),
            counted(files, "file"),
            counted(plan.size_bytes, "byte"),
        )
    )
    click.echo(f"{done}: {told}" if plan.removals else "there is nothing to remove")


def _time(wall_ms: int | None) -> str:
    if wall_ms is None:
        return ""
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")

"""``tidegate list``: the jobs of a checkpoint folder, or the savepoints of a folder."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from tidegate.cli.jobs import ENDED, GONE, folder_of, state_of
from tidegate.cli.options import with_folder, with_json
from tidegate.cli.tables import show
from tidegate.clock import SystemClock
from tidegate.model.control import JobStatus
from tidegate.snapshots.folders import list_savepoints

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidegate.errors import FormatError

_SCHEDULED: Final = {JobStatus.INITIALIZING.value, JobStatus.CREATED.value}
_MEANT: Final = {
    "scheduled": _SCHEDULED,
    "running": {status.value for status in JobStatus} - _SCHEDULED - ENDED,
}
_HEAD: Final = (
    "job",
    "status",
    "start time",
    "uptime",
    "parallelism",
    "restarts",
    "id",
    "rest",
    "newest checkpoint",
)


@click.command("list")
@click.option("-r", "--running", "which", flag_value="running", help="Only jobs that are running.")
@click.option(
    "-s", "--scheduled", "which", flag_value="scheduled", help="Only jobs that are about to run."
)
@click.option(
    "-a", "--all", "which", flag_value="all", default="all", help="All jobs (the default)."
)
@click.option("--savepoints", metavar="FOLDER", help="List the savepoints in this folder instead.")
@with_json
@with_folder
def list_jobs(
    which: str,
    savepoints: str | None,
    as_json: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
) -> None:
    """List the jobs of a checkpoint folder.

    Shows the status of each job, when it started, how long it has run without a restart (uptime),
    its id, the address of its REST interface, and the checkpoint that it would start from. In JSON,
    times are milliseconds.
    """
    if savepoints is not None:
        _list_savepoints(savepoints, as_json=as_json)
        return
    folder = folder_of(dynamic, config, checkpoints)
    jobs = folder.jobs()
    now_ms = SystemClock().wall_ms()
    rows = [
        (
            job.name,
            state.status,
            _moment(state.start_ms, as_json=as_json),
            _duration(state.running_since_ms, now_ms, as_json=as_json),
            state.parallelism,
            state.restarts,
            job.id,
            job.sign.rest if job.sign and state.status not in GONE else None,
            job.newest_checkpoint,
        )
        for job, state in ((job, state_of(job)) for job in jobs)
        if which == "all" or state.status in _MEANT[which]
    ]
    none = (
        f"no job has kept records in {folder.directory}, or its records are in ZooKeeper"
        if which == "all"
        else f"no {which} job is known in {folder.directory}"
    )
    _show(_HEAD, rows, none=none, as_json=as_json)
    _tell_damage([job.damage for job in jobs if job.damage is not None])


def _moment(at_ms: int | None, *, as_json: bool) -> object:
    if at_ms is None or as_json:
        return at_ms
    return str(datetime.fromtimestamp(at_ms // 1000).astimezone().replace(tzinfo=None))


def _duration(since_ms: int | None, now_ms: int, *, as_json: bool) -> object:
    if since_ms is None:
        return None
    lasted_ms = max(0, now_ms - since_ms)
    return lasted_ms if as_json else str(timedelta(seconds=lasted_ms // 1000))


def _list_savepoints(folder: str, *, as_json: bool) -> None:
    """Lists readable savepoints; after them, each unreadable one is an error of the command."""
    damaged: list[FormatError] = []
    rows = [
        (info.path, info.kind, info.format.value, info.job_name, info.size_bytes)
        for info in list_savepoints(folder, on_damaged=damaged.append)
    ]
    head = "savepoint", "kind", "format", "job", "bytes"
    none = f"no savepoint that can be read lies in {folder}"
    _show(head, rows, none=none, as_json=as_json)
    _tell_damage(damaged)


def _tell_damage(damaged: Sequence[FormatError]) -> None:
    """Each is an error of the command, behind what could be listed."""
    for error in damaged[:-1]:
        click.echo(f"error: {error}", err=True)
    if damaged:
        raise damaged[-1]


def _show(
    head: Sequence[str], rows: Sequence[Sequence[object]], *, none: str, as_json: bool
) -> None:
    if as_json:
        names = [name.replace(" ", "_") for name in head]
        click.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    if not rows:
        click.echo(none, err=True)
    show(head, rows)

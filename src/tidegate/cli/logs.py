"""``tidegate logs``: the log of a job that runs, or what one that is over has left of it."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

import click

from tidegate.cli.jobs import DRIVER_GONE, GONE, ReachableJob, folder_of, state_of
from tidegate.cli.main import INTERRUPTED
from tidegate.cli.options import Ago, with_folder
from tidegate.cli.tables import escaped
from tidegate.datastream.process.interrupts import OUTPUT_CLOSED, forget_output
from tidegate.driver.client.door import follow_log
from tidegate.errors import FileMissing, PeerLost, UserError
from tidegate.model.control import JobStatus
from tidegate.model.logs import LEVELS, PAGE_MAX, LogFilter
from tidegate.rest.cluster.reading import read_archive
from tidegate.rest.shapes.log_shapes import LeftLog
from tidegate.storage import paths
from tidegate.storage.stores import Stores
from tidegate.telemetry.log_lines import as_json, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tidegate.cli.jobs import JobFolder, KnownJob
    from tidegate.model.control import LogRecord

_AGAIN_S: Final = 0.5
_COLOURS: Final = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


@click.command(short_help="Show the log of a job.")
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on with new records until the job ends.")
@click.option(
    "-l",
    "--level",
    type=click.Choice(list(LEVELS), case_sensitive=False),
    default="debug",
    help="Minimum level.",
)
@click.option("-o", "--operator", metavar="NAME", help="Only what this step, or task, has logged.")
@click.option(
    "--subtask",
    type=click.IntRange(min=0),
    help="Only this subtask; 0 is the one shown as (1).",
)
@click.option("-t", "--text", help="Only records with this text, in any case.")
@click.option(
    "--since",
    type=Ago(),
    metavar="AGE",
    help="Only records younger than this, such as 30s or 10m.",
)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(1, PAGE_MAX),
    default=PAGE_MAX,
    show_default=True,
    help="Number of most recent records to print first.",
)
@click.option("--json", "in_json", is_flag=True, help="Print a JSON object for each record.")
@with_folder
def logs(
    job: str,
    follow: bool,
    level: str,
    operator: str | None,
    subtask: int | None,
    text: str | None,
    since: int | None,
    lines: int,
    in_json: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
) -> None:
    """Show the log of JOB, a name or an id: of its driver, its slots, and functions in them.

    Functions log by Python's logging; the driver keeps the newest records. Of a job that is over
    they come from its archive, which has at most 1 MiB of them. Ctrl-C ends a log that is followed,
    not the job.
    """
    wanted = {
        "level": level,
        "operator": operator,
        "subtask": subtask,
        "text": text,
        "since_ms": None if since is None else int(time.time() * 1_000) - since,
    }
    request = {"filter": wanted, "limit": lines, "follow": follow}
    folder = folder_of(dynamic, config, checkpoints)
    try:
        for record in _records(folder, job, request):
            _print(record, in_json=in_json)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        forget_output()
        raise click.exceptions.Exit(OUTPUT_CLOSED) from None


def _records(folder: JobFolder, job: str, asked: Mapping[str, Any]) -> Iterator[LogRecord]:
    """Records as they come; whoever has been cut off while nobody read goes on behind the last.

    Another driver that has taken the job over is followed then. Raises PeerLost where none has.
    """
    if (left := _left(folder, job, asked)) is not None:
        yield from left
        return
    request = dict(asked)
    found = folder.running(job)
    while True:
        try:
            for records, after in follow_log(found.sign, found.name, request):
                request["after"] = after
                yield from records
        except PeerLost:
            if "after" not in request:
                raise
            if (again := _again(folder, found.name)) is None:
                return
            if again.sign is None or state_of(again).status == DRIVER_GONE:
                raise
            if again.sign != found.sign:  # another driver counts its records anew
                del request["after"]
            found = ReachableJob(again.name, again.sign)
            time.sleep(_AGAIN_S)
        else:
            return


def _left(folder: JobFolder, name: str, asked: Mapping[str, Any]) -> list[LogRecord] | None:
    """Records in the archive of a job that is over, or that has lost its driver; else None."""
    id, lost = name, False
    with contextlib.suppress(UserError):  # one whose records are in ZooKeeper is known by its id
        job = folder.job(name)
        status = state_of(job).status
        id, lost = job.id, status == DRIVER_GONE
        if status not in GONE or (lost and asked["follow"]):
            return None
    if not paths.is_archive(id):
        return None
    try:
        data = Stores().open(folder.history).read(id)
    except FileMissing:
        return None
    told = read_archive(data, paths.join(folder.history, id)).get(f"/jobs/{id}/log")
    if told is None:
        return None
    if lost:
        click.echo("The driver is gone; its archive has the log up to here:", err=True)
    chosen = {name: value for name, value in asked["filter"].items() if value is not None}
    page = LeftLog(json.loads(told)).read(LogFilter(**chosen), limit=asked["limit"])
    return [entry.record for entry in page.entries]


def _again(folder: JobFolder, name: str) -> KnownJob | None:
    """The job after its driver has broken off; None if it has ended."""
    known = next((job for job in folder.jobs() if job.name == name), None)
    return None if known is None or known.status is not JobStatus.RUNNING else known


def _print(record: LogRecord, *, in_json: bool) -> None:
    if in_json:
        click.echo(json.dumps(as_json(record)))
    else:
        told = escaped(as_text(record))
        colour = _COLOURS.get(told.split(" ", 3)[2])
        click.secho(told, fg=colour)

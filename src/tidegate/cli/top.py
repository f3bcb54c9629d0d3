"""``tidegate top``: a running job as it goes, in the terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import click

from tidegate.cli.drawn import EVERY_S, drawn
from tidegate.cli.jobs import folder_of
from tidegate.cli.options import with_folder
from tidegate.driver.client.door import ANSWER_SOON_S, ask_at
from tidegate.errors import DriverSilent, PeerLost, UserError
from tidegate.model.control import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

    from tidegate.cli.drawn import Picture
    from tidegate.cli.jobs import ReachableJob


@click.command(short_help="Watch a running job in the terminal.")
@click.argument("job")
@click.option("--once", is_flag=True, help="Print the job as it is now, and end.")
@with_folder
def top(
    job: str,
    once: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    checkpoints: str | None,
) -> None:
    """Watch JOB, a name or an id: its steps with their rates, its checkpoints, what is wrong.

    It is watched until it ends; Ctrl-C ends the watching, not the job. Without a terminal the job
    is printed once.
    """
    from rich.console import Console

    folder, console = folder_of(dynamic, config, checkpoints), Console()
    found = folder.running(job)

    def ask() -> Picture:
        nonlocal found
        try:
            return _picture(found)
        except DriverSilent:
            raise
        except PeerLost:  # the job has ended, or another driver has taken it over
            found = folder.running(job)
            return _picture(found)

    if once or not console.is_terminal:
        console.print(drawn(ask()))
        return
    try:
        watch(ask, console)
    except UserError:
        if (status := folder.job(found.name).status) is JobStatus.RUNNING:
            raise
        click.echo(f"the job has ended: {status.value}")


def _picture(job: ReachableJob) -> Picture:
    return cast("Picture", ask_at(job.sign, job.name, {"do": "picture"}, within_s=ANSWER_SOON_S))


def watch(ask: Callable[[], Picture], console: Console) -> None:
    """Draws the job again and again until Ctrl-C, or until it cannot be asked any more."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(drawn(ask()), refresh=True)
            time.sleep(EVERY_S)

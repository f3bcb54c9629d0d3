"""``tidegate profile``: a short run of a program, and where its time went."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import click

from tidegate.cli.options import AS_PROGRAM, with_program, with_runtime, with_settings
from tidegate.cli.run import pyflink_modules, run_program, settings_of
from tidegate.cli.tables import counted, show, wrapped
from tidegate.clock import SystemClock
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.errors import JobCanceled, TidegateError, UserError
from tidegate.model.control import ExecutionState
from tidegate.telemetry.costs import costs_of
from tidegate.telemetry.findings import findings_of
from tidegate.telemetry.profile import collapsed, profile_of
from tidegate.telemetry.units import time_text

if TYPE_CHECKING:
    from tidegate.api.job import JobClient
    from tidegate.jobmaster.view import JobView
    from tidegate.model.control import FrameCount
    from tidegate.model.ids import SlotId, VertexId

SECONDS: Final = 15.0
LONGEST_S: Final = 30.0
"""Slots remember what they have seen for at least this long."""
_EVERY_S: Final = 0.2
_ANSWER_S: Final = 5.0
_LEAST: Final = 0.005
_LINES: Final = 15


@click.command(
    short_help="Run a program for a while, and say where its time went.",
    context_settings=AS_PROGRAM,
)
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(1, LONGEST_S),
    default=SECONDS,
    show_default=True,
    help="Seconds of the job to look at; then it is cancelled.",
)
@click.option(
    "--collapsed",
    "stacks",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the stacks there too, a line each, for a drawer of flame graphs.",
)
@with_runtime
@with_settings
@with_program
def profile(
    seconds: float,
    stacks: Path | None,
    runtime: str | None,
    allow_non_restored: bool,
    dynamic: tuple[str, ...],
    config: Path | None,
    parallelism: int | None,
    as_pyflink: bool,
    script: Path,
    args: tuple[str, ...],
) -> None:
    """Run the first job of SCRIPT for some seconds, and print where its time went.

    By step: its share of the time at work and the mean time of a row; by line: the share that is
    spent in itself and with what it calls; and what steps wait for. The job runs as `tidegate run`
    runs it: it writes to its sinks.
    """
    settings = settings_of(dynamic, config, parallelism, allow_non_restored)
    looking = Looking(seconds)
    looking.start()
    try:
        with pyflink_modules(as_pyflink):
            run_program(script, args, runtime, config, settings)
    except JobCanceled:
        if not looking.cancelled:
            raise
    finally:
        looking.end()
    tell(looking, stacks)


@dataclass
class Looking:
    """Looks at the first job from a thread of its own, and cancels it when its time is over."""

    seconds: float
    cancelled: bool = False
    job: JobView | None = None
    samples: dict[tuple[VertexId, SlotId], tuple[FrameCount, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="tidegate-profile", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(_ANSWER_S)

    def of_vertices(self) -> dict[VertexId, list[FrameCount]]:
        found: dict[VertexId, list[FrameCount]] = {}
        for (vertex, _), counts in self.samples.items():
            found.setdefault(vertex, []).extend(counts)
        return found

    def _look(self) -> None:
        until: float | None = None
        while not self._over.wait(_EVERY_S):
            client = next(iter(running_jobs().clients), None)
            if client is None:
                continue
            # It ends, or its driver is busy; the next look will do.
            with suppress(TidegateError, TimeoutError):
                self._ask(client)
            if until is None and self._runs:
                until = monotonic() + self.seconds
            if until is not None and monotonic() >= until:
                self.cancelled = True
                client.cancel()
                return

    @property
    def _runs(self) -> bool:
        vertices = () if self.job is None else self.job.vertices
        states = (subtask.state for vertex in vertices for subtask in vertex.subtasks)
        return ExecutionState.RUNNING in states

    def _ask(self, client: JobClient) -> None:
        self.job = client.view()
        asked = {
            (vertex.id, slot): client.call_samples(slot, vertex.id)
            for vertex in self.job.vertices
            for slot in {each.slot for each in vertex.subtasks if each.slot is not None}
        }
        wait(asked.values(), _ANSWER_S)
        for key, answer in asked.items():
            # This slot is lost, or busy; the others have been heard.
            with suppress(TidegateError, TimeoutError, CancelledError):
                if counts := answer.result(0).counts:
                    self.samples[key] = counts


def tell(looking: Looking, stacks: Path | None) -> None:
    """Prints where the time went. Raises UserError if nothing was seen."""
    job, samples = looking.job, looking.of_vertices()
    if looking.cancelled and not samples:
        raise UserError(
            f"No slot has told what its tasks did, {looking.seconds:g} s long",
            where="profile",
            remedy="Look for longer with --for, on a machine that has time for it.",
        )
    if job is None or not samples:
        raise UserError(
            "The program has executed no job, or one that was over before anything was seen of it",
            where="profile",
            remedy="Give it more to do, so that it runs for some seconds.",
        )
    found = profile_of(job, samples)
    click.echo(f"job '{job.name}': {counted(found.samples, 'sample')} of working subtasks")
    show(
        ("step", "share of CPU time", "time per row"),
        (
            (each.operator, _share(each.share), each.row_micros and time_text(each.row_micros))
            for each in found.steps
        ),
    )
    lines = [each for each in found.lines if each.itself >= _LEAST][:_LINES]
    click.echo()
    show(
        ("line", "step", "self", "total"),
        ((each.line, each.operator, _share(each.itself), _share(each.total)) for each in lines),
    )
    click.echo()
    show(
        ("step", "waits for", "share of its time"),
        ((each.vertex, each.waits_for, _share(each.share)) for each in found.waits),
    )
    for each in findings_of(job, SystemClock().wall_ms()):
        click.secho(f"\n{each.subject.value}", bold=True, fg="yellow")
        click.echo(wrapped(f"{each.what} {each.remedy}", indent="  "))
    if costs := costs_of(job):
        click.echo(f"\nCosts: {costs}.")
    if stacks is not None:
        _write(stacks, "".join(f"{line}\n" for line in collapsed(samples)))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"The stacks cannot be written: {error}",
            where="command line, --collapsed",
            remedy="Name a file that can be written to.",
        ) from error


def _share(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")

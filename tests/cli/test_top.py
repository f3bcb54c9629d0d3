"""A job as it is drawn in a terminal."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.cli.reached import reached
from tests.e2e.watch import until
from tests.rest.left import HERE
from tests.rest.served import Served
from tests.rest.shown import READER, READS, VIEW
from tests.rest.world import EMPTY, JOB
from tidegate.api.job import JobExecutionResult
from tidegate.cli.drawn import drawn, watching
from tidegate.cli.jobs import JobFolder, ReachableJob
from tidegate.cli.main import commands
from tidegate.cli.top import watch
from tidegate.config.configuration import Configuration
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.driver.client.door import DoorSign
from tidegate.errors import PeerLost
from tidegate.model.control import JobStatus
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from tidegate.telemetry.picture import picture

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.cli.drawn import Picture
    from tidegate.jobmaster.view import JobView


def shown(view: JobView) -> str:
    console = Console(width=100, file=StringIO())
    with console.capture() as drawing:
        console.print(drawn(picture(view, 61_000, since=0)))
    return drawing.get()


def test_steps_checkpoints_and_findings_are_drawn() -> None:
    text = shown(replace(VIEW, name="orders [red]"))
    assert "orders [red]  RUNNING for" in text.splitlines()[0]
    for vertex in VIEW.vertices:
        assert vertex.name[:20] in text and f"/{vertex.parallelism}" in text
    newest = max(one.checkpoint for one in VIEW.checkpoints.history)
    assert f"{newest} " in text and "in progress" in text


def test_a_job_without_steps_or_checkpoints_is_drawn() -> None:
    text = shown(EMPTY)
    assert "orders  RUNNING for 60.0 s, 0 of 1 slots" in text and "checkpoint" not in text


def test_watching_wants_a_terminal(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text("raise SystemExit('it has begun')")
    ran = CliRunner().invoke(commands, ["run", "--watch", str(program)])
    assert ran.exit_code == 2 and "standard error is none" in ran.output


class Drawn(Served):
    """A running job whose driver is too busy to answer at first."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.result: Future[JobExecutionResult] = Future()

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self.result

    def view(self) -> object:
        self.looks += 1
        if self.looks == 1:
            raise PeerLost("The driver is busy")
        return VIEW


def test_jobs_of_the_process_are_watched_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("tidegate.cli.drawn.EVERY_S", 0.01)
    client = Drawn()
    running_jobs().add(client, Configuration())
    try:
        with watching():
            until(lambda: client.looks > 2, "the job has been drawn")
    finally:
        client.result.set_result(JobExecutionResult(JOB, 1))
    said = capsys.readouterr()
    assert "orders" in said.err and "read <fast>" in said.err and said.out == ""


def test_a_job_is_printed_once_as_its_driver_shows_it(tmp_path: Path) -> None:
    client = Served()
    client.shown = VIEW
    with reached(tmp_path, client):
        told = CliRunner().invoke(commands, ["top", "orders", "--once", "-d", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("orders  RUNNING for") and "read <fast>" in told.stdout


def test_a_job_is_looked_for_again_once_its_driver_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Served()
    client.shown = VIEW
    running, looks = JobFolder.running, list[str]()

    def counted(folder: JobFolder, name: str) -> ReachableJob:
        looks.append(name)
        found = running(folder, name)
        gone = replace(found.sign, socket="/nowhere")
        return replace(found, sign=gone) if len(looks) == 1 else found

    monkeypatch.setattr(JobFolder, "running", counted)
    with reached(tmp_path, client):
        told = CliRunner().invoke(commands, ["top", "orders", "--once", "-d", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("orders") and looks == ["orders", "orders"]


def test_a_job_is_watched_until_it_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.cli.top.EVERY_S", 0.0)
    console = Console(width=100, file=StringIO(), force_terminal=True)
    views = [VIEW, replace(VIEW, name="orders again")]

    def ask() -> Picture:
        if not views:
            raise PeerLost("The driver is gone")
        return picture(views.pop(0), 61_000, since=0)

    with console.capture() as drawing, pytest.raises(PeerLost):
        watch(ask, console)
    assert "orders again" in drawing.get()


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.RUNNING])
def test_watching_ends_well_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: JobStatus
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    running, former = JobFolder.running, [ReachableJob("orders", DoorSign(HERE, 1, "/nowhere"))]
    monkeypatch.setattr(
        JobFolder, "running", lambda *asked: former.pop() if former else running(*asked)
    )
    with reached(tmp_path, Served(), status=status):
        pass  # its driver has ended, or was killed
    told = CliRunner().invoke(commands, ["top", "orders", "-d", str(tmp_path)])
    if status is JobStatus.FINISHED:
        assert told.exit_code == 0 and "the job has ended: FINISHED" in told.stdout
    else:
        assert told.exit_code == 2 and "cannot be reached" in told.stderr


def test_how_far_event_time_is_behind_is_drawn() -> None:
    def behind(now_ms: int, watermark_ms: int) -> str:
        figures = replace(READS.figures, watermark_ms=watermark_ms)
        reader = replace(READER, subtasks=(replace(READS, figures=figures),))
        console = Console(width=100, file=StringIO())
        with console.capture() as drawing:
            view = replace(VIEW, vertices=(reader,), timestamps_ms=EMPTY.timestamps_ms)
            console.print(drawn(picture(view, now_ms, since=0)))
        return next(line for line in drawing.get().splitlines() if line.startswith("read <fast>"))

    assert behind(20_000, 19_500).endswith("500 ms behind")
    assert behind(20_000, 77).endswith("19.9 s behind")
    assert behind(86_400_000, 0).endswith("1,440 min behind")
    assert behind(20_000, MAX_WATERMARK_MS).endswith("at its end")
    assert behind(20_000, MIN_TIMESTAMP_MS).rstrip().endswith("50%            25%")

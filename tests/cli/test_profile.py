"""A short run of a program, and where its time went."""

from __future__ import annotations

import re
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.datastream.fakes import Client
from tests.e2e.watch import until
from tests.rest.world import EMPTY
from tidegate.api.job import JobExecutionResult
from tidegate.cli import profile
from tidegate.cli.main import commands
from tidegate.config.configuration import Configuration
from tidegate.datastream.process.interrupts import running_jobs
from tidegate.errors import SlotLost, UserError
from tidegate.jobmaster.view import SubtaskView, VertexView
from tidegate.model.control import ExecutionState, FrameCount, Samples, SubtaskFigures
from tidegate.model.ids import OperatorId, SlotId, VertexId
from tidegate.model.metrics import MetricKey, MetricKind, Spread
from tidegate.model.topology import OperatorInfo
from tidegate.telemetry.profile import LineShare, StepShare, Wait, collapsed, profile_of

if TYPE_CHECKING:
    from pathlib import Path

READ, SUM = VertexId(b"r" * 16), VertexId(b"s" * 16)
PER_ROW = MetricKey("timePerRecordMicros", MetricKind.HISTOGRAM, OperatorId(SUM))


def task(index: int, calls: int, micros: float) -> SubtaskView:
    spread = {PER_ROW: Spread(calls, mean=micros)}
    running = ExecutionState.RUNNING
    return SubtaskView(index, 0, running, SlotId("a"), {}, SubtaskFigures(), metrics=spread)


JOB = replace(
    EMPTY,
    vertices=(
        VertexView(READ, "orders", 1, 128, (), (OperatorInfo(OperatorId(READ), "orders"),)),
        VertexView(
            SUM,
            "sum",
            2,
            128,
            (task(0, 30, 10.0), task(1, 10, 50.0)),
            (OperatorInfo(OperatorId(SUM), "sum"),),
        ),
    ),
)
SAMPLES = {
    SUM: [
        FrameCount(0, True, ("sum", "add (job.py:3)", "slow (job.py:9)"), 60),
        FrameCount(1, True, ("sum", "add (job.py:3)"), 10),
        FrameCount(1, True, ("sum", "add (job.py:3)", "add (job.py:3)"), 10),
        FrameCount(1, False, ("waits for input",), 20),
    ],
    READ: [FrameCount(0, True, ("orders",), 20)],
}


def test_shares_are_of_the_time_at_work_the_largest_first() -> None:
    found = profile_of(JOB, SAMPLES)
    assert found.samples == 100
    assert found.steps == (
        StepShare("sum", "sum", 0.8, 20.0),
        StepShare("orders", "orders", 0.2, None),
    )
    assert found.lines == (
        LineShare("slow (job.py:9)", "sum", 0.6, 0.6),
        LineShare("add (job.py:3)", "sum", 0.2, 0.8),
    )
    assert found.waits == (Wait("sum", "waits for input", 0.2),)


def test_nothing_seen_is_an_empty_profile() -> None:
    found = profile_of(JOB, {})
    assert (found.samples, found.steps, found.lines, found.waits) == (0, (), (), ())


def test_stacks_at_work_are_a_line_each() -> None:
    assert list(collapsed(SAMPLES))[:2] == [
        "sum;add (job.py:3);slow (job.py:9) 60",
        "sum;add (job.py:3) 10",
    ]
    assert list(collapsed({READ: [FrameCount(0, True, ("a;b",), 1)]})) == ["a,b 1"]


BURNING = """
from tidegate import StreamExecutionEnvironment
from tests.e2e.burning import burned

env = StreamExecutionEnvironment.get_execution_environment()
burned(env)
env.execute("burned")
"""


@pytest.mark.slow
def test_a_run_is_ended_after_its_time_and_told(tmp_path: Path) -> None:
    program, stacks = tmp_path / "job.py", tmp_path / "stacks.txt"
    program.write_text(BURNING)
    command = ["profile", "--for", "4", "--collapsed", str(stacks), str(program)]
    ran = CliRunner().invoke(commands, command)
    assert ran.exit_code == 0, ran.output
    share = re.search(r"^dear step +(\d+\.\d) % +\d", ran.stdout, re.MULTILINE)
    assert share is not None, ran.stdout
    assert 60 < float(share[1]) < 95
    assert re.search(r"^burn \(burning\.py:\d+\) +dear step ", ran.stdout, re.MULTILINE)
    assert "core-seconds" in ran.stdout
    assert any("burn (burning.py" in line for line in stacks.read_text().splitlines())
    refused = CliRunner().invoke(
        commands, ["profile", "--for", "1", "--collapsed", f"{tmp_path}/none/here", str(program)]
    )
    assert refused.exit_code == 2 and "stacks cannot be written" in refused.output


class Profiled(Client):
    """A job with two tasks; what its slots answer is what a test says."""

    def __init__(self, state: ExecutionState, answers: dict[SlotId, Future[Samples]]) -> None:
        super().__init__([])
        slots = [replace(task(0, 1, 1.0), slot=SlotId(name)) for name in "ab"]
        tasks = tuple(replace(each, state=state) for each in slots)
        self.shown = replace(JOB, vertices=(replace(JOB.vertices[1], subtasks=tasks),))
        self.answers = answers
        self.result: Future[JobExecutionResult] = Future()

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self.result

    def view(self) -> object:
        return self.shown

    def call_samples(self, slot: SlotId, vertex: VertexId) -> Future[Samples]:
        return self.answers[slot]


def looked_at(client: Profiled, monkeypatch: pytest.MonkeyPatch) -> profile.Looking:
    """What is seen of the job until its time is over, or, of one that does not run, at once."""
    monkeypatch.setattr(profile, "_EVERY_S", 0.001)
    monkeypatch.setattr(profile, "_ANSWER_S", 0.01)
    running_jobs().add(client, Configuration())
    looking = profile.Looking(0.05)
    looking.start()
    runs = client.shown.vertices[0].subtasks[0].state is ExecutionState.RUNNING
    until(lambda: looking.cancelled if runs else looking.job, "it has looked")
    looking.end()
    client.result.set_result(JobExecutionResult(JOB.job, 1))
    return looking


def test_a_slot_that_is_lost_or_silent_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost, told = Future[Samples](), Future[Samples]()
    lost.set_exception(SlotLost("the slot is gone"))
    counts = tuple(SAMPLES[SUM])
    told.set_result(Samples(1, SlotId("b"), counts, (), 0))
    for other in (lost, Future[Samples]()):
        client = Profiled(ExecutionState.RUNNING, {SlotId("a"): other, SlotId("b"): told})
        looking = looked_at(client, monkeypatch)
        assert client.cancelled and looking.of_vertices() == {SUM: list(counts)}


def test_a_run_ends_after_its_time_though_no_slot_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = {SlotId(name): Future[Samples]() for name in "ab"}
    client = Profiled(ExecutionState.RUNNING, silent)
    looking = looked_at(client, monkeypatch)
    assert client.cancelled
    with pytest.raises(UserError, match="No slot has told"):
        profile.tell(looking, None)


def test_the_time_of_a_run_begins_when_its_tasks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = {SlotId(name): Future[Samples]() for name in "ab"}
    looking = looked_at(Profiled(ExecutionState.DEPLOYING, silent), monkeypatch)
    assert not looking.cancelled


@pytest.mark.parametrize(
    ("program", "told"),
    [("pass", "has executed no job"), ("1 / 0", "ZeroDivisionError")],
    ids=["no job", "an error"],
)
def test_a_program_without_a_profile_says_why(tmp_path: Path, program: str, told: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(program)
    ran = CliRunner().invoke(commands, ["profile", str(script)])
    assert ran.exit_code != 0 and told in ran.output

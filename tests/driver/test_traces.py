"""Spans: what they say of checkpoints and starts, and that nothing they meet harms the job."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from tests.checkpoint.world import WALL_MS, chain, keyed_state, started, vertex
from tests.e2e.watch import until
from tests.worlds.jobmaster import World as JobWorld
from tidegate.checkpoint.coordinator.commands import CheckpointEnded
from tidegate.clock import SystemClock
from tidegate.driver.telling.commands import (
    Tracing,
    checkpoint_span,
    initialization_span,
)
from tidegate.errors import StorageFailed, UserCodeFailed
from tidegate.jobmaster.commands import Deployed
from tidegate.model.control import CheckpointFigures, ExecutionState
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Attempt, CheckpointId
from tidegate.model.metrics import Span
from tidegate.model.settings import FixedDelay, JobSettings, NoRestart
from tidegate.model.topology import Partitioner
from tidegate.telemetry.reporters.spans import SpanFile
from tidegate.telemetry.span_reporting import SpanReporting

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.telemetry.reporters.spans import SpanReporter

LIMIT_S = 100.0
SPAN = Span("Checkpoint", "job", 1, 2, {"checkpointId": 1})


def test_the_span_of_a_checkpoint_has_the_greatest_and_the_sum_of_each_figure() -> None:
    world = started(topology=chain(vertex("source", 1), vertex("sink", 1)))
    world.states = {world.subtask("source"): keyed_state("/chk-1/a", size=500)}
    world.advance(0)
    world.now_ms = 40
    figures = CheckpointFigures(1, 2, 3, 4, 50, 6, 7, unaligned=True)
    world.acknowledge(1, world.subtask("source"), figures=figures)
    world.acknowledge(1, world.subtask("sink"), figures=CheckpointFigures(10, bytes_written=5))
    final = world.coordinator.statistics.latest_completed
    assert final is not None
    span = checkpoint_span("job", final)
    assert (span.name, span.job, span.start_ms, span.end_ms) == (
        "Checkpoint",
        "job",
        WALL_MS,
        WALL_MS + 40,
    )
    assert span.attributes == {
        "checkpointId": 1,
        "fullSize": 500,
        "checkpointedSize": 55,
        "metadataSize": 100,
        "checkpointStatus": "COMPLETED",
        "isUnaligned": "true",
        "checkpointType": "Checkpoint",
        "maxStateSizeBytes": 500,
        "sumStateSizeBytes": 500,
        "maxCheckpointedSizeBytes": 50,
        "sumCheckpointedSizeBytes": 55,
        "maxCheckpointStartDelayMs": 4,
        "sumCheckpointStartDelayMs": 4,
        "maxAlignmentDurationMs": 3,
        "sumAlignmentDurationMs": 3,
        "maxSyncCheckpointDurationMs": 10,
        "sumSyncCheckpointDurationMs": 11,
        "maxAsyncCheckpointDurationMs": 2,
        "sumAsyncCheckpointDurationMs": 2,
        "maxProcessedDataBytes": 6,
        "sumProcessedDataBytes": 6,
        "maxPersistedDataBytes": 7,
        "sumPersistedDataBytes": 7,
    }


def test_the_span_of_a_failed_checkpoint_ends_with_its_failure() -> None:
    world = started()
    world.advance(0)
    world.now_ms = 30
    world.decline(1, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    final = world.coordinator.statistics.latest_failed
    assert final is not None
    span = checkpoint_span("job", final)
    assert (span.end_ms, span.attributes["checkpointStatus"]) == (WALL_MS + 30, "FAILED")
    assert span.attributes["sumStateSizeBytes"] == 0


def test_the_span_of_a_start_is_there_once_all_subtasks_run() -> None:
    world = JobWorld(prompt=False).running()
    while initialization_span(world.machine.view(0)) is None:
        assert ExecutionState.RUNNING not in set(world.states.values()) or world.waiting
        world.deliver()
    span = initialization_span(world.machine.view(0))
    assert span is not None and set(world.states.values()) == {ExecutionState.RUNNING}
    assert (span.name, span.attributes["initializationStatus"]) == (
        "JobInitialization",
        "COMPLETED",
    )
    assert "checkpointId" not in span.attributes
    assert span.start_ms <= span.end_ms


def test_the_span_of_a_start_that_fails_says_so() -> None:
    world = JobWorld(JobSettings(restart=NoRestart()), prompt=False).running()
    while not world.states:
        world.deliver()
    world.change(next(iter(world.states)), ExecutionState.FAILED, StorageFailed("no state"))
    span = initialization_span(world.machine.view(0))
    assert span is not None and span.attributes["initializationStatus"] == "FAILED"


class Broken:
    """Reports nothing: it raises, and behind that may wait until it is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.released = threading.Event()
        self.closed = False

    def report(self, span: Span) -> None:
        self.asked += 1
        if self.asked > 1:
            assert self.released.wait(LIMIT_S)
        raise OSError("the disk is full")

    def close(self) -> None:
        self.closed = True


def span_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "tidegate-spans"]


def reporting(*reporters: SpanReporter) -> SpanReporting:
    return SpanReporting(reporters, SystemClock(), structlog.get_logger())


def test_a_file_gets_a_line_a_span_behind_those_it_has(tmp_path: Path) -> None:
    file = tmp_path / "new" / "spans.jsonl"
    for _ in range(2):
        SpanFile(file).report(SPAN)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert (
        lines
        == [
            {"name": "Checkpoint", "job": "job", "start_ms": 1, "end_ms": 2}
            | {"attributes": {"checkpointId": 1}}
        ]
        * 2
    )


def test_the_start_of_a_region_is_a_span_of_its_subtasks_alone() -> None:
    strands = chain(vertex("a", 2), vertex("b", 2), partitioner=Partitioner.FORWARD)
    restarts = JobSettings(restart=FixedDelay(attempts=9, delay_ms=3_000))
    world = JobWorld(restarts, strands).running()
    world.change(world.executions[0], ExecutionState.FAILED, UserCodeFailed("bad row"))
    world.wake_up_to(3_000)
    span = initialization_span(world.machine.view(world.now_ms))
    assert span is not None and span.attributes["sumInitializeStateDurationMs"] == 2 * 5
    assert span.start_ms % 1_000_000 == span.end_ms % 1_000_000 == 3_000


def test_a_reporter_that_fails_is_logged_once_and_harms_nobody(tmp_path: Path) -> None:
    world = JobWorld().running()
    file, broken = tmp_path / "spans", Broken()
    broken.released.set()
    spans = reporting(broken, SpanFile(file))
    tracing = Tracing(spans)
    with structlog.testing.capture_logs() as log:
        tracing.follow([Deployed(Attempt(0), None, 6)], lambda: world.machine.view(0))
        spans.add(SPAN)
        until(lambda: broken.asked == 2, "both are asked for")
        spans.close()
    assert [line["event"].split(";")[0] for line in log] == ["a span could not be reported"]
    assert file.read_text().count("\n") == 2 and "JobInitialization" in file.read_text()
    assert broken.closed


def test_the_end_drops_what_waits_for_a_receiver_that_does_not_answer() -> None:
    broken = Broken()
    spans = reporting(broken)
    for _ in range(5):
        spans.add(SPAN)
    until(lambda: broken.asked == 2, "the second is under way")
    began_s = time.monotonic()
    spans.close()
    took_s = time.monotonic() - began_s
    assert broken.closed and took_s < 5
    broken.released.set()
    until(lambda: not span_threads(), "the thread has ended")
    assert broken.asked == 2


def test_the_end_waits_for_spans_of_a_receiver_that_answers(tmp_path: Path) -> None:
    file = tmp_path / "spans"
    spans = reporting(SpanFile(file))
    for _ in range(500):
        spans.add(SPAN)
    spans.close()
    assert file.read_text().count("\n") == 500 and not span_threads()


def test_without_reporters_nobody_looks() -> None:
    def view() -> Any:
        raise AssertionError("looked at")

    ended = CheckpointEnded(CheckpointId(1), SnapshotKind.CHECKPOINT, 5)
    tracing = Tracing(None)
    tracing.follow([ended, Deployed(Attempt(0), None, 6)], view)
    with pytest.raises(AssertionError, match="looked at"):
        Tracing(reporting(Broken())).follow([ended], view)

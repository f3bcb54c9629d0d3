"""A subtask whose job is stopped with a savepoint: suspended or drained, released or failed."""

import pytest

from tests.worlds.subtask import (
    PERIODIC,
    WITHOUT_CHECKPOINTS,
    Recorder,
    ScriptedSource,
    Slow,
    World,
    barrier,
    rows,
)
from tidegate.api.operator import Polled
from tidegate.errors import CheckpointAborted
from tidegate.model.control import ExecutionState
from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    Barrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    OperatorEvent,
    SnapshotKind,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.ids import CheckpointId, OperatorId
from tidegate.model.settings import JobSettings

BOTH = pytest.mark.parametrize("settings", [PERIODIC, WITHOUT_CHECKPOINTS])


def stopping(kind: SnapshotKind, checkpoint: int = 7) -> Barrier:
    options = CheckpointOptions(kind, target="/savepoints/savepoint-1")
    return Barrier(CheckpointId(checkpoint), 1_700_000_000_900, options)


def source(settings: JobSettings, log: list[str], *, tail: bool = True) -> World:
    head = ScriptedSource("source", log, ["a", Polled.NOTHING, "b", "c"])
    operators = (head, Recorder("tail", log)) if tail else (head,)
    return World(*operators, inputs=0, settings=settings).start()


@BOTH
def test_a_suspended_source_stops_at_the_barrier_and_ends_with_the_savepoint(
    settings: JobSettings,
) -> None:
    log: list[str] = []
    world = source(settings, log)
    asked = stopping(SnapshotKind.SUSPEND)
    world.subtask.trigger(asked)
    world.run()
    world.subtask.wake()
    world.run()
    assert world.sent[0] == [rows("a"), asked]
    assert [snapshot.after_finish for snapshot in world.snapshots] == [False]
    assert world.states == [ExecutionState.RUNNING]
    world.subtask.complete(CheckpointId(7), None)
    assert world.states[-1] is ExecutionState.FINISHED
    assert world.sent[0][2:] == [EndOfPartition()]
    assert log[-2:] == ["tail: complete 7", "source: complete 7"]
    assert not [line for line in log if line.endswith("finish")]


@BOTH
def test_a_drained_source_ends_event_time_and_finishes_before_the_barrier(
    settings: JobSettings,
) -> None:
    log: list[str] = []
    world = source(settings, log)
    asked = stopping(SnapshotKind.TERMINATE)
    world.subtask.trigger(asked)
    world.run()
    end = [WatermarkStatus(idle=False), Watermark(MAX_WATERMARK_MS), EndOfData()]
    assert world.sent[0] == [rows("a"), *end, asked]
    assert log.index("tail: finish") < log.index("tail: snapshot 7")
    assert [snapshot.after_finish for snapshot in world.snapshots] == [True]
    assert world.states == [ExecutionState.RUNNING]
    world.subtask.complete(CheckpointId(7), None)
    assert world.states[-1] is ExecutionState.FINISHED
    assert world.sent[0][-1] == EndOfPartition()


def test_a_source_that_has_ended_by_itself_ends_with_the_savepoint_too() -> None:
    world = World(ScriptedSource("s", [], []), inputs=0).start()
    world.subtask.trigger(stopping(SnapshotKind.TERMINATE))
    world.run()
    assert world.states == [ExecutionState.RUNNING]
    world.subtask.complete(CheckpointId(7), None)
    assert world.states[-1] is ExecutionState.FINISHED
    assert world.sent[0].count(EndOfData()) == 1


@BOTH
def test_nothing_enters_the_operators_behind_the_snapshot_of_a_stop(settings: JobSettings) -> None:
    log: list[str] = []
    world = World(Recorder("a", log), inputs=2, settings=settings).start()
    world.put(0, rows(1), stopping(SnapshotKind.SUSPEND)).run()
    world.put(1, rows(2), stopping(SnapshotKind.SUSPEND)).run()
    behind = len(log)
    world.subtask.wake()  # a timer, or something asynchronous
    world.run()
    assert log[behind:] == []
    world.put(0, EndOfPartition()).run()
    world.subtask.complete(CheckpointId(7), None)
    assert world.states[-1] is ExecutionState.RUNNING, "one of its producers has not ended"
    world.put(1, EndOfPartition()).run()
    assert log[behind:] == ["a: complete 7"]
    assert world.states[-1] is ExecutionState.FINISHED


@BOTH
def test_a_subtask_behind_drained_ones_finishes_before_the_savepoint(settings: JobSettings) -> None:
    log: list[str] = []
    world = World(Recorder("a", log), inputs=2, settings=settings).start()
    for channel in (0, 1):
        world.put(channel, Watermark(MAX_WATERMARK_MS), EndOfData())
        world.put(channel, stopping(SnapshotKind.TERMINATE)).run()
    assert log == [f"a: time {MAX_WATERMARK_MS}", "a: finish", "a: prepare 7", "a: snapshot 7"]
    for channel in (0, 1):
        world.put(channel, EndOfPartition()).run()
    assert world.states == [ExecutionState.RUNNING]
    world.subtask.complete(CheckpointId(7), None)
    assert world.states[-1] is ExecutionState.FINISHED


def test_only_the_savepoint_of_the_stop_releases_a_subtask() -> None:
    world = World(Recorder("a", [])).start()
    world.put(0, EndOfData(), barrier(5)).run()
    world.put(0, stopping(SnapshotKind.SUSPEND), EndOfPartition()).run()
    world.subtask.complete(CheckpointId(5), None)
    assert world.states[-1] is ExecutionState.RUNNING
    world.subtask.complete(CheckpointId(7), None)
    assert world.states[-1] is ExecutionState.FINISHED


def test_a_plain_savepoint_stops_nothing() -> None:
    log: list[str] = []
    world = source(PERIODIC, log, tail=False)
    world.subtask.trigger(stopping(SnapshotKind.SAVEPOINT))
    world.run()
    world.subtask.wake()
    world.run()
    assert world.sent[0][2] == rows("b", "c")


@pytest.mark.parametrize("kind", [SnapshotKind.SUSPEND, SnapshotKind.TERMINATE])
def test_a_subtask_that_has_stopped_for_a_savepoint_that_is_given_up_fails(
    kind: SnapshotKind,
) -> None:
    log: list[str] = []
    world = source(PERIODIC, log)
    world.subtask.trigger(stopping(kind))
    world.run()
    with pytest.raises(CheckpointAborted, match="Stop-with-savepoint failed"):
        world.subtask.abort(CheckpointId(7), None)
    assert world.given_up == [7] and log[-1] == "source: aborted 7"


def test_a_subtask_that_the_savepoint_has_not_reached_lives_on_when_it_is_given_up() -> None:
    log: list[str] = []
    world = World(Recorder("a", log), inputs=2).start()
    world.put(0, stopping(SnapshotKind.SUSPEND)).run()
    world.subtask.abort(CheckpointId(7), None)
    world.put(1, rows(1)).run()
    assert "a: rows [1]" in log


def test_events_of_a_coordinator_change_nothing_behind_a_stop() -> None:
    """Splits that it assigns meanwhile are in its own snapshot, and are assigned again."""
    world = source(PERIODIC, [])
    world.subtask.trigger(stopping(SnapshotKind.SUSPEND))
    world.run()
    sent = list(world.sent[0])
    world.subtask.event(OperatorId(bytes([0]) * 16), OperatorEvent("splits"))
    world.run()
    assert world.sent[0] == sent


def test_a_stop_that_was_given_up_behind_an_earlier_cut_stops_nobody() -> None:
    world = World(ScriptedSource("source", [], ["a"]), Slow("slow", []), inputs=0).start()
    world.subtask.trigger(barrier(6))
    world.subtask.trigger(stopping(SnapshotKind.SUSPEND))
    world.run()
    world.subtask.abort(CheckpointId(7), None)
    world.waits.pop()()  # type: ignore[operator]
    world.run()
    world.subtask.trigger(barrier(8))
    world.run()
    assert world.checkpoints_cut == [6, 8]
    world.subtask.complete(CheckpointId(8), None)
    assert world.states[-1] is ExecutionState.FINISHED

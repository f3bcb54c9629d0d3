"""When checkpoints are triggered, for whom, and how: checkpoint coordination §2, §3, §5."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.checkpoint.world import (
    BY_HAND,
    EVERY_SECOND,
    TOLERANT,
    WALL_MS,
    World,
    chain,
    keyed_state,
    only,
    reasons,
    restored_checkpoint,
    started,
    vertex,
)
from tests.worlds.chance import FixedChance
from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.model.control import (
    CheckpointComplete,
    ExecutionState,
    JobStatus,
    ToOperator,
    TriggerCheckpoint,
)
from tidegate.model.elements import AlignmentType, OperatorEvent, SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.files import FileChecksum
from tidegate.model.ids import CheckpointId, OperatorId
from tidegate.model.settings import CheckpointingMode, CheckpointSettings

# --- the happy path ---------------------------------------------------------------------------


@pytest.mark.feature("F064", "F067", "F068", "F079")
def test_a_checkpoint_walks_through_its_steps_in_order() -> None:
    world = started(topology=chain(vertex("source", 2, coordinator=True), vertex("sink", 1)))
    world.advance(0)
    world.acknowledge(1)
    steps = [type(command) for command in world.log]
    assert steps == [
        commands.TakeNextId,
        commands.PrepareLocation,
        commands.SnapshotCoordinator,
        commands.TriggerHooks,
        TriggerCheckpoint,
        TriggerCheckpoint,
        commands.WriteMetadata,
        commands.AddPointer,
        commands.CheckpointEnded,
        CheckpointComplete,
        CheckpointComplete,
        CheckpointComplete,
        commands.NotifyCoordinatorComplete,
    ]
    triggers = world.all(TriggerCheckpoint)
    assert [t.execution for t in triggers] == world.executions()[:2]
    assert {(t.checkpoint, t.triggered_ms) for t in triggers} == {(1, WALL_MS)}
    assert triggers[0].options.kind is SnapshotKind.CHECKPOINT


@pytest.mark.feature("F138", "F142")
def test_nothing_is_written_and_nobody_told_before_the_last_acknowledgement() -> None:
    world = started()
    world.advance(0)
    *first, last = world.topology.subtasks()
    held_back = world.acknowledge(1, *first)
    assert held_back == []
    given = world.acknowledge(1, last)
    assert len(only(given, commands.WriteMetadata)) == 1
    assert [c.execution for c in only(given, CheckpointComplete)] == world.executions()


@pytest.mark.feature("F138")
def test_nobody_is_told_before_the_pointer_stands() -> None:
    world = started(holds=[commands.AddPointer])
    world.advance(0)
    world.acknowledge(1)
    assert not world.all(CheckpointComplete)
    assert world.coordinator.statistics.counts.in_progress == 1
    assert not world.coordinator.settled
    world.release(commands.AddPointer)
    assert len(world.all(CheckpointComplete)) == 6
    assert world.coordinator.settled


@pytest.mark.feature("F218")
def test_every_subtask_up_to_the_sinks_takes_part() -> None:
    world = started(acknowledges=True)
    world.advance(0)
    final = world.coordinator.statistics.latest_completed
    assert final is not None
    assert (final.subtasks, final.acknowledged) == (6, 6)


@pytest.mark.feature("F137")
def test_states_are_kept_by_operator_and_subtask() -> None:
    world = started()
    source, other = world.subtask("source", 0), world.subtask("source", 1)
    world.states = {source: keyed_state("/chk-1/a"), other: keyed_state("/chk-1/b")}
    world.advance(0)
    world.acknowledge(1)
    (write,) = world.all(commands.WriteMetadata)
    (operator,) = write.metadata.operators
    assert operator.operator_id == source.vertex
    assert operator.subtasks == {0: world.states[source], 1: world.states[other]}


def test_what_the_format_has_no_place_for_goes_into_a_master_state() -> None:
    world = started()
    world.advance(0)
    source = world.subtask("source")
    message = world.acknowledgement(1, source)
    figures = replace(message.figures, checksums={"/chk-1/a": FileChecksum(77, 10)})
    world.send(replace(message, figures=figures))
    world.acknowledge(1)
    (write,) = world.all(commands.WriteMetadata)
    (state,) = write.metadata.master_states
    assert state.name == "tidegate"
    said = json.loads(state.payload)
    assert said.pop("crc32c") is not None
    assert said == {"checksums": {"/chk-1/a": [10, 77]}, "job": "flights"}


# --- when checkpoints are triggered -----------------------------------------------------------


@pytest.mark.feature("F055")
def test_the_first_trigger_comes_after_the_last_subtask_runs() -> None:
    world = World(EVERY_SECOND)
    world.send(events.JobStatusChanged(JobStatus.RUNNING))
    *first, last = world.topology.subtasks()
    for subtask in first:
        world.change(subtask, ExecutionState.RUNNING)
    world.advance(10_000)
    assert not world.all(commands.TakeNextId)
    world.change(last, ExecutionState.RUNNING)
    world.advance(0)
    assert [t.triggered_ms for t in world.all(TriggerCheckpoint)] == [WALL_MS + 10_000] * 2


@pytest.mark.feature("F057")
def test_the_first_delay_is_drawn_between_pause_and_interval() -> None:
    settings = replace(EVERY_SECOND, min_pause_ms=200)
    drawn = {
        started(settings, chance=FixedChance(ms)).coordinator.wake_at_ms
        for ms in range(0, 2000, 100)
    }
    assert drawn == {200, 300, 400, 500, 600, 700, 800, 900, 1_000}


@pytest.mark.feature("F044", "F058")
def test_the_cadence_does_not_drift_over_a_hundred_checkpoints() -> None:
    world = started(acknowledges=True)
    for _ in range(300):
        world.advance(337)
    times = sorted({t.triggered_ms - WALL_MS for t in world.all(TriggerCheckpoint)})
    assert times == list(range(0, 101_100, 1_000))


def test_a_long_pause_of_the_process_is_followed_by_one_checkpoint() -> None:
    world = started(acknowledges=True)
    world.advance(0)
    world.now_ms = 50_400
    world.advance(1_000)
    times = sorted({t.triggered_ms - WALL_MS for t in world.all(TriggerCheckpoint)})
    assert times == [0, 50_400, 51_000]


def test_a_checkpoint_that_is_long_under_way_is_followed_by_one_at_once() -> None:
    world = started(TOLERANT)
    world.advance(9_500)
    for checkpoint in (1, 2):
        world.decline(checkpoint, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    world.advance(400)
    assert len(world.all(commands.TakeNextId)) == 2
    world.advance(100)
    assert len(world.all(commands.TakeNextId)) == 3


@pytest.mark.feature("F056")
def test_starting_again_does_not_double_the_rate() -> None:
    world = started(acknowledges=True)
    world.send(events.JobStatusChanged(JobStatus.RUNNING))
    world.start()
    world.advance(5_000)
    assert len(world.all(commands.TakeNextId)) == 6


@pytest.mark.feature("F054")
def test_leaving_running_gives_up_what_is_pending_and_triggers_nothing() -> None:
    world = started()
    world.advance(0)
    given = world.change(world.subtask("map", 1), ExecutionState.CANCELING)
    assert reasons(given) == ["CHECKPOINT_COORDINATOR_SUSPEND"]
    assert given and not world.advance(60_000)
    world.change(world.subtask("map", 1), ExecutionState.RUNNING)
    assert len(only(world.advance(0), TriggerCheckpoint)) == 2


@pytest.mark.feature("F054")
def test_a_job_that_restarts_takes_no_checkpoint() -> None:
    world = started()
    world.advance(0)
    given = world.send(events.JobStatusChanged(JobStatus.RESTARTING))
    assert reasons(given) == ["CHECKPOINT_COORDINATOR_SUSPEND"]
    assert world.coordinator.wake_at_ms is None


def test_without_an_interval_only_requests_make_checkpoints() -> None:
    world = started(BY_HAND, acknowledges=True)
    assert world.coordinator.wake_at_ms is None
    given = world.request(7)
    assert only(given, commands.RequestDone) == [commands.RequestDone(7, CheckpointId(1), "/chk-1")]


@pytest.mark.feature("F052", "F060")
def test_the_minimal_pause_counts_from_the_last_completion() -> None:
    settings = CheckpointSettings(interval_ms=5_000, min_pause_ms=5_000)
    world = started(settings)
    world.advance(5_000)
    world.advance(3_000)
    world.acknowledge(1)
    world.advance(20_000)
    times = [t.triggered_ms - WALL_MS for t in world.all(TriggerCheckpoint)][::2]
    assert times == [5_000, 13_000]


@pytest.mark.feature("F059", "F037")
def test_never_more_than_so_many_at_a_time() -> None:
    world = started(replace(EVERY_SECOND, max_concurrent=2))
    most = 0
    for _ in range(10):
        world.advance(1_000)
        most = max(most, world.coordinator.statistics.counts.in_progress)
    assert most == 2
    history = world.coordinator.statistics.history
    assert [(c.checkpoint, c.status.value) for c in history] == [
        (2, "IN_PROGRESS"),
        (1, "IN_PROGRESS"),
    ]
    given = world.acknowledge(1)
    assert only(given, commands.PrepareLocation)[0].checkpoint == 3


@pytest.mark.feature("F066")
def test_a_checkpoint_is_in_the_history_from_its_trigger_on() -> None:
    world = started()
    world.advance(0)
    (row,) = world.coordinator.statistics.history
    assert row.status is CheckpointStatus.IN_PROGRESS
    assert (row.acknowledged, row.latest_ack_ms, row.duration_ms) == (0, -1, -1)


@pytest.mark.feature("F038")
def test_ids_ascend_from_one() -> None:
    world = started(acknowledges=True)
    world.advance(3_000)
    history = world.coordinator.statistics.history
    assert [row.checkpoint for row in history] == [4, 3, 2, 1]


def test_ids_go_on_above_what_the_job_was_restored_from() -> None:
    world = started(acknowledges=True, completed=[restored_checkpoint(57)])
    world.advance(0)
    assert world.all(commands.TakeNextId)[0].above == 57


@pytest.mark.feature("F222")
def test_during_backlog_another_interval_counts() -> None:
    world = started(replace(EVERY_SECOND, interval_during_backlog_ms=10_000), acknowledges=True)
    source = OperatorId(bytes(world.subtask("source").vertex))
    world.send(events.BacklogReported(source, backlog=True))
    world.advance(25_000)
    world.send(events.BacklogReported(source, backlog=False))
    world.advance(2_000)
    times = sorted({t.triggered_ms - WALL_MS for t in world.all(TriggerCheckpoint)})
    assert times == [0, 10_000, 20_000, 26_000, 27_000]


def test_no_checkpoint_during_backlog_where_it_is_switched_off() -> None:
    world = started(replace(EVERY_SECOND, interval_during_backlog_ms=0), acknowledges=True)
    source = OperatorId(bytes(world.subtask("source").vertex))
    world.send(events.BacklogReported(source, backlog=True))
    world.advance(60_000)
    assert not world.all(commands.TakeNextId)
    world.send(events.BacklogReported(source, backlog=False))
    world.advance(1_000)
    assert len(world.all(commands.TakeNextId)) == 1


# --- requests ---------------------------------------------------------------------------------


def test_checkpoints_can_be_asked_for() -> None:
    world = started(BY_HAND, acknowledges=True)
    world.request(1)
    world.request(2, SnapshotKind.FULL_CHECKPOINT)
    assert [done.checkpoint for done in world.all(commands.RequestDone)] == [1, 2]
    kinds = [t.options.kind for t in world.all(TriggerCheckpoint)][::2]
    assert kinds == [SnapshotKind.CHECKPOINT, SnapshotKind.FULL_CHECKPOINT]


@pytest.mark.feature("F063")
def test_a_savepoint_overtakes_waiting_checkpoints() -> None:
    world = started(BY_HAND, holds=[commands.TakeNextId])
    world.request(1)
    world.request(2)
    world.request(3, SnapshotKind.SAVEPOINT)
    world.holds = ()
    world.acknowledges = True
    world.release(commands.TakeNextId)
    done = {answer.request: answer.checkpoint for answer in world.all(commands.RequestDone)}
    assert done == {1: 1, 3: 2, 2: 3}


@pytest.mark.feature("F073")
def test_a_savepoint_does_not_wait_for_a_slow_checkpoint() -> None:
    world = started()
    world.advance(0)
    given = world.request(1, SnapshotKind.SAVEPOINT)
    assert len(only(given, TriggerCheckpoint)) == 2
    assert given[-1].options.target == "/sp/savepoint-2"


def test_a_savepoint_waits_for_a_slow_checkpoint_where_checkpoints_may_be_unaligned() -> None:
    world = started(replace(EVERY_SECOND, unaligned=True))
    world.advance(0)
    assert not world.request(1, SnapshotKind.SAVEPOINT)
    assert only(world.acknowledge(1), TriggerCheckpoint)


@pytest.mark.feature("F049")
def test_trigger_sequences_never_overlap() -> None:
    world = started(BY_HAND, holds=[commands.TakeNextId, commands.TriggerHooks])
    for number in range(100):
        world.request(number, SnapshotKind.SAVEPOINT)
    for _ in range(100):
        assert [type(held) for held in world.held] == [commands.TakeNextId]
        world.release(commands.TakeNextId)
        assert [type(held) for held in world.held] == [commands.TriggerHooks]
        world.release(commands.TriggerHooks)
    assert not world.held
    assert world.counts() == (100, 100, 0, 0)


def test_a_savepoint_without_a_folder_is_refused_with_the_option() -> None:
    world = started(BY_HAND)
    (done,) = world.request(1, SnapshotKind.SAVEPOINT, target=None)
    assert isinstance(done, commands.RequestDone)
    assert "execution.checkpointing.savepoint-dir" in str(done.error)


def test_a_savepoint_goes_to_the_configured_folder() -> None:
    world = started(replace(BY_HAND, savepoint_directory="/default"))
    given = world.request(1, SnapshotKind.SAVEPOINT, target=None)
    assert only(given, commands.PrepareLocation) == [
        commands.PrepareLocation(CheckpointId(1), savepoint=True, target=None)
    ]


def test_too_many_requests_are_refused() -> None:
    world = started(BY_HAND, holds=[commands.TakeNextId])
    world.request(0)
    for number in range(1, 1_001):
        assert not world.request(number)
    (done,) = world.request(1_001)
    assert isinstance(done, commands.RequestDone)
    assert done.request == 1_001
    assert "maximum number" in str(done.error)


def test_a_request_before_all_run_fails_and_is_counted() -> None:
    world = World(BY_HAND)
    given = world.request(1)
    assert reasons(given) == ["NOT_ALL_REQUIRED_TASKS_RUNNING"]
    assert "has not been deployed" in str(only(given, commands.RequestDone)[0].error)
    assert world.counts() == (1, 0, 0, 1)
    assert world.coordinator.statistics.history == ()


# --- gateways ---------------------------------------------------------------------------------


def test_what_a_coordinator_sends_after_its_snapshot_waits_for_the_subtask() -> None:
    topology = chain(vertex("source", 1, coordinator=True), vertex("sink", 1))
    world = started(topology=topology)
    source = world.execution(world.subtask("source"))
    operator = topology.vertices[0].operators[0].id
    world.advance(0)
    late = OperatorEvent("split 7")
    assert world.send(events.OperatorEventSent(source, operator, late)) == []
    given = world.acknowledge(1, world.subtask("source"))
    assert given == [ToOperator(source, operator, late)]


def test_a_newer_checkpoint_waits_for_what_an_older_one_holds_back() -> None:
    topology = chain(vertex("source", 1, coordinator=True), vertex("sink", 1))
    world = started(replace(EVERY_SECOND, max_concurrent=2), topology=topology)
    source = world.execution(world.subtask("source"))
    operator = topology.vertices[0].operators[0].id
    world.advance(0)
    late = OperatorEvent("split 7")
    world.send(events.OperatorEventSent(source, operator, late))
    assert not only(world.advance(1_000), TriggerCheckpoint)
    given = world.acknowledge(1, world.subtask("source"))
    assert given[0] == ToOperator(source, operator, late)
    assert isinstance(given[1], TriggerCheckpoint)
    assert given[1].checkpoint == 2


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "kind", "alignment", "timeout_ms"),
    [
        ({}, SnapshotKind.CHECKPOINT, AlignmentType.ALIGNED, None),
        ({"unaligned": True}, SnapshotKind.CHECKPOINT, AlignmentType.UNALIGNED, None),
        ({"unaligned": True}, SnapshotKind.SAVEPOINT, AlignmentType.ALIGNED, None),
        (
            {"unaligned": True, "aligned_timeout_ms": 50},
            SnapshotKind.CHECKPOINT,
            AlignmentType.ALIGNED,
            50,
        ),
        (
            {"unaligned": True, "aligned_timeout_ms": 2**63 - 1},
            SnapshotKind.CHECKPOINT,
            AlignmentType.UNALIGNED,
            None,
        ),
        (
            {"mode": CheckpointingMode.AT_LEAST_ONCE},
            SnapshotKind.CHECKPOINT,
            AlignmentType.AT_LEAST_ONCE,
            None,
        ),
    ],
)
@pytest.mark.feature("F070")
def test_the_options_of_a_trigger_follow_from_the_settings(
    settings: dict[str, object],
    kind: SnapshotKind,
    alignment: AlignmentType,
    timeout_ms: int | None,
) -> None:
    world = started(replace(BY_HAND, **settings))  # type: ignore[arg-type]
    world.request(1, kind)
    options = world.all(TriggerCheckpoint)[0].options
    assert (options.kind, options.alignment, options.aligned_timeout_ms) == (
        kind,
        alignment,
        timeout_ms,
    )
    assert (options.target is not None) == kind.is_savepoint

"""The life of checkpoints, as the specification tells it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.checkpoint.world import (
    THREE,
    WALL_MS,
    FixedChance,
    World,
    chain,
    keyed_state,
    only,
    reasons,
    restored_checkpoint,
    vertex,
)
from tidegate.checkpoint import commands, events
from tidegate.checkpoint.commands import Ignored
from tidegate.checkpoint.failures import FailureReason
from tidegate.checkpoint.statistics import CheckpointStatus
from tidegate.errors import StorageFailed, TidegateError
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointComplete,
    ExecutionState,
    JobStatus,
    ToOperator,
    TriggerCheckpoint,
)
from tidegate.model.elements import AlignmentType, OperatorEvent, SnapshotKind
from tidegate.model.handles import (
    FileStateHandle,
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
    PlaceholderStreamStateHandle,
)
from tidegate.model.ids import Attempt, CheckpointId, OperatorId
from tidegate.model.key_groups import KeyGroupRange
from tidegate.model.settings import CheckpointingMode, CheckpointSettings, RetentionPolicy
from tidegate.model.snapshots import FINISHED, CheckpointProperties, SubtaskState

EVERY_SECOND = CheckpointSettings(interval_ms=1_000)
BY_HAND = CheckpointSettings()
TOLERANT = replace(EVERY_SECOND, tolerable_failures=100)


def started(settings: CheckpointSettings = EVERY_SECOND, **more: object) -> World:
    world = World(settings, **more)  # type: ignore[arg-type]
    world.start()
    return world


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
    figures = replace(message.figures, checksums={"/chk-1/a": (77, 10)})
    world.send(replace(message, figures=figures))
    world.acknowledge(1)
    (write,) = world.all(commands.WriteMetadata)
    (state,) = write.metadata.master_states
    assert state.name == "tidegate"
    assert state.payload == b'{"checksums":{"/chk-1/a":[10,77]},"job":"flights"}'


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


@pytest.mark.feature("F058")
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


# --- acknowledgements -------------------------------------------------------------------------


@pytest.mark.feature("F149")
def test_an_acknowledgement_said_twice_counts_once_and_deletes_nothing() -> None:
    world = started()
    world.states = {world.subtask("source"): keyed_state("/chk-1/a")}
    world.advance(0)
    world.acknowledge(1, world.subtask("source"))
    given = world.acknowledge(1, world.subtask("source"))
    assert [c.why for c in only(given, commands.MessageIgnored)] == [Ignored.DUPLICATE]
    assert len(given) == 1
    assert world.coordinator.statistics.history[0].acknowledged == 1


@pytest.mark.feature("F135")
def test_the_state_of_a_foreign_attempt_is_deleted() -> None:
    world = started()
    world.states = {world.subtask("source"): keyed_state("/chk-1/zombie")}
    world.advance(0)
    message = world.acknowledgement(1, world.subtask("source"))
    foreign = message.execution._replace(attempt=Attempt(9))
    given = world.send(replace(message, execution=foreign))
    assert [c.why for c in only(given, commands.MessageIgnored)] == [Ignored.UNKNOWN_EXECUTION]
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/chk-1/zombie",))]


@pytest.mark.feature("F047", "F135")
def test_a_late_acknowledgement_is_told_from_a_bogus_one() -> None:
    world = started(replace(TOLERANT, timeout_ms=500))
    world.states = {world.subtask("source"): keyed_state("/late")}
    world.advance(600)
    given = world.acknowledge(1, world.subtask("source"))
    assert [c.why for c in only(given, commands.MessageIgnored)] == [Ignored.LATE]
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/late",))]
    world.advance(16_000)
    given = world.acknowledge(1, world.subtask("source"))
    assert [c.why for c in only(given, commands.MessageIgnored)] == [Ignored.UNKNOWN_CHECKPOINT]


def test_an_acknowledgement_repeated_after_completion_deletes_nothing() -> None:
    world = started()
    world.states = {world.subtask("source"): keyed_state("/chk-1/a")}
    world.advance(0)
    world.acknowledge(1)
    given = world.acknowledge(1, world.subtask("source"))
    assert [type(command) for command in given] == [commands.MessageIgnored]


# --- declines, expiry, aborts -----------------------------------------------------------------


@pytest.mark.feature("F116")
def test_a_decline_gives_the_checkpoint_up_with_its_reason() -> None:
    world = started(TOLERANT)
    world.advance(0)
    given = world.decline(
        1, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED, "snapshot_state raised"
    )
    assert reasons(given) == ["CHECKPOINT_DECLINED"]
    (row,) = world.coordinator.statistics.history
    assert (row.status, row.failure) == (
        CheckpointStatus.FAILED,
        "Checkpoint was declined. snapshot_state raised",
    )


def test_a_decline_of_a_foreign_attempt_changes_nothing() -> None:
    world = started()
    world.advance(0)
    world.attempts[world.subtask("map")] = 4
    (ignored,) = world.decline(1, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    assert isinstance(ignored, commands.MessageIgnored)
    assert ignored.why is Ignored.UNKNOWN_EXECUTION
    assert world.counts() == (1, 1, 0, 0)


def test_a_decline_of_an_unknown_checkpoint_changes_nothing() -> None:
    world = started()
    (ignored,) = world.decline(9, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    assert isinstance(ignored, commands.MessageIgnored)
    assert ignored.why is Ignored.UNKNOWN_CHECKPOINT


def test_a_decline_after_the_last_acknowledgement_changes_nothing() -> None:
    world = started(holds=[commands.WriteMetadata])
    world.advance(0)
    world.acknowledge(1)
    (ignored,) = world.decline(1, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    assert isinstance(ignored, commands.MessageIgnored)
    assert ignored.why is Ignored.DUPLICATE


@pytest.mark.feature("F034", "F146")
def test_a_slow_checkpoint_expires_and_subtasks_are_told() -> None:
    world = started(replace(TOLERANT, timeout_ms=300))
    world.states = {world.subtask("source"): keyed_state("/chk-1/a")}
    world.advance(100)
    world.acknowledge(1, world.subtask("source"))
    given = world.advance(200)
    assert reasons(given) == ["CHECKPOINT_EXPIRED"]
    (row,) = world.coordinator.statistics.history
    assert row.failure == "Checkpoint expired before completing."
    assert (row.duration_ms, row.failed_ms) == (300, WALL_MS + 300)
    assert [c.execution for c in only(given, CheckpointAborted)] == world.executions()
    assert only(given, commands.DiscardCheckpoint) == [
        commands.DiscardCheckpoint(CheckpointId(1), "/chk-1", ("/chk-1/a",))
    ]


def test_time_counts_up_to_the_last_acknowledgement_only() -> None:
    world = started(replace(EVERY_SECOND, timeout_ms=300), holds=[commands.WriteMetadata])
    world.advance(0)
    world.acknowledge(1)
    assert reasons(world.advance(900)) == []
    assert reasons(world.release(commands.WriteMetadata)) == [None]


def test_an_abort_carries_the_latest_completed_checkpoint() -> None:
    world = started(replace(TOLERANT, timeout_ms=300))
    world.advance(0)
    world.acknowledge(1)
    given = world.advance(1_400)
    assert {(c.checkpoint, c.latest_completed) for c in only(given, CheckpointAborted)} == {(2, 1)}


@pytest.mark.parametrize(
    ("held", "failure", "reason"),
    [
        (commands.PrepareLocation, events.LocationFailed, "IO_EXCEPTION"),
        (commands.SnapshotCoordinator, None, "IO_EXCEPTION"),
        (commands.TriggerHooks, events.HookFailed, "IO_EXCEPTION"),
        (commands.WriteMetadata, events.MetadataFailed, "FINALIZE_CHECKPOINT_FAILURE"),
        (commands.AddPointer, events.PointerFailed, "FINALIZE_CHECKPOINT_FAILURE"),
    ],
)
@pytest.mark.feature("F139")
def test_a_step_that_fails_gives_the_checkpoint_up(
    held: type, failure: type | None, reason: str
) -> None:
    topology = chain(vertex("source", 1, coordinator=True), vertex("sink", 1))
    world = started(TOLERANT, topology=topology, holds=[held], acknowledges=True)
    world.advance(0)
    error = StorageFailed("the disk is full")
    one = CheckpointId(1)
    event = (
        events.CoordinatorSnapshotFailed(one, topology.vertices[0].operators[0].id, error)
        if failure is None
        else failure(one, error)
    )
    given = world.release(held, error=event)
    assert reasons(given) == [reason]
    assert world.counts() == (1, 0, 0, 1)
    assert world.coordinator.statistics.history[0].failure == (
        f"{FailureReason[reason].message} the disk is full"
    )
    assert not world.all(CheckpointComplete)
    world.holds = ()
    world.advance(1_000)
    assert world.counts() == (2, 0, 1, 1)


def test_an_id_that_cannot_be_taken_fails_the_trigger_alone() -> None:
    world = started(TOLERANT, holds=[commands.TakeNextId])
    world.advance(0)
    error = TidegateError("no leader")
    given = world.release(commands.TakeNextId, error=events.NextIdFailed(1, error))
    assert reasons(given) == ["TRIGGER_CHECKPOINT_FAILURE"]
    assert world.counts() == (1, 0, 0, 1)
    assert world.coordinator.statistics.history == ()


def test_a_trigger_that_cannot_be_sent_gives_the_checkpoint_up() -> None:
    world = started(TOLERANT)
    world.advance(0)
    source = world.execution(world.subtask("source"))
    given = world.send(events.TriggerFailed(CheckpointId(1), source, TidegateError("gone")))
    assert reasons(given) == ["TRIGGER_CHECKPOINT_FAILURE"]


def test_a_subtask_that_fails_gives_up_what_it_has_not_acknowledged() -> None:
    world = started(replace(TOLERANT, max_concurrent=2))
    world.advance(1_000)
    world.acknowledge(1, world.subtask("map"))
    given = world.change(world.subtask("map"), ExecutionState.FAILED)
    assert reasons(given) == ["TASK_FAILURE", "CHECKPOINT_COORDINATOR_SUSPEND"]


def test_a_subtask_that_ends_without_acknowledging_gives_the_checkpoint_up_at_once() -> None:
    world = started()
    world.advance(0)
    given = world.change(world.subtask("source"), ExecutionState.FINISHED)
    assert reasons(given) == ["CHECKPOINT_DECLINED_TASK_CLOSING"]
    assert not only(given, commands.FailJob)


def test_a_folder_made_too_late_is_deleted() -> None:
    world = started(replace(TOLERANT, timeout_ms=300), holds=[commands.PrepareLocation])
    given = world.advance(300)
    assert reasons(given) == ["CHECKPOINT_EXPIRED"]
    assert not only(given, commands.DiscardCheckpoint)
    assert world.release(commands.PrepareLocation) == [
        commands.DiscardCheckpoint(CheckpointId(1), "/chk-1", ())
    ]


def test_a_folder_that_is_refused_too_late_needs_no_deletion() -> None:
    world = started(replace(TOLERANT, timeout_ms=300), holds=[commands.PrepareLocation])
    world.advance(300)
    failed = events.LocationFailed(CheckpointId(1), StorageFailed("full"))
    assert world.release(commands.PrepareLocation, error=failed) == []


def test_answers_for_a_checkpoint_that_was_given_up_change_nothing() -> None:
    topology = chain(vertex("source", 1, coordinator=True), vertex("sink", 1))
    world = started(
        replace(TOLERANT, timeout_ms=300), topology=topology, holds=[commands.SnapshotCoordinator]
    )
    world.advance(300)
    assert world.release(commands.SnapshotCoordinator) == []


def test_metadata_written_for_a_checkpoint_that_was_given_up_is_deleted() -> None:
    world = started(holds=[commands.WriteMetadata])
    world.states = {world.subtask("source"): keyed_state("/chk-1/a")}
    world.advance(0)
    world.acknowledge(1)
    given = world.send(events.FailoverStarted())
    assert reasons(given) == ["JOB_FAILOVER_REGION"]
    assert not only(given, commands.DiscardCheckpoint)
    assert world.release(commands.WriteMetadata) == [
        commands.DiscardCheckpoint(CheckpointId(1), "/chk-1", ("/chk-1/a",))
    ]


def test_an_unknown_outcome_deletes_nothing_and_tells_nobody() -> None:
    world = started(TOLERANT, holds=[commands.AddPointer])
    world.states = {world.subtask("source"): keyed_state("/chk-1/a")}
    world.advance(0)
    world.acknowledge(1)
    error = TidegateError("no answer")
    unknown = events.PointerFailed(CheckpointId(1), error, outcome_unknown=True)
    given = world.release(commands.AddPointer, error=unknown)
    assert [type(command) for command in given] == [commands.CheckpointEnded]
    again = world.acknowledge(1, world.subtask("source"))
    assert not only(again, commands.DeleteFiles)


# --- failures that count ----------------------------------------------------------------------


@pytest.mark.feature("F043", "F220")
def test_two_failures_are_borne_and_the_third_restarts() -> None:
    world = started(replace(EVERY_SECOND, tolerable_failures=2))
    mapper = world.subtask("map")
    for checkpoint in (1, 2):
        world.advance(1_000)
        given = world.decline(checkpoint, mapper, FailureReason.CHECKPOINT_DECLINED)
        assert not only(given, commands.FailExecution)
    world.advance(1_000)
    given = world.decline(3, mapper, FailureReason.CHECKPOINT_DECLINED)
    (failed,) = only(given, commands.FailExecution)
    assert failed.execution == world.execution(mapper)


@pytest.mark.feature("F043")
def test_a_success_in_between_forgives() -> None:
    world = started(replace(EVERY_SECOND, tolerable_failures=1))
    mapper = world.subtask("map")
    for checkpoint in range(1, 9):
        world.advance(1_000)
        if checkpoint % 2:
            world.decline(checkpoint, mapper, FailureReason.CHECKPOINT_DECLINED)
        else:
            world.acknowledge(checkpoint)
    assert not world.all(commands.FailExecution)


@pytest.mark.feature("F220")
def test_an_expiry_over_the_limit_restarts_the_whole_job() -> None:
    world = started(replace(EVERY_SECOND, timeout_ms=300))
    given = world.advance(300)
    (failed,) = only(given, commands.FailJob)
    assert "Exceeded checkpoint tolerable failure threshold" in str(failed.error)


# --- completion: subsumed, retained, overtaken ------------------------------------------------


@pytest.mark.feature("F040")
def test_the_newest_are_kept_and_the_rest_deleted() -> None:
    world = started(replace(EVERY_SECOND, retained_max=3), acknowledges=True)
    world.states = {world.subtask("source"): keyed_state("/a")}
    world.advance(5_000)
    assert world.pointers == [4, 5, 6]
    deleted = [c.checkpoint for c in world.all(commands.DiscardCheckpoint)]
    assert deleted == [1, 2, 3]
    told = {c.checkpoint: c.subsumed for c in world.all(CheckpointComplete)}
    assert told == {1: None, 2: None, 3: None, 4: 1, 5: 2, 6: 3}
    rows = {row.checkpoint: row.discarded for row in world.coordinator.statistics.history}
    assert rows == {1: True, 2: True, 3: True, 4: False, 5: False, 6: False}


def test_a_newer_checkpoint_gives_up_the_older_ones_that_wait() -> None:
    world = started(replace(EVERY_SECOND, max_concurrent=3))
    world.advance(2_000)
    world.request(1, SnapshotKind.SAVEPOINT)
    given = world.acknowledge(3)
    assert reasons(given) == [None, "CHECKPOINT_SUBSUMED", "CHECKPOINT_SUBSUMED"]
    assert world.counts()[1] == 1  # the savepoint goes on


def test_checkpoints_are_finished_one_at_a_time() -> None:
    world = started(replace(EVERY_SECOND, max_concurrent=2), holds=[commands.WriteMetadata])
    world.advance(1_000)
    world.acknowledge(1)
    assert not world.acknowledge(2)
    given = world.release(commands.WriteMetadata)
    assert given[0] == commands.AddPointer(CheckpointId(1), "/chk-1", (CheckpointId(1),))
    assert [c.checkpoint for c in only(given, commands.WriteMetadata)] == [2]


def test_one_that_waits_to_be_finished_can_be_subsumed() -> None:
    world = started(replace(EVERY_SECOND, max_concurrent=2), holds=[commands.WriteMetadata])
    world.advance(1_000)
    world.acknowledge(2)
    world.acknowledge(1)
    assert reasons(world.release(commands.WriteMetadata)) == [None, "CHECKPOINT_SUBSUMED"]


@pytest.mark.feature("F145")
def test_a_subtask_that_is_being_redeployed_is_not_told() -> None:
    world = started(holds=[commands.AddPointer])
    world.advance(0)
    world.acknowledge(1)
    mapper = world.subtask("map")
    world.change(mapper, ExecutionState.FAILED)
    world.attempts[mapper] += 1
    world.change(mapper, ExecutionState.DEPLOYING)
    given = world.release(commands.AddPointer)
    told = [c.execution.subtask for c in only(given, CheckpointComplete)]
    assert told == [s for s in world.topology.subtasks() if s != mapper]


@pytest.mark.feature("F071")
def test_a_savepoint_tells_nobody_and_is_not_kept() -> None:
    world = started(acknowledges=True)
    world.advance(0)
    given = world.request(5, SnapshotKind.SAVEPOINT)
    assert not only(given, CheckpointComplete)
    assert not only(given, commands.AddPointer)
    assert only(given, commands.RequestDone)[0].pointer == "/sp/savepoint-2"
    latest = world.coordinator.latest_completed()
    assert latest is not None
    assert latest.checkpoint == 1


@pytest.mark.feature("F071")
@pytest.mark.parametrize("kind", [SnapshotKind.SUSPEND, SnapshotKind.TERMINATE])
def test_the_savepoint_of_a_stop_stands_before_anybody_is_told(kind: SnapshotKind) -> None:
    world = started(holds=[commands.AddPointer])
    world.advance(0)
    given = world.request(5, kind)
    assert reasons(given) == ["CHECKPOINT_COORDINATOR_SUSPEND"]
    world.acknowledge(2)
    assert not world.all(CheckpointComplete)
    given = world.release(commands.AddPointer)
    assert len(only(given, CheckpointComplete)) == 6
    latest = world.coordinator.latest_completed()
    assert latest is not None
    assert latest.is_savepoint
    assert not world.advance(60_000)  # nothing is triggered any more


def test_after_a_failed_stop_checkpoints_go_on() -> None:
    world = started(replace(TOLERANT, timeout_ms=300), acknowledges=False)
    world.request(5, SnapshotKind.SUSPEND)
    given = world.advance(300)
    assert reasons(given)[0] == "CHECKPOINT_EXPIRED"
    assert only(given, TriggerCheckpoint)


def test_while_a_job_stops_nothing_else_is_taken() -> None:
    world = started()
    world.request(5, SnapshotKind.SUSPEND)
    (done,) = world.request(6)
    assert isinstance(done, commands.RequestDone)
    assert "suspending" in str(done.error)


def test_a_request_whose_id_was_being_taken_gives_way_to_a_stop() -> None:
    world = started(BY_HAND, holds=[commands.TakeNextId])
    world.request(1)
    world.request(2, SnapshotKind.SUSPEND)
    given = world.release(commands.TakeNextId)
    assert reasons(given) == ["CHECKPOINT_COORDINATOR_SUSPEND"]
    world.release(commands.TakeNextId)
    assert world.counts() == (2, 1, 0, 1)


def test_a_declined_savepoint_of_a_stop_restarts_the_job_whatever_is_tolerated() -> None:
    world = started(TOLERANT)
    world.request(5, SnapshotKind.SUSPEND)
    given = world.decline(1, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING)
    assert len(only(given, commands.FailJob)) == 1


# --- failover and restore ---------------------------------------------------------------------


def test_nothing_is_triggered_from_a_failure_until_the_restore() -> None:
    world = started(BY_HAND)
    world.send(events.FailoverStarted())
    given = world.request(1)
    assert reasons(given) == ["JOB_FAILOVER_REGION"]
    world.send(events.Restored(None, WALL_MS))
    assert only(world.request(2), TriggerCheckpoint)


def test_a_pointer_that_is_being_added_is_not_given_up_by_a_failure() -> None:
    world = started(holds=[commands.AddPointer])
    world.advance(0)
    world.acknowledge(1)
    assert reasons(world.send(events.FailoverStarted())) == []
    assert not world.coordinator.settled
    with pytest.raises(AssertionError, match="not known"):
        world.coordinator.latest_completed()
    world.release(commands.AddPointer)
    latest = world.coordinator.latest_completed()
    assert latest is not None
    assert latest.checkpoint == 1


def test_an_id_taken_across_a_restart_makes_no_checkpoint_of_the_old_attempts() -> None:
    world = started(holds=[commands.TakeNextId])
    world.advance(0)
    world.send(events.FailoverStarted())
    given = world.release(commands.TakeNextId)
    assert reasons(given) == ["PERIODIC_SCHEDULER_SHUTDOWN"]


@pytest.mark.feature("F203", "F209")
def test_the_newest_is_restored_and_counted() -> None:
    world = started(acknowledges=True)
    world.advance(2_000)
    world.now_ms = 5_000
    world.send(events.FailoverStarted())
    world.redeploy()
    statistics = world.coordinator.statistics
    assert statistics.counts.restored == 1
    assert statistics.latest_restored is not None
    assert statistics.latest_restored.checkpoint == 3
    assert statistics.latest_restored.restored_ms == WALL_MS + 5_000
    world.advance(1_000)
    assert world.all(TriggerCheckpoint)[-1].execution.attempt == 1


@pytest.mark.feature("F205")
def test_without_a_checkpoint_the_job_starts_empty() -> None:
    world = started(BY_HAND)
    world.send(events.FailoverStarted())
    assert world.coordinator.latest_completed() is None
    world.redeploy()
    assert world.coordinator.statistics.counts.restored == 0


def test_the_first_checkpoint_after_an_unclaimed_restore_is_full() -> None:
    unclaimed = restored_checkpoint(7, CheckpointProperties.for_unclaimed_snapshot())
    world = World(EVERY_SECOND, completed=[unclaimed], acknowledges=True)
    world.send(events.Restored(CheckpointId(7), WALL_MS))
    world.start()
    world.advance(1_000)
    kinds = [t.options.kind for t in world.all(TriggerCheckpoint)][::2]
    assert kinds == [SnapshotKind.FULL_CHECKPOINT, SnapshotKind.CHECKPOINT]
    assert [c.checkpoint for c in world.all(commands.DiscardCheckpoint)] == [8]


def test_a_claimed_checkpoint_is_deleted_once_it_is_subsumed() -> None:
    world = World(EVERY_SECOND, completed=[restored_checkpoint(7)], acknowledges=True)
    world.send(events.Restored(CheckpointId(7), WALL_MS))
    world.start()
    world.advance(0)
    assert world.all(TriggerCheckpoint)[0].options.kind is SnapshotKind.CHECKPOINT
    assert world.all(commands.DiscardCheckpoint) == [
        commands.DiscardCheckpoint(CheckpointId(7), "/old-7", ())
    ]


# --- shared files -----------------------------------------------------------------------------


def incremental(checkpoint: int, *names: str, old: tuple[str, ...] = ()) -> SubtaskState:
    shared = [HandleAndLocalPath(n, FileStateHandle(f"/shared/{n}", 5)) for n in names]
    shared += [HandleAndLocalPath(n, PlaceholderStreamStateHandle(f"/shared/{n}", 5)) for n in old]
    meta = FileStateHandle(f"/chk-{checkpoint}/meta", 1)
    return SubtaskState(
        managed_keyed=IncrementalRemoteKeyedStateHandle(
            checkpoint,
            "backend",
            KeyGroupRange(0, 127),
            5,
            meta,
            tuple(shared),
            (),
            f"h{checkpoint}",
        )
    )


def test_shared_files_live_as_long_as_a_kept_checkpoint_uses_them() -> None:
    world = started()
    source = world.subtask("source")
    for checkpoint, state in enumerate(
        [
            incremental(1, "a", "b"),
            incremental(2, "c", old=("a",)),
            incremental(3, "d", old=("c",)),
        ],
        start=1,
    ):
        world.states = {source: state}
        world.advance(1_000)
        given = world.acknowledge(checkpoint)
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/shared/a",))]
    deleted = [path for c in world.all(commands.DeleteFiles) for path in c.files]
    assert deleted == ["/shared/b", "/shared/a"]
    (state,) = world.all(commands.WriteMetadata)[-1].metadata.operators[0].subtasks.values()
    assert state == incremental(3, "d", "c")


def test_shared_files_of_a_late_acknowledgement_wait_for_the_next_completion() -> None:
    world = started(replace(TOLERANT, timeout_ms=300))
    source = world.subtask("source")
    world.advance(300)
    world.states = {source: incremental(1, "a")}
    given = world.acknowledge(1, source)
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/chk-1/meta",))]
    world.states = {}
    world.advance(700)
    given = world.acknowledge(2)
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/shared/a",))]


def test_a_reference_to_a_file_that_nobody_has_gives_the_checkpoint_up() -> None:
    world = started(TOLERANT)
    world.advance(0)
    world.states = {world.subtask("source"): incremental(1, old=("lost",))}
    given = world.acknowledge(1, world.subtask("source"))
    assert reasons(given) == ["CHECKPOINT_ASYNC_EXCEPTION"]
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/chk-1/meta",))]


def test_a_late_reference_to_a_file_that_is_gone_does_not_keep_the_rest() -> None:
    world = started(replace(TOLERANT, timeout_ms=300))
    world.advance(300)
    world.states = {world.subtask("source"): incremental(1, "a", old=("gone",))}
    given = world.acknowledge(1, world.subtask("source"))
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/chk-1/meta",))]
    given = world.send(events.JobEnded(JobStatus.CANCELED))
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/shared/a",))]


def test_after_the_end_what_comes_late_is_deleted_at_once() -> None:
    world = started(replace(EVERY_SECOND, retention=RetentionPolicy.RETAIN_ON_CANCELLATION))
    world.states = {world.subtask("source"): incremental(1, "a")}
    world.advance(0)
    world.acknowledge(1)
    world.advance(1_000)
    world.send(events.JobEnded(JobStatus.CANCELED))
    world.states = {world.subtask("source"): incremental(2, "b", old=("a",))}
    given = world.acknowledge(2, world.subtask("source"))
    assert only(given, commands.DeleteFiles) == [
        commands.DeleteFiles(("/chk-2/meta",)),
        commands.DeleteFiles(("/shared/b",)),
    ]


def test_all_files_of_a_given_up_savepoint_are_its_own() -> None:
    world = started(replace(BY_HAND, timeout_ms=300))
    world.request(1, SnapshotKind.SAVEPOINT)
    world.advance(300)
    world.states = {world.subtask("source"): incremental(1, "a")}
    given = world.acknowledge(1, world.subtask("source"))
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/chk-1/meta", "/shared/a"))]
    assert len(world.registry) == 0


# --- finished subtasks ------------------------------------------------------------------------


@pytest.mark.feature("F228")
def test_checkpoints_go_on_when_a_source_has_finished() -> None:
    world = started()
    source = world.subtask("source")
    world.change(source, ExecutionState.FINISHED)
    world.advance(0)
    assert [t.execution for t in world.all(TriggerCheckpoint)] == [
        world.execution(world.subtask("source", 1))
    ]
    others = [s for s in world.topology.subtasks() if s != source]
    assert reasons(world.acknowledge(1, *others)) == [None]
    (write,) = world.all(commands.WriteMetadata)
    assert write.metadata.operators[0].subtasks == {0: FINISHED}


def test_a_vertex_that_has_finished_is_written_as_finished() -> None:
    world = started()
    for index in range(2):
        world.change(world.subtask("source", index), ExecutionState.FINISHED)
    world.advance(0)
    assert [t.execution.subtask for t in world.all(TriggerCheckpoint)] == [
        world.subtask("map", index) for index in range(3)
    ]
    world.acknowledge(1, *(s for s in world.topology.subtasks() if s.vertex != source_id()))
    (write,) = world.all(commands.WriteMetadata)
    (state,) = write.metadata.operators
    assert state.fully_finished


def source_id() -> bytes:
    return bytes(THREE.vertices[0].id)


def test_without_checkpoints_after_finish_a_finished_subtask_ends_them() -> None:
    world = started(replace(EVERY_SECOND, after_tasks_finish=False))
    world.change(world.subtask("source"), ExecutionState.FINISHED)
    assert reasons(world.advance(0)) == ["NOT_ALL_REQUIRED_TASKS_RUNNING"]


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


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "status", "kept"),
    [
        (RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.FINISHED, False),
        (RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.CANCELED, False),
        (RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, JobStatus.FAILED, False),
        (RetentionPolicy.DELETE_ON_CANCELLATION, JobStatus.FINISHED, False),
        (RetentionPolicy.DELETE_ON_CANCELLATION, JobStatus.CANCELED, False),
        (RetentionPolicy.DELETE_ON_CANCELLATION, JobStatus.FAILED, True),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, JobStatus.FINISHED, False),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, JobStatus.CANCELED, True),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, JobStatus.FAILED, True),
    ],
)
@pytest.mark.feature("F050")
def test_what_outlives_the_job(policy: RetentionPolicy, status: JobStatus, kept: bool) -> None:
    world = started(replace(EVERY_SECOND, retention=policy), acknowledges=True)
    world.advance(0)
    given = world.send(events.JobEnded(status))
    assert given[0] == commands.ForgetPointers(status, (CheckpointId(1),) if kept else ())
    assert bool(only(given, commands.DiscardCheckpoint)) != kept
    assert world.coordinator.ended


def test_a_suspended_job_keeps_its_pointers_and_so_its_files() -> None:
    world = started(acknowledges=True)
    world.advance(0)
    assert world.send(events.JobEnded(JobStatus.SUSPENDED)) == []
    assert world.coordinator.ended


def test_the_end_gives_up_all_that_is_under_way() -> None:
    world = started(replace(EVERY_SECOND, max_concurrent=2))
    world.request(1)
    world.request(2)
    world.request(3)
    given = world.send(events.JobEnded(JobStatus.CANCELED))
    assert [type(done.error).__name__ for done in only(given, commands.RequestDone)] == [
        "CheckpointAborted"
    ] * 3
    assert reasons(given) == ["CHECKPOINT_COORDINATOR_SHUTDOWN"] * 2
    assert world.send(events.JobEnded(JobStatus.CANCELED)) == []
    (late,) = world.request(9)
    assert isinstance(late, commands.RequestDone)
    assert "shutdown" in str(late.error)


def test_the_end_gives_up_a_trigger_without_an_id() -> None:
    world = started(BY_HAND, holds=[commands.TakeNextId])
    world.request(1)
    given = world.send(events.JobEnded(JobStatus.CANCELED))
    assert reasons(given) == ["CHECKPOINT_COORDINATOR_SHUTDOWN"]
    assert world.release(commands.TakeNextId) == []


def test_the_end_waits_for_the_pointer_that_is_being_added() -> None:
    world = started(
        replace(EVERY_SECOND, retention=RetentionPolicy.RETAIN_ON_CANCELLATION),
        holds=[commands.AddPointer],
    )
    world.advance(0)
    world.acknowledge(1)
    assert world.send(events.JobEnded(JobStatus.CANCELED)) == []
    assert not world.coordinator.ended
    given = world.release(commands.AddPointer)
    assert given[-1] == commands.ForgetPointers(JobStatus.CANCELED, (CheckpointId(1),))
    assert world.coordinator.ended


def test_a_pointer_that_fails_after_the_end_restarts_nothing() -> None:
    world = started(holds=[commands.AddPointer])
    world.advance(0)
    world.acknowledge(1)
    world.send(events.JobEnded(JobStatus.FINISHED))
    failed = events.PointerFailed(CheckpointId(1), StorageFailed("full"))
    given = world.release(commands.AddPointer, error=failed)
    assert reasons(given) == ["FINALIZE_CHECKPOINT_FAILURE"]
    assert not only(given, commands.FailJob)
    assert world.coordinator.ended


def test_pointers_that_could_not_be_forgotten_keep_their_files() -> None:
    world = started(acknowledges=True, holds=[commands.ForgetPointers])
    world.advance(0)
    world.send(events.JobEnded(JobStatus.FINISHED))
    failed = events.PointersNotForgotten(StorageFailed("full"))
    assert world.release(commands.ForgetPointers, error=failed) == []
    assert world.coordinator.ended


def test_the_end_waits_for_what_is_being_deleted() -> None:
    world = started(acknowledges=True, holds=[commands.DiscardCheckpoint])
    world.advance(0)
    world.send(events.JobEnded(JobStatus.FINISHED))
    assert not world.coordinator.ended
    world.release(commands.DiscardCheckpoint)
    assert world.coordinator.ended


@pytest.mark.feature("F224")
def test_slow_deletion_holds_new_checkpoints_back() -> None:
    world = started(acknowledges=True, holds=[commands.DiscardCheckpoint])
    world.advance(2_000)  # 1 and 2 are being deleted: more than may be pending
    assert len(world.held) == 2
    assert not world.advance(5_000)
    given = world.release(commands.DiscardCheckpoint)
    assert only(given, TriggerCheckpoint)

"""Acknowledgements, declines, expiry and what follows: checkpoint coordination §6, §8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkformat.snapshots import FINISHED
from tests.checkpoint.world import (
    EVERY_SECOND,
    THREE,
    TOLERANT,
    WALL_MS,
    chain,
    keyed_state,
    only,
    reasons,
    started,
    vertex,
)
from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.commands import Ignored
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.errors import LeadershipLost, StorageFailed, TidegateError
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointComplete,
    ExecutionState,
    JobStatus,
    TriggerCheckpoint,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Attempt, CheckpointId

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


def test_time_counts_anew_while_metadata_is_written() -> None:
    world = started(replace(TOLERANT, timeout_ms=300), holds=[commands.WriteMetadata])
    world.advance(200)
    world.acknowledge(1)
    assert world.advance(299) == []
    assert reasons(world.advance(1)) == ["CHECKPOINT_EXPIRED"]
    written = world.release(commands.WriteMetadata)
    assert written == [commands.DiscardCheckpoint(CheckpointId(1), "/chk-1", ())]


@pytest.mark.feature("F224")
def test_a_store_that_hangs_holds_new_checkpoints_back_until_it_answers() -> None:
    world = started(replace(TOLERANT, timeout_ms=300), holds=[commands.WriteMetadata])
    for checkpoint, wait_ms in ((1, 0), (2, 700)):
        world.advance(wait_ms)
        world.acknowledge(checkpoint)
        assert reasons(world.advance(300)) == ["CHECKPOINT_EXPIRED"]
    assert not only(world.advance(5_000), TriggerCheckpoint)
    assert only(world.release(commands.WriteMetadata), TriggerCheckpoint)


def test_a_pointer_that_is_being_added_does_not_expire() -> None:
    world = started(replace(EVERY_SECOND, timeout_ms=300), holds=[commands.AddPointer])
    world.advance(0)
    world.acknowledge(1)
    assert reasons(world.advance(900)) == []
    assert reasons(world.release(commands.AddPointer)) == [None]


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


UNKNOWN = events.PointerFailed(CheckpointId(1), TidegateError("?"), outcome_unknown=True)


def test_an_unknown_outcome_deletes_nothing_and_tells_nobody() -> None:
    world = started(TOLERANT, holds=[commands.AddPointer])
    world.states = {world.subtask("source"): keyed_state("/chk-1/a")}
    world.advance(0)
    world.acknowledge(1)
    assert world.release(commands.AddPointer, error=UNKNOWN) == []
    given = world.send(events.JobEnded(JobStatus.CANCELED))
    assert [type(each) for each in given] == [commands.CheckpointEnded, commands.ForgetPointers]
    again = world.acknowledge(1, world.subtask("source"))
    assert not only(again, commands.DeleteFiles)


@pytest.mark.parametrize(
    ("status", "kept"), [(JobStatus.SUSPENDED, (1,)), (JobStatus.FINISHED, ())]
)
@pytest.mark.parametrize("asked_again", [False, True])
def test_a_pointer_in_doubt_outlives_the_job_as_others_do(
    status: JobStatus, kept: tuple[int, ...], *, asked_again: bool
) -> None:
    world = started(TOLERANT, holds=[commands.AddPointer])
    world.advance(0)
    world.acknowledge(1)
    world.release(commands.AddPointer, error=UNKNOWN)
    if asked_again:
        world.advance(1_000)
    given = world.send(events.JobEnded(status))
    if asked_again:
        given = world.release(commands.AddPointer, error=UNKNOWN)
    assert given[-1] == commands.ForgetPointers(status, tuple(map(CheckpointId, kept)))


def test_a_pointer_of_unknown_outcome_is_added_again_until_it_is_known() -> None:
    world = started(holds=[commands.AddPointer])
    world.advance(0)
    world.acknowledge(1)
    for wait_ms in (1_000, 2_000, 4_000, 8_000, 10_000, 10_000):
        assert world.release(commands.AddPointer, error=UNKNOWN) == []
        assert world.advance(wait_ms - 1) == [] and not world.coordinator.settled
        (again,) = world.advance(1)
        assert again == commands.AddPointer(CheckpointId(1), "/chk-1", (CheckpointId(1),))
    assert reasons(world.release(commands.AddPointer)) == [None]
    assert world.coordinator.settled
    latest = world.coordinator.latest_completed()
    assert latest is not None and latest.checkpoint == 1


def test_a_refusal_behind_an_unknown_outcome_deletes_nothing() -> None:
    """The first try may have succeeded, and another leader may have restored from it since."""
    world = started(TOLERANT, holds=[commands.AddPointer])
    world.states = {world.subtask("source"): keyed_state("/chk-1/a")}
    world.advance(0)
    world.acknowledge(1)
    world.release(commands.AddPointer, error=UNKNOWN)
    world.advance(1_000)
    refused = events.PointerFailed(CheckpointId(1), LeadershipLost("another one leads"))
    given = world.release(commands.AddPointer, error=refused)
    assert reasons(given) == ["FINALIZE_CHECKPOINT_FAILURE"]
    assert not only(given, commands.DiscardCheckpoint)
    assert world.coordinator.settled


def test_a_job_that_ends_adds_no_pointer_again() -> None:
    world = started(holds=[commands.AddPointer])
    world.advance(0)
    world.acknowledge(1)
    world.send(events.JobEnded(JobStatus.CANCELED))
    given = world.release(commands.AddPointer, error=UNKNOWN)
    assert [type(each) for each in given] == [commands.CheckpointEnded, commands.ForgetPointers]
    assert world.coordinator.ended and world.coordinator.wake_at_ms is None


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

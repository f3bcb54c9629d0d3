"""Completion, restore and the end of the job: checkpoint coordination §7, §9, §10, §17."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from flinkformat.handles import (
    FileStateHandle,
    HandleAndLocalPath,
    IncrementalRemoteKeyedStateHandle,
    PlaceholderStreamStateHandle,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import CheckpointProperties, OperatorState, RetentionPolicy, SubtaskState
from tests.checkpoint.world import (
    BY_HAND,
    EVERY_SECOND,
    TOLERANT,
    WALL_MS,
    World,
    keyed_state,
    only,
    reasons,
    restored_checkpoint,
    started,
)
from tests.house.source import ROOT
from tidegate.checkpoint.coordinator import commands, events
from tidegate.errors import StorageFailed
from tidegate.model.control import (
    CheckpointAborted,
    CheckpointComplete,
    ExecutionState,
    JobStatus,
    TriggerCheckpoint,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId, OperatorId

# --- completion: subsumed, retained, overtaken ------------------------------------------------


@pytest.mark.feature("F040")
def test_the_newest_are_kept_and_the_rest_deleted() -> None:
    world = started(replace(EVERY_SECOND, retained_max=3), acknowledges=True)
    world.states = {world.subtask("source"): keyed_state("/a")}
    world.advance(5_000)
    assert world.store.pointers == [4, 5, 6]
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


def test_a_stop_whose_id_was_being_taken_fails_with_the_failover_and_checkpoints_go_on() -> None:
    world = started(holds=[commands.TakeNextId])
    world.request(1, SnapshotKind.SUSPEND)
    world.send(events.FailoverStarted())
    world.redeploy()
    given = world.release(commands.TakeNextId)
    assert reasons(given) == ["JOB_FAILOVER_REGION"]
    assert not only(given, commands.PrepareLocation)
    assert only(given, commands.RequestDone)[0].error is not None
    assert not world.all(TriggerCheckpoint)
    world.advance(1_000)
    assert only(world.release(commands.TakeNextId), TriggerCheckpoint)


def test_a_declined_savepoint_of_a_stop_restarts_the_job_whatever_is_tolerated() -> None:
    world = started(TOLERANT)
    world.request(5, SnapshotKind.SUSPEND)
    given = world.decline(1, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    assert len(only(given, commands.FailJob)) == 1


def test_a_job_that_ends_by_itself_is_not_restarted_for_the_stop_that_came_too_late() -> None:
    """Subtasks that have stopped fail by themselves when they hear that it is given up."""
    world = started(TOLERANT)
    world.request(5, SnapshotKind.SUSPEND)
    given = world.decline(1, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING)
    assert not only(given, commands.FailJob)
    assert only(given, CheckpointAborted) and only(given, commands.RequestDone)


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


@pytest.mark.feature("F199")
def test_after_the_end_nothing_is_restored_any_more() -> None:
    world = started(acknowledges=True)
    world.advance(1_000)
    world.send(events.JobEnded(JobStatus.SUSPENDED))
    with pytest.raises(AssertionError, match="is shut down"):
        world.coordinator.latest_completed()


ENDED = """
from tests.checkpoint.world import World
from tidegate.checkpoint.coordinator.events import JobEnded
from tidegate.model.control import JobStatus
world = World(acknowledges=True)
world.start()
world.advance(1_000)
world.send(JobEnded(JobStatus.SUSPENDED))
print("optimized" if not __debug__ else "not optimized", flush=True)
world.coordinator.latest_completed()
"""


@pytest.mark.slow
@pytest.mark.feature("F199")
def test_nor_where_python_leaves_assertions_out() -> None:
    ran = subprocess.run(
        [sys.executable, "-O", "-c", ENDED], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 1 and ran.stdout == "optimized\n"
    assert ran.stderr.strip().splitlines()[-1].startswith("AssertionError: it is shut down")


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


def test_a_claimed_checkpoint_goes_without_the_files_that_it_names_elsewhere() -> None:
    claimed = restored_checkpoint(7)
    operator = OperatorState(
        operator_id=OperatorId(b"o" * 16),
        parallelism=1,
        max_parallelism=1,
        subtasks={0: keyed_state("/elsewhere/letters")},
    )
    claimed = replace(
        claimed,
        metadata=replace(claimed.metadata, operators=(operator,)),
        foreign=frozenset({"/elsewhere/letters"}),
    )
    world = World(EVERY_SECOND, completed=[claimed], acknowledges=True)
    world.start()
    given = world.advance(0)
    assert only(given, commands.DiscardCheckpoint) == [
        commands.DiscardCheckpoint(CheckpointId(7), "/old-7", ())
    ]


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


@pytest.mark.parametrize(("more", "kept"), [(0, (CheckpointId(7),)), (1_000, ())])
def test_nobody_goes_on_from_a_snapshot_that_a_newer_checkpoint_has_passed(
    more: int, kept: tuple[CheckpointId, ...]
) -> None:
    unclaimed = restored_checkpoint(7, CheckpointProperties.for_unclaimed_snapshot())
    settings = replace(EVERY_SECOND, retained_max=3)
    world = World(settings, completed=[unclaimed], acknowledges=True)
    world.start()
    if more:
        world.advance(more)
        assert world.store.pointers[0] == 7 < world.store.pointers[-1]
    given = world.send(events.JobEnded(JobStatus.CANCELED))
    assert commands.ForgetPointers(JobStatus.CANCELED, kept) in given
    assert CheckpointId(7) not in [
        discarded.checkpoint for discarded in only(given, commands.DiscardCheckpoint)
    ]


def test_a_suspended_job_keeps_its_pointers_and_so_its_files() -> None:
    world = started(acknowledges=True)
    world.advance(0)
    suspended = commands.ForgetPointers(JobStatus.SUSPENDED, (CheckpointId(1),))
    assert world.send(events.JobEnded(JobStatus.SUSPENDED)) == [suspended]
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


def test_what_kept_checkpoints_share_is_known_from_the_start() -> None:
    kept = restored_checkpoint(7)
    operator = OperatorState(
        operator_id=OperatorId(b"o" * 16),
        parallelism=1,
        max_parallelism=1,
        subtasks={0: incremental(7, "a")},
    )
    kept = replace(kept, metadata=replace(kept.metadata, operators=(operator,)))
    world = World(EVERY_SECOND, completed=[kept], acknowledges=True)
    world.start()
    world.states = {world.subtask("source"): incremental(8, "b", old=("a",))}
    world.advance(0)
    assert not world.all(commands.DeleteFiles)
    world.states = {}
    given = world.advance(1_000)
    assert only(given, commands.DeleteFiles) == [commands.DeleteFiles(("/shared/a", "/shared/b"))]

"""Reasons for failure, and which of them restart a job: checkpoint coordination §8."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flinkformat.handles import (
    FileStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.snapshots import SubtaskState
from tests.checkpoint.world import THREE, World, chain, reasons, vertex
from tidegate.checkpoint.coordinator import commands, events
from tidegate.checkpoint.coordinator.commands import FailExecution, FailJob
from tidegate.checkpoint.coordinator.reports import (
    UNLIMITED,
    Failure,
    FailureCounter,
    reason_of,
)
from tidegate.errors import CheckpointAborted, StorageFailed, TidegateError
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Attempt, CheckpointId, Epoch, ExecutionId
from tidegate.model.settings import CheckpointSettings

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTING = {
    "IO_EXCEPTION",
    "CHECKPOINT_ASYNC_EXCEPTION",
    "CHECKPOINT_DECLINED",
    "CHECKPOINT_EXPIRED",
    "FINALIZE_CHECKPOINT_FAILURE",
}
PRE_FLIGHT = {
    "PERIODIC_SCHEDULER_SHUTDOWN",
    "TOO_MANY_CHECKPOINT_REQUESTS",
    "MINIMUM_TIME_BETWEEN_CHECKPOINTS",
    "NOT_ALL_REQUIRED_TASKS_RUNNING",
    "IO_EXCEPTION",
    "BLOCKING_OUTPUT_EXIST",
}
EXECUTION = ExecutionId(next(iter(THREE.subtasks())), Attempt(0), Epoch(1))


def failure(
    checkpoint: int | None,
    reason: FailureReason = FailureReason.CHECKPOINT_DECLINED,
    execution: ExecutionId | None = EXECUTION,
    **more: bool,
) -> Failure:
    number = None if checkpoint is None else CheckpointId(checkpoint)
    return Failure(reason, "it broke", number, execution, **more)


def test_there_are_24_reasons_of_which_5_count_and_6_are_before_the_flight() -> None:
    assert len(FailureReason) == 24
    assert {reason.name for reason in FailureReason if reason.counts} == COUNTING
    assert {reason.name for reason in FailureReason if reason.pre_flight} == PRE_FLIGHT


# --- each reason, brought about ---------------------------------------------------------------


def running(**settings: object) -> World:
    made = CheckpointSettings(interval_ms=1_000, timeout_ms=500)
    world = World(replace(made, **settings))  # type: ignore[arg-type]
    world.start()
    return world


def suspend(world: World) -> None:
    world.advance(0)
    world.send(events.JobStatusChanged(JobStatus.RESTARTING))


def shut_down(world: World) -> None:
    world.advance(0)
    world.send(events.JobEnded(JobStatus.CANCELED))


def fail_over(world: World) -> None:
    world.advance(0)
    world.send(events.FailoverStarted())


def expire(world: World) -> None:
    world.advance(500)


def subsume(world: World) -> None:
    world.advance(0)
    world.now_ms = 400
    world.request(1)
    world.acknowledge(2)


def scheduler_stopped(world: World) -> None:
    world.holds = (commands.TakeNextId,)
    world.advance(0)
    world.send(events.JobStatusChanged(JobStatus.RESTARTING))
    world.release(commands.TakeNextId)


def not_running(world: World) -> None:
    world.change(world.subtask("map"), ExecutionState.CANCELING)
    world.request(1)


def no_folder(world: World) -> None:
    world.holds = (commands.PrepareLocation,)
    world.advance(0)
    error = StorageFailed("the disk is full")
    world.release(commands.PrepareLocation, error=events.LocationFailed(CheckpointId(1), error))


def hook_fails(world: World) -> None:
    world.holds = (commands.TriggerHooks,)
    world.advance(0)
    error = TidegateError("the hook raised")
    world.release(commands.TriggerHooks, error=events.HookFailed(CheckpointId(1), error))


def metadata_fails(world: World) -> None:
    world.holds = (commands.WriteMetadata,)
    world.advance(0)
    world.acknowledge(1)
    error = StorageFailed("the disk is full")
    world.release(commands.WriteMetadata, error=events.MetadataFailed(CheckpointId(1), error))


def subtask_fails(world: World) -> None:
    world.advance(0)
    world.change(world.subtask("map"), ExecutionState.FAILED)


BROUGHT_ABOUT: dict[str, Callable[[World], None]] = {
    "CHECKPOINT_COORDINATOR_SUSPEND": suspend,
    "CHECKPOINT_COORDINATOR_SHUTDOWN": shut_down,
    "JOB_FAILOVER_REGION": fail_over,
    "CHECKPOINT_EXPIRED": expire,
    "CHECKPOINT_SUBSUMED": subsume,
    "PERIODIC_SCHEDULER_SHUTDOWN": scheduler_stopped,
    "NOT_ALL_REQUIRED_TASKS_RUNNING": not_running,
    "IO_EXCEPTION": no_folder,
    "TRIGGER_CHECKPOINT_FAILURE": hook_fails,
    "FINALIZE_CHECKPOINT_FAILURE": metadata_fails,
    "TASK_FAILURE": subtask_fails,
}
ANSWERED_ONLY = {"TOO_MANY_CHECKPOINT_REQUESTS", "MINIMUM_TIME_BETWEEN_CHECKPOINTS"}


@pytest.mark.feature("F219")
@pytest.mark.parametrize("reason", sorted(set(FailureReason.__members__) - ANSWERED_ONLY))
def test_each_reason_is_reported_by_its_name_and_counts_or_not(reason: str) -> None:
    world = running(max_concurrent=2)
    if reason in BROUGHT_ABOUT:
        BROUGHT_ABOUT[reason](world)
    else:
        world.advance(0)
        world.decline(1, world.subtask("map"), FailureReason[reason])
    assert reason in reasons(world.log)
    restarts = world.all(FailJob) + world.all(FailExecution)
    assert bool(restarts) == (reason in COUNTING)
    for restart in restarts:
        assert FailureReason[reason].message in str(restart.error)


@pytest.mark.parametrize("reason", FailureReason)
def test_the_history_the_log_and_a_restart_say_where_why_and_what_to_do(
    reason: FailureReason,
) -> None:
    world = running()
    world.request(7)
    world.decline(1, world.subtask("map", 1), reason, "the disk is full")
    told = f"{reason.message} the disk is full"
    ended = world.all(commands.CheckpointEnded)[0]
    assert (ended.reason, ended.message, ended.where) == (reason, told, "map (2/3)")
    row = world.coordinator.statistics.history[0]
    assert (row.reason, row.failure, row.failed_at) == (reason, told, "map (2/3)")
    answer = world.all(commands.RequestDone)[0].error
    assert isinstance(answer, CheckpointAborted)
    assert (answer.reason, answer.what, answer.remedy) == (reason.name, told, reason.remedy)
    assert answer.where.endswith("checkpoint 1, map (2/3)")
    for restart in world.all(FailJob) + world.all(FailExecution):
        assert f"due to {reason.name}: {told}" in restart.error.what
        assert "checkpoint 1" in restart.error.where
        assert restart.error.remedy.startswith(reason.remedy)


def test_a_subtask_that_fails_gives_its_cause_to_the_checkpoint() -> None:
    world = running()
    world.advance(0)
    error = TidegateError("the function raised", where="map (1/3)")
    failed = world.execution(world.subtask("map"))
    world.send(events.ExecutionChanged(failed, ExecutionState.FAILED, error))
    row = world.coordinator.statistics.history[0]
    assert (row.reason, row.failed_at) == (FailureReason.TASK_FAILURE, "map (1/3)")
    assert "the function raised" in str(row.failure)
    assert not world.all(FailJob) + world.all(FailExecution), "it is restarted for its failure"


def test_a_periodic_checkpoint_that_is_put_off_is_told_and_counts_nowhere() -> None:
    world = World(CheckpointSettings(interval_ms=1_000, min_pause_ms=1_000), acknowledges=True)
    world.start()
    world.advance(1_000)
    world.now_ms += 10
    world.request(1)
    world.advance(2_000)
    assert "MINIMUM_TIME_BETWEEN_CHECKPOINTS" in reasons(world.log)
    assert world.counts()[3] == 0


@pytest.mark.feature("F219")
def test_requests_that_never_began_are_answered_with_their_reason() -> None:
    world = running(interval_ms=None)
    world.holds = (commands.TakeNextId,)
    for number in range(1_002):
        world.request(number)
    error = world.all(commands.RequestDone)[0].error
    assert isinstance(error, CheckpointAborted)
    assert error.reason == "TOO_MANY_CHECKPOINT_REQUESTS"
    assert world.counts()[3] == 0


@pytest.mark.feature("F229")
def test_union_state_of_a_partly_finished_vertex_declines_the_checkpoint() -> None:
    world = World(
        CheckpointSettings(interval_ms=1_000), chain(vertex("source", 2), vertex("sink", 1))
    )
    world.start()
    union = StateMetaInfo(StateDistribution.UNION, (0,))
    handle = OperatorStreamStateHandle({"offsets": union}, FileStateHandle("/chk-1/a", 1))
    running = world.subtask("source", 1)
    world.states = {running: SubtaskState(managed_operator=handle)}
    world.change(world.subtask("source", 0), ExecutionState.FINISHED)
    world.advance(0)
    given = world.acknowledge(1, running, world.subtask("sink"))
    assert reasons(given) == ["CHECKPOINT_DECLINED_TASK_CLOSING"]
    assert not [c for c in given if isinstance(c, FailJob | FailExecution)]
    failed = world.coordinator.statistics.latest_failed
    assert failed is not None
    assert "task is closing" in str(failed.failure)


# --- the counter ------------------------------------------------------------------------------


@pytest.mark.feature("F043")
def test_by_default_the_first_failure_that_counts_restarts() -> None:
    assert isinstance(FailureCounter(0).failed(failure(1)), FailExecution)


def test_a_failure_without_an_attempt_restarts_the_job() -> None:
    expired = failure(1, FailureReason.CHECKPOINT_EXPIRED, execution=None)
    command = FailureCounter(0).failed(expired)
    assert isinstance(command, FailJob)
    assert str(command.error).startswith("Exceeded checkpoint tolerable failure threshold.")


def test_a_failure_before_the_flight_restarts_the_job_whoever_is_named() -> None:
    assert isinstance(FailureCounter(0).failed(failure(1, FailureReason.IO_EXCEPTION)), FailJob)


def test_one_checkpoint_counts_once_however_many_decline() -> None:
    counter = FailureCounter(1)
    assert counter.failed(failure(1)) is None
    assert counter.failed(failure(1)) is None
    assert counter.failed(failure(2)) is not None


def test_after_a_restart_counting_begins_anew() -> None:
    counter = FailureCounter(1)
    outcomes = [counter.failed(failure(checkpoint)) for checkpoint in range(1, 7)]
    assert [outcome is not None for outcome in outcomes] == [False, True] * 3


def test_a_failure_older_than_the_last_success_does_not_count() -> None:
    counter = FailureCounter(0)
    counter.succeeded(CheckpointId(5))
    assert counter.failed(failure(4)) is None
    assert counter.failed(failure(6)) is not None


def test_a_success_that_is_older_than_the_last_one_forgives_nothing() -> None:
    counter = FailureCounter(1)
    counter.succeeded(CheckpointId(5))
    counter.failed(failure(6))
    counter.succeeded(CheckpointId(4))
    assert counter.failed(failure(7)) is not None


def test_failures_without_a_number_count_each() -> None:
    counter = FailureCounter(1)
    before = failure(None, FailureReason.IO_EXCEPTION, execution=None)
    assert counter.failed(before) is None
    assert counter.failed(before) is not None


def test_what_does_not_count_never_restarts() -> None:
    counter = FailureCounter(0)
    for checkpoint, reason in enumerate(FailureReason, start=1):
        if not reason.counts:
            assert counter.failed(failure(checkpoint, reason)) is None


def test_without_a_limit_nothing_restarts() -> None:
    counter = FailureCounter(UNLIMITED)
    assert all(counter.failed(failure(checkpoint)) is None for checkpoint in range(1, 1_000))


def test_a_savepoint_that_nobody_declined_restarts_nothing() -> None:
    expired = failure(1, FailureReason.CHECKPOINT_EXPIRED, execution=None, savepoint=True)
    assert FailureCounter(0).failed(expired) is None


def test_a_declined_savepoint_counts_like_a_checkpoint() -> None:
    assert isinstance(FailureCounter(0).failed(failure(1, savepoint=True)), FailExecution)


def test_a_declined_savepoint_of_a_stop_always_restarts_the_job() -> None:
    declined = failure(
        1, FailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY, savepoint=True, synchronous=True
    )
    assert isinstance(FailureCounter(UNLIMITED).failed(declined), FailJob)


# --- the reason behind an error ---------------------------------------------------------------


def caused(error: TidegateError, cause: BaseException) -> TidegateError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StorageFailed("full"), FailureReason.IO_EXCEPTION),
        (caused(TidegateError("hook"), StorageFailed("full")), FailureReason.IO_EXCEPTION),
        (
            caused(CheckpointAborted("TASK_FAILURE", "x"), StorageFailed("full")),
            FailureReason.IO_EXCEPTION,
        ),
        (
            caused(TidegateError("hook"), CheckpointAborted("TASK_FAILURE", "x")),
            FailureReason.TASK_FAILURE,
        ),
        (TidegateError("hook"), FailureReason.TRIGGER_CHECKPOINT_FAILURE),
    ],
)
def test_storage_outweighs_an_inner_reason_which_outweighs_the_rest(
    error: TidegateError, reason: FailureReason
) -> None:
    assert reason_of(error, FailureReason.TRIGGER_CHECKPOINT_FAILURE) is reason


def test_a_reason_that_does_not_exist_is_a_fault_of_our_own() -> None:
    with pytest.raises(AssertionError, match="no failure reason 'TYPO'"):
        FailureReason.of(CheckpointAborted("TYPO", "x"))


def test_a_savepoint_that_stops_the_job_and_expires_lets_it_go_on() -> None:
    world = running(tolerable_failures=0)
    world.request(1, SnapshotKind.SUSPEND)
    world.advance(500)
    assert not world.all(FailJob)


def test_a_cause_of_several_lines_keeps_its_own_place_and_remedy() -> None:
    cause = StorageFailed("Cannot make sp: File exists", where="/tmp/sp", remedy="Name another.")
    assert FailureReason.IO_EXCEPTION.told(str(cause)).splitlines()[1:] == [
        "  cause: Cannot make sp: File exists",
        "    where: /tmp/sp",
        "    what to do: Name another.",
    ]

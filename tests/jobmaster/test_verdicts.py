"""What a failure calls for: a restart, the end of the job, or waiting for somebody to help."""

from dataclasses import replace

import pytest

from tests.jobmaster.failing import BROKEN, RESTARTS
from tests.jobmaster.steps import pass_time
from tests.worlds.jobmaster import World, with_checkpoints
from tidegate.checkpoint.coordinator.commands import DeleteFiles, DiscardCheckpoint
from tidegate.errors import (
    BadRecord,
    ConfigError,
    FileMissing,
    FormatError,
    JobFailed,
    JobSuspended,
    RestoreRefused,
    SlotLost,
    StorageFailed,
    TidegateError,
    UnsupportedKey,
    UserCodeFailed,
)
from tidegate.jobmaster.commands import Deployed, FallingBack, Restarting
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import FixedDelay, JobSettings, RestoreSettings


def restoring(world: World) -> World:
    """All slots are there, and the subtasks have been told what to start from."""
    world.prompt = False
    world.start()
    while world.coming:
        world.offer()
    return world


def test_a_fault_that_only_the_user_can_mend_is_not_tried_again() -> None:
    world = restoring(World(RESTARTS))
    error = ConfigError("no such folder", where="FileSink", remedy="Make it.")
    world.prompt = True
    world.change(world.executions[0], ExecutionState.FAILED, error)
    assert world.over is not None and isinstance(world.over.error, JobFailed)
    assert world.over.error.remedy == "Make it."
    assert "suppressed" not in str(world.over.error)


def test_once_a_job_has_run_such_a_fault_is_one_of_the_world() -> None:
    world = World(RESTARTS).running()
    error = ConfigError("no such folder", where="FileSink", remedy="Make it.")
    world.change(world.executions[0], ExecutionState.FAILED, error)
    assert world.status is JobStatus.RESTARTING


@pytest.mark.parametrize("error", [BadRecord("no number"), UnsupportedKey("a list"), BROKEN])
def test_what_data_cause_is_up_to_the_restart_strategy(error: TidegateError) -> None:
    world = World(replace(RESTARTS, restart=FixedDelay(attempts=2, delay_ms=0))).running()
    for _ in range(2):
        world.change(world.executions[0], ExecutionState.FAILED, error)
        assert world.status is JobStatus.RUNNING
    world.change(world.executions[0], ExecutionState.FAILED, error)
    assert world.over is not None and world.over.status is JobStatus.FAILED
    assert "fixed-delay allows 2 restarts" in str(world.over.error)


AT_A_ROW = UserCodeFailed("ValueError: bad row", where="at the row <A object at 0x7f01>")
AT_THAT_ROW = UserCodeFailed("ValueError: bad row", where="at the row <A object at 0x7fb7>")
AT_ANOTHER = UserCodeFailed("ValueError: bad row", where="at the row 8")


def test_the_same_row_that_fails_again_and_again_is_counted() -> None:
    world = World(replace(RESTARTS, restart=FixedDelay(attempts=9, delay_ms=0))).running()
    for error in (AT_A_ROW, AT_ANOTHER, AT_THAT_ROW, AT_ANOTHER, AT_A_ROW):
        world.change(world.executions[0], ExecutionState.FAILED, error)
    assert [restarting.times for restarting in world.of(Restarting)] == [1, 1, 2, 2, 3]


def test_a_completed_checkpoint_between_keeps_the_job_alive_but_it_is_the_same_story() -> None:
    made = replace(RESTARTS, restart=FixedDelay(attempts=9, delay_ms=0), repeats_max=2)
    world = World(with_checkpoints(made)).running()
    world.change(world.executions[0], ExecutionState.FAILED, AT_A_ROW)
    pass_time(world, world.now_ms + 2_000)
    assert world.machine.view(world.now_ms).checkpoints.counts.completed
    world.change(world.executions[0], ExecutionState.FAILED, AT_A_ROW)
    assert [restarting.times for restarting in world.of(Restarting)] == [1, 2]
    assert world.over is None


def test_what_no_row_causes_is_not_counted() -> None:
    world = World(replace(RESTARTS, repeats_max=3)).running()
    for round in range(4):
        full = StorageFailed("no space left")
        world.change(world.executions[0], ExecutionState.FAILED, full)
        pass_time(world, world.now_ms + 3_000)
        assert [r.times for r in world.of(Restarting)] == [1] * (round + 1)


def test_without_a_chosen_strategy_the_third_time_ends_the_job() -> None:
    made = replace(RESTARTS, restart=FixedDelay(attempts=9, delay_ms=0), repeats_max=3)
    world = World(made).running()
    for _ in range(3):
        assert world.over is None
        world.change(world.executions[0], ExecutionState.FAILED, AT_A_ROW)
    assert world.over is not None and world.over.status is JobStatus.FAILED
    assert "failed 3 times" in str(world.over.error)


def restored_once(settings: JobSettings = RESTARTS, *, retained: int = 2) -> World:
    """A job that is being restored from its second checkpoint."""
    made = with_checkpoints(settings)
    made = replace(made, checkpoints=replace(made.checkpoints, retained_max=retained))
    world = World(made).running()
    pass_time(world, 1_500)
    world.change(world.executions[0], ExecutionState.FAILED, SlotLost("oops"))
    world.prompt = False
    pass_time(world, world.now_ms + 4_000)
    while world.waiting and len(world.of(Deployed)) < 2:
        world.deliver()
    assert world.of(Deployed)[1].restored is not None
    world.waiting.clear()
    world.prompt = True
    return world


@pytest.mark.parametrize(
    "error", [FormatError("a bit is wrong"), FileMissing("gone"), RestoreRefused("another type")]
)
def test_a_checkpoint_that_is_refused_for_what_it_is_suspends_the_job(
    error: TidegateError,
) -> None:
    world = restored_once()
    world.change(world.executions[0], ExecutionState.FAILED, error)
    assert world.over is not None and world.over.status is JobStatus.SUSPENDED
    assert isinstance(world.over.error, JobSuspended) and error.what in str(world.over.error)
    assert world.machine.view(world.now_ms).restarts == 1
    assert world.of(DiscardCheckpoint) == [] and world.of(DeleteFiles) == []


def test_where_it_was_asked_for_a_damaged_checkpoint_is_left_for_an_older_one() -> None:
    falls_back = RestoreSettings(fall_back=True)
    made = replace(RESTARTS, restore=falls_back)
    world = restored_once(made)
    newest = world.of(Deployed)[1].restored
    assert newest is not None
    world.change(world.executions[0], ExecutionState.FAILED, FormatError("a bit is wrong"))
    older = CheckpointId(newest - 1)
    (fell,) = world.of(FallingBack)
    assert (fell.damaged, fell.older) == (newest, older)
    assert world.status is JobStatus.RUNNING and world.of(Deployed)[2].restored == older
    assert world.machine.view(world.now_ms).restarts == 1


def test_without_an_older_one_the_job_is_suspended_all_the_same() -> None:
    made = replace(RESTARTS, restore=RestoreSettings(fall_back=True))
    world = restored_once(made, retained=1)
    world.change(world.executions[0], ExecutionState.FAILED, FileMissing("gone"))
    assert world.over is not None and world.over.status is JobStatus.SUSPENDED


@pytest.mark.parametrize("error", [StorageFailed("no answer"), SlotLost("gone")])
def test_a_store_that_does_not_answer_at_a_restore_is_a_failure_like_others(
    error: TidegateError,
) -> None:
    world = restored_once()
    world.change(world.executions[0], ExecutionState.FAILED, error)
    assert world.status is JobStatus.RESTARTING
    assert world.machine.view(world.now_ms).restarts == 2


def test_wrong_bytes_once_a_subtask_runs_are_no_refused_restore() -> None:
    world = World(with_checkpoints(RESTARTS)).running()
    world.change(world.executions[0], ExecutionState.FAILED, FormatError("a bit is wrong"))
    assert world.status is JobStatus.RESTARTING


def test_a_refusal_without_a_checkpoint_is_the_programs_own_fault() -> None:
    world = restoring(World(RESTARTS))
    world.prompt = True
    world.change(world.executions[0], ExecutionState.FAILED, RestoreRefused("two types"))
    assert world.over is not None and world.over.status is JobStatus.FAILED


def without_a_slot(made: JobSettings) -> World:
    """A job has run, and one of its slots is gone for good."""
    world = World(replace(made, slots_timeout_ms=10_000)).running()
    pass_time(world, 1_500)
    world.lose(next(iter(world.slots)))
    return world


def test_slots_that_are_not_replaced_are_failures_under_the_restart_strategy() -> None:
    made = replace(RESTARTS, restart=FixedDelay(attempts=3, delay_ms=1_000))
    world = without_a_slot(with_checkpoints(made))
    pass_time(world, world.now_ms + 25_000)
    assert world.over is None and world.machine.view(world.now_ms).restarts == 3
    pass_time(world, world.now_ms + 15_000)
    assert world.over is not None and world.over.status is JobStatus.SUSPENDED
    assert "2 of 3 slots" in str(world.over.error)
    assert "fixed-delay allows 3 restarts" in str(world.over.error)
    assert world.of(DiscardCheckpoint) == []


def test_a_slot_that_comes_late_is_taken_all_the_same() -> None:
    world = without_a_slot(with_checkpoints(RESTARTS))
    pass_time(world, world.now_ms + 25_000)
    world.offer()
    pass_time(world, world.now_ms + 3_000)
    assert world.status is JobStatus.RUNNING and len(world.of(Deployed)) == 2


def test_without_a_checkpoint_missing_slots_end_the_job() -> None:
    world = without_a_slot(JobSettings(restart=FixedDelay(attempts=1, delay_ms=1_000)))
    pass_time(world, world.now_ms + 15_000)
    assert world.over is not None and world.over.status is JobStatus.FAILED

"""A job ends with a savepoint: stopped or cancelled; answered when it has, or why it has not."""

import pytest

from tests.jobmaster.steps import RESTARTS, STRANDS, ask, made, pass_time
from tests.worlds.jobmaster import World
from tidegate.checkpoint.coordinator.commands import AddPointer, RequestDone, WriteMetadata
from tidegate.checkpoint.coordinator.events import CheckpointRequested, MetadataFailed, PointerAdded
from tidegate.errors import (
    CheckpointAborted,
    RescaleRefused,
    StopWithSavepointFailed,
    StorageFailed,
    UserCodeFailed,
)
from tidegate.jobmaster.commands import Deployed, RescaleDone, Restarting, SendToSlot
from tidegate.jobmaster.events import CancelRequested, RescaleRequested, SuspendRequested
from tidegate.model.control import (
    CheckpointComplete,
    ExecutionState,
    JobStatus,
    LongCall,
    Pulse,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId, ExecutionId, SlotId

PLACE = "/savepoints/savepoint-2"
BROKEN = UserCodeFailed("the disk is full", where="sink (1/1)")
SYNCHRONOUS = pytest.mark.parametrize("kind", [SnapshotKind.SUSPEND, SnapshotKind.TERMINATE])


def stop(world: World, kind: SnapshotKind = SnapshotKind.SUSPEND, request: int = 9) -> None:
    world.send(CheckpointRequested(request, kind, "/savepoints"))


def asked_and_almost_durable(world: World) -> PointerAdded:
    """Ask for a stop; the store's answer that makes its savepoint durable is still to be sent."""
    world.prompt = False
    stop(world)
    while not world.of(AddPointer)[1:]:
        world.deliver()
    added = next(event for event in world.waiting if isinstance(event, PointerAdded))
    world.waiting.remove(added)
    world.prompt = True
    return added


def answers(world: World, request: int = 9) -> list[RequestDone]:
    return [done for done in world.of(RequestDone) if done.request == request]


def restored_from(world: World) -> int | None:
    return world.of(Deployed)[-1].restored


@SYNCHRONOUS
def test_a_stop_is_answered_when_all_subtasks_have_finished(kind: SnapshotKind) -> None:
    world = made()
    stop(world, kind)
    assert {told.checkpoint for told in world.sent(CheckpointComplete)} == {1, 2}
    assert not answers(world), "the subtasks have not ended yet"
    world.finish_all()
    assert answers(world) == [RequestDone(9, CheckpointId(2), PLACE)]
    assert world.over is not None and world.over.status is JobStatus.FINISHED
    assert world.log.index(answers(world)[0]) < world.log.index(world.over)


def test_what_a_stop_waits_for_can_be_seen_until_the_job_has_ended() -> None:
    world = made()
    assert world.machine.view(world.now_ms).stopping is None
    stop(world)
    first, *others = world.executions
    slot = world.machine.view(world.now_ms).slots[0].id
    world.send(Pulse(slot, batch_age_ms=12_000, calling=first, long_call=LongCall("ask", "…")))
    world.now_ms += 500
    view = world.machine.view(world.now_ms)
    stopping = view.stopping
    assert stopping is not None and (stopping.for_ms, stopping.savepoint) == (500, PLACE)
    assert len(stopping.waits_for) == len(world.executions)
    assert stopping.waits_for[0].task == view.slots[0].calling
    assert "in one call of ask for 12.5 s" in str(stopping)
    assert not any(wait.call_ms for wait in stopping.waits_for[1:])
    for execution in others:
        world.change(execution, ExecutionState.FINISHED)
    stopping = world.machine.view(world.now_ms).stopping
    assert stopping is not None and [wait.call_ms for wait in stopping.waits_for] == [12_500]
    world.change(first, ExecutionState.FINISHED)
    assert world.over is not None and world.machine.view(world.now_ms).stopping is None


@pytest.mark.feature("F266")
def test_a_failure_behind_the_savepoint_restarts_the_whole_job_from_it_and_names_it() -> None:
    world = made(RESTARTS)
    stop(world)
    first, *_ = world.executions
    deployed = len(world.of(Deployed))
    world.change(world.executions[-1], ExecutionState.FAILED, BROKEN)
    [done] = answers(world)
    assert isinstance(done.error, StopWithSavepointFailed)
    assert done.error.savepoint == PLACE and PLACE in done.error.what
    assert "the disk is full" in done.error.what and done.error.where == "sink (1/1)"
    [restart] = world.of(Restarting)
    assert restart.error is done.error
    pass_time(world, world.now_ms + 1_000)
    assert len(world.of(Deployed)) == deployed + 1 and restored_from(world) == 2
    assert world.executions[0].attempt > first.attempt
    assert world.status is JobStatus.RUNNING
    pass_time(world, world.now_ms + 2_000)
    assert world.of(AddPointer)[-1].checkpoint >= 3, "checkpoints go on"


def told_of_the_savepoint(world: World) -> dict[SlotId, list[ExecutionId]]:
    told: dict[SlotId, list[ExecutionId]] = {}
    for each in world.of(SendToSlot):
        if isinstance(each.message, CheckpointComplete) and each.message.checkpoint == 2:
            told.setdefault(each.slot, []).append(each.message.execution)
    return told


def test_a_slot_that_is_lost_before_it_hears_of_the_savepoint_takes_all_back_to_it() -> None:
    """What it runs has not committed, and does not end before it has; all the others have ended."""
    world = made(RESTARTS)
    stop(world)
    *others, lost = told_of_the_savepoint(world).items()
    for execution in (each for _, executions in others for each in executions):
        world.change(execution, ExecutionState.FINISHED)
    everybody = len(world.executions)
    world.lose(lost[0])
    [done] = answers(world)
    assert isinstance(done.error, StopWithSavepointFailed) and done.error.savepoint == PLACE
    world.offer()
    pass_time(world, world.now_ms + 1_000)
    assert restored_from(world) == 2 and world.of(Deployed)[-1].subtasks == everybody
    assert world.status is JobStatus.RUNNING


def test_a_slot_that_is_lost_when_all_on_it_has_ended_keeps_nobody_from_stopping() -> None:
    world = made(RESTARTS)
    stop(world)
    slot, executions = next(iter(told_of_the_savepoint(world).items()))
    for execution in executions:
        world.change(execution, ExecutionState.FINISHED)
    world.lose(slot)
    world.finish_all()
    assert answers(world) == [RequestDone(9, CheckpointId(2), PLACE)]
    assert world.over is not None and world.over.status is JobStatus.FINISHED


@pytest.mark.feature("F266")
def test_without_restarts_the_job_fails_with_the_path_in_its_message() -> None:
    world = made()
    stop(world)
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    world.finish_all()
    assert world.over is not None and world.over.status is JobStatus.FAILED
    assert PLACE in str(world.over.error)
    assert len(answers(world)) == 1


def test_a_failure_while_the_savepoint_is_being_made_durable_names_it_once_it_is() -> None:
    """Nobody knows before whether it stands; from then on the job starts from it."""
    world = made(RESTARTS)
    added = asked_and_almost_durable(world)
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    assert not answers(world)
    world.send(added)
    [done] = answers(world)
    assert isinstance(done.error, StopWithSavepointFailed) and done.error.savepoint == PLACE
    pass_time(world, world.now_ms + 1_000)
    assert restored_from(world) == 2


def test_what_had_not_failed_when_the_savepoint_became_durable_goes_back_to_it_too() -> None:
    """It ends behind the savepoint, and would lack what comes after."""
    world = made(RESTARTS, STRANDS)
    added = asked_and_almost_durable(world)
    broken, *others = world.executions
    world.change(broken, ExecutionState.FAILED, BROKEN)
    world.send(added)
    for execution in others:
        if execution in world.executions:
            world.change(execution, ExecutionState.FINISHED)
    pass_time(world, world.now_ms + 1_000)
    assert restored_from(world) == 2
    assert world.of(Deployed)[-1].subtasks == len(world.executions) == 6
    assert all(
        now.attempt > then.attempt
        for now, then in zip(world.executions, (broken, *others), strict=True)
    )
    assert world.status is JobStatus.RUNNING


def test_a_failure_before_the_savepoint_is_complete_ends_the_stop_and_not_the_job() -> None:
    world = made(RESTARTS)
    world.prompt = False
    stop(world)
    while not world.of(WriteMetadata)[1:]:
        world.deliver()
    world.prompt = True
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    [done] = answers(world)
    assert isinstance(done.error, CheckpointAborted)
    pass_time(world, world.now_ms + 1_000)
    assert restored_from(world) == 1 and world.status is JobStatus.RUNNING
    stop(world, request=10)
    world.finish_all()
    assert answers(world, 10)[0].error is None


def test_a_second_stop_is_refused_while_one_is_under_way() -> None:
    world = made()
    world.prompt = False
    stop(world)
    stop(world, request=10)
    [refused] = answers(world, 10)
    assert isinstance(refused.error, CheckpointAborted)
    assert refused.error.reason == "CHECKPOINT_COORDINATOR_SUSPEND"
    world.prompt = True
    world.send()
    while world.waiting:
        world.deliver()
    world.finish_all()
    assert [done.error for done in answers(world)] == [None]


@pytest.mark.feature("F267")
def test_a_job_is_cancelled_behind_its_savepoint_and_answered_when_it_has_ended() -> None:
    world = made()
    world.send(CheckpointRequested(9, SnapshotKind.SAVEPOINT, "/savepoints", cancels=True))
    assert world.statuses[-2:] == [JobStatus.CANCELLING, JobStatus.CANCELED]
    assert answers(world) == [RequestDone(9, CheckpointId(2), PLACE)]
    told = {message.checkpoint for message in world.sent(CheckpointComplete)}
    assert told == {1}, "sinks do not commit on it"


@pytest.mark.feature("F267")
def test_a_job_goes_on_with_its_checkpoints_where_the_savepoint_before_the_cancel_fails() -> None:
    world = made()
    world.prompt = False
    world.send(CheckpointRequested(9, SnapshotKind.SAVEPOINT, "/savepoints", cancels=True))
    while not world.of(WriteMetadata)[1:]:
        world.deliver()
    world.waiting.clear()
    world.prompt = True
    world.send(MetadataFailed(CheckpointId(2), StorageFailed("no room")))
    [done] = answers(world)
    assert isinstance(done.error, CheckpointAborted) and "no room" in done.error.what
    assert world.status is JobStatus.RUNNING
    pass_time(world, world.now_ms + 2_500)
    assert world.of(AddPointer)[-1].checkpoint >= 3


def test_a_stop_that_is_overtaken_by_a_cancel_names_its_savepoint() -> None:
    world = made()
    stop(world)
    world.send(CancelRequested())
    [done] = answers(world)
    assert isinstance(done.error, StopWithSavepointFailed) and done.error.savepoint == PLACE
    assert world.over is not None and world.over.status is JobStatus.CANCELED


def test_a_savepoint_that_becomes_durable_while_the_job_is_suspended_is_named_all_the_same() -> (
    None
):
    world = made()
    added = asked_and_almost_durable(world)
    world.send(SuspendRequested("Ctrl-C"))
    assert world.over is not None and world.over.status is JobStatus.SUSPENDED
    assert not answers(world)
    world.send(added)
    [done] = answers(world)
    assert isinstance(done.error, StopWithSavepointFailed) and done.error.savepoint == PLACE


def test_a_job_that_stops_is_not_rescaled() -> None:
    world = made()
    ask(world, 3, slots=False)
    stop(world)
    [ended] = world.of(RescaleDone)
    assert isinstance(ended.error, RescaleRefused)
    world.send(RescaleRequested(2, 3))
    refused = world.of(RescaleDone)[-1]
    assert refused.request == 2 and isinstance(refused.error, RescaleRefused)
    world.finish_all()
    assert answers(world)[0].error is None


def test_a_plain_savepoint_is_answered_at_once_and_ends_nothing() -> None:
    world = made()
    stop(world, SnapshotKind.SAVEPOINT)
    assert answers(world) == [RequestDone(9, CheckpointId(2), PLACE)]
    assert world.status is JobStatus.RUNNING and len(world.of(AddPointer)) == 1

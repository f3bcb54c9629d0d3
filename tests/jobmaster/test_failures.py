"""What a job does about failures: of subtasks, slots, coordinators; leases; the history."""

from dataclasses import replace

import pytest

from tests.checkpoint.world import BY_HAND, chain, vertex
from tests.jobmaster.failing import BROKEN, RESTARTS
from tests.jobmaster.steps import pass_time
from tests.worlds.jobmaster import World, with_checkpoints
from tidegate.checkpoint.coordinator.commands import AddPointer
from tidegate.checkpoint.coordinator.events import CheckpointRequested, PointerFailed, Woke
from tidegate.errors import (
    PeerLost,
    SlotLost,
    StorageFailed,
    UserCodeFailed,
)
from tidegate.jobmaster.commands import (
    CloseCoordinators,
    Deployed,
    DropSlot,
    JobOver,
    RequestSlots,
    Restarting,
    SendToSlot,
    StartCoordinators,
    SubtaskReady,
)
from tidegate.jobmaster.events import CoordinatorFailed, SlotLeft
from tidegate.jobmaster.slots import GRACE_MS, LATE_WAKE_MS
from tidegate.model.control import (
    Cancel,
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointFigures,
    Deploy,
    ExecutionState,
    JobStatus,
    Pulse,
    Start,
    SubtaskChanged,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId, SlotId
from tidegate.model.settings import (
    FixedDelay,
    JobSettings,
    NoRestart,
    SlotSettings,
)

LEASE_MS = 10_000


# --- subtasks -------------------------------------------------------------------------------------


def test_a_failed_subtask_has_all_cancelled_and_deployed_again_after_the_wait() -> None:
    world = World(RESTARTS).running()
    failed = world.executions[0]
    commands = world.change(failed, ExecutionState.FAILED, BROKEN)
    assert [c.message.execution for c in commands if isinstance(c, SendToSlot)] == [
        e for e in world.executions if e != failed
    ]
    assert world.statuses[-1] is JobStatus.RESTARTING
    assert world.of(Restarting) == [Restarting(1, 2_000, BROKEN)]
    pass_time(world, 1_000)
    world.wake_up_to(1_999)
    assert world.of(Deployed) == [Deployed(0, None, 6)]
    world.wake_up_to(2_000)
    assert world.of(Deployed) == [Deployed(0, None, 6), Deployed(1, None, 6)]
    assert world.statuses[-1] is JobStatus.RUNNING
    assert {s.state for s in world.subtasks()} == {ExecutionState.RUNNING}
    assert {s.attempt for s in world.subtasks()} == {1}


def test_a_checkpoint_too_many_restarts_the_job_for_the_subtask_that_declined() -> None:
    world = World(RESTARTS).running()
    world.prompt = False
    world.send(CheckpointRequested(1))
    while not world.machine.view(world.now_ms).checkpoints.counts.in_progress:
        world.deliver()
    declining = world.executions[-1]
    declined = CheckpointDeclined(
        declining, CheckpointId(1), FailureReason.CHECKPOINT_DECLINED, "it is full"
    )
    world.send(declined)
    assert world.statuses[-1] is JobStatus.RESTARTING
    (restart,) = world.of(Restarting)
    assert "CHECKPOINT_DECLINED: Checkpoint was declined. it is full" in str(restart.error)
    seen = world.machine.view(world.now_ms)
    assert seen.failures[0].task == seen.vertices[-1].name


def test_nothing_is_deployed_while_a_subtask_of_the_former_attempt_lives() -> None:
    world = World(RESTARTS).running()
    deaf = list(world.slots.values())[1]
    deaf.deaf = True
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    pass_time(world, 20_000)
    assert len(world.of(Deployed)) == 1
    for message in deaf.received:
        if isinstance(message, Cancel):
            deaf.deaf = False
            world.change(message.execution, ExecutionState.CANCELED)
    assert len(world.of(Deployed)) == 2


def test_a_slot_that_does_not_cancel_in_time_is_replaced() -> None:
    world = World(RESTARTS).running()
    deaf = list(world.slots.values())[1]
    deaf.deaf = True
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    pass_time(world, 31_000)
    assert [drop.slot for drop in world.of(DropSlot)] == [deaf.id]
    assert world.of(RequestSlots) == [RequestSlots(3), RequestSlots(1)]
    world.offer()
    assert len(world.of(Deployed)) == 2


def test_without_restarts_a_failure_ends_the_job_with_its_reason_and_trace() -> None:
    world = World(JobSettings(restart=NoRestart())).running()
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    assert world.statuses[-2:] == [JobStatus.FAILING, JobStatus.FAILED]
    assert world.over is not None and world.over.status is JobStatus.FAILED
    text = str(world.over.error)
    assert "ValueError: bad row" in text and "map (1/3)" in text and "Traceback: …" in text
    assert "It was not restarted: it has no restart strategy" in text


def test_when_the_strategy_gives_up_it_is_named() -> None:
    world = World(JobSettings(restart=FixedDelay(attempts=1, delay_ms=0))).running()
    for _ in range(2):
        world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    assert world.over is not None
    assert "fixed-delay allows one restart" in str(world.over.error)


def test_what_an_older_attempt_says_changes_nothing() -> None:
    world = World(RESTARTS).running()
    old = world.executions[1]
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    pass_time(world, 2_000)
    before = len(world.log)
    for state in (ExecutionState.INITIALIZING, ExecutionState.RUNNING, ExecutionState.FAILED):
        world.send(SubtaskChanged(old, state, BROKEN))
    assert world.log[before:] == []


def test_what_another_epoch_says_changes_nothing() -> None:
    world = World(RESTARTS).running()
    other = world.executions[0]._replace(epoch=type(world.executions[0].epoch)(0))
    before = len(world.log)
    world.send(SubtaskChanged(other, ExecutionState.FAILED, BROKEN))
    assert world.log[before:] == []


def test_a_subtask_that_a_slot_ends_unasked_is_a_failure() -> None:
    world = World(RESTARTS).running()
    world.change(world.executions[0], ExecutionState.CANCELED)
    assert world.status is JobStatus.RESTARTING


def test_a_failure_before_all_are_restored_starts_nobody() -> None:
    world = World(RESTARTS, prompt=False).start()
    while world.coming:
        world.offer()
    world.send(SubtaskChanged(world.executions[0], ExecutionState.FAILED, BROKEN))
    while world.waiting:
        world.deliver()
    assert world.sent(Start) == []
    assert {s.state for s in world.subtasks()} <= {ExecutionState.CANCELED, ExecutionState.FAILED}


# --- restore --------------------------------------------------------------------------------------


@pytest.mark.feature("F205")
def test_a_failure_before_the_first_checkpoint_starts_empty() -> None:
    topology = chain(vertex("source", 1, coordinator=True), vertex("sink", 1))
    world = World(RESTARTS, topology).running()
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    pass_time(world, 2_000)
    for start in world.of(StartCoordinators):
        assert start.checkpoint is None and set(start.states.values()) == {None}
    assert all(d.state == {} and d.restored is None for d in world.sent(Deploy))
    assert world.machine.view(world.now_ms).checkpoints.counts.restored == 0


@pytest.mark.feature("F189", "F209")
def test_a_failure_after_a_checkpoint_restores_it_and_counts_that() -> None:
    world = World(with_checkpoints(RESTARTS)).running()
    world.wake_up_to(500)
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    pass_time(world, 3_000)
    assert world.of(Deployed) == [Deployed(0, None, 6), Deployed(1, 1, 6)]
    assert {d.restored for d in world.sent(Deploy) if d.execution.attempt == 1} == {1}
    view = world.machine.view(world.now_ms)
    assert view.restored == 1 and view.checkpoints.counts.restored == 1
    assert view.checkpoints.latest_restored is not None
    assert view.checkpoints.latest_restored.checkpoint == 1
    assert view.checkpoints.latest_restored.restored_ms > 0


def test_a_restart_waits_until_it_is_known_whether_a_checkpoint_stands() -> None:
    world = World(with_checkpoints(RESTARTS), prompt=False).start()
    while world.coming:
        world.offer()
    while world.waiting:
        world.deliver()
    world.wake_up_to(100)
    while world.waiting and not world.of(AddPointer):
        world.deliver()
    (pointer_added,) = list(world.waiting)
    world.waiting.clear()
    world.send(SubtaskChanged(world.executions[0], ExecutionState.FAILED, BROKEN))
    while world.waiting:
        world.deliver()
    world.wake_up_to(5_000)
    unknown = StorageFailed("no answer")
    world.send(PointerFailed(CheckpointId(1), unknown, outcome_unknown=True))
    while len(world.of(AddPointer)) == 1:
        world.wake_up_to(world.now_ms + 1_000)
    world.waiting.clear()
    assert len(world.of(Deployed)) == 1
    world.send(pointer_added)
    assert world.of(Deployed)[1:] == [Deployed(1, 1, 6)]


def test_a_completion_that_was_due_with_the_failure_reaches_nobody_of_the_old_attempt() -> None:
    world = World(RESTARTS).running()
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    late = CheckpointAcknowledged(world.executions[1], 1, None, CheckpointFigures())  # type: ignore[arg-type]
    before = len(world.log)
    world.send(late)
    assert not any(isinstance(c, SendToSlot) for c in world.log[before:])


# --- slots ----------------------------------------------------------------------------------------


def test_a_lost_slot_is_replaced_and_the_job_restored_on_the_slots_there_are() -> None:
    world = World(RESTARTS).running()
    lost = next(iter(world.slots))
    world.lose(lost, SlotLost("killed"))
    assert world.of(RequestSlots)[1:] == [RequestSlots(1)]
    assert world.status is JobStatus.RESTARTING
    replacement = world.offer()
    pass_time(world, 2_000)
    assert world.status is JobStatus.RUNNING
    deployed = [d for d in world.sent(Deploy) if d.execution.attempt == 1]
    assert {world.slot_of(d.execution) for d in deployed} == {*world.slots}
    assert replacement.id in world.slots and lost not in world.slots
    for deploy in deployed:  # who lived on keeps the index of its subtasks
        slot = world.slot_of(deploy.execution)
        if slot != replacement.id:
            assert slot == f"slot-{deploy.execution.subtask.index}"


def test_a_slot_lost_while_the_job_is_being_deployed_is_replaced_too() -> None:
    world = World(RESTARTS, prompt=False).start()
    while world.coming:
        world.offer()
    world.lose(SlotId("slot-1"), SlotLost("killed"))
    while world.waiting:
        world.deliver()
    world.offer()
    world.prompt = True
    pass_time(world, 3_000)
    assert world.status is JobStatus.RUNNING
    assert {s.state for s in world.subtasks()} == {ExecutionState.RUNNING}


def test_a_slot_lost_while_slots_are_awaited_is_asked_for_again_without_a_restart() -> None:
    world = World(RESTARTS).start()
    first = world.offer()
    world.lose(first.id, SlotLost("killed"))
    assert world.of(RequestSlots) == [RequestSlots(3), RequestSlots(1)]
    assert world.of(Restarting) == [] and world.status is JobStatus.RUNNING


def test_the_loss_of_a_slot_whose_subtasks_had_all_finished_is_no_failure() -> None:
    world = World(JobSettings(restart=NoRestart())).running()
    for execution in world.executions:
        if execution.subtask.index == 2:
            world.change(execution, ExecutionState.FINISHED)
    world.lose(SlotId("slot-2"), SlotLost("killed"))
    assert world.status is JobStatus.RUNNING
    world.finish_all()
    assert world.over == JobOver(JobStatus.FINISHED)


def test_a_slot_that_leaves_twice_or_was_never_there_changes_nothing() -> None:
    world = World(RESTARTS).running()
    world.lose(SlotId("slot-0"), SlotLost("killed"))
    before = len(world.log)
    world.send(SlotLeft(SlotId("slot-0"), None), SlotLeft(SlotId("nobody"), None))
    assert world.log[before:] == []


def test_a_slot_without_a_sign_of_life_for_the_lease_is_given_up() -> None:
    world = World(RESTARTS).running()
    silent = SlotId("slot-1")
    pass_time(world, LEASE_MS, silent=(silent,))
    assert world.of(DropSlot) == []
    pass_time(world, LEASE_MS + 1_000, silent=(silent,))
    (drop,) = world.of(DropSlot)
    assert drop.slot == silent and "10000 ms" in drop.reason
    assert world.status is JobStatus.RESTARTING
    (failure,) = world.machine.view(world.now_ms).failures
    assert failure.slot == silent and "no sign of life" in failure.error


def test_a_driver_that_woke_late_blames_no_slot_for_its_own_sleep() -> None:
    world = World(RESTARTS).running()
    pass_time(world, 9_000)
    world.now_ms = 60_000
    world.send(Woke())
    assert world.of(DropSlot) == []
    heard = SlotId("slot-0")
    world.send(Pulse(heard))  # it waited in the socket
    world.wake_up_to(60_000 + GRACE_MS)
    assert world.of(DropSlot) == []
    world.wake_up_to(60_000 + GRACE_MS + 1)
    assert [drop.slot for drop in world.of(DropSlot)] == ["slot-1", "slot-2"]


def test_a_wake_up_a_little_late_extends_no_lease() -> None:
    world = World(RESTARTS).running()
    assert world.machine.wake_at_ms == LEASE_MS + 1
    world.now_ms = LEASE_MS + 1 + LATE_WAKE_MS
    world.send(Woke())
    assert len(world.of(DropSlot)) == 3


def test_the_age_of_a_pulse_is_never_shown_as_negative() -> None:
    world = World(RESTARTS).running()
    world.now_ms = 60_000
    world.beat()
    world.send(Woke())
    assert [slot.pulse_age_ms for slot in world.machine.view(world.now_ms).slots] == [0, 0, 0]


def test_the_lease_is_what_the_settings_say() -> None:
    world = World(JobSettings(slot=SlotSettings(lease_ms=3_000), restart=NoRestart())).running()
    pass_time(world, 4_000, silent=tuple(world.slots))
    assert world.over is not None and "3000 ms" in str(world.over.error)


# --- coordinators ---------------------------------------------------------------------------------


def test_a_failed_coordinator_restarts_the_whole_job_with_coordinators_made_anew() -> None:
    topology = chain(vertex("source", 1, coordinator=True), vertex("sink", 1))
    world = World(RESTARTS, topology).running()
    operator = topology.vertices[0].operators[0].id
    world.send(CoordinatorFailed(operator, BROKEN))
    assert len(world.sent(Cancel)) == 2
    assert isinstance(world.of(CloseCoordinators)[0], CloseCoordinators)
    pass_time(world, 2_000)
    first, second = world.of(StartCoordinators)
    assert first.executions[operator][0].attempt == 0
    assert second.executions[operator][0].attempt == 1
    assert [r.execution.attempt for r in world.of(SubtaskReady)] == [0, 1]


def test_checkpoint_failures_beyond_the_tolerable_number_restart_the_job() -> None:
    world = World(with_checkpoints(RESTARTS)).running()
    world.wake_up_to(100)
    for slot in world.slots.values():
        slot.deaf = True
    pass_time(world, 700_000)
    assert world.of(Restarting)
    (failure, *_) = reversed(world.machine.view(world.now_ms).failures)
    assert "tolerable failure threshold" in failure.error


# --- the history ----------------------------------------------------------------------------------


@pytest.mark.feature("F276")
def test_failures_at_the_same_time_are_one_entry_of_the_history() -> None:
    world = World(RESTARTS).running()
    world.now_ms = 70
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    world.send(CoordinatorFailed(world.topology.vertices[0].operators[0].id, SlotLost("later")))
    (entry,) = world.machine.view(world.now_ms).failures
    assert "bad row" in entry.error and entry.task == "source" and entry.slot == "slot-0"
    assert entry.wall_ms % 1_000 == 70
    assert [other for other in entry.concurrent if "later" in other.error]


@pytest.mark.feature("F276")
def test_the_history_keeps_the_newest_failures_newest_first() -> None:
    settings = JobSettings(
        restart=FixedDelay(attempts=100, delay_ms=0),
        exception_history_max=3,
        checkpoints=BY_HAND,
    )
    world = World(settings).running()
    for n in range(5):
        world.change(world.executions[0], ExecutionState.FAILED, UserCodeFailed(f"failure {n}"))
    errors = [entry.error for entry in world.machine.view(world.now_ms).failures]
    assert len(errors) == 3
    assert [f"failure {n}" in error for n, error in zip((4, 3, 2), errors, strict=True)] == [
        True,
        True,
        True,
    ]


def test_a_history_of_nothing_keeps_nothing() -> None:
    world = World(replace(RESTARTS, exception_history_max=0)).running()
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    world.send(CoordinatorFailed(world.topology.vertices[0].operators[0].id, SlotLost("later")))
    view = world.machine.view(world.now_ms)
    assert view.failures == () and view.restarts == 1


def test_peers_that_lose_a_killed_slot_do_not_count_as_failures_of_their_own() -> None:
    world = World(RESTARTS).running()
    world.lose(SlotId("slot-0"), SlotLost("killed"))
    for execution in world.executions:
        if execution.subtask.index != 0:
            world.send(SubtaskChanged(execution, ExecutionState.FAILED, PeerLost("slot-0 is gone")))
    assert len(world.of(Restarting)) == 1
    assert world.machine.view(world.now_ms).restarts == 1


def test_a_request_for_a_checkpoint_while_the_job_restarts_is_refused() -> None:
    world = World(RESTARTS).running()
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    commands = world.send(CheckpointRequested(1))
    assert [type(c).__name__ for c in commands if type(c).__name__ == "RequestDone"] == [
        "RequestDone"
    ]

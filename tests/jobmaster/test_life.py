"""A job from its start to its end, where nothing fails."""

import pytest

from tests.checkpoint.world import chain, vertex
from tests.worlds.jobmaster import WALL_MS, World, accepted, refused, with_checkpoints
from tidegate.checkpoint.coordinator.commands import TakeNextId
from tidegate.checkpoint.coordinator.events import Woke
from tidegate.errors import JobCanceled, JobFailed, SlotLost, SlotsMissing, UserCodeFailed
from tidegate.jobmaster.commands import (
    CloseCoordinators,
    Deployed,
    DropSlot,
    JobOver,
    ReleaseSlots,
    RequestSlots,
    RestoreHooks,
    SlotsAwaited,
    StartCoordinators,
    SubtaskReady,
)
from tidegate.jobmaster.events import (
    CancelRequested,
    HooksNotRestored,
    HooksRestored,
    SlotRequestFailed,
)
from tidegate.jobmaster.slots import ASK_AGAIN_MS
from tidegate.model.control import (
    Accepted,
    Cancel,
    CheckpointComplete,
    Deploy,
    ExecutionState,
    JobStatus,
    Pulse,
    RowCounts,
    Start,
    SubtaskChanged,
    SubtaskFigures,
    TriggerCheckpoint,
)
from tidegate.model.ids import ExecutionId
from tidegate.model.settings import FixedDelay, JobSettings


@pytest.mark.feature("F082")
def test_a_job_asks_for_as_many_slots_as_its_widest_vertex() -> None:
    world = World().start()
    assert world.of(RequestSlots) == [RequestSlots(3)]
    view = world.machine.view(world.now_ms)
    assert (view.slots, view.slots_wanted) == ((), 3)


def test_nothing_is_deployed_before_all_slots_are_there() -> None:
    world = World().start()
    for _ in range(2):
        assert accepted(world.offer())
    assert world.sent(Deploy) == []
    world.offer()
    assert len(world.sent(Deploy)) == 6


@pytest.mark.feature("F180")
def test_master_hooks_are_restored_before_each_deployment() -> None:
    world = World(JobSettings(restart=FixedDelay(attempts=5, delay_ms=0)), hooks=True).running()
    assert world.of(RestoreHooks) == [RestoreHooks(None, (), allow_unmatched=False)]
    assert world.sent(Deploy) == []
    world.send(HooksRestored())
    deployed = world.sent(Deploy)
    assert len(deployed) == 6
    world.change(deployed[0].execution, ExecutionState.FAILED, SlotLost("oops"))
    assert world.of(RestoreHooks)[1:] == [RestoreHooks(None, (), allow_unmatched=True)]
    assert len(world.sent(Deploy)) == 6
    world.send(HooksRestored())
    assert len(world.sent(Deploy)) == 12


def test_hooks_that_cannot_be_restored_are_a_failure_each_time() -> None:
    world = World(JobSettings(restart=FixedDelay(attempts=1, delay_ms=10)), hooks=True).running()
    world.send(HooksNotRestored(UserCodeFailed("the store is locked")))
    assert len(world.of(RestoreHooks)) == 1
    world.wake_up_to(20)
    assert len(world.of(RestoreHooks)) == 2
    world.send(HooksNotRestored(UserCodeFailed("the store is locked")))
    assert world.over is not None and "the store is locked" in str(world.over.error)
    assert world.sent(Deploy) == []


def test_a_job_that_is_cancelled_does_not_wait_for_its_hooks() -> None:
    world = World(hooks=True).running()
    world.send(CancelRequested())
    assert world.over is not None and world.over.status is JobStatus.CANCELED
    assert world.send(HooksRestored()) == []


def test_subtask_i_of_each_vertex_shares_slot_i_and_each_knows_its_peers() -> None:
    world = World().running()
    for deploy in world.sent(Deploy):
        index = deploy.execution.subtask.index
        assert world.slot_of(deploy.execution) == f"slot-{index}"
        for channel, peer in deploy.peers.items():
            other = channel.consumer if channel.producer == index else channel.producer
            assert peer in (f"slot-{other}", f"slot-{index}")
            assert deploy.addresses[peer] == f"{peer}:1"
    (sink,) = [d for d in world.sent(Deploy) if d.execution.subtask.vertex.startswith(b"sink")]
    assert sorted(sink.peers.values()) == ["slot-0", "slot-1", "slot-2"]


def test_nobody_starts_before_all_are_restored() -> None:
    world = World(prompt=False).start()
    for _ in range(3):
        world.offer()
    for _ in range(5):
        world.deliver()
    assert world.sent(Start) == []
    world.deliver()
    assert len(world.sent(Start)) == 6
    assert len(world.of(SubtaskReady)) == 0  # no operator of this job has a coordinator


@pytest.mark.feature("F081")
def test_a_job_is_initializing_then_created_then_running() -> None:
    world = World()
    assert world.status is JobStatus.INITIALIZING
    world.now_ms = 50
    world.start()
    times = world.machine.view(world.now_ms).timestamps_ms
    assert (
        WALL_MS + 50
        == times[JobStatus.INITIALIZING]
        <= times[JobStatus.CREATED]
        <= times[JobStatus.RUNNING]
    )


@pytest.mark.feature("F083")
def test_each_subtask_passes_through_its_states_in_order() -> None:
    world = World(prompt=False).start()
    while world.coming:
        world.now_ms += 10
        world.offer()
    while world.waiting:
        world.now_ms += 10
        world.deliver()
    for subtask in world.subtasks():
        at = subtask.timestamps_ms
        assert (
            at[ExecutionState.SCHEDULED]
            <= at[ExecutionState.DEPLOYING]
            <= at[ExecutionState.INITIALIZING]
            < at[ExecutionState.RUNNING]
        )
        assert subtask.state is ExecutionState.RUNNING and subtask.restore_ms == 5


@pytest.mark.feature("F084")
def test_running_is_said_once_and_checkpoints_begin_after_all_subtasks_run() -> None:
    world = World(with_checkpoints(JobSettings()), prompt=False).start()
    while world.coming:
        world.offer()
    world.wake_up_to(5_000)
    assert world.of(TakeNextId) == []
    world.prompt = True
    world.send(Pulse(next(iter(world.slots))))
    world.beat()
    world.wake_up_to(8_000)
    assert len(world.of(TakeNextId)) >= 1
    assert world.statuses.count(JobStatus.RUNNING) == 1
    first = world.log.index(world.of(TakeNextId)[0])
    starts = [n for n, c in enumerate(world.log) if isinstance(getattr(c, "message", None), Start)]
    assert len(starts) == 6 and max(starts) < first


def test_coordinators_start_with_the_deployment_and_hear_of_each_subtask_that_runs() -> None:
    topology = chain(vertex("source", 2, coordinator=True), vertex("sink", 1))
    world = World(topology=topology).running()
    (started,) = world.of(StartCoordinators)
    (operator,) = started.states
    assert started.states == {operator: None} and started.checkpoint is None
    assert [ready.execution for ready in world.of(SubtaskReady)] == list(
        started.executions[operator]
    )
    assert all(ready.operators == (operator,) for ready in world.of(SubtaskReady))


def test_a_job_whose_subtasks_have_all_finished_is_over() -> None:
    world = World().running()
    commands = world.finish_all()
    assert world.status is JobStatus.FINISHED
    assert world.over == JobOver(JobStatus.FINISHED)
    ends = [c for c in commands if isinstance(c, CloseCoordinators | ReleaseSlots | JobOver)]
    assert [type(c) for c in ends] == [CloseCoordinators, ReleaseSlots, JobOver]
    assert world.machine.settled and world.machine.wake_at_ms is None


def test_after_the_end_nothing_is_asked_for_any_more() -> None:
    world = World().running()
    world.finish_all()
    before = len(world.log)
    world.offer()
    world.lose(next(iter(world.slots)))
    world.send(CancelRequested(), Pulse(next(iter(world.slots), "x")))
    world.wake_up_to(1_000_000)
    assert world.log[before:] == []


def test_one_slot_too_many_is_refused_and_its_link_ended() -> None:
    world = World().running()
    extra = world.offer()
    assert refused(extra) and not accepted(extra)
    assert world.of(DropSlot) == [DropSlot(extra.id, "not needed")]
    assert world.status is JobStatus.RUNNING and len(world.sent(Deploy)) == 6


def test_a_slot_that_offers_itself_twice_stays_what_it_is() -> None:
    world = World().start()
    slot = world.offer()
    world.coming += 1
    world.offer(slot=slot)
    assert not refused(slot) and world.of(DropSlot) == []
    assert len(world.sent(Accepted)) == 1


def test_what_slots_measured_is_shown_and_what_an_older_attempt_says_is_not() -> None:
    world = World().running()
    execution = world.executions[0]
    older = ExecutionId(execution.subtask, type(execution.attempt)(99), execution.epoch)
    slot = world.slot_of(execution)
    assert slot is not None
    world.send(Pulse(slot, 40, figures={execution: SubtaskFigures(rows_in=7)}))
    world.send(Pulse(slot, 41, figures={older: SubtaskFigures(rows_in=9)}))
    view = world.machine.view(world.now_ms)
    assert view.vertices[0].subtasks[0].figures.rows_in == 7
    last = SubtaskFigures(rows_in=8)
    world.send(SubtaskChanged(execution, ExecutionState.FINISHED, figures=last))
    world.send(Pulse(slot, 41, figures={execution: SubtaskFigures(rows_in=7)}))
    view = world.machine.view(world.now_ms)
    assert view.vertices[0].subtasks[0].figures == last, "a pulse that comes late is older"
    assert [s.batch_age_ms for s in view.slots] == [41, 0, 0]


def test_rows_are_counted_over_all_attempts() -> None:
    world = World(JobSettings(restart=FixedDelay(attempts=1, delay_ms=0))).running()
    first = world.executions[0]
    last = SubtaskFigures(counts=RowCounts(read=9, late=1, written=2))
    world.change(first, ExecutionState.FAILED, SlotLost("gone"), figures=last)
    world.wake_up_to(world.now_ms + 1)
    second = world.executions[0]
    slot = world.slot_of(second)
    assert second != first and slot is not None
    world.send(Pulse(slot, figures={second: SubtaskFigures(counts=RowCounts(read=3, skipped=1))}))
    view = world.machine.view(world.now_ms)
    assert view.counts == RowCounts(read=12, late=1, written=2, skipped=1)


# --- slots that do not come -----------------------------------------------------------------------


def test_it_is_said_again_and_again_that_slots_are_missing() -> None:
    world = World().start()
    world.offer()
    world.now_ms = 1_000
    for now in range(2_000, 13_000, 1_000):
        world.beat()
        world.wake_up_to(now)
    assert [(a.have, a.want) for a in world.of(SlotsAwaited)] == [(1, 3), (1, 3)]
    assert [a.waited_ms for a in world.of(SlotsAwaited)] == [5_000, 10_000]


def test_slots_that_do_not_come_in_time_end_the_job_with_their_number_and_reason() -> None:
    world = World(JobSettings(slots_timeout_ms=20_000)).start()
    world.send(SlotRequestFailed(SlotLost("no core is free")))
    world.wake_up_to(30_000)
    assert world.over is not None and world.over.status is JobStatus.FAILED
    error = world.over.error
    assert isinstance(error, JobFailed)
    assert "0 of 3 slots came within 20000 ms" in str(error) and "no core is free" in str(error)
    assert "tidegate.slots.start-timeout" in str(error)
    assert SlotsMissing.__name__ not in str(world.statuses)


def test_while_slots_keep_coming_they_are_waited_for() -> None:
    world = World(JobSettings(slots_timeout_ms=20_000)).start()
    for now in range(1_000, 50_000, 1_000):
        world.wake_up_to(now)
        world.beat()
        if now in (15_000, 30_000):
            world.offer()
    assert world.over is None
    world.wake_up_to(51_000)
    assert world.over is not None and "2 of 3 slots" in str(world.over.error)


def test_a_driver_that_stood_still_waits_for_slots_anew() -> None:
    world = World(JobSettings(slots_timeout_ms=20_000)).start()
    world.wake_up_to(10_000)
    world.now_ms = 90_000
    world.send(Woke())
    assert world.over is None
    world.wake_up_to(90_000 + 20_000 - 1)
    assert world.over is None
    world.wake_up_to(90_000 + 20_000)
    assert world.over is not None


def test_one_that_comes_and_goes_does_not_lengthen_the_wait() -> None:
    world = World(JobSettings(slots_timeout_ms=20_000)).start()
    for now in range(1_000, 40_000, 1_000):
        world.wake_up_to(now)
        if world.over is None:
            world.lose(world.offer().id)
    assert world.over is not None and world.now_ms > 20_000


def test_a_request_that_failed_is_made_again_after_a_pause() -> None:
    world = World().start()
    world.send(SlotRequestFailed(SlotLost("the machine went away")))
    assert world.of(RequestSlots) == [RequestSlots(3)]
    world.wake_up_to(ASK_AGAIN_MS)
    assert world.of(RequestSlots) == [RequestSlots(3), RequestSlots(1)]


def test_a_request_that_cannot_ever_succeed_ends_the_job_at_once() -> None:
    world = World().start()
    world.send(SlotRequestFailed(SlotLost("no tidegate there"), final=True))
    assert world.over is not None and "no tidegate there" in str(world.over.error)


# --- cancel ---------------------------------------------------------------------------------------


def test_a_cancelled_job_ends_when_its_subtasks_have() -> None:
    world = World(prompt=False).start()
    while world.coming:
        world.offer()
    while world.waiting:
        world.deliver()
    world.send(CancelRequested("the user"))
    assert len(world.sent(Cancel)) == 6 and world.status is JobStatus.CANCELLING
    for _ in range(5):
        world.deliver()
    assert world.over is None
    world.deliver()
    assert world.over is not None and world.over.status is JobStatus.CANCELED
    assert isinstance(world.over.error, JobCanceled) and "the user" in str(world.over.error)


def test_a_job_can_be_cancelled_while_it_waits_for_slots() -> None:
    world = World().start()
    world.send(CancelRequested())
    assert world.over is not None and world.over.status is JobStatus.CANCELED


def test_a_slot_that_does_not_end_its_subtasks_is_given_up() -> None:
    world = World(JobSettings(slots_timeout_ms=10**9)).running()
    deaf = next(iter(world.slots.values()))
    deaf.deaf = True
    world.send(CancelRequested())
    assert world.status is JobStatus.CANCELLING
    for now in range(1_000, 30_001, 1_000):
        world.beat()
        world.wake_up_to(now)
    assert [drop.slot for drop in world.of(DropSlot)] == [deaf.id]
    assert world.over is not None and world.over.status is JobStatus.CANCELED


def test_a_subtask_that_finishes_while_it_is_cancelled_has_ended_too() -> None:
    world = World(prompt=False).start()
    while world.coming:
        world.offer()
    while world.waiting:
        world.deliver()
    world.send(CancelRequested())
    for execution in world.executions:
        world.send(SubtaskChanged(execution, ExecutionState.FINISHED))
    assert world.over is not None and world.over.status is JobStatus.CANCELED


def test_a_subtask_that_says_it_runs_while_it_is_cancelled_is_still_cancelled() -> None:
    world = World(prompt=False).start()
    while world.coming:
        world.offer()
    for _ in range(6):
        world.deliver()
    world.send(CancelRequested())
    world.send(SubtaskChanged(world.executions[0], ExecutionState.RUNNING))
    assert world.subtasks()[0].state is ExecutionState.CANCELING


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.feature("F142", "F218")
def test_every_subtask_takes_part_and_each_hears_of_the_completion_once() -> None:
    world = World(with_checkpoints(JobSettings())).running()
    world.wake_up_to(500)
    triggered = {message.execution for message in world.sent(TriggerCheckpoint)}
    assert all(e.subtask.vertex.startswith(b"source") for e in triggered) and len(triggered) == 2
    told = world.sent(CheckpointComplete)
    assert sorted(t.execution for t in told) == sorted(world.executions)
    assert {t.checkpoint for t in told} == {1}
    (checkpoint,) = world.machine.view(world.now_ms).checkpoints.history
    assert checkpoint.subtasks == 6


def test_a_deployment_says_from_which_checkpoint() -> None:
    world = World().running()
    assert world.of(Deployed) == [Deployed(0, None, 6)]

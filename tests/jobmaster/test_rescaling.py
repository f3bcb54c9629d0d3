"""A running job gets another parallelism: what it waits for, what it refuses, what it survives."""

from dataclasses import replace

import pytest

from tests.checkpoint.world import chain, vertex
from tests.jobmaster.steps import (
    BROKEN,
    EVERY_SECOND,
    RESTARTS,
    ask,
    completed,
    current,
    fail,
    made,
    named,
    pass_time,
)
from tests.worlds.jobmaster import World
from tidegate import StreamExecutionEnvironment, Types
from tidegate.checkpoint.coordinator.commands import AddPointer, CheckpointEnded, TakeNextId
from tidegate.checkpoint.coordinator.events import CheckpointRequested, NextIdFailed
from tidegate.errors import RescaleRefused, SlotLost, SlotsMissing, StorageFailed
from tidegate.jobmaster.commands import (
    Deployed,
    RequestSlots,
    RescaleDone,
    Rescaling,
    Restarting,
    SendToSlot,
    StartCoordinators,
)
from tidegate.jobmaster.events import CancelRequested, SlotRequestFailed
from tidegate.jobmaster.rescaling import rescaled
from tidegate.model.control import (
    Cancel,
    Deploy,
    ExecutionState,
    JobStatus,
    Offer,
    Release,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Attempt, SlotId
from tidegate.model.settings import (
    CheckpointSettings,
    RescaleSettings,
)
from tidegate.model.topology import Partitioner, Topology

OWN = replace(vertex("own", 1), parallelism_set=True)
BY_HAND = replace(EVERY_SECOND, checkpoints=CheckpointSettings(), rescale=RescaleSettings())


def shape(world: World) -> list[int]:
    """The parallelism of each vertex, all of whose subtasks run."""
    seen = world.machine.view(world.now_ms)
    assert seen.status is JobStatus.RUNNING
    assert {s.state for s in world.subtasks()} == {ExecutionState.RUNNING}
    assert [len(v.subtasks) for v in seen.vertices] == [v.parallelism for v in seen.vertices]
    return [v.parallelism for v in seen.vertices]


def answers(world: World) -> list[tuple[int, type | None]]:
    """Who was answered, in order, and with which error."""
    return [(done.request, done.error and type(done.error)) for done in world.of(RescaleDone)]


# --- what it waits for ----------------------------------------------------------------------------


@pytest.mark.feature("F280")
def test_a_rescale_waits_for_the_next_completed_checkpoint() -> None:
    world = made()
    ask(world, 3)
    assert (len(world.slots), shape(world), answers(world)) == (3, [2, 2], [])
    assert not world.sent(Cancel) and not world.of(Rescaling)
    pass_time(world, world.now_ms + 1_000)
    assert completed(world) == 2 and world.of(Rescaling) == [Rescaling(3)]
    assert (shape(world), answers(world)) == ([3, 3], [(1, None)])
    assert world.of(Deployed)[-1] == Deployed(1, world.of(AddPointer)[-1].checkpoint, 6)
    restarted = world.of(StartCoordinators)[-1]
    assert [len(attempts) for attempts in restarted.executions.values()] == [3]


@pytest.mark.feature("F280")
def test_it_is_no_failure_and_shows_in_the_view() -> None:
    world = made()
    before = len(world.statuses)
    ask(world, 3)
    pass_time(world, world.now_ms + 1_000)
    seen = world.machine.view(world.now_ms)
    assert (seen.rescales, seen.restarts, seen.failures) == (1, 0, ())
    assert world.statuses[before:] == [JobStatus.RESTARTING, JobStatus.RUNNING]
    assert not world.of(Restarting)
    pass_time(world, world.now_ms + 3_000)
    assert completed(world) >= 4, "the new shape is checkpointed"


def test_the_slots_come_first_and_the_wait_for_a_checkpoint_after_them() -> None:
    world = made()
    ask(world, 3, slots=False)
    assert world.of(RequestSlots)[-1] == RequestSlots(1)
    pass_time(world, world.now_ms + 5_000)
    assert completed(world) == 6 and shape(world) == [2, 2]
    world.offer()
    assert shape(world) == [2, 2], "checkpoints from before the slots do not count"
    pass_time(world, world.now_ms + 1_000)
    assert shape(world) == [3, 3]


def test_a_shrinking_job_releases_what_it_does_not_need() -> None:
    world = made(topology=chain(vertex("source", 3), vertex("count", 3)))
    ask(world, 1)
    pass_time(world, world.now_ms + 1_000)
    assert shape(world) == [1, 1]
    released = {c.slot for c in world.of(SendToSlot) if isinstance(c.message, Release)}
    assert released == {SlotId("slot-1"), SlotId("slot-2")}
    seen = world.machine.view(world.now_ms)
    assert ([slot.id for slot in seen.slots], seen.slots_wanted) == ([SlotId("slot-0")], 1)


def test_failing_checkpoints_are_waited_for_so_many_times() -> None:
    world = made()
    ask(world, 3)
    world.prompt = False
    for failures in (1, 2):
        assert not world.of(Rescaling)
        before = len(world.of(TakeNextId))
        while len(world.of(TakeNextId)) == before:
            world.wake_up_to(world.now_ms + 100)
            world.beat()
        world.waiting.clear()
        trigger = world.of(TakeNextId)[-1].trigger
        world.send(NextIdFailed(trigger, StorageFailed("no store")))
        counted = [e for e in world.of(CheckpointEnded) if e.reason is FailureReason.IO_EXCEPTION]
        assert len(counted) == failures
    assert world.of(Rescaling) == [Rescaling(3)]
    world.prompt = True
    pass_time(world, world.now_ms + 1_000)
    assert shape(world) == [3, 3]


def test_the_wait_is_over_with_the_delay() -> None:
    world = made(replace(EVERY_SECOND, rescale=RescaleSettings(max_delay_ms=300)))
    ask(world, 3)
    world.wake_up_to(world.now_ms + 299)
    assert shape(world) == [2, 2]
    world.wake_up_to(world.now_ms + 1)
    assert (shape(world), completed(world)) == ([3, 3], 1)


def test_it_waits_until_a_pointer_that_is_being_added_is_known_to_stand() -> None:
    world = made(replace(EVERY_SECOND, rescale=RescaleSettings(max_delay_ms=1_500)))
    ask(world, 3)
    world.prompt = False
    pointers = len(world.of(AddPointer))
    while len(world.of(AddPointer)) == pointers:
        world.wake_up_to(world.now_ms + 100)
        while world.waiting and len(world.of(AddPointer)) == pointers:
            world.deliver()
    (added,) = world.waiting
    world.waiting.clear()
    pass_time(world, world.now_ms + 3_000)
    assert not world.of(Rescaling)
    assert world.machine.wake_at_ms is None or world.machine.wake_at_ms > world.now_ms
    world.prompt = True
    world.send(added)
    assert shape(world) == [3, 3]
    assert world.of(Deployed)[-1].restored == world.of(AddPointer)[-1].checkpoint


# --- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [0, -1, 129])
def test_a_parallelism_that_state_cannot_have_is_refused(parallelism: int) -> None:
    world = made()
    ask(world, parallelism)
    (done,) = world.of(RescaleDone)
    assert isinstance(done.error, RescaleRefused)
    assert f"from 1 to 128, not {parallelism}" in str(done.error) and "'count'" in str(done.error)
    assert (shape(world), world.coming) == ([2, 2], 0)


def test_without_any_checkpoint_it_is_refused() -> None:
    world = made(BY_HAND)
    ask(world, 3)
    (done,) = world.of(RescaleDone)
    assert "no completed checkpoint" in str(done.error) and "trigger_checkpoint" in str(done.error)
    assert (shape(world), world.machine.view(world.now_ms).slots_wanted) == ([2, 2], 2)
    released = {c.slot for c in world.of(SendToSlot) if isinstance(c.message, Release)}
    assert released == {SlotId("slot-2")}
    world.send(CheckpointRequested(7, SnapshotKind.CHECKPOINT))
    ask(world, 3, request=2)
    assert (shape(world), answers(world)[-1]) == ([3, 3], (2, None))


def test_where_the_slots_do_not_come_the_job_runs_on_as_it_is() -> None:
    world = made(replace(EVERY_SECOND, slots_timeout_ms=10_000))
    ask(world, 3, slots=False)
    world.send(SlotRequestFailed(SlotLost("no core")))
    pass_time(world, world.now_ms + 10_000)
    (done,) = world.of(RescaleDone)
    assert isinstance(done.error, SlotsMissing) and "2 of 3 slots" in str(done.error)
    assert "no core" in str(done.error)
    assert shape(world) == [2, 2] and not world.of(Rescaling)
    asked = len(world.of(RequestSlots))
    pass_time(world, world.now_ms + 10_000)
    assert len(world.of(RequestSlots)) == asked, "nothing is wanted any more"
    world.send(Offer(SlotId("late"), "late:1", 1, "host", {}))
    assert len(world.machine.view(world.now_ms).slots) == 2


def test_a_slot_that_can_never_come_ends_the_rescale_and_not_the_job() -> None:
    world = made()
    ask(world, 3, slots=False)
    world.send(SlotRequestFailed(SlotLost("no tidegate there"), final=True))
    assert (answers(world), shape(world)) == ([(1, SlotLost)], [2, 2])


def test_the_last_to_ask_gets_what_he_wants() -> None:
    world = made()
    ask(world, 4)
    ask(world, 3, request=2)
    assert answers(world) == [(1, RescaleRefused)]
    pass_time(world, world.now_ms + 1_000)
    assert (shape(world), answers(world)[1:]) == ([3, 3], [(2, None)])


def test_who_asks_for_what_there_is_takes_back_what_was_wanted() -> None:
    world = made()
    ask(world, 3)
    ask(world, 2, request=2)
    assert answers(world) == [(1, RescaleRefused), (2, None)]
    pass_time(world, world.now_ms + 3_000)
    assert shape(world) == [2, 2] and not world.of(Rescaling)


def test_while_it_is_stopped_for_a_rescale_no_other_begins() -> None:
    world = made()
    ask(world, 3)
    for slot in world.slots.values():
        slot.deaf = True
    world.send(CheckpointRequested(7, SnapshotKind.CHECKPOINT))
    stop_deaf(world)
    ask(world, 4, request=2)
    assert answers(world) == [(2, RescaleRefused)]


def stop_deaf(world: World) -> None:
    """The slots hear no more, and the delay of the rescale is over."""
    for _ in range(70):
        if world.of(Rescaling):
            return
        world.beat()
        world.wake_up_to(world.now_ms + 1_000)
    raise AssertionError("it does not begin")


# --- failures on the way --------------------------------------------------------------------------


@pytest.mark.feature("F280")
def test_a_failure_while_it_waits_is_an_ordinary_restart_and_it_still_happens() -> None:
    world = made(RESTARTS)
    ask(world, 3)
    fail(world, "count/1")
    pass_time(world, world.now_ms + 1_000)
    assert (shape(world), len(world.of(Restarting))) == ([2, 2], 1)
    pass_time(world, world.now_ms + 2_000)
    assert (shape(world), answers(world)) == ([3, 3], [(1, None)])
    assert world.machine.view(world.now_ms).restarts == 1


def test_a_slot_lost_while_it_waits_is_replaced_by_a_spare_one() -> None:
    world = made(RESTARTS)
    ask(world, 3)
    world.lose(SlotId("slot-0"), SlotLost("killed"))
    pass_time(world, world.now_ms + 1_000)
    assert shape(world) == [2, 2], "the restart does not wait for a third slot"
    deployed = {(c.slot, c.message.execution.subtask) for c in deployments(world)[-4:]}
    assert deployed == {
        (SlotId(f"slot-{slot}"), subtask)
        for slot, index in ((2, 0), (1, 1))
        for subtask in named(f"source/{index}", f"count/{index}")
    }
    assert world.coming == 1
    world.offer()
    pass_time(world, world.now_ms + 2_000)
    assert (shape(world), answers(world)) == ([3, 3], [(1, None)])


def deployments(world: World) -> list[SendToSlot]:
    return [c for c in world.of(SendToSlot) if isinstance(c.message, Deploy)]


@pytest.mark.feature("F280")
def test_a_failure_while_it_is_deployed_is_an_ordinary_restart_at_the_new_parallelism() -> None:
    world = made(RESTARTS)
    ask(world, 3)
    world.prompt = False
    world.send(CheckpointRequested(7, SnapshotKind.CHECKPOINT))
    while len(world.of(Deployed)) == 1:
        world.deliver()
    world.change(current(world)[named("count/2")[0]], ExecutionState.FAILED, BROKEN)
    world.prompt = True
    assert answers(world) == [] and len(world.of(Restarting)) == 1
    pass_time(world, world.now_ms + 1_000)
    assert (shape(world), answers(world)) == ([3, 3], [(1, None)])
    seen = world.machine.view(world.now_ms)
    assert (seen.restarts, seen.rescales) == (1, 1)


def test_a_slot_lost_while_all_is_stopped_is_noted_and_replaced() -> None:
    world = made(RESTARTS)
    ask(world, 3)
    world.prompt = False
    world.send(CheckpointRequested(7, SnapshotKind.CHECKPOINT))
    while not world.of(Rescaling):
        world.deliver()
    world.lose(SlotId("slot-1"), SlotLost("killed"))
    world.prompt = True
    pass_time(world, world.now_ms + 1_000)
    while world.coming:
        world.offer()
    pass_time(world, world.now_ms + 1_000)
    assert (shape(world), answers(world)) == ([3, 3], [(1, None)])
    seen = world.machine.view(world.now_ms)
    assert "killed" in seen.failures[0].error and not seen.restarts


def test_a_checkpoint_that_completed_meanwhile_and_does_not_fit_leaves_the_job_as_it_is() -> None:
    """Of a finished consumer behind a producer that runs: no job gets there by itself."""
    world = made(replace(EVERY_SECOND, rescale=RescaleSettings(max_delay_ms=0)))
    for index in (0, 1):
        world.change(current(world)[named(f"count/{index}")[0]], ExecutionState.FINISHED)
    pass_time(world, world.now_ms + 1_000)
    ask(world, 3)
    (done,) = world.of(RescaleDone)
    assert "Illegal JobGraph modification" in str(done.error)
    assert not world.of(Rescaling) and world.status is JobStatus.RUNNING


def test_attempts_count_on_from_shape_to_shape() -> None:
    world = made()
    for request, parallelism in enumerate((3, 1, 2)):
        ask(world, parallelism, request)
        pass_time(world, world.now_ms + 1_000)
        assert shape(world) == [parallelism] * 2
        attempts = {subtask.attempt for subtask in world.subtasks()}
        assert attempts == {Attempt(request + 1)}
    every = [deploy.execution for deploy in world.sent(Deploy)]
    assert len(every) == len(set(every))


def test_a_job_that_is_cancelled_meanwhile_ends() -> None:
    world = made()
    ask(world, 3)
    world.send(CancelRequested())
    assert world.over is not None and world.over.status is JobStatus.CANCELED
    ask(world, 4, request=2)
    assert not world.of(Rescaling)


# --- the shape ------------------------------------------------------------------------------------


def test_a_step_with_a_parallelism_of_its_own_keeps_it() -> None:
    topology = rescaled(chain(vertex("source", 2), OWN, vertex("sink", 2)), 4)
    assert [v.parallelism for v in topology.vertices] == [4, 1, 4]
    with pytest.raises(RescaleRefused, match="parallelism of its own"):
        rescaled(chain(OWN), 2)


def test_rows_go_round_between_sides_that_are_no_longer_equal() -> None:
    own = replace(OWN, parallelism=2)
    topology = chain(vertex("source", 2), own, partitioner=Partitioner.FORWARD)
    topology = replace(topology, edges=(replace(topology.edges[0], by_parallelism=True),))
    grown = rescaled(topology, 3)
    assert grown.edges[0].partitioner is Partitioner.REBALANCE
    assert rescaled(grown, 2) == topology
    chosen = replace(topology, edges=(replace(topology.edges[0], by_parallelism=False),))
    with pytest.raises(RescaleRefused, match="rows go forward from one to the other"):
        rescaled(chosen, 3)


def program(parallelism: int) -> Topology:
    """Steps that follow the job's parallelism, and one that has its own."""
    env = StreamExecutionEnvironment.local(parallelism).disable_operator_chaining()
    numbers = env.generate(abs, 10, None, Types.LONG()).uid("numbers")
    own = numbers.map(abs).uid("own").set_parallelism(2)
    keyed = own.map(abs).uid("map").key_by(abs, key_type=Types.LONG()).reduce(max).uid("max")
    keyed.rebalance().map(abs).uid("spread").print().uid("print")
    return env.get_job_graph().topology


def test_a_rescale_decides_as_a_start_with_that_parallelism_does() -> None:
    started = {parallelism: program(parallelism) for parallelism in (1, 2, 3)}
    assert [v.parallelism for v in started[3].vertices] == [3, 2, 3, 3, 3, 3]
    for before in started.values():
        for parallelism, after in started.items():
            assert rescaled(before, parallelism) == after


def test_a_chain_keeps_the_parallelism_that_one_of_its_steps_has_by_itself() -> None:
    env = StreamExecutionEnvironment.local(2)
    numbers = env.generate(abs, 10, None, Types.LONG()).map(abs).set_parallelism(2)
    numbers.key_by(abs, key_type=Types.LONG()).reduce(max).print()
    grown = rescaled(env.get_job_graph().topology, 3)
    assert [vertex.parallelism for vertex in grown.vertices] == [2, 3]
    alone = StreamExecutionEnvironment.local(1)
    alone.from_collection([1, 2]).map(abs).print()
    with pytest.raises(RescaleRefused, match="parallelism of its own"):
        rescaled(alone.get_job_graph().topology, 2)

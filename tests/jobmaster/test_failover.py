"""Which subtasks a failure takes along, and what the others do meanwhile: they go on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.world import chain, vertex
from tests.jobmaster.steps import BROKEN, STRANDS, current, fail, named, pass_time
from tests.worlds.jobmaster import World, with_checkpoints
from tidegate.checkpoint.coordinator.commands import AddPointer, CheckpointEnded
from tidegate.checkpoint.coordinator.events import OperatorEventSent
from tidegate.errors import ConfigError, FormatError, SlotLost, UserCodeFailed
from tidegate.jobmaster.commands import (
    CloseCoordinators,
    Deployed,
    DropSlot,
    FallingBack,
    LabelFailure,
    ResetSubtasks,
    Restarting,
    RestoreHooks,
    SendToSlot,
    StartCoordinators,
    SubtaskReady,
)
from tidegate.jobmaster.events import (
    CoordinatorFailed,
    FailureLabelled,
    HooksNotRestored,
    HooksRestored,
)
from tidegate.jobmaster.execution_graph import Regions
from tidegate.jobmaster.machine import CANCEL_TIMEOUT_MS
from tidegate.model.control import (
    Cancel,
    CheckpointAborted,
    CheckpointComplete,
    CheckpointDeclined,
    Deploy,
    ExecutionState,
    JobStatus,
    Start,
    SubtaskChanged,
    TriggerCheckpoint,
)
from tidegate.model.elements import OperatorEvent
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId, SlotId, SubtaskId
from tidegate.model.settings import (
    ExponentialDelay,
    FailoverStrategy,
    FixedDelay,
    JobSettings,
    NoRestart,
    RestoreSettings,
)
from tidegate.model.topology import Edge, Partitioner, Topology

REGION, FULL = FailoverStrategy.REGION, FailoverStrategy.FULL
RESTARTS = JobSettings(restart=FixedDelay(attempts=100, delay_ms=2_000), slots_timeout_ms=10**9)
FIRST = CheckpointId(1)


def together(*topologies: Topology) -> Topology:
    """Pipelines in one job."""
    return Topology(
        tuple(vertex for topology in topologies for vertex in topology.vertices),
        tuple(edge for topology in topologies for edge in topology.edges),
    )


TWO = together(
    chain(vertex("left", 2, coordinator=True), vertex("sum", 1)),
    chain(vertex("right", 2), vertex("count", 2)),
)


def attempts(world: World) -> dict[str, set[int]]:
    """The attempts shown, by vertex."""
    view = world.machine.view(world.now_ms)
    return {v.name: {s.attempt for s in v.subtasks} for v in view.vertices}


# --- regions --------------------------------------------------------------------------------------


@pytest.mark.feature("F010")
def test_pipelines_that_share_no_edge_are_regions_of_their_own() -> None:
    regions = Regions(TWO, REGION)
    assert regions.closure(named("sum/0")) == named("left/0", "left/1", "sum/0")
    assert regions.closure(named("right/1")) == named("right/0", "right/1", "count/0", "count/1")
    assert regions.closure(named("sum/0", "left/1")) == named("left/0", "left/1", "sum/0")
    assert regions.closure(named("count/1", "left/1")) == regions.all


def test_the_strands_of_a_pointwise_pipeline_are_regions_an_exchange_joins_them() -> None:
    assert Regions(STRANDS, REGION).closure(named("write/1")) == named("read/1", "write/1")
    exchanged = replace(STRANDS, edges=(replace(STRANDS.edges[0], partitioner=Partitioner.HASH),))
    regions = Regions(exchanged, REGION)
    assert regions.closure(named("write/1")) == regions.all


def test_a_pointwise_edge_to_fewer_joins_those_that_meet() -> None:
    topology = chain(vertex("a", 4), vertex("b", 2), partitioner=Partitioner.RESCALE)
    assert Regions(topology, REGION).closure(named("a/1")) == named("a/0", "a/1", "b/0")


def test_with_the_strategy_full_all_are_one() -> None:
    regions = Regions(STRANDS, FULL)
    assert regions.closure(named("read/2")) == regions.all == tuple(STRANDS.subtasks())


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    vertices = [vertex(f"v{n}", draw(st.integers(1, 4))) for n in range(draw(st.integers(1, 6)))]
    edges = []
    for target in range(1, len(vertices)):
        for source in draw(st.sets(st.integers(0, target - 1), max_size=2)):
            partitioner = draw(st.sampled_from(Partitioner))
            if partitioner is Partitioner.FORWARD:
                vertices[target] = replace(
                    vertices[target], parallelism=vertices[source].parallelism
                )
            edges.append(Edge(vertices[source].id, vertices[target].id, partitioner, 0))
    return Topology(tuple(vertices), tuple(edges))


def reached(topology: Topology, start: SubtaskId) -> set[SubtaskId]:
    """All that channels lead to from a subtask, either way: by walking, unlike `Regions`."""
    neighbours: dict[SubtaskId, set[SubtaskId]] = {s: set() for s in topology.subtasks()}
    for index, edge in enumerate(topology.edges):
        for channel in topology.channels(index):
            producer = SubtaskId(edge.source, channel.producer)
            consumer = SubtaskId(edge.target, channel.consumer)
            neighbours[producer].add(consumer)
            neighbours[consumer].add(producer)
    found, todo = {start}, [start]
    while todo:
        new = neighbours[todo.pop()] - found
        found |= new
        todo += new
    return found


@given(topology=topologies())
def test_a_region_is_all_that_channels_lead_to_and_no_more(topology: Topology) -> None:
    regions = Regions(topology, REGION)
    for subtask in topology.subtasks():
        assert set(regions.closure((subtask,))) == reached(topology, subtask)
        assert regions.closure([subtask]) == regions.closure((subtask,))


# --- the restart of a region ----------------------------------------------------------------------


@pytest.mark.feature("F010", "F275")
def test_of_two_pipelines_only_the_one_that_failed_is_deployed_again() -> None:
    world = World(RESTARTS, TWO).running()
    others = named("right/0", "right/1", "count/0", "count/1")
    before = len(world.log)
    fail(world, "sum/0")
    assert world.status is JobStatus.RESTARTING
    cancelled = [m.execution.subtask for m in world.sent(Cancel)]
    assert cancelled == list(named("left/0", "left/1"))
    pass_time(world, 2_000)
    assert world.status is JobStatus.RUNNING
    assert attempts(world) == {"left": {1}, "sum": {1}, "right": {0}, "count": {0}}
    said = [c.message for c in world.log[before:] if isinstance(c, SendToSlot)]
    assert all(message.execution.subtask not in others for message in said)
    assert world.of(Deployed) == [Deployed(0, None, 7), Deployed(1, None, 3)]
    assert world.machine.view(world.now_ms).restarts == len(world.of(Restarting)) == 1


def test_with_the_strategy_full_both_pipelines_are() -> None:
    world = World(replace(RESTARTS, failover=FULL), TWO).running()
    fail(world, "sum/0")
    pass_time(world, 2_000)
    assert attempts(world) == {"left": {1}, "sum": {1}, "right": {1}, "count": {1}}
    assert len(world.of(StartCoordinators)) == 2


def test_attempts_are_counted_for_each_region() -> None:
    world = World(RESTARTS, TWO).running()
    for at_ms, name in [(2_000, "sum/0"), (4_000, "sum/0"), (6_000, "count/1")]:
        fail(world, name)
        pass_time(world, at_ms)
    assert attempts(world) == {"left": {2}, "sum": {2}, "right": {1}, "count": {1}}
    world.send(CoordinatorFailed(TWO.vertices[0].operators[0].id, BROKEN))
    pass_time(world, 8_000)
    assert attempts(world) == {"left": {3}, "sum": {3}, "right": {2}, "count": {2}}


def test_coordinators_live_on_and_hear_who_was_reset_and_from_what() -> None:
    world = World(with_checkpoints(RESTARTS), STRANDS).running()
    world.wake_up_to(500)
    operator = STRANDS.vertices[0].operators[0].id
    fail(world, "write/1")
    pass_time(world, 3_000)
    (read,) = named("read/1")
    again = current(world)[read]
    assert again.attempt == 1
    assert world.of(ResetSubtasks) == [ResetSubtasks(FIRST, {operator: (again,)})]
    assert len(world.of(StartCoordinators)) == 1 and world.of(CloseCoordinators) == []
    assert [r.execution for r in world.of(SubtaskReady)][3:] == [again]
    order = [type(c) for c in world.log]
    assert order.index(ResetSubtasks) < len(order) - order[::-1].index(SendToSlot) - 1


def test_what_a_coordinator_sends_to_the_failed_attempt_reaches_nobody() -> None:
    world = World(RESTARTS, STRANDS).running()
    operator = STRANDS.vertices[0].operators[0].id
    old = {s: e for s, e in current(world).items()}
    fail(world, "write/1")
    read_1, read_2 = named("read/1", "read/2")
    split = OperatorEvent("split")
    assert world.send(OperatorEventSent(old[read_1], operator, split)) == []
    pass_time(world, 2_000)
    assert world.send(OperatorEventSent(old[read_1], operator, split)) == []
    for subtask in (read_1, read_2):
        (sent,) = world.send(OperatorEventSent(current(world)[subtask], operator, split))
        assert isinstance(sent, SendToSlot)


def test_the_others_finish_while_a_region_waits_for_its_restart() -> None:
    world = World(RESTARTS, STRANDS).running()
    fail(world, "write/0")
    for subtask in named("read/2", "write/2"):
        world.change(current(world)[subtask], ExecutionState.FINISHED)
    assert world.over is None
    pass_time(world, 2_000)
    assert [s.attempt for s in world.subtasks()] == [1, 0, 0, 1, 0, 0]
    assert world.subtasks()[2].state is ExecutionState.FINISHED
    world.finish_all()
    assert world.over is not None and world.over.status is JobStatus.FINISHED


def restored(world: World, *subtasks: SubtaskId) -> list[SubtaskId]:
    """These are; who is started then."""
    before = len(world.sent(Start))
    for subtask in subtasks:
        world.send(SubtaskChanged(current(world)[subtask], ExecutionState.INITIALIZING))
    return [start.execution.subtask for start in world.sent(Start)[before:]]


def test_regions_that_are_deployed_together_start_together() -> None:
    world = World(RESTARTS, STRANDS, prompt=False).start()
    while world.coming:
        world.offer()
    *most, last = STRANDS.subtasks()
    assert restored(world, *most) == []
    assert restored(world, last) == [*most, last]
    assert restored(world, last) == []


def test_a_region_that_fails_while_it_is_restored_holds_up_no_other() -> None:
    world = World(RESTARTS, STRANDS, prompt=False).start()
    while world.coming:
        world.offer()
    world.waiting.clear()
    others = named("read/0", "read/2", "write/0", "write/2")
    assert restored(world, *others, *named("read/1")) == []
    fail(world, "write/1")
    assert [start.execution.subtask for start in world.sent(Start)] == list(others)
    while world.waiting:
        world.deliver()
    world.waiting.clear()
    world.wake_up_to(2_000)
    assert restored(world, *named("read/1")) == []
    assert restored(world, *named("write/1")) == list(named("read/1", "write/1"))


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_region_is_restored_from_the_newest_checkpoint_and_the_next_has_all() -> None:
    world = World(with_checkpoints(RESTARTS), TWO).running()
    world.wake_up_to(500)
    assert [t.execution.subtask for t in world.sent(TriggerCheckpoint)] == list(
        named("left/0", "left/1", "right/0", "right/1")
    )
    fail(world, "sum/0")
    triggered = len(world.sent(TriggerCheckpoint))
    pass_time(world, 2_000)
    assert len(world.sent(TriggerCheckpoint)) == triggered, "not all subtasks run"
    pass_time(world, 4_000)
    assert {d.restored for d in world.sent(Deploy)[7:]} == {1}
    by_checkpoint = [t for t in world.sent(TriggerCheckpoint) if t.checkpoint == 2]
    assert [t.execution for t in by_checkpoint] == [
        current(world)[s] for s in named("left/0", "left/1", "right/0", "right/1")
    ]
    told = {c.execution for c in world.sent(CheckpointComplete) if c.checkpoint == 2}
    assert told == set(current(world).values())


def test_a_checkpoint_under_way_is_given_up_and_the_living_are_told() -> None:
    world = World(with_checkpoints(RESTARTS), TWO).running()
    for slot in world.slots.values():
        slot.deaf = True
    world.wake_up_to(100)
    fail(world, "sum/0")
    (ended,) = world.of(CheckpointEnded)
    assert ended.reason is FailureReason.TASK_FAILURE
    told = [m.execution.subtask for m in world.sent(CheckpointAborted)]
    assert set(named("right/0", "right/1", "count/0", "count/1")) <= set(told)


def test_a_failure_that_no_task_reports_gives_checkpoints_up_as_a_failover() -> None:
    world = World(with_checkpoints(RESTARTS), TWO).running()
    for slot in world.slots.values():
        slot.deaf = True
    world.wake_up_to(100)
    world.send(CoordinatorFailed(TWO.vertices[0].operators[0].id, BROKEN))
    assert [e.reason for e in world.of(CheckpointEnded)] == [FailureReason.JOB_FAILOVER_REGION]


def test_a_region_waits_until_it_is_known_whether_a_checkpoint_stands() -> None:
    world = World(with_checkpoints(RESTARTS), TWO, prompt=False).start()
    while world.coming:
        world.offer()
    while world.waiting:
        world.deliver()
    world.wake_up_to(100)
    while not world.of(AddPointer):
        world.deliver()
    (added,) = list(world.waiting)
    world.waiting.clear()
    fail(world, "sum/0")
    while world.waiting:
        world.deliver()
    world.wake_up_to(5_000)
    assert len(world.of(Deployed)) == 1
    world.send(added)
    assert world.of(Deployed)[1:] == [Deployed(1, 1, 3)]
    told = {c.execution.subtask for c in world.sent(CheckpointComplete)}
    assert told == set(named("right/0", "right/1", "count/0", "count/1"))


def test_too_many_failed_checkpoints_of_one_subtask_restart_its_region() -> None:
    world = World(with_checkpoints(RESTARTS), TWO).running()
    for slot in world.slots.values():
        slot.deaf = True
    world.wake_up_to(100)
    (subtask,) = named("count/1")
    reason = FailureReason.CHECKPOINT_ASYNC_EXCEPTION
    world.send(CheckpointDeclined(current(world)[subtask], CheckpointId(1), reason))
    assert {m.execution.subtask for m in world.sent(Cancel)} == set(
        named("right/0", "right/1", "count/0", "count/1")
    )


# --- master hooks ---------------------------------------------------------------------------------


@pytest.mark.feature("F181")
def test_master_hooks_are_restored_before_a_region_is_too() -> None:
    world = World(with_checkpoints(RESTARTS), TWO, hooks=True).running()
    world.send(HooksRestored())
    world.wake_up_to(500)
    fail(world, "sum/0")
    pass_time(world, 3_000)
    assert world.of(RestoreHooks)[1:] == [RestoreHooks(FIRST, (), allow_unmatched=True)]
    assert len(world.of(Deployed)) == 1
    world.send(HooksRestored())
    assert world.of(Deployed)[1:] == [Deployed(1, 1, 3)]


def test_hooks_that_cannot_be_restored_fail_the_whole_job() -> None:
    world = World(RESTARTS, TWO, hooks=True).running()
    world.send(HooksRestored())
    fail(world, "sum/0")
    pass_time(world, 2_000)
    world.send(HooksNotRestored(UserCodeFailed("the store is locked")))
    assert world.machine.view(world.now_ms).restarts == 2
    pass_time(world, 4_000)
    world.send(HooksRestored())
    assert world.of(Deployed)[1:] == [Deployed(1, None, 7)]


# --- what fails meanwhile -------------------------------------------------------------------------


@pytest.mark.feature("F276")
def test_another_region_that_fails_meanwhile_joins_the_restart_and_its_entry() -> None:
    world = World(RESTARTS, TWO).running()
    fail(world, "sum/0")
    world.wake_up_to(500)
    fail(world, "count/1", UserCodeFailed("later"))
    assert {m.execution.subtask for m in world.sent(Cancel)} == set(TWO.subtasks()) - set(
        named("sum/0", "count/1")
    )
    assert len(world.of(CloseCoordinators)) == 1, "now all are restarted"
    pass_time(world, 3_000)
    assert world.of(Deployed)[1:] == [Deployed(1, None, 7)]
    view = world.machine.view(world.now_ms)
    (entry,) = view.failures
    (other,) = entry.concurrent
    assert view.restarts == 1 and "later" in other.error
    assert (other.task, other.slot, other.wall_ms - entry.wall_ms) == ("count", "slot-1", 500)


def test_some_regions_of_many_can_be_restarted_together() -> None:
    world = World(RESTARTS, STRANDS).running()
    fail(world, "read/0")
    fail(world, "write/2")
    pass_time(world, 2_000)
    assert [s.attempt for s in world.subtasks()] == [1, 0, 1, 1, 0, 1]
    assert world.of(CloseCoordinators) == []


def test_a_failure_while_a_region_is_being_restored_is_one_of_its_own() -> None:
    world = World(RESTARTS, STRANDS).running()
    fail(world, "read/0")
    world.prompt = False
    while world.now_ms < 2_000 or not world.of(Deployed)[1:]:
        world.wake_up_to(world.now_ms + 500)
    world.waiting.clear()
    fail(world, "write/2")
    assert world.machine.view(world.now_ms).restarts == 2
    assert [m.execution.subtask for m in world.sent(Cancel)] == list(named("write/0", "read/2"))


def test_what_only_the_user_can_mend_ends_the_job_though_another_region_restarts() -> None:
    world = World(RESTARTS, STRANDS, prompt=False).start()
    while world.coming:
        world.offer()
    world.prompt = True
    fail(world, "read/0")
    fail(world, "write/2", ConfigError("no such folder"))
    assert world.over is not None and world.over.status is JobStatus.FAILED
    assert "no such folder" in str(world.over.error)


def test_a_failed_coordinator_widens_the_restart_of_a_region_to_all() -> None:
    world = World(RESTARTS, STRANDS).running()
    fail(world, "read/0")
    world.send(CoordinatorFailed(STRANDS.vertices[0].operators[0].id, BROKEN))
    pass_time(world, 2_000)
    assert {s.attempt for s in world.subtasks()} == {1}
    assert len(world.of(CloseCoordinators)) == 1 and len(world.of(StartCoordinators)) == 2
    assert world.machine.view(world.now_ms).restarts == 1


@pytest.mark.feature("F274")
def test_two_regions_that_fail_in_one_backoff_count_once() -> None:
    made = replace(RESTARTS, restart=ExponentialDelay(initial_ms=2_000, jitter=0.0))
    world = World(made, STRANDS).running()
    fail(world, "read/0")
    pass_time(world, 1_000)
    fail(world, "read/1")
    pass_time(world, 2_000)
    assert world.status is JobStatus.RUNNING
    fail(world, "read/0")
    assert [r.delay_ms for r in world.of(Restarting)] == [2_000, 3_000]


def test_without_restarts_the_failure_of_one_region_ends_the_job() -> None:
    world = World(JobSettings(restart=NoRestart()), TWO).running()
    fail(world, "sum/0")
    assert world.over is not None and world.over.status is JobStatus.FAILED
    assert len(world.sent(Cancel)) == 6


# --- slots ----------------------------------------------------------------------------------------


def test_a_lost_slot_restarts_the_regions_that_it_hosted_on_its_replacement() -> None:
    world = World(RESTARTS, STRANDS).running()
    lost = SlotId("slot-1")
    world.lose(lost, SlotLost("killed"))
    assert world.sent(Cancel) == []
    new = world.offer()
    pass_time(world, 2_000)
    assert [s.attempt for s in world.subtasks()] == [0, 1, 0, 0, 1, 0]
    again = world.sent(Deploy)[6:]
    assert {world.slot_of(deploy.execution) for deploy in again} == {new.id}
    assert all(set(deploy.peers.values()) == {new.id} for deploy in again)


def test_a_slot_lost_during_the_restart_of_another_region_brings_its_own_along() -> None:
    world = World(RESTARTS, STRANDS).running()
    fail(world, "read/0")
    world.lose(SlotId("slot-1"), SlotLost("killed"))
    world.offer()
    pass_time(world, 2_000)
    assert [s.attempt for s in world.subtasks()] == [1, 1, 0, 1, 1, 0]


def test_a_slot_that_does_not_cancel_takes_along_the_other_regions_it_hosts() -> None:
    world = World(RESTARTS, TWO).running()
    deaf = world.slots[SlotId("slot-1")]
    deaf.deaf = True
    fail(world, "sum/0")
    pass_time(world, CANCEL_TIMEOUT_MS - 1_000)
    assert world.of(DropSlot) == []
    pass_time(world, CANCEL_TIMEOUT_MS)
    assert [drop.slot for drop in world.of(DropSlot)] == [deaf.id]
    world.offer()
    pass_time(world, CANCEL_TIMEOUT_MS + 2_000)
    assert attempts(world) == {"left": {1}, "sum": {1}, "right": {1}, "count": {1}}


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.feature("F277")
def test_labels_stand_beside_their_failure_and_can_be_searched_for() -> None:
    world = World(RESTARTS, TWO).running()
    fail(world, "sum/0")
    fail(world, "count/1", UserCodeFailed("later"))
    first, second = world.of(LabelFailure)
    assert (first.error, first.task, first.slot) == (BROKEN, "sum", "slot-0")
    world.send(FailureLabelled(second.number, {"kind": "data"}), FailureLabelled(99, {"x": "y"}))
    pass_time(world, 2_000)
    fail(world, "sum/0")
    view = world.machine.view(world.now_ms)
    assert view.failures_labelled("kind", "data") == (view.failures[1],)
    assert view.failures[1].concurrent[0].labels == {"kind": "data"}
    assert view.failures_labelled("kind", "network") == ()


def test_a_label_may_come_after_the_end() -> None:
    world = World(JobSettings(restart=NoRestart()), TWO).running()
    fail(world, "sum/0")
    assert world.over is not None
    world.send(FailureLabelled(world.of(LabelFailure)[0].number, {"kind": "data"}))
    assert world.machine.view(world.now_ms).failures_labelled("kind", "data")


# --- every region but those that failed goes on ---------------------------------------------------


@given(
    failing=st.lists(st.sampled_from([str(name) for name in range(6)]), max_size=6),
    pauses=st.lists(st.sampled_from([0, 700, 2_500]), min_size=6, max_size=6),
)
def test_a_region_is_deployed_again_only_for_a_failure_of_its_own(
    failing: list[str], pauses: list[int]
) -> None:
    world = World(with_checkpoints(RESTARTS), STRANDS).running()
    failed: set[int] = set()
    for number, pause in zip(failing, pauses, strict=False):
        subtask = tuple(STRANDS.subtasks())[int(number)]
        execution = current(world)[subtask]
        if world.states.get(execution) is ExecutionState.RUNNING:
            failed.add(subtask.index)
            world.change(execution, ExecutionState.FAILED, BROKEN)
        pass_time(world, world.now_ms + pause)
    pass_time(world, world.now_ms + 3_000)
    assert world.status is JobStatus.RUNNING
    for view in world.subtasks():
        assert view.state is ExecutionState.RUNNING
        assert (view.attempt > 0) == (view.index in failed)


def test_damage_that_is_met_behind_another_failure_is_left_to_the_next_restore() -> None:
    made = with_checkpoints(replace(RESTARTS, restore=RestoreSettings(fall_back=True)))
    made = replace(made, checkpoints=replace(made.checkpoints, retained_max=2))
    world = World(made, TWO).running()
    pass_time(world, 2_500)
    world.lose(next(iter(world.slots)))
    deploy_only(world, 2)
    fail(world, "left/0", SlotLost("a link broke"))
    fail(world, "right/0", FormatError("a bit is wrong"))
    assert world.status is JobStatus.RESTARTING and world.of(FallingBack) == []
    deploy_only(world, 3)
    fail(world, "right/0", FormatError("a bit is wrong"))
    assert len(world.of(FallingBack)) == 1 and world.status is JobStatus.RUNNING


def deploy_only(world: World, times: int) -> None:
    """Until the job has been deployed so many times; nothing has answered that."""
    world.prompt = False
    pass_time(world, world.now_ms + 4_000)
    while world.coming:
        world.offer()
    while world.waiting and len(world.of(Deployed)) < times:
        world.deliver()
    world.waiting.clear()
    world.prompt = True

"""The job master in any order of events: it never sticks, never spins, never raises."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.world import chain, vertex
from tests.properties import examples
from tests.worlds.jobmaster import WALL_MS, World
from tidegate.checkpoint.coordinator.events import Woke
from tidegate.errors import SlotLost, UserCodeFailed
from tidegate.jobmaster.commands import JobOver, RescaleDone, SendToSlot, StartCoordinators
from tidegate.jobmaster.events import (
    CancelRequested,
    CoordinatorFailed,
    DriverHindered,
    JobEvent,
    JobStarted,
    RescaleRequested,
    SlotLeft,
    SlotRequestFailed,
    StartFailed,
)
from tidegate.model.control import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointFigures,
    Deploy,
    ExecutionState,
    JobStatus,
    Offer,
    Pulse,
    Start,
    SubtaskChanged,
)
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Attempt, CheckpointId, Epoch, ExecutionId, SlotId, SubtaskId
from tidegate.model.settings import (
    CheckpointSettings,
    ExponentialDelay,
    FixedDelay,
    JobSettings,
    NoRestart,
    RescaleSettings,
)
from tidegate.model.topology import Partitioner, Topology

TOPOLOGY = chain(vertex("source", 2, coordinator=True), vertex("sink", 1))
REGIONS = chain(
    vertex("source", 2, coordinator=True), vertex("sink", 2), partitioner=Partitioner.FORWARD
)
WIDE = chain(vertex("source", 4, coordinator=True), vertex("sink", 3))
OPERATOR = TOPOLOGY.vertices[0].operators[0].id
BROKEN = UserCodeFailed("bad row")

SETTINGS = st.builds(
    JobSettings,
    restart=st.sampled_from(
        [NoRestart(), FixedDelay(2, 500), FixedDelay(10_000, 0), ExponentialDelay()]
    ),
    checkpoints=st.sampled_from(
        [CheckpointSettings(), CheckpointSettings(interval_ms=700, timeout_ms=3_000)]
    ),
    slots_timeout_ms=st.sampled_from([5_000, 10**9]),
    rescale=st.sampled_from([RescaleSettings(), RescaleSettings(max_delay_ms=2_000)]),
    on_survivors=st.booleans(),
)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["deliver"] * 8
            + ["offer"] * 4
            + ["time"] * 4
            + [
                "fail",
                "kill",
                "finish",
                "coordinator",
                "no slot",
                "deaf",
                "stray",
                "cancel",
                "unready",
            ]
            + ["rescale"] * 2
        ),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(topology=st.sampled_from([TOPOLOGY, REGIONS]), made=SETTINGS, actions=ACTIONS)
@examples(300)
def test_when_all_answer_again_the_job_runs_or_is_over(
    topology: Topology, made: JobSettings, actions: list[tuple[str, int]]
) -> None:
    world = World(made, topology, prompt=False).start()
    for action, number in actions:
        act(world, action, number)
        check(world)
    calm(world)
    if world.over is None:
        assert world.status is JobStatus.RUNNING
        assert {s.state for s in world.subtasks()} <= {
            ExecutionState.RUNNING,
            ExecutionState.FINISHED,
        }
        world.finish_all()
        calm(world)
    assert world.over is not None and world.machine.settled
    assert len(world.of(JobOver)) == 1
    assert world.machine.wake_at_ms is None
    answered = [done.request for done in world.of(RescaleDone)]
    assert len(answered) == len(set(answered)), "each that asks is answered once at most"


@given(topology=st.sampled_from([TOPOLOGY, REGIONS, WIDE]), made=SETTINGS, actions=ACTIONS)
@examples(300)
def test_guests_are_where_slots_live_and_return_when_all_have_come(
    topology: Topology, made: JobSettings, actions: list[tuple[str, int]]
) -> None:
    periodic = CheckpointSettings(interval_ms=700, tolerable_failures=10**9)
    settings = replace(made, on_survivors=True, checkpoints=periodic)
    world = World(settings, topology, prompt=False).start()
    for action, number in actions:
        act(world, action, number)
        for subtask in world.subtasks():
            lives = not subtask.state.is_terminal
            assert not subtask.guest or (lives and subtask.slot in world.slots)
    calm(world)
    for _ in range(5):
        world.beat()
        world.wake_up_to(world.now_ms + 1_000)
        calm(world)
    assert not any(subtask.guest for subtask in world.subtasks())
    living = [s for s in world.subtasks() if not s.state.is_terminal]
    assert len({s.slot for s in living}) == len({s.index for s in living})


def act(world: World, action: str, number: int) -> None:
    running = [e for e, s in world.states.items() if s is ExecutionState.RUNNING]
    slots = list(world.slots)
    match action:
        case "deliver" if world.waiting:
            world.deliver()
        case "offer" if world.coming:
            world.offer()
        case "time":
            world.beat()
            world.wake_up_to(world.now_ms + number * 300)
        case "fail" if running:
            world.change(running[number % len(running)], ExecutionState.FAILED, BROKEN)
        case "finish" if running:
            world.change(running[number % len(running)], ExecutionState.FINISHED)
        case "kill" if slots:
            world.lose(slots[number % len(slots)], SlotLost("killed"))
        case "deaf" if slots:
            world.slots[slots[number % len(slots)]].deaf = True
        case "coordinator":
            world.send(CoordinatorFailed(OPERATOR, BROKEN))
        case "no slot" if world.coming:
            world.coming -= 1
            world.send(SlotRequestFailed(SlotLost("no core")))
        case "stray" if world.executions:
            world.send(SubtaskChanged(world.executions[0], ExecutionState.INITIALIZING))
        case "rescale":
            world.rescales += 1
            world.send(RescaleRequested(world.rescales, number))
        case "unready" if number == 5:
            world.send(StartFailed(BROKEN))
        case "cancel" if number == 5:
            world.send(CancelRequested())
        case _:
            pass


def check(world: World) -> None:
    """Nobody starts before all of his attempt were deployed; no two attempts of one subtask."""
    deployed = {d.execution for d in world.sent(Deploy)}
    assert {s.execution for s in world.sent(Start)} <= deployed
    alive: dict[SubtaskId, set[Attempt]] = {}
    for execution, state in world.states.items():
        if not state.is_terminal:
            alive.setdefault(execution.subtask, set()).add(execution.attempt)
    assert all(len(attempts) == 1 for attempts in alive.values())


def calm(world: World) -> None:
    """Everybody answers, nothing fails any more, time passes."""
    for slot in [s for s, fake in world.slots.items() if fake.deaf]:
        world.lose(slot, SlotLost("killed"))
    for _ in range(100):
        answer_all(world)
        world.beat()
        world.wake_up_to(world.now_ms + 1_000)
        answer_all(world)
        states = {subtask.state for subtask in world.subtasks()}
        all_run = bool(states) and states <= {ExecutionState.RUNNING, ExecutionState.FINISHED}
        if world.machine.settled or (world.status is JobStatus.RUNNING and all_run):
            return
    raise AssertionError(f"the job is stuck, {world.status}: {list(world.states.values())}")


def answer_all(world: World) -> None:
    while world.waiting or (world.coming and world.over is None):
        if world.waiting:
            world.deliver()
        else:
            world.offer()


# --- every event in every state -------------------------------------------------------------------

EXECUTION = ExecutionId(SubtaskId(TOPOLOGY.vertices[0].id, 0), Attempt(0), Epoch(1))
OTHER = EXECUTION._replace(attempt=Attempt(7))
EVENTS: list[JobEvent] = [
    Woke(),
    JobStarted(WALL_MS),
    Offer(SlotId("new"), "new:1", 1, "host", {}),
    Pulse(SlotId("slot-0")),
    Pulse(SlotId("nobody")),
    SlotLeft(SlotId("slot-0"), None),
    SlotLeft(SlotId("nobody"), SlotLost("x")),
    SlotRequestFailed(SlotLost("x")),
    SlotRequestFailed(SlotLost("x"), final=True),
    CoordinatorFailed(OPERATOR, BROKEN),
    DriverHindered(BROKEN),
    CancelRequested(),
    RescaleRequested(1, 3),
    RescaleRequested(2, 0),
    CheckpointAcknowledged(EXECUTION, CheckpointId(99), None, CheckpointFigures()),
    CheckpointDeclined(OTHER, CheckpointId(99), FailureReason.CHECKPOINT_DECLINED),
    *(SubtaskChanged(e, s, BROKEN) for e in (EXECUTION, OTHER) for s in ExecutionState),
]


def created() -> World:
    return World(replace(JobSettings(), restart=FixedDelay(9, 1_000)), TOPOLOGY, prompt=False)


def awaiting_slots() -> World:
    return created().start()


def deploying() -> World:
    world = awaiting_slots()
    while world.coming:
        world.offer()
    return world


def running() -> World:
    world = deploying()
    while world.waiting:
        world.deliver()
    return world


def restarting() -> World:
    world = running()
    world.change(world.executions[0], ExecutionState.FAILED, BROKEN)
    return world


def restarted() -> World:
    world = restarting()
    while world.waiting:
        world.deliver()
    world.wake_up_to(1_000)
    return world


def cancelling() -> World:
    world = running()
    world.send(CancelRequested())
    return world


def failing() -> World:
    world = running()
    world.send(SlotRequestFailed(SlotLost("x"), final=True))
    world.lose(SlotId("slot-0"))
    world.send(SlotRequestFailed(SlotLost("x"), final=True))
    return world


def over() -> World:
    world = running()
    world.finish_all()
    return world


@given(
    make=st.sampled_from(
        [
            created,
            awaiting_slots,
            deploying,
            running,
            restarting,
            restarted,
            cancelling,
            failing,
            over,
        ]
    ),
    events=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=3),
)
@examples(300)
def test_every_event_is_handled_in_every_state(make: object, events: list[JobEvent]) -> None:
    assert callable(make)
    world = make()
    started = world.status is not JobStatus.INITIALIZING
    for event in events:
        if isinstance(event, JobStarted) and started:
            continue  # the driver says it once
        started = started or isinstance(event, JobStarted)
        commands = world.machine.handle(event, world.now_ms)
        assert all(not isinstance(c, SendToSlot) or c.message is not None for c in commands)
    assert world.status in JobStatus


def test_coordinators_are_closed_before_they_are_made_anew() -> None:
    world = restarted()
    kinds = [type(c).__name__ for c in world.log]
    starts = [n for n, c in enumerate(world.log) if isinstance(c, StartCoordinators)]
    assert "CloseCoordinators" in kinds[starts[0] : starts[1]]

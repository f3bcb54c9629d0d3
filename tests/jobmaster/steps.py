"""What tests do to a job master: fail a subtask, let time pass, ask for a parallelism."""

from dataclasses import replace

from tests.checkpoint.world import chain, vertex
from tests.worlds.chance import FixedChance
from tests.worlds.jobmaster import World
from tidegate.checkpoint.coordinator.commands import CheckpointEnded
from tidegate.errors import (
    TidegateError,
    UserCodeFailed,
)
from tidegate.jobmaster.events import (
    RescaleRequested,
)
from tidegate.model.control import (
    Deploy,
    ExecutionState,
    Pulse,
)
from tidegate.model.ids import ExecutionId, SlotId, SubtaskId
from tidegate.model.settings import (
    CheckpointSettings,
    FixedDelay,
    JobSettings,
    NoRestart,
    RescaleSettings,
)
from tidegate.model.topology import Partitioner, Topology

BROKEN = UserCodeFailed("bad row")


STRANDS = chain(
    vertex("read", 3, coordinator=True), vertex("write", 3), partitioner=Partitioner.FORWARD
)


def named(*names: str) -> tuple[SubtaskId, ...]:
    """Subtasks as in "map/1"."""
    split = (name.split("/") for name in names)
    return tuple(SubtaskId(vertex(name, 1).id, int(index)) for name, index in split)


def current(world: World) -> dict[SubtaskId, ExecutionId]:
    """The newest attempt of each subtask."""
    return {deploy.execution.subtask: deploy.execution for deploy in world.sent(Deploy)}


def fail(world: World, name: str, error: TidegateError = BROKEN) -> None:
    (subtask,) = named(name)
    world.change(current(world)[subtask], ExecutionState.FAILED, error)


def pass_time(world: World, until_ms: int, *, silent: tuple[SlotId, ...] = ()) -> None:
    """Time passes; every slot beats each second but the silent ones."""
    for now in range(world.now_ms + 1_000, until_ms + 1, 1_000):
        for slot in [s for s in world.slots if s not in silent]:
            world.send(Pulse(slot))
        world.wake_up_to(now)


TWO = chain(vertex("source", 2, coordinator=True), vertex("count", 2))


EVERY_SECOND = JobSettings(
    restart=NoRestart(),
    checkpoints=CheckpointSettings(interval_ms=1_000, min_pause_ms=1_000, tolerable_failures=100),
    rescale=RescaleSettings(max_delay_ms=60_000, checkpoint_failures_max=2),
)


RESTARTS = replace(EVERY_SECOND, restart=FixedDelay(attempts=1, delay_ms=500))


def made(settings: JobSettings = EVERY_SECOND, topology: Topology = TWO) -> World:
    """A running job with one completed checkpoint, where there are any."""
    world = World(settings, topology, chance=FixedChance(1_000)).running()
    if settings.checkpoints.periodic:
        pass_time(world, world.now_ms + 1_000)
        assert completed(world) == 1
    return world


def ask(world: World, parallelism: int, request: int = 1, *, slots: bool = True) -> None:
    """Ask for a parallelism; the slots for it come where they may."""
    world.send(RescaleRequested(request, parallelism))
    while slots and world.coming:
        world.offer()


def completed(world: World) -> int:
    return len([ended for ended in world.of(CheckpointEnded) if ended.reason is None])

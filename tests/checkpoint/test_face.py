"""The protocol by its face alone: an engine of one source and one counter, in memory."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from random import Random

import pytest

from flinkformat.handles import (
    ByteStreamStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.snapshots import SubtaskState
from tidegate import checkpoint
from tidegate.checkpoint import commands, events
from tidegate.checkpoint.barriers import protocol
from tidegate.model.chance import SeededChance
from tidegate.model.control import (
    CheckpointAcknowledged,
    CheckpointFigures,
    ExecutionState,
    JobStatus,
    TriggerCheckpoint,
)
from tidegate.model.elements import Barrier
from tidegate.model.ids import (
    Attempt,
    ChannelId,
    CheckpointId,
    Epoch,
    ExecutionId,
    JobId,
    OperatorId,
    SubtaskId,
    VertexId,
)
from tidegate.model.settings import CheckpointSettings
from tidegate.model.topology import Edge, OperatorInfo, Partitioner, Topology, Vertex

LAST = 400
CHANNEL = ChannelId(0, 0, 0)
STATE = {"state": StateMetaInfo(StateDistribution.SPLIT_DISTRIBUTE, (0,))}


def vertex(name: str) -> Vertex:
    id_ = name.encode().ljust(16, b".")
    return Vertex(VertexId(id_), name, (OperatorInfo(OperatorId(id_), name),), 1, 128)


SOURCE, COUNTER = (SubtaskId(vertex(name).id, 0) for name in ("source", "counter"))
TOPOLOGY = Topology(
    (vertex("source"), vertex("counter")),
    (Edge(SOURCE.vertex, COUNTER.vertex, Partitioner.FORWARD, 0),),
)


class Engine:
    """Adds up the numbers to `LAST`, and checkpoints where it stands and what it has."""

    def __init__(self, seed: int) -> None:
        self.settings = CheckpointSettings(interval_ms=40)
        self.completed = checkpoint.CompletedCheckpoints(self.settings.retained_max)
        self.coordinator = checkpoint.CheckpointCoordinator(
            JobId("j" * 32),
            self.settings,
            TOPOLOGY,
            self.completed,
            checkpoint.SharedStateRegistry(),
            SeededChance(seed),
        )
        self.now_ms = 0
        self.attempt = -1
        self.send(events.JobStatusChanged(JobStatus.RUNNING))
        self.deploy()

    def deploy(self) -> None:
        self.attempt += 1
        self.queue: deque[int | Barrier] = deque()
        self.barriers = checkpoint.barrier_handler(self.settings, [CHANNEL])
        latest = self.coordinator.latest_completed()
        self.next, self.total = 1, 0
        if latest is not None:
            restores = checkpoint.assign(latest.metadata, TOPOLOGY)
            self.next = read(restores[SOURCE].operators.values())
            self.total = read(restores[COUNTER].operators.values())
        self.send(events.Restored(None if latest is None else latest.checkpoint, self.now_ms))
        self.all(ExecutionState.RUNNING)

    def fail(self) -> None:
        self.send(events.FailoverStarted())
        self.all(ExecutionState.CANCELED)
        self.deploy()

    def all(self, state: ExecutionState) -> None:
        for subtask in (SOURCE, COUNTER):
            self.send(events.ExecutionChanged(self.execution(subtask), state))

    def execution(self, subtask: SubtaskId) -> ExecutionId:
        return ExecutionId(subtask, Attempt(self.attempt), Epoch(1))

    def step(self, chance: Random) -> None:
        self.now_ms += 1
        wake_at_ms = self.coordinator.wake_at_ms
        if wake_at_ms is not None and wake_at_ms <= self.now_ms:
            self.send(events.Woke())
        if chance.random() < 0.5 and self.next <= LAST:
            self.queue.append(self.next)
            self.next += 1
        elif self.queue:
            self.take(self.queue.popleft())
        if chance.random() < 0.005:
            self.fail()

    def take(self, element: int | Barrier) -> None:
        if isinstance(element, int):
            self.total += element
            return
        for command in self.barriers.handle(protocol.BarrierArrived(CHANNEL, element), self.now_ms):
            if isinstance(command, protocol.Snapshot):
                self.acknowledge(COUNTER, element.checkpoint, self.total)

    def acknowledge(self, subtask: SubtaskId, number: CheckpointId, value: int) -> None:
        handle = ByteStreamStateHandle(f"{number}-{subtask.vertex.hex()}", b"%d" % value)
        state = SubtaskState(managed_operator=OperatorStreamStateHandle(STATE, handle))
        states = {OperatorId(bytes(subtask.vertex)): state}
        told = CheckpointAcknowledged(self.execution(subtask), number, states, CheckpointFigures())
        self.send(told)

    def send(self, event: events.CheckpointEvent) -> None:
        for command in self.coordinator.handle(event, self.now_ms):
            match command:
                case commands.TakeNextId(trigger, above):
                    taken = CheckpointId(above + 1)
                    self.send(events.NextIdTaken(trigger, taken, self.now_ms))
                case commands.PrepareLocation(number):
                    self.send(events.LocationReady(number, f"/chk-{number}"))
                case commands.TriggerHooks(number):
                    self.send(events.HooksTriggered(number))
                case TriggerCheckpoint(_, number, triggered_ms, options):
                    self.queue.append(Barrier(number, triggered_ms, options))
                    self.acknowledge(SOURCE, number, self.next)
                case commands.WriteMetadata(number, _, location):
                    self.send(events.MetadataWritten(number, location, 100))
                case commands.AddPointer(number):
                    self.send(events.PointerAdded(number))
                case commands.DiscardCheckpoint(number):
                    self.send(events.Cleaned(number))
                case _:
                    pass


def read(states: object) -> int:
    (state,) = states  # type: ignore[misc]
    (handle,) = state.managed_operator
    return int(handle.delegate.data)


@pytest.mark.parametrize("seed", range(20))
def test_another_engine_counts_each_number_once(seed: int) -> None:
    engine, chance = Engine(seed), Random(seed)
    while engine.next <= LAST or engine.queue:
        engine.step(chance)
    assert engine.total == LAST * (LAST + 1) // 2
    figures = engine.coordinator.statistics.counts
    assert figures.completed > 3


def test_the_protocol_needs_the_model_and_the_format_alone() -> None:
    program = (
        "import sys\n"
        "from tidegate import checkpoint\n"
        "before = set(sys.modules)\n"
        "assert [getattr(checkpoint, name) for name in checkpoint.__all__]\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "ours = {name.split('.')[1] for name in sys.modules if name.startswith('tidegate.')}\n"
        "print(*sorted(ours - {'faces'}), *sorted(new - sys.stdlib_module_names - {'tidegate'}))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(run.stdout.split()) <= {
        "checkpoint",
        "errors",
        "model",
        "flinkformat",
        "google_crc32c",  # flinkformat's
    }


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Coordinator'"):
        _ = checkpoint.Coordinator  # type: ignore[attr-defined]
    assert set(checkpoint.__all__) <= set(dir(checkpoint))

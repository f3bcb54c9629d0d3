"""Real slots over a network in memory, under a driver that only says what a test tells it to."""

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import pytest
import structlog

from tests.worlds.clock import StepClock
from tidegate.api import ship
from tidegate.api.operator import KeyBy, Operator, OutputPlan, VertexPlan
from tidegate.jobmaster.execution_graph import ExecutionGraph
from tidegate.model.chance import SeededChance
from tidegate.model.control import (
    Accepted,
    CheckpointAcknowledged,
    Deploy,
    ExecutionState,
    Offer,
    Start,
    SubtaskChanged,
    ToDriver,
    ToSlot,
    TriggerCheckpoint,
)
from tidegate.model.elements import CheckpointOptions
from tidegate.model.ids import CheckpointId, Epoch, ExecutionId, JobId, OperatorId, SlotId, VertexId
from tidegate.model.settings import (
    CheckpointSettings,
    FailoverStrategy,
    JobSettings,
    LogSettings,
    SlotSettings,
)
from tidegate.model.topology import Edge, OperatorInfo, Partitioner, Topology, Vertex
from tidegate.slot.driver_link import SlotLog
from tidegate.slot.slot import Slot
from tidegate.slot.world import World as SlotWorld
from tidegate.storage.checkpoints import CheckpointStorage
from tidegate.storage.memory import MemoryFiles
from tidegate.storage.stores import Stores
from tidegate.transport.memory import MemoryNetwork
from tidegate.transport.wire import Wire

LIMIT_S = 100.0
JOB = JobId("j" * 32)
SETTINGS = JobSettings(
    checkpoints=CheckpointSettings(
        interval_ms=1_000,
        storage="filesystem",
        directory="memory:/checkpoints",
        inline_threshold_bytes=0,
    ),
    slot=SlotSettings(rows=16),
)
Message = TypeVar("Message")


class SlotHandler:
    """The driver's end of one slot's link."""

    def __init__(self, cluster: "Cluster", wire: Wire) -> None:
        self._cluster = cluster
        self._wire = wire

    def on_frame(self, frame: memoryview) -> None:
        message: ToDriver = pickle.loads(frame)
        if isinstance(message, Offer):
            self._cluster.wires[message.slot] = self._wire
            self._cluster.offers[message.slot] = message
        self._cluster.said.append(message)
        self._cluster.changed.set()

    def on_closed(self, error: object) -> None:
        self._cluster.changed.set()


class Cluster:
    """said: all that slots said, in order. files: the checkpoint store. gate: holds back the pool.

    wrap: put around each slot's checkpoint storage.
    """

    def __init__(
        self,
        topology: Topology,
        operators: Mapping[str, Sequence[Operator]],
        *,
        settings: JobSettings = SETTINGS,
        keys: Mapping[str, KeyBy] | None = None,
        wrap: Callable[[CheckpointStorage], object] = lambda storage: storage,
        threads: bool = False,
        owns_process: bool = False,
    ) -> None:
        self.topology = topology
        self.settings = settings
        self.clock = StepClock(1_000_000, step_ms=0.01)
        self.files = MemoryFiles()
        self.gate = asyncio.Event()
        self.gate.set()
        self.network = MemoryNetwork()
        self.said: list[ToDriver] = []
        self.changed = asyncio.Event()
        self.wires: dict[SlotId, Wire] = {}
        self.offers: dict[SlotId, Offer] = {}
        self.slots: dict[SlotId, Slot] = {}
        self.running: dict[SlotId, asyncio.Task[str]] = {}
        self.graph = ExecutionGraph(topology, Epoch(1), FailoverStrategy.REGION)
        self._operators = operators
        self._keys = keys or {}
        self._wrap = wrap
        self._owns_process = owns_process
        self._pool = ThreadPoolExecutor(1) if threads else None
        self._listener = None

    async def start(self, *names: str) -> list[SlotId]:
        """So many slots, accepted."""
        self._listener = await self.network.listen(lambda wire: SlotHandler(self, wire))
        ids = [SlotId(name) for name in names]
        for slot in ids:
            await self.join(slot)
            self.tell(slot, Accepted(slot, JOB, Epoch(1), self.settings))
        return ids

    async def join(self, slot: SlotId) -> None:
        assert self._listener is not None
        world = SlotWorld(
            network=self.network,
            clock=self.clock,
            chance=SeededChance(len(self.slots)),
            run_blocking=self._run_blocking,
            storage=lambda job, settings: self._wrap(
                CheckpointStorage(job, settings, Stores(self.files))
            ),
            log=structlog.get_logger(),
            pause=lambda: asyncio.sleep(0),
            owns_process=self._owns_process,
        )
        log = SlotLog(slot, LogSettings(), self.clock)
        made = self.slots[slot] = Slot(slot, world, log, pid=1, host="host")
        self.running[slot] = asyncio.ensure_future(
            made.run(self._listener.address, versions={"tidegate": "1"}, request="r")
        )
        await self.until(lambda: slot in self.offers)

    async def _run_blocking(self, call: Callable[[], object]) -> object:
        await self.gate.wait()
        if self._pool is None:
            return call()
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def pool_is_idle(self) -> None:
        """What the pool's thread has begun is done."""
        await asyncio.get_running_loop().run_in_executor(self._pool, lambda: None)

    def holds(self, slot: SlotId) -> list[object]:
        """The subtasks of a slot, and the inputs and links that they have."""
        held = self.slots[slot]
        return [*held._rounds.subtasks, *held._links._inputs, *self.peers(slot)]

    def peers(self, slot: SlotId) -> list[str]:
        """The slots to which it has links."""
        return list(self.slots[slot]._links._wires)

    async def nothing_is_beside(self, slot: SlotId) -> None:
        """What the slot does beside its turns is done."""
        await self.eventually(lambda: not self.slots[slot]._beside)

    # --- the driver's words ---

    def tell(self, slot: SlotId, message: ToSlot) -> None:
        self.wires[slot].send([pickle.dumps(message)])

    def deployments(self, slots: Sequence[SlotId]) -> list[tuple[SlotId, Deploy]]:
        """What the job master would send for a new attempt of every subtask."""
        found: list[tuple[SlotId, Deploy]] = []
        for former in self.graph:
            former.enter(ExecutionState.CANCELED, 0)
        for execution in self.graph.deploy(self.topology.subtasks(), slots, 0):
            code = self.topology.vertex(execution.id.subtask.vertex).name.encode()
            deploy = self.graph.deployment(
                execution, code, lambda peer: self.offers[peer].address, None, None
            )
            found.append((execution.slot, deploy))
        return found

    async def deploy(self, slots: Sequence[SlotId], *, start: bool = True) -> list[ExecutionId]:
        """Have every subtask restored, and started."""
        sent = self.deployments(slots)
        for slot, message in sent:
            self.tell(slot, message)
        executions = [message.execution for _, message in sent]
        for execution in executions:
            await self.changed_to(execution, ExecutionState.INITIALIZING)
        if start:
            for slot, message in sent:
                self.tell(slot, Start(message.execution))
            for execution in executions:
                await self.changed_to(execution, ExecutionState.RUNNING)
        return executions

    def trigger(self, slot: SlotId, execution: ExecutionId, checkpoint: int) -> None:
        self.tell(
            slot,
            TriggerCheckpoint(
                execution, CheckpointId(checkpoint), self.clock.wall_ms(), CheckpointOptions()
            ),
        )

    def plan(self, code: bytes) -> VertexPlan:
        """The code of a vertex, by reference, so that a test can look at its operators."""
        name = code.decode()
        (found,) = [vertex for vertex in self.topology.vertices if vertex.name == name]
        outputs = [
            OutputPlan(edge, self._keys.get(name)) for edge in self.topology.outputs(found.id)
        ]
        return VertexPlan(tuple(self._operators[name]), tuple(outputs))

    # --- what came ---

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not reached():
                self.changed.clear()
                await self.changed.wait()

    async def eventually(self, reached: Callable[[], bool]) -> None:
        """As `until`, for what no message tells."""
        async with asyncio.timeout(LIMIT_S):
            while not reached():  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def settle(self) -> None:
        """Some turns of the loop, for what must not happen."""
        for _ in range(50):
            await asyncio.sleep(0)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.said if isinstance(message, kind)]

    async def first(self, kind: type[Message]) -> Message:
        await self.until(lambda: bool(self.of(kind)))
        return self.of(kind)[0]

    def state(self, execution: ExecutionId) -> ExecutionState | None:
        changes = [c for c in self.of(SubtaskChanged) if c.execution == execution]
        return changes[-1].state if changes else None

    async def changed_to(self, execution: ExecutionId, state: ExecutionState) -> SubtaskChanged:
        def found() -> list[SubtaskChanged]:
            return [
                change
                for change in self.of(SubtaskChanged)
                if change.execution == execution and change.state is state
            ]

        await self.until(lambda: bool(found()))
        return found()[0]

    async def acknowledged(self, execution: ExecutionId, checkpoint: int) -> CheckpointAcknowledged:
        def found() -> list[CheckpointAcknowledged]:
            return [
                ack
                for ack in self.of(CheckpointAcknowledged)
                if ack.execution == execution and ack.checkpoint == checkpoint
            ]

        await self.until(lambda: bool(found()))
        return found()[0]

    async def close(self) -> None:
        self.gate.set()
        for wire in self.wires.values():
            wire.close()
        await asyncio.gather(*self.running.values(), return_exceptions=True)
        if self._listener is not None:
            await self._listener.close()
        if self._pool is not None:
            self._pool.shutdown()


def run(
    make: Callable[[], Cluster],
    work: Callable[[Cluster], Awaitable[None]],
    patch: pytest.MonkeyPatch,
) -> None:
    """Run a test on a cluster, and see that it leaves no task."""

    async def main() -> None:
        cluster = make()
        patch.setattr(ship, "loads", lambda data, name: cluster.plan(data))
        try:
            await work(cluster)
        finally:
            await cluster.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    with structlog.testing.capture_logs():
        asyncio.run(main())


def vertex(name: str, parallelism: int = 1, operators: int = 1) -> Vertex:
    infos = tuple(
        OperatorInfo(
            OperatorId(f"{name}{n}".encode().ljust(16, b".")),
            f"{name}{n}",
            upstream=n - 1 if n else None,
        )
        for n in range(operators)
    )
    return Vertex(VertexId(bytes(infos[0].id)), name, infos, parallelism, 8)


def line(*vertices: Vertex, partitioner: Partitioner = Partitioner.REBALANCE) -> Topology:
    edges = tuple(
        Edge(a.id, b.id, partitioner, len(a.operators) - 1) for a, b in pairwise(vertices)
    )
    return Topology(vertices, edges)

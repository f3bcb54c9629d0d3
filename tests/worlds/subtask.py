"""One subtask in a test: real gate, chain, outputs and state; ports play the slot's part."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from flinkformat.snapshots import SubtaskState
from tests.worlds.clock import StepClock
from tests.worlds.storage import MEMORY
from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import (
    Operator,
    Output,
    OutputPlan,
    Polled,
    SourceOperator,
    Steps,
    VertexPlan,
)
from tidegate.errors import TidegateError
from tidegate.model.chance import SeededChance
from tidegate.model.control import CheckpointDeclined, CheckpointFigures, Deploy, ExecutionState
from tidegate.model.deployment import Deployment
from tidegate.model.elements import (
    Barrier,
    Batch,
    CheckpointOptions,
    Element,
    OperatorEvent,
    RowBatch,
    Watermark,
)
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
from tidegate.model.settings import CheckpointSettings, JobSettings, SlotSettings
from tidegate.model.topology import Edge, OperatorInfo, Partitioner, Topology, Vertex
from tidegate.slot.channel_state import ChannelStateStorage, ChannelStateWriter
from tidegate.slot.channels.output import ChannelOutput
from tidegate.slot.channels.routes import WayOut
from tidegate.slot.subtask.builder import StatesInMemory, build
from tidegate.slot.subtask.context import Waiting
from tidegate.slot.subtask.snapshot import SubtaskSnapshot
from tidegate.transport.credit import credit_for

PERIODIC = JobSettings(checkpoints=CheckpointSettings(interval_ms=1_000), slot=SlotSettings(rows=4))
WITHOUT_CHECKPOINTS = JobSettings(slot=SlotSettings(rows=4))


class Recorder(Operator):
    """Passes batches on; writes down what is asked of it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.contexts: list[SnapshotContext] = []

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        assert isinstance(batch, RowBatch)
        self.log.append(f"{self.name}: rows {batch.values}")
        out.emit(batch)
        return None

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        self.log.append(f"{self.name}: time {watermark.ms}")
        out.emit_watermark(watermark)
        return None

    def on_ready(self, out: Output) -> None:
        self.log.append(f"{self.name}: ready")

    def on_event(self, event: OperatorEvent) -> None:
        self.log.append(f"{self.name}: event {event.payload}")

    def finish(self, out: Output) -> Steps | None:
        self.log.append(f"{self.name}: finish")
        return None

    def before_barrier(self, checkpoint: CheckpointId, out: Output) -> None:
        self.log.append(f"{self.name}: prepare {checkpoint}")

    def snapshot(self, context: SnapshotContext) -> None:
        self.contexts.append(context)
        self.log.append(f"{self.name}: snapshot {context.checkpoint}")

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self.log.append(f"{self.name}: complete {checkpoint}")

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self.log.append(f"{self.name}: aborted {checkpoint}")

    def on_subsumed(self, checkpoint: CheckpointId) -> None:
        self.log.append(f"{self.name}: subsumed {checkpoint}")

    def close(self) -> None:
        self.log.append(f"{self.name}: close")


class Slow(Recorder):
    """Emits a batch once the wait of the world that it begins is ended by hand."""

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        return self._slowly(batch, out)

    def _slowly(self, batch: Batch, out: Output) -> Steps:
        yield self  # type: ignore[misc]
        out.emit(batch)


class ScriptedSource(Recorder, SourceOperator):
    """Emits what it is given; NOTHING where the script says so, END after it."""

    def __init__(self, name: str, log: list[str], script: Sequence[object]) -> None:
        super().__init__(name, log)
        self.script = list(script)

    def poll(self, out: Output) -> Polled:
        if not self.script:
            return Polled.END
        following = self.script.pop(0)
        if following is Polled.NOTHING:
            return Polled.NOTHING
        self.log.append(f"{self.name}: polled {following}")
        out.emit(RowBatch([following]))
        return Polled.MORE


def info_of(number: int) -> OperatorInfo:
    """The description of one of the operators."""
    upstream = number - 1 if number else None
    return OperatorInfo(OperatorId(bytes([number]) * 16), f"operator {number}", upstream=upstream)


def deployment_of(
    operators: int,
    inputs: int,
    outputs: int,
    settings: JobSettings,
    restored: CheckpointId | None = None,
    *,
    finished: bool = False,
) -> Deployment:
    """One subtask of a vertex with so many producers and consumers; their edges are 0 and 1."""
    before, vertex, behind = (
        Vertex(VertexId(name * 16), name.decode(), infos, parallelism, 8)
        for name, infos, parallelism in (
            (b"b", (info_of(200),), inputs),
            (b"v", tuple(info_of(n) for n in range(operators)), 1),
            (b"c", (info_of(201),), outputs),
        )
    )
    edges = (
        Edge(before.id, vertex.id if inputs else behind.id, Partitioner.REBALANCE, 0),
        Edge(vertex.id, behind.id, Partitioner.REBALANCE, operators - 1),
    )
    execution = ExecutionId(SubtaskId(vertex.id, 0), Attempt(0), Epoch(1))
    topology = Topology((before, vertex, behind), edges)
    deploy = Deploy(execution, b"", topology, {}, {}, {}, restored, finished)
    return Deployment(JobId("j" * 32), settings, deploy)


def no_files(execution: ExecutionId) -> ChannelStateWriter:
    """A writer of in-flight data that fails as soon as a file is to be written."""

    def never(work: object) -> NoReturn:
        raise AssertionError(f"nothing is to be run for {work}")

    return ChannelStateStorage(lambda: None, never, lambda: 0, never).writer(execution, 1)


class Into:
    """The far end of a channel: keeps what is sent."""

    def __init__(self, elements: list[Element]) -> None:
        self._elements = elements

    def send(self, element: Element) -> int:
        self._elements.append(element)
        return 0


class From:
    """The far end of an input: notes what it is granted and asked for."""

    def __init__(self, number: int, granted: list[int], asked: list[int]) -> None:
        self._number = number
        self._granted = granted
        self._asked = asked

    def grant(self) -> None:
        self._granted.append(self._number)

    def resize(self, rows: int) -> None:
        if not self._number:  # all are asked for the same
            self._asked.append(rows)


class World:
    """One subtask, its inputs and outputs, and all that it said; the subtask's host."""

    def unasked(self, *_: object) -> NoReturn:
        raise AssertionError("operators of these tests do nothing beside their batches")

    run_blocking = threads = wake = poll_soon = wake_at = skipped = unasked

    def __init__(
        self,
        *operators: Operator,
        inputs: int = 1,
        outputs: int = 1,
        credit: int = 1_000,
        settings: JobSettings = PERIODIC,
        finished_on_restore: bool = False,
        restored: CheckpointId | None = None,
        channel_state: ChannelStateWriter | None = None,
    ) -> None:
        self.clock = StepClock(1_000)
        self.chance = SeededChance(0)
        self.log: list[str] = []
        self.calls_for_turns = 0
        self.states: list[ExecutionState] = []
        self.declined: list[CheckpointDeclined] = []
        self.snapshots: list[SubtaskSnapshot] = []
        self.given_up: list[CheckpointId] = []
        self.busy = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.granted: list[int] = []
        self.announced: list[int] = []
        self.sent: list[list[Element]] = [[] for _ in range(outputs)]
        self.waits: list[object] = []
        deployment = deployment_of(
            len(operators), inputs, outputs, settings, restored, finished=finished_on_restore
        )
        self.execution = deployment.execution
        self.channel_state = channel_state or no_files(self.execution)
        plan = VertexPlan(operators, (OutputPlan(1),))
        self.subtask = build(plan, deployment, self, StatesInMemory())  # type: ignore[arg-type]
        self.gate = self.subtask.input.gate
        self.inputs = self.gate.inputs
        self.operator_ids = [info.id for info in deployment.vertex.operators]
        chained = self.subtask.chain.operators
        self.backends = [each.backend for each in chained]
        self.outputs = self.subtask.outputs.channels
        for output in self.outputs:  # whose readers have asked for full batches
            output.resize(settings.slot.rows)
            output.granted(credit - credit_for(1, settings.slot.credit))
        takers = chained[-1].out.takers(None)
        takers[:] = [WayOut(_ToAll(self.outputs), self.clock)]

    # --- the host ---

    def to_producer(self, channel: ChannelId) -> From:
        return From(channel.producer, self.granted, self.announced)

    def to_consumer(self, channel: ChannelId) -> "Sending":
        return Sending(self, channel.consumer)

    def ready(self) -> None:
        self.calls_for_turns += 1

    def call_at(self, at_ms: int, act: Callable[[], None]) -> None:
        self.timers.append((at_ms, act))

    def wait(self, awaited: object, waiting: Waiting) -> None:
        self.waits.append(waiting.awaited_done)

    def changed(self, state: ExecutionState, error: TidegateError | None) -> None:
        self.states.append(state)
        self.log.append(state.value)

    def decline(self, declined: CheckpointDeclined) -> None:
        self.declined.append(declined)

    def cut(self, snapshot: SubtaskSnapshot) -> None:
        self.snapshots.append(snapshot)
        self.log.append(f"cut {snapshot.checkpoint}")

    def stop_snapshot(self, checkpoint: CheckpointId) -> None:
        self.given_up.append(checkpoint)

    # --- acts ---

    def pieces_of(self, rows: int) -> "World":
        """So many rows are worked on at once from the beginning, since they are cheap."""
        self.subtask.input._intake._piece.rows = rows
        self.subtask.input._intake._portion.rows = rows
        for chained in self.subtask.chain.operators:
            chained.work.piece.rows = rows
        return self

    def start(self) -> "World":
        self.subtask.start()
        return self.run()

    def run(self) -> "World":
        """Turns until there is nothing to do."""
        for _ in range(10_000):
            if not self.subtask.runnable:
                return self
            self.turn()
        raise AssertionError("the subtask asks for turns without end")

    def turn(self) -> None:
        """One turn; there has to be something to do."""
        work = self.subtask.next_work()
        assert work is not None, "nothing to do"
        self.subtask.turn(work)

    def put(self, channel: int, *elements: Element) -> "World":
        for element in elements:
            self.gate.put(self.inputs[channel], element)
        return self

    def grant(self, channel: int = 0) -> None:
        could_go_on = self.subtask.runnable
        has_room_again = self.outputs[channel].granted(1)
        self.subtask.granted()
        if has_room_again:
            self.ready()
        told = has_room_again or could_go_on
        assert told or not self.subtask.runnable, "a subtask that may go on again is told"

    def pass_time(self, ms: int) -> "World":
        """Time passes, and what was to be called in it is."""
        self.clock.now_ms += ms
        self.call_due()
        return self.run()

    def call_due(self) -> None:
        due = [act for at_ms, act in self.timers if at_ms <= self.clock.now_ms]
        self.timers = [timer for timer in self.timers if timer[0] > self.clock.now_ms]
        for act in due:
            act()

    def figures(self) -> list[CheckpointFigures]:
        """What the acknowledgement of each snapshot would say now."""
        return [each.figures(self.clock.precise_s(), MEMORY) for each in self.snapshots]

    def written(self) -> list[Mapping[OperatorId, SubtaskState]]:
        """The state of each snapshot, by operator."""

        async def at_once(call: Callable[[], object]) -> object:
            return call()

        assert all(each.encode(budget_ms=1_000) for each in self.snapshots)
        return [asyncio.run(each.write(MEMORY, at_once)) for each in self.snapshots]

    @property
    def checkpoints_cut(self) -> list[int]:
        return [snapshot.checkpoint for snapshot in self.snapshots]


class Sending:
    """The far end of an output: keeps what is sent, and writes it down."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number

    def send(self, element: Element) -> int:
        self._world.sent[self._number].append(element)
        self._world.log.append(f"sent {_short(element)}")
        return 10 * len(element) if isinstance(element, RowBatch) else 0


class _ToAll:
    def __init__(self, outputs: Sequence[ChannelOutput]) -> None:
        self._outputs = outputs

    def batch(self, batch: Batch, now_ms: int) -> None:
        assert isinstance(batch, RowBatch)
        for output in self._outputs:
            output.rows(batch, now_ms)


def barrier(checkpoint: int, *, triggered_ms: int = 1_700_000_000_900) -> Barrier:
    return Barrier(CheckpointId(checkpoint), triggered_ms, CheckpointOptions())


def rows(*values: object) -> RowBatch:
    return RowBatch(list(values))


def _short(element: Element) -> str:
    if isinstance(element, RowBatch):
        return f"rows {element.values}"
    if isinstance(element, Barrier):
        return f"barrier {element.checkpoint}"
    return type(element).__name__

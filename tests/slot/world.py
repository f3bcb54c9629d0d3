"""One subtask in a test: real gate, chain, outputs and state; ports play the slot's part."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NoReturn

from flinkformat.key_groups import KeyGroupRange
from tidegate.api.functions import SnapshotContext
from tidegate.api.operator import KeyCell, Operator, Output, Polled, SourceOperator, Steps
from tidegate.checkpoint.channel_state.file_format import (
    ChannelInfo,
    InputChannelInfo,
    ResultSubpartitionInfo,
)
from tidegate.errors import TidegateError
from tidegate.model.control import CheckpointDeclined, ExecutionState
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
    OperatorId,
    SubtaskId,
    VertexId,
)
from tidegate.model.settings import CheckpointSettings, JobSettings, SlotSettings
from tidegate.model.topology import OperatorInfo
from tidegate.slot.channel_state import ChannelStateStorage, ChannelStateWriter
from tidegate.slot.channels.asked_size import AskedSize
from tidegate.slot.channels.debloat import Debloater
from tidegate.slot.channels.gate import Gate, InputChannel
from tidegate.slot.channels.output import ChannelOutput
from tidegate.slot.channels.room import Room
from tidegate.slot.in_flight import InFlightPlaces
from tidegate.slot.subtask.chain import Chain, ChainedOperator, ChainOutput
from tidegate.slot.subtask.ports import SubtaskPorts
from tidegate.slot.subtask.snapshot import SubtaskSnapshot
from tidegate.slot.subtask.subtask import Subtask
from tidegate.slot.subtask.turns import Turn
from tidegate.state.backend import OperatorBackend
from tidegate.transport.credit import credit_for

PERIODIC = JobSettings(checkpoints=CheckpointSettings(interval_ms=1_000), slot=SlotSettings(rows=4))
WITHOUT_CHECKPOINTS = JobSettings(slot=SlotSettings(rows=4))


class ManualClock:
    """Time stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    def precise_s(self) -> float:
        return self.now_ms / 1000


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


def backend_of(info: OperatorInfo, clock: ManualClock) -> OperatorBackend:
    """State of all eight key groups of an operator."""
    return OperatorBackend(
        operator=info.id,
        name=info.name,
        key_groups=KeyGroupRange(0, 7),
        max_parallelism=8,
        clock=clock,
        cell=KeyCell(),
    )


def info_of(number: int) -> OperatorInfo:
    """The description of one of the operators."""
    return OperatorInfo(OperatorId(bytes([number]) * 16), f"operator {number}")


def no_files(execution: ExecutionId) -> ChannelStateWriter:
    """A writer of in-flight data that fails as soon as a file is to be written."""

    def never(work: object) -> NoReturn:
        raise AssertionError(f"nothing is to be run for {work}")

    return ChannelStateStorage(lambda: None, never, lambda: 0, never).writer(execution, 1)


class World:
    """One subtask, its inputs and outputs, and all that it said."""

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
        self.clock = ManualClock()
        self.turn = Turn(self.clock)
        self.calls_for_turns = 0
        self.states: list[ExecutionState] = []
        self.declined: list[CheckpointDeclined] = []
        self.snapshots: list[SubtaskSnapshot] = []
        self.given_up: list[CheckpointId] = []
        self.busy = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.log: list[str] = []
        self.granted: list[int] = []
        self.announced: list[int] = []
        self.inputs = [
            InputChannel(ChannelId(0, n, 0), 0, lambda n=n: self.granted.append(n))
            for n in range(inputs)
        ]
        self.gate = Gate(self.inputs, self._ready)
        self.sent: list[list[Element]] = [[] for _ in range(outputs)]
        room = Room()
        self.outputs = self._outputs(outputs, replace(settings.slot, credit=credit), room)
        asked = AskedSize(settings.slot, self.gate, [self.announced.append])
        self.waits: list[object] = []
        infos = [info_of(n) for n in range(len(operators))]
        self.operator_ids = [info.id for info in infos]
        self.backends = [backend_of(info, self.clock) for info in infos]
        self.execution = ExecutionId(SubtaskId(VertexId(b"v" * 16), 0), Attempt(0), Epoch(1))
        self.subtask = Subtask(
            self.execution,
            infos,
            self._chain(operators, room),
            self.turn,
            self.backends,
            self.gate,
            self.outputs,
            room,
            settings,
            self._ports(),
            self.clock,
            in_flight=self._places(channel_state or no_files(self.execution), infos),
            finished_on_restore=finished_on_restore,
            restored=restored,
            asked=asked,
            debloater=self._debloater(settings.slot, asked),
        )

    def _outputs(self, count: int, slot: SlotSettings, room: Room) -> list[ChannelOutput]:
        """Channels whose readers have asked for full batches."""
        outputs = [
            ChannelOutput(ChannelId(1, 0, n), slot, self._sender(n), room) for n in range(count)
        ]
        for output in outputs:
            output.resize(slot.rows)
            output.granted(slot.credit - credit_for(1, slot.credit))
        return outputs

    def _debloater(self, slot: SlotSettings, asked: AskedSize) -> Debloater | None:
        if slot.debloat is None:
            return None
        return Debloater(slot.debloat, slot.rows, self.gate, asked)

    def _places(self, writer: ChannelStateWriter, infos: Sequence[OperatorInfo]) -> InFlightPlaces:
        places: dict[ChannelId, ChannelInfo] = {
            each.id: InputChannelInfo(0, each.id.producer) for each in self.inputs
        }
        for each in self.outputs:
            places[each.id] = ResultSubpartitionInfo(0, each.id.consumer)
        return InFlightPlaces(writer, places, infos[0].id, infos[-1].id)

    def _ports(self) -> SubtaskPorts:
        return SubtaskPorts(
            ready=self._ready,
            changed=self._changed,
            decline=self.declined.append,
            snapshot=self._snapshot,
            aborted=self.given_up.append,
            busy=lambda: self.busy,
            at=lambda at_ms, act: self.timers.append((at_ms, act)),
        )

    def _chain(self, operators: Sequence[Operator], room: Room) -> Chain:
        chained = [
            ChainedOperator(
                operator,
                ChainOutput(room, self.turn, self.clock.monotonic_ms, share=False),
                self.turn,
                lambda awaited, done: self.waits.append(done),
            )
            for operator in operators
        ]
        for ahead, behind in pairwise(chained):
            ahead.out.add_operator(behind, None)
        chained[-1].out.add_route(_ToAll(self.outputs), self.outputs, None)
        return Chain(chained)

    def _sender(self, channel: int) -> object:
        def send(element: Element) -> None:
            self.sent[channel].append(element)
            self.log.append(f"sent {_short(element)}")

        return send

    def _ready(self) -> None:
        self.calls_for_turns += 1

    def _changed(self, state: ExecutionState, error: TidegateError | None) -> None:
        self.states.append(state)
        self.log.append(state.value)

    def _snapshot(self, snapshot: SubtaskSnapshot) -> None:
        self.snapshots.append(snapshot)
        self.log.append(f"cut {snapshot.checkpoint}")

    # --- acts ---

    def pieces_of(self, rows: int) -> "World":
        """So many rows are worked on at once from the beginning, since they are cheap."""
        self.subtask._intake._piece.rows = rows
        self.subtask._intake._portion.rows = rows
        for chained in self.subtask._chain.operators:
            chained._piece.rows = rows
        return self

    def start(self) -> "World":
        self.subtask.start()
        return self.run()

    def run(self) -> "World":
        """Turns until there is nothing to do."""
        for _ in range(10_000):
            if not self.subtask.runnable:
                return self
            self.subtask.turn()
        raise AssertionError("the subtask asks for turns without end")

    def put(self, channel: int, *elements: Element) -> "World":
        for element in elements:
            self.gate.put(self.inputs[channel], element)
        return self

    def grant(self, channel: int = 0) -> None:
        self.outputs[channel].granted(1)
        self.subtask.granted()

    def pass_time(self, ms: int) -> "World":
        """Time passes, and what was to be called in it is."""
        self.clock.now_ms += ms
        due = [act for at_ms, act in self.timers if at_ms <= self.clock.now_ms]
        self.timers = [timer for timer in self.timers if timer[0] > self.clock.now_ms]
        for act in due:
            act()
        return self.run()

    @property
    def checkpoints_cut(self) -> list[int]:
        return [snapshot.checkpoint for snapshot in self.snapshots]


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

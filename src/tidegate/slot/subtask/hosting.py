"""From a `Deploy` to a subtask that is restored, opened and waits for its start."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from flinkformat.key_groups import KeyGroupRange
from tidegate.api import ship
from tidegate.api.operator import KeyCell, Operator, SourceOperator, VertexPlan
from tidegate.api.rows.conversion import output_conversions
from tidegate.checkpoint.channel_state.file_format import InputChannelInfo, ResultSubpartitionInfo
from tidegate.metrics import MetricRegistry
from tidegate.model.control import RowCounts, SubtaskFigures
from tidegate.model.restore import RestoredOperatorState
from tidegate.slot.channel_state import read_in_flight
from tidegate.slot.channels.asked_size import AskedSize
from tidegate.slot.channels.debloat import Debloater
from tidegate.slot.channels.gate import Gate, InputChannel
from tidegate.slot.channels.output import ChannelOutput, make_route
from tidegate.slot.channels.room import Room
from tidegate.slot.in_flight import InFlightPlaces
from tidegate.slot.local_state import new_backend_id
from tidegate.slot.subtask.chain import Chain, ChainedOperator, ChainOutput
from tidegate.slot.subtask.context import SlotOperatorContext, SubtaskSurroundings
from tidegate.slot.subtask.materializing import Materializing
from tidegate.slot.subtask.subtask import Subtask
from tidegate.slot.subtask.turns import Turn
from tidegate.state.backend import OperatorBackend
from tidegate.state.log.changelog import ChangeLog
from tidegate.storage.places import SharedPlace
from tidegate.storage.reading import StateReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Sequence

    import structlog

    from tidegate.checkpoint.channel_state.file_format import ChannelInfo
    from tidegate.model.control import Deploy
    from tidegate.model.ids import ChannelId
    from tidegate.model.settings import JobSettings, SlotSettings
    from tidegate.model.topology import Edge, Topology, Vertex
    from tidegate.slot.channel_state import ChannelStateWriter
    from tidegate.slot.channels.links import Links
    from tidegate.slot.local_state import LocalState
    from tidegate.slot.slot import World
    from tidegate.slot.subtask.chain import Wait
    from tidegate.slot.subtask.ports import SubtaskPorts
    from tidegate.storage.checkpoints import CheckpointStorage
    from tidegate.typeinfo.types import TypeInformation

CALL_LIMIT_S = 60.0
"""How long the calls of a subtask that is over may go on before its operators are left open."""

CLOSE_LIMIT_S = 10.0
"""How long an operator that is closed may take for what it leaves to be awaited."""


@dataclass(slots=True)
class Hosted:
    """A subtask and what the slot must undo when it goes."""

    subtask: Subtask
    deploy: Deploy
    channels: Sequence[ChannelId]
    contexts: Sequence[SlotOperatorContext]
    backends: Sequence[OperatorBackend]
    operators: Sequence[Operator]
    gate: Gate
    channel_state: ChannelStateWriter
    surroundings: SubtaskSurroundings
    reader: StateReader
    materializing: Materializing | None
    opened: list[Operator] = field(default_factory=list["Operator"])

    @property
    def figures(self) -> SubtaskFigures:
        """Those of the subtask, with what its operators count in their metrics."""
        figures = self.subtask.figures
        late, letters = (
            sum(context.metrics.counted(name) for context in self.contexts)
            for name in ("numLateRecordsDropped", "numDeadLetters")
        )
        return replace(
            figures,
            counts=figures.counts + RowCounts(late=late, dead_letters=letters),
            remarks=sum((tuple(context.remarks) for context in self.contexts), figures.remarks),
        )

    def restore(self) -> None:
        """Bring back each operator's state. Blocking; nothing else touches the subtask yet."""
        infos = self.deploy.topology.vertex(self.deploy.execution.subtask.vertex).operators
        snapshot = f"checkpoint {self.deploy.restored}"
        for info, backend in zip(infos, self.backends, strict=True):
            state = self.deploy.state.get(info.id, RestoredOperatorState())
            backend.restore(state, self.reader.at(f"operator '{info.name}', {snapshot}"))
        read = self.reader.at(f"in-flight data, {snapshot}").read
        self.gate.restore(read_in_flight(self.deploy.in_flight, read))

    def open(self) -> None:
        """Open the operators, tail to head, so that all are ready before the first one emits."""
        for operator, context in zip(
            reversed(self.operators), reversed(self.contexts), strict=True
        ):
            self.opened.append(operator)
            operator.open(context)
        if self.materializing is not None:
            self.materializing.begin()

    def close(
        self, log: structlog.typing.FilteringBoundLogger
    ) -> Coroutine[None, None, None] | None:
        """Close what was opened; what that raises is logged, since the end has its own reason.

        The result is what is left to be awaited.
        """
        closing: list[Awaitable[None]] = []
        for operator in self.opened:
            try:
                left = operator.close()
            except Exception as error:
                self._log_failed_close(log, error)
            else:
                closing += [] if left is None else [left]
        for backend in self.backends:
            backend.close()
        return self._await_closing(closing, log) if closing else None

    async def _await_closing(
        self, closing: Sequence[Awaitable[None]], log: structlog.typing.FilteringBoundLogger
    ) -> None:
        for each in closing:
            try:
                await asyncio.wait_for(each, CLOSE_LIMIT_S)
            except TimeoutError:
                log.warning(
                    "closing an operator takes too long, and is given up; look at its 'close'",
                    subtask=self.surroundings.task_name,
                    waited_s=CLOSE_LIMIT_S,
                )
            except Exception as error:
                self._log_failed_close(log, error)

    def _log_failed_close(
        self, log: structlog.typing.FilteringBoundLogger, error: Exception
    ) -> None:
        log.warning(
            "closing an operator failed",
            subtask=self.surroundings.task_name,
            error=repr(error),
            also=getattr(error, "__notes__", []),
        )

    async def close_after_calls(self, log: structlog.typing.FilteringBoundLogger) -> None:
        """Close what was opened once no call that it made on the pool is under way."""
        if await self.surroundings.blocking.ended(CALL_LIMIT_S):
            closing = self.close(log)
            if closing is not None:
                await closing
        else:
            log.warning(
                "a subtask is over, but a call of it to a file or service goes on; its operators "
                "stay open: look at what they write to or read from",
                subtask=self.surroundings.task_name,
                waited_s=CALL_LIMIT_S,
            )


class _PassThrough(SourceOperator):
    """Stands for an operator that had finished in the checkpoint that was restored."""

    def process(self, batch: object, port: int, out: object) -> None:
        raise AssertionError("nothing comes to an operator that has finished")


class SubtaskBuilder:
    """Builds a subtask of one slot. channel_state: where its in-flight data go.

    storage: where its state is read from. local: what it may keep on the local disk.
    """

    def __init__(
        self,
        links: Links,
        world: World,
        channel_state: ChannelStateWriter,
        storage: CheckpointStorage,
        local: LocalState,
    ) -> None:
        self._links = links
        self._channel_state = channel_state
        self._storage = storage
        self._local = local
        self._clock = world.clock
        self._chance = world.chance
        self._log = world.log

    def build(
        self,
        deploy: Deploy,
        settings: JobSettings,
        surroundings: SubtaskSurroundings,
        ports: SubtaskPorts,
        wait: Wait,
    ) -> Hosted:
        """Load the code and wire it up; nothing is restored or opened yet.

        Raises UserCodeFailed where the code cannot be loaded in this process.
        """
        vertex, index = surroundings.vertex, deploy.execution.subtask.index
        plan = cast("VertexPlan", ship.loads(deploy.operators, name=vertex.name))
        operators = [_PassThrough() for _ in plan.operators] if deploy.finished else plan.operators
        gate, inputs = self._gate(deploy, ports)
        room, turn = Room(self._clock), Turn(self._clock)
        backends = self._backends(deploy, surroundings, operators, settings)
        chained = self._chained(operators, backends, vertex, settings, room, turn, wait)
        self._chain(vertex, plan, chained)
        outputs = self._outputs(deploy, plan, chained, settings, room)
        asked = self._asked(deploy, settings.slot, gate)
        subtask = Subtask(
            deploy.execution,
            vertex.operators,
            Chain(chained),
            turn,
            backends,
            gate,
            outputs,
            room,
            settings,
            ports,
            self._clock,
            in_flight=in_flight_places(self._channel_state, deploy.topology, vertex, index),
            finished_on_restore=deploy.finished,
            restored=deploy.restored,
            asked=asked,
            debloater=_debloater(settings.slot, gate, asked),
        )
        for output in outputs:
            self._links.add_output(deploy.execution, output, subtask.granted)
        return Hosted(
            subtask,
            deploy,
            [*inputs, *(output.id for output in outputs)],
            [
                SlotOperatorContext(
                    info, surroundings, backend, MetricRegistry(self._clock.monotonic_ms).group()
                )
                for info, backend in zip(vertex.operators, backends, strict=True)
            ],
            backends,
            operators,
            gate,
            self._channel_state,
            surroundings,
            StateReader(self._storage.files, deploy.checksums),
            self._materializing(subtask, backends, surroundings, ports),
        )

    def _materializing(
        self,
        subtask: Subtask,
        backends: Sequence[OperatorBackend],
        surroundings: SubtaskSurroundings,
        ports: SubtaskPorts,
    ) -> Materializing | None:
        changelog = surroundings.settings.changelog
        if changelog is None:
            return None
        return Materializing(
            backends,
            changelog,
            surroundings.task_name,
            clock=self._clock,
            chance=self._chance,
            run_blocking=surroundings.blocking.run,
            start=surroundings.start,
            at=ports.at,
            is_over=lambda: subtask.operators_finished,
            log=self._log,
        )

    def _gate(self, deploy: Deploy, ports: SubtaskPorts) -> tuple[Gate, list[ChannelId]]:
        execution, topology = deploy.execution, deploy.topology
        channels: list[InputChannel] = []
        for edge in topology.inputs(execution.subtask.vertex):
            for channel in topology.channels(edge):
                if channel.consumer == execution.subtask.index:
                    grant = self._links.granter(execution, channel, deploy.peers[channel])
                    channels.append(InputChannel(channel, topology.edges[edge].port, grant))
        gate = Gate(channels, ports.ready)
        for channel in channels:
            self._links.add_input(execution, gate, channel)
        return gate, [channel.id for channel in channels]

    def _asked(self, deploy: Deploy, settings: SlotSettings, gate: Gate) -> AskedSize:
        tell = [
            self._links.sizer(deploy.execution, channel, deploy.peers[channel])
            for channel in gate.channels
        ]
        return AskedSize(settings, gate, tell)

    def _chained(
        self,
        operators: Sequence[Operator],
        backends: Sequence[OperatorBackend],
        vertex: Vertex,
        settings: JobSettings,
        room: Room,
        turn: Turn,
        wait: Wait,
    ) -> list[ChainedOperator]:
        """The operators with their outputs, which still lead nowhere."""
        share, now_ms = settings.slot.object_reuse, self._clock.monotonic_ms
        conversions = [
            output_conversions(operator, info.name)
            for operator, info in zip(operators, vertex.operators, strict=True)
        ]
        return [
            ChainedOperator(
                operator,
                ChainOutput(room, turn, now_ms, share=share, convert=convert),
                turn,
                wait,
                backend.before_batch,
            )
            for operator, backend, convert in zip(operators, backends, conversions, strict=True)
        ]

    def _chain(self, vertex: Vertex, plan: VertexPlan, chained: Sequence[ChainedOperator]) -> None:
        for index, info in enumerate(vertex.operators):
            if info.upstream is not None:
                tag = plan.side_tags[index] if plan.side_tags else None
                chained[info.upstream].out.add_operator(chained[index], tag)

    def _outputs(
        self,
        deploy: Deploy,
        plan: VertexPlan,
        chained: Sequence[ChainedOperator],
        settings: JobSettings,
        room: Room,
    ) -> list[ChannelOutput]:
        outputs: list[ChannelOutput] = []
        for output in plan.outputs:
            edge = deploy.topology.edges[output.edge]
            channels = [
                self._channel_output(deploy, channel, settings, room)
                for channel in deploy.topology.channels(output.edge)
                if channel.producer == deploy.execution.subtask.index
            ]
            route = make_route(
                output,
                edge.partitioner,
                channels,
                max_parallelism=deploy.topology.vertex(edge.target).max_parallelism,
                subtask=deploy.execution.subtask.index,
                share=settings.slot.object_reuse,
                chance=self._chance,
                where=_place(deploy, edge),
            )
            chained[edge.operator].out.add_route(route, channels, edge.tag)
            outputs += channels
        return outputs

    def _channel_output(
        self, deploy: Deploy, channel: ChannelId, settings: JobSettings, room: Room
    ) -> ChannelOutput:
        deliver = self._links.sender(deploy.execution, channel, deploy.peers[channel])
        aligned_only = not deploy.topology.lets_overtake(channel.edge)
        return ChannelOutput(channel, settings.slot, deliver, room, aligned_only=aligned_only)

    def _backends(
        self,
        deploy: Deploy,
        surroundings: SubtaskSurroundings,
        operators: Sequence[Operator],
        settings: JobSettings,
    ) -> list[OperatorBackend]:
        return [
            self._backend(deploy, surroundings, index, operator.key_type, settings)
            for index, operator in enumerate(operators)
        ]

    def _backend(
        self,
        deploy: Deploy,
        surroundings: SubtaskSurroundings,
        index: int,
        key_type: TypeInformation | None,
        settings: JobSettings,
    ) -> OperatorBackend:
        vertex, slot = surroundings.vertex, settings.slot
        info = vertex.operators[index]
        log = slot.changelog
        shares = slot.rocksdb is None and slot.state_files.incremental and log is None
        key_groups = KeyGroupRange.of(
            deploy.execution.subtask.index, vertex.parallelism, vertex.max_parallelism
        )
        return OperatorBackend(
            operator=info.id,
            name=info.name,
            uid=info.uid,
            key_groups=key_groups,
            max_parallelism=vertex.max_parallelism,
            clock=self._clock,
            cell=KeyCell(),
            key_type=key_type,
            compression=settings.checkpoints.snapshot_compression,
            local=self._local.place(slot),
            shared_as=new_backend_id(self._chance.bits64) if shares else None,
            log=None
            if log is None
            else ChangeLog(
                info.id,
                key_groups,
                vertex.max_parallelism,
                log,
                lambda sharing: SharedPlace(
                    self._storage, deploy.execution, self._chance.bits64, sharing
                ),
                surroundings.beside,
            ),
        )


def _debloater(settings: SlotSettings, gate: Gate, asked: AskedSize) -> Debloater | None:
    if settings.debloat is None or not gate.channels:
        return None
    return Debloater(settings.debloat, settings.rows, gate, asked)


def _place(deploy: Deploy, edge: Edge) -> str:
    source, target = deploy.topology.vertex(edge.source), deploy.topology.vertex(edge.target)
    return f"the edge from '{source.name}' to '{target.name}'"


def in_flight_places(
    writer: ChannelStateWriter, topology: Topology, vertex: Vertex, index: int
) -> InFlightPlaces:
    """Where the in-flight data of one subtask of a vertex go."""
    infos: dict[ChannelId, ChannelInfo] = {}
    for gate, edge in enumerate(topology.inputs(vertex.id)):
        for channel in topology.channels(edge):
            if channel.consumer == index:
                infos[channel] = InputChannelInfo(gate, channel.producer)
    for partition, edge in enumerate(topology.outputs(vertex.id)):
        for channel in topology.channels(edge):
            if channel.producer == index:
                infos[channel] = ResultSubpartitionInfo(partition, channel.consumer)
    senders = [topology.edges[edge].operator for edge in topology.outputs(vertex.id)]
    head, sender = vertex.operators[0], vertex.operators[max(senders, default=0)]
    return InFlightPlaces(writer, infos, head.id, sender.id)

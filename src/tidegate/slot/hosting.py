"""From a `Deploy` to a subtask that is restored, opened and waits for its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from tidegate.api import ship
from tidegate.api.conversion import output_conversions
from tidegate.api.operator import KeyCell, Operator, SourceOperator, VertexPlan
from tidegate.checkpoint.channel_state import InputChannelInfo, ResultSubpartitionInfo
from tidegate.metrics import MetricRegistry
from tidegate.model.key_groups import KeyGroupRange
from tidegate.model.snapshots import RestoredOperatorState
from tidegate.slot.chain import Chain, ChainedOperator, ChainOutput
from tidegate.slot.channel_state import SequentialChannelStateReader
from tidegate.slot.context import SlotOperatorContext, SubtaskSurroundings
from tidegate.slot.debloat import Debloater
from tidegate.slot.gate import Gate, InputChannel
from tidegate.slot.in_flight import InFlightPlaces
from tidegate.slot.output import ChannelOutput, Room, make_route
from tidegate.slot.subtask import Subtask
from tidegate.state.backend import OperatorBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import structlog

    from tidegate.checkpoint.channel_state import ChannelInfo
    from tidegate.clock import Clock
    from tidegate.model.chance import Chance
    from tidegate.model.control import Deploy
    from tidegate.model.handles import StreamStateHandle
    from tidegate.model.ids import ChannelId
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import Edge, Topology, Vertex
    from tidegate.slot.chain import Wait
    from tidegate.slot.channel_state import ChannelStateWriter
    from tidegate.slot.links import Links
    from tidegate.slot.ports import SubtaskPorts
    from tidegate.typeinfo.types import TypeInformation

CALL_LIMIT_S = 60.0
"""How long the calls of a subtask that is over may go on before its operators are left open."""


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
    opened: list[Operator] = field(default_factory=list["Operator"])

    def restore(self, read: Callable[[StreamStateHandle], bytes]) -> None:
        """Bring back each operator's state. Blocking; nothing else touches the subtask yet."""
        infos = self.deploy.topology.vertex(self.deploy.execution.subtask.vertex).operators
        for info, backend in zip(infos, self.backends, strict=True):
            backend.restore(self.deploy.state.get(info.id, RestoredOperatorState()), read)
        reader = SequentialChannelStateReader(read)
        self.gate.restore(reader.read_data(self.deploy.in_flight))
        reader.close()

    def open(self) -> None:
        """Open the operators, tail to head, so that all are ready before the first one emits."""
        for operator, context in zip(
            reversed(self.operators), reversed(self.contexts), strict=True
        ):
            self.opened.append(operator)
            operator.open(context)

    def close(self, log: structlog.typing.FilteringBoundLogger) -> None:
        """Close what was opened; what that raises is logged, since the end has its own reason."""
        for operator in self.opened:
            try:
                operator.close()
            except Exception as error:
                log.warning(
                    "closing an operator failed",
                    subtask=self.surroundings.task_name,
                    error=repr(error),
                )

    async def close_after_calls(self, log: structlog.typing.FilteringBoundLogger) -> None:
        """Close what was opened once no call that it made on the pool is under way."""
        if await self.surroundings.blocking.ended(CALL_LIMIT_S):
            self.close(log)
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
    """Builds a subtask of one slot. channel_state: where its in-flight data go."""

    def __init__(
        self,
        links: Links,
        clock: Clock,
        chance: Chance,
        channel_state: ChannelStateWriter,
    ) -> None:
        self._links = links
        self._channel_state = channel_state
        self._clock = clock
        self._chance = chance

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
        room = Room()
        chained = self._chained(operators, vertex, settings, room, wait)
        self._chain(vertex, plan, chained)
        outputs = self._outputs(deploy, plan, chained, settings, room)
        backends = self._backends(deploy, vertex, operators)
        subtask = Subtask(
            deploy.execution,
            vertex.operators,
            Chain(chained),
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
            debloater=self._debloater(deploy, settings, gate),
        )
        for output in outputs:
            self._links.add_output(deploy.execution, output, subtask.granted)
        return Hosted(
            subtask,
            deploy,
            [*inputs, *(output.id for output in outputs)],
            [
                SlotOperatorContext(info, surroundings, backend, MetricRegistry().group())
                for info, backend in zip(vertex.operators, backends, strict=True)
            ],
            backends,
            operators,
            gate,
            self._channel_state,
            surroundings,
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

    def _debloater(self, deploy: Deploy, settings: JobSettings, gate: Gate) -> Debloater | None:
        debloat, execution = settings.slot.debloat, deploy.execution
        if debloat is None or not gate.channels:
            return None
        announce = [
            self._links.sizer(execution, channel, deploy.peers[channel])
            for channel in gate.channels
        ]
        return Debloater(debloat, settings.slot.rows, gate, announce)

    def _chained(
        self,
        operators: Sequence[Operator],
        vertex: Vertex,
        settings: JobSettings,
        room: Room,
        wait: Wait,
    ) -> list[ChainedOperator]:
        """The operators with their outputs, which still lead nowhere."""
        share, now_ms = settings.slot.object_reuse, self._clock.monotonic_ms
        conversions = [
            output_conversions(operator, info.name)
            for operator, info in zip(operators, vertex.operators, strict=True)
        ]
        return [
            ChainedOperator(operator, ChainOutput(room, now_ms, share=share, convert=convert), wait)
            for operator, convert in zip(operators, conversions, strict=True)
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
        self, deploy: Deploy, vertex: Vertex, operators: Sequence[Operator]
    ) -> list[OperatorBackend]:
        return [
            self._backend(deploy, vertex, index, operator.key_type)
            for index, operator in enumerate(operators)
        ]

    def _backend(
        self, deploy: Deploy, vertex: Vertex, index: int, key_type: TypeInformation | None
    ) -> OperatorBackend:
        info = vertex.operators[index]
        return OperatorBackend(
            operator=info.id,
            name=info.name,
            key_groups=KeyGroupRange.of(
                deploy.execution.subtask.index, vertex.parallelism, vertex.max_parallelism
            ),
            max_parallelism=vertex.max_parallelism,
            clock=self._clock,
            cell=KeyCell(),
            key_type=key_type,
        )


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

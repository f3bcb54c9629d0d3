"""From a `Deploy` to a subtask, in the order in which a row passes its parts.

gate → head of the chain … its tail → routes → outputs; then what watches over them: the end,
checkpoints, the input, turns. Nothing is restored or opened yet.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Protocol, cast

from tidegate.api import ship
from tidegate.api.operator import KeyCell, SourceOperator, VertexPlan
from tidegate.api.rows.conversion import output_conversions
from tidegate.checkpoint.channel_state.file_format import InputChannelInfo, ResultSubpartitionInfo
from tidegate.slot.channels.asked_size import AskedSize
from tidegate.slot.channels.debloat import Debloater
from tidegate.slot.channels.gate import Gate, InputChannel
from tidegate.slot.channels.output import ChannelOutput, Outputs, make_route
from tidegate.slot.channels.room import Room
from tidegate.slot.in_flight import InFlightPlaces
from tidegate.slot.subtask.chain import Chain, ChainedOperator, ChainOutput
from tidegate.slot.subtask.checkpointing import Checkpointing
from tidegate.slot.subtask.context import context_of
from tidegate.slot.subtask.ending import Ending
from tidegate.slot.subtask.input import Input
from tidegate.slot.subtask.pace import Turn
from tidegate.slot.subtask.subtask import Subtask
from tidegate.slot.subtask.turns import Turns
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.operator import OutputPlan
    from tidegate.checkpoint.channel_state.file_format import ChannelInfo
    from tidegate.model.ids import ChannelId
    from tidegate.model.topology import OperatorInfo
    from tidegate.slot.subtask.deployment import Deployment
    from tidegate.slot.subtask.host import Host
    from tidegate.slot.subtask.operator_host import OperatorHost
    from tidegate.typeinfo.types import TypeInformation


class States(Protocol):
    """Makes the state of operators."""

    def backend(
        self,
        deployment: Deployment,
        host: Host,
        info: OperatorInfo,
        key_type: TypeInformation | None,
    ) -> OperatorBackend: ...


class StatesInMemory:
    """Keeps all state in memory, and snapshots whole, as a harness does."""

    def backend(
        self,
        deployment: Deployment,
        host: OperatorHost,
        info: OperatorInfo,
        key_type: TypeInformation | None,
    ) -> OperatorBackend:
        scope = StateScope(
            info.id,
            deployment.key_groups,
            deployment.vertex.max_parallelism,
            host.clock,
            KeyCell(),
            key_type=key_type,
            name=info.name,
            uid=info.uid,
        )
        return OperatorBackend(scope)
        return OperatorBackend(scope)


class _PassThrough(SourceOperator):
    """Replaces an operator that had finished in the restored checkpoint."""

    def process(self, batch: object, port: int, out: object) -> None:
        raise AssertionError("nothing comes to an operator that has finished")


def load(deployment: Deployment) -> VertexPlan:
    """The code of a subtask. Raises UserCodeFailed if this process cannot load it."""
    name = deployment.vertex.name
    return cast("VertexPlan", ship.loads(deployment.deploy.operators, name=name))


def build(plan: VertexPlan, deployment: Deployment, host: Host, states: States) -> Subtask:
    room, pace = Room(host.clock), Turn(host.clock)
    gate = Gate(
        [
            InputChannel(
                channel,
                deployment.deploy.topology.edges[channel.edge].port,
                host.to_producer(channel),
            )
            for _, channel in deployment.inputs
        ],
        host,
    )
    chain = _chain(plan, deployment, host, states, room, pace)
    outputs = Outputs(_outputs(plan, deployment, host, chain, room), room)
    ending = Ending(deployment, chain, gate, outputs)
    places = _in_flight_places(deployment, host)
    checkpointing = Checkpointing(deployment, host, gate, chain, outputs, ending, places)
    slot = deployment.settings.slot
    asked = AskedSize(slot, gate)
    input = Input(deployment, host.clock, gate, asked, chain, room, checkpointing, ending)
    debloater = None
    if slot.debloat is not None and gate.channels:
        debloater = Debloater(slot.debloat, slot.rows, gate, asked)
    turns = Turns(pace, chain, host.clock, slot, debloater)
    return Subtask(deployment, host, chain, outputs, checkpointing, turns, ending, input)


def _chain(
    plan: VertexPlan, deployment: Deployment, host: Host, states: States, room: Room, pace: Turn
) -> Chain:
    infos = deployment.vertex.operators
    finished, share = deployment.deploy.finished, deployment.settings.slot.object_reuse
    operators = [_PassThrough() for _ in infos] if finished else plan.operators
    made: list[ChainedOperator] = []
    for info, operator in zip(infos, operators, strict=True):
        backend = states.backend(deployment, host, info, operator.key_type)
        context = context_of(info, deployment, host, backend)
        convert = output_conversions(operator, info.name)
        out = ChainOutput(room, host.clock, share=share, convert=convert)
        made.append(ChainedOperator(operator, context, backend, out, pace, host))
    for index, info in enumerate(infos):
        if info.upstream is not None:
            tag = plan.side_tags[index] if plan.side_tags else None
            made[info.upstream].out.add_operator(made[index], tag)
    return Chain(made)


def _outputs(
    plan: VertexPlan, deployment: Deployment, host: Host, chain: Chain, room: Room
) -> list[ChannelOutput]:
    topology, slot = deployment.deploy.topology, deployment.settings.slot
    by_edge = {
        edge: [
            ChannelOutput(
                channel,
                slot,
                host.to_consumer(channel),
                room,
                aligned_only=not topology.lets_overtake(edge),
            )
            for _, channel in channels
        ]
        for edge, channels in groupby(deployment.outputs, key=lambda each: each[1].edge)
    }
    for output in plan.outputs:
        _add_route(output, by_edge[output.edge], deployment, host, chain)
    return [channel for output in plan.outputs for channel in by_edge[output.edge]]


def _add_route(
    output: OutputPlan,
    channels: Sequence[ChannelOutput],
    deployment: Deployment,
    host: Host,
    chain: Chain,
) -> None:
    topology = deployment.deploy.topology
    edge = topology.edges[output.edge]
    source, target = topology.vertex(edge.source), topology.vertex(edge.target)
    route = make_route(
        output,
        edge.partitioner,
        channels,
        max_parallelism=target.max_parallelism,
        subtask=deployment.index,
        share=deployment.settings.slot.object_reuse,
        chance=host.chance,
        where=f"the edge from '{source.name}' to '{target.name}'",
    )
    chain.operators[edge.operator].out.add_route(route, channels, edge.tag)


def _in_flight_places(deployment: Deployment, host: Host) -> InFlightPlaces:
    """In a snapshot, data of inputs are the head's, and data of outputs the last sender's."""
    topology, vertex = deployment.deploy.topology, deployment.vertex
    infos: dict[ChannelId, ChannelInfo] = {}
    for number, channel in deployment.inputs:
        infos[channel] = InputChannelInfo(number, channel.producer)
    for number, channel in deployment.outputs:
        infos[channel] = ResultSubpartitionInfo(number, channel.consumer)
    senders = [topology.edges[edge].operator for edge in topology.outputs(vertex.id)]
    head, sender = vertex.operators[0], vertex.operators[max(senders, default=0)]
    return InFlightPlaces(host.channel_state, infos, head.id, sender.id)

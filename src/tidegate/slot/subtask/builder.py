"""From a `Deploy` to a subtask, in the order in which a row passes its parts.

gate → head of the chain … its tail → routes → outputs. Nothing is restored or opened yet.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Protocol, cast

from tidegate.api import ship
from tidegate.api.operator import SourceOperator, VertexPlan
from tidegate.api.rows.conversion import output_conversions
from tidegate.checkpoint.channel_state.file_format import InputChannelInfo, ResultSubpartitionInfo
from tidegate.loops.forms import loops
from tidegate.slot.channels.gate import Gate, InputChannel
from tidegate.slot.channels.output import ChannelOutput, Outputs, Room
from tidegate.slot.channels.routes import CombinedRoute, WayOut, make_route
from tidegate.slot.in_flight import InFlightPlaces
from tidegate.slot.subtask.chain import Chain, ChainedOperator, ChainOutput, LastInputs
from tidegate.slot.subtask.context import context_of
from tidegate.slot.subtask.subtask import Subtask
from tidegate.slot.subtask.turns import Turns
from tidegate.state.backend import OperatorBackend
from tidegate.state.scope import StateScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.operator import OutputPlan
    from tidegate.api.state import KeyedPanes
    from tidegate.checkpoint.channel_state.file_format import ChannelInfo
    from tidegate.model.deployment import Deployment
    from tidegate.model.ids import ChannelId
    from tidegate.slot.channels.routes import Route
    from tidegate.slot.subtask.host import Host
    from tidegate.typeinfo.types import TypeInformation


class States(Protocol):
    """Makes the state of operators."""

    def backend(self, scope: StateScope, deployment: Deployment, host: Host) -> OperatorBackend: ...


class StatesInMemory:
    """Keeps all state in memory, and snapshots whole, as a harness does."""

    def backend(self, scope: StateScope, deployment: Deployment, host: Host) -> OperatorBackend:
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
    room, turns = Room(host.clock), Turns(host.clock)
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
    chain = _chain(plan, deployment, host, states, room, turns)
    outputs = _outputs(plan, deployment, host, chain, room)
    places = _in_flight_places(deployment, host)
    return Subtask(deployment, host, gate, chain, outputs, turns, places)


def _chain(
    plan: VertexPlan, deployment: Deployment, host: Host, states: States, room: Room, turns: Turns
) -> Chain:
    infos = deployment.vertex.operators
    finished, share = deployment.deploy.finished, deployment.settings.slot.object_reuse
    operators = [_PassThrough() for _ in infos] if finished else plan.operators
    form = loops(deployment.settings.slot.loops)
    made: list[ChainedOperator] = []
    for info, operator in zip(infos, operators, strict=True):
        scope = StateScope(
            info.id,
            deployment.key_groups,
            deployment.vertex.max_parallelism,
            host.clock,
            form.key_cell(),
            operator.key_type,
            info.name,
            info.uid,
            deployment.settings.checkpoints.snapshot_compression,
        )
        backend = states.backend(scope, deployment, host)
        context = context_of(info, deployment, host, backend)
        convert = output_conversions(operator, info.name, form)
        out = ChainOutput(room, host.clock, share=share, convert=convert)
        inputs = None
        if (replay := deployment.settings.slot.replay) is not None:
            backend.note_states()
            inputs = LastInputs(replay.rows)
        made.append(ChainedOperator(operator, context, backend, out, turns, host, inputs))
    for index, info in enumerate(infos):
        if info.upstream is not None:
            tag = plan.side_tags[index] if plan.side_tags else None
            made[info.upstream].out.add_operator(made[index], tag)
    return Chain(made)


def _outputs(
    plan: VertexPlan, deployment: Deployment, host: Host, chain: Chain, room: Room
) -> Outputs:
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
    combined: list[CombinedRoute] = []
    for output in plan.outputs:
        route = _add_route(output, by_edge[output.edge], deployment, host, chain)
        if isinstance(route, CombinedRoute):
            combined.append(route)
    channels = [channel for output in plan.outputs for channel in by_edge[output.edge]]
    return Outputs(channels, room, combined)


def _add_route(
    output: OutputPlan,
    channels: Sequence[ChannelOutput],
    deployment: Deployment,
    host: Host,
    chain: Chain,
) -> Route:
    topology = deployment.deploy.topology
    edge = topology.edges[output.edge]
    source, target = topology.vertex(edge.source), topology.vertex(edge.target)
    route = make_route(
        output,
        edge.partitioner,
        channels,
        max_parallelism=target.max_parallelism,
        subtask=deployment.index,
        settings=deployment.settings.slot,
        chance=host.chance,
        where=f"the edge from '{source.name}' to '{target.name}'",
    )
    if output.combiner is not None:
        output.combiner.open(partial(_panes, f"operator '{target.name}'"))
        route = CombinedRoute(output.combiner, route)
    out = chain.operators[edge.operator].out
    out.add_way_out(WayOut(route, host.clock), channels, edge.tag)
    return route


def _panes(where: str, key_type: TypeInformation | None) -> KeyedPanes:
    from tidegate.state.columns.columnar import KeyedColumnStates  # loads Arrow

    return KeyedColumnStates(where).keyed_panes(key_type)


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

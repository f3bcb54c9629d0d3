from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.graph.programs import Program, keyed, partitioned
from tidegate.config.configuration import Configuration
from tidegate.graph.chaining import chainable, chains
from tidegate.graph.job_graph import translate
from tidegate.graph.stream_graph import build_stream_graph
from tidegate.graph.transformations import (
    ChainingStrategy,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
)
from tidegate.model.topology import Partitioner

if TYPE_CHECKING:
    from tidegate.graph.stream_graph import StreamGraph

EXCHANGES = [Partitioner.REBALANCE, Partitioner.BROADCAST, Partitioner.GLOBAL, Partitioner.RESCALE]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Sources, and steps that read what was made before: as it is, partitioned, united, by tag."""
    program = Program()
    for number in range(draw(st.integers(1, 3))):
        program.source(f"source-{number}", parallelism=draw(st.integers(1, 3)))
    for number in range(draw(st.integers(1, 8))):
        inputs = [draw(streams(program)) for _ in range(draw(st.integers(1, 2)))]
        program.step(
            f"step-{number}",
            *inputs,
            parallelism=draw(st.integers(1, 3)),
            chaining=draw(st.sampled_from(ChainingStrategy)),
        )
    return program


@st.composite
def streams(draw: st.DrawFn, program: Program) -> Transformation:
    made = draw(st.sampled_from(program.made))
    match draw(st.integers(0, 4)):
        case 0:
            return keyed(made)
        case 1:
            return partitioned(made, draw(st.sampled_from(EXCHANGES)))
        case 2:
            return SideOutputTransformation(made, "tag")
        case 3:
            return UnionTransformation((made, draw(st.sampled_from(program.made))))
        case _:
            return made


def graph_of(program: Program) -> StreamGraph:
    return build_stream_graph(program.made)


@given(program=programs(), enabled=st.booleans())
def test_each_operator_is_in_one_chain_behind_the_one_that_feeds_it(
    program: Program, enabled: bool
) -> None:
    graph = graph_of(program)
    chained = chainable(graph, enabled=enabled)
    made = chains(graph, chained)
    assert sorted(node for chain in made for node in chain.nodes) == [n.id for n in graph.nodes]
    fed = {
        (chain.nodes[up], node)
        for chain in made
        for node, up in zip(chain.nodes, chain.upstream, strict=True)
        if up is not None
    }
    pairs = zip(graph.edges, chained, strict=True)
    assert fed == {(edge.source, edge.target) for edge, together in pairs if together}
    for chain in made:
        assert chain.upstream[0] is None
        assert all(up is not None and up < i for i, up in enumerate(chain.upstream) if i)
    assert enabled or len(made) == len(graph.nodes)


@given(program=programs())
def test_vertices_stand_behind_those_that_feed_them_and_have_one_parallelism(
    program: Program,
) -> None:
    graph = translate(graph_of(program), Configuration(), "job")
    place = {vertex.id: index for index, vertex in enumerate(graph.topology.vertices)}
    assert all(place[edge.source] < place[edge.target] for edge in graph.topology.edges)
    parallelism = {made.name: made.placement.parallelism for made in program.made}
    for vertex in graph.topology.vertices:
        names = {info.name.removeprefix("Source: ") for info in vertex.operators}
        assert {parallelism[name] for name in names} == {vertex.parallelism}
    assert len({info.id for v in graph.topology.vertices for info in v.operators}) == len(
        program.made
    )


@given(program=programs())
def test_the_plans_carry_the_code_of_each_edge_once(program: Program) -> None:
    graph = translate(graph_of(program), Configuration(), "job")
    topology = graph.topology
    carried = [
        (output.edge, vertex.id, output.key is not None)
        for vertex in topology.vertices
        for output in graph.plan(vertex.id).outputs
    ]
    assert sorted(carried) == [
        (index, edge.source, edge.partitioner is Partitioner.HASH)
        for index, edge in enumerate(topology.edges)
    ]
    for vertex in topology.vertices:
        plan = graph.plan(vertex.id)
        assert len(plan.operators) == len(plan.side_tags) == len(vertex.operators)

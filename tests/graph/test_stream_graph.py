from __future__ import annotations

import pytest

from tests.graph.programs import Program, keyed, partitioned, word_count
from tidegate.errors import GraphError
from tidegate.graph.stream_graph import StreamGraph, build_stream_graph
from tidegate.graph.transformations import SideOutputTransformation, UnionTransformation
from tidegate.model.topology import Partitioner


def edges(graph: StreamGraph) -> list[tuple[int, int, Partitioner]]:
    return [(edge.source, edge.target, edge.partitioner) for edge in graph.edges]


def test_nodes_stand_in_the_order_of_the_calls() -> None:
    graph = build_stream_graph(word_count().made[-1:])
    assert [node.id for node in graph.nodes] == [1, 2, 3, 4]
    assert [node.name for node in graph.nodes] == [
        "Source: lines",
        "FlatMap",
        "Reduce",
        "Sink: Print",
    ]


def test_an_edge_goes_forward_where_parallelism_stays_and_is_rebalanced_where_it_changes() -> None:
    graph = build_stream_graph(word_count(2).made)
    assert edges(graph) == [
        (1, 2, Partitioner.REBALANCE),
        (2, 3, Partitioner.HASH),
        (3, 4, Partitioner.FORWARD),
    ]
    assert edges(build_stream_graph(word_count(1).made))[0] == (1, 2, Partitioner.FORWARD)


def test_a_source_that_nobody_reads_is_left_out() -> None:
    program = word_count()
    unread = program.source("unread")
    graph = build_stream_graph([made for made in program.made if made is not unread])
    assert "Source: unread" not in [node.name for node in graph.nodes]


def test_of_two_partitionings_in_a_row_the_last_counts() -> None:
    program = Program(2)
    source = program.source()
    twice = keyed(partitioned(keyed(source, "a"), Partitioner.SHUFFLE), "b")
    program.step("Map", twice)
    (edge,) = build_stream_graph(program.made).edges
    assert edge.partitioner is Partitioner.HASH
    assert edge.key is not None
    assert edge.key.column == "b"


def test_a_union_becomes_an_edge_from_each_stream_and_keeps_their_partitionings() -> None:
    program = Program(2)
    a, b, c = (program.source(name) for name in "abc")
    inner = UnionTransformation((a, partitioned(b, Partitioner.BROADCAST)))
    program.step("Map", UnionTransformation((inner, c, a)))
    assert edges(build_stream_graph(program.made)) == [
        (1, 4, Partitioner.FORWARD),
        (2, 4, Partitioner.BROADCAST),
        (3, 4, Partitioner.FORWARD),
        (1, 4, Partitioner.FORWARD),
    ]


def test_a_partitioning_of_a_union_holds_for_each_of_its_streams() -> None:
    program = Program(2)
    a, b = program.source("a"), program.source("b")
    program.step("Map", keyed(UnionTransformation((a, b))))
    assert edges(build_stream_graph(program.made)) == [
        (1, 3, Partitioner.HASH),
        (2, 3, Partitioner.HASH),
    ]


def test_a_side_output_becomes_an_edge_with_its_tag() -> None:
    program = Program()
    step = program.step("Process", program.source())
    program.step("Map", keyed(SideOutputTransformation(step, "late")))
    edge = build_stream_graph(program.made).edges[-1]
    assert (edge.tag, edge.partitioner) == ("late", Partitioner.HASH)


def test_a_chain_of_calls_may_be_longer_than_pythons_stack() -> None:
    program = Program()
    stream = program.source()
    for _ in range(3_000):
        stream = program.step("Map", stream)
    union: UnionTransformation | None = None
    for _ in range(3_000):
        union = UnionTransformation((union or stream, stream))
    assert union is not None
    program.sink("all", union)
    graph = build_stream_graph(program.made[-1:])
    assert len(graph.nodes) == 3_002
    assert len(graph.edges) == 3_000 + 3_001


def test_a_program_that_does_nothing_is_refused() -> None:
    with pytest.raises(GraphError, match="No operators defined in streaming topology"):
        build_stream_graph([])


def test_forward_between_two_parallelisms_is_refused_naming_both_operators() -> None:
    program = Program()
    source = program.source(parallelism=2)
    program.step("Map", partitioned(source, Partitioner.FORWARD), parallelism=3)
    with pytest.raises(GraphError) as raised:
        build_stream_graph(program.made)
    assert raised.value.what == (
        "Forward partitioning does not allow change of parallelism. Upstream operation: "
        "Source: source parallelism: 2, downstream operation: Map parallelism: 3"
    )


def test_a_keyed_operator_without_a_key_is_refused() -> None:
    program = Program()
    program.step("Count", program.source(), keyed=True)
    with pytest.raises(GraphError, match="'Count' has keyed state, but its input") as raised:
        build_stream_graph(program.made)
    assert raised.value.remedy == "Put key_by directly in front of it."


def test_a_keyed_operator_may_read_what_is_broadcast_beside_its_keyed_input() -> None:
    program = Program()
    told = partitioned(program.source("rules"), Partitioner.BROADCAST)
    program.step("Judge", keyed(program.source()), told, keyed=True)
    edges = build_stream_graph(program.made).edges
    assert [edge.partitioner.name for edge in edges] == ["HASH", "BROADCAST"]
    program = Program()
    told = partitioned(program.source("rules"), Partitioner.BROADCAST)
    program.step("Judge", told, keyed(program.source()), keyed=True)
    with pytest.raises(GraphError, match="'Judge' has keyed state, but its input from 'Source: ru"):
        build_stream_graph(program.made)


def test_all_faults_are_told_at_once() -> None:
    program = Program()
    source = program.source("one", parallelism=4, parallelism_max=1)
    program.step("Count", source, keyed=True, max_parallelism=2, parallelism=3)
    with pytest.raises(GraphError) as raised:
        build_stream_graph(program.made)
    assert "non parallel operator must be 1, not 4" in raised.value.what
    assert "Maximum parallelism must not be smaller than parallelism." in raised.value.what
    assert "has no key" in raised.value.what
    assert raised.value.where == "operator 'Source: one', operator 'Count'"


def test_max_parallelism_is_the_operators_else_the_jobs_else_derived() -> None:
    program = Program(200)
    source = program.source()
    program.step("Map", source, max_parallelism=512)
    derived = build_stream_graph(program.made).nodes
    assert [(n.max_parallelism, n.max_parallelism_set) for n in derived] == [
        (512, False),
        (512, True),
    ]
    given = build_stream_graph(program.made, max_parallelism=300).nodes
    assert [(n.max_parallelism, n.max_parallelism_set) for n in given] == [(300, True), (512, True)]


def test_operators_with_state_and_without_uid_get_one_proposed() -> None:
    program = Program()
    source = program.source(stateful=True, uid="input")
    for name in ("Keyed Count!", "Keyed Count!", "input"):
        program.step(name, keyed(source), keyed=True, stateful=True)
    program.step("Map", source)
    proposed = build_stream_graph(program.made).missing_uids()
    assert proposed == {
        "Keyed Count!": "keyed-count",
        "Keyed Count! (2)": "keyed-count-2",
        "input (2)": "input-2",
    }

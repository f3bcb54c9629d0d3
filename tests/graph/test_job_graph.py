from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from typing import cast

import pytest

from flinkformat.operator_ids import operator_id_of_uid
from tests.graph.programs import Program, Reader, Step, keyed, partitioned, word_count
from tidegate.api.operator import KeyBy
from tidegate.config.configuration import Configuration
from tidegate.config.settings import job_settings
from tidegate.errors import GraphError
from tidegate.graph.explain import execution_plan, explain_mermaid, explain_text
from tidegate.graph.job_graph import JobGraph, translate
from tidegate.graph.stream_graph import build_stream_graph
from tidegate.graph.transformations import (
    ChainingStrategy,
    PartitionTransformation,
    SideOutputTransformation,
    UnionTransformation,
)
from tidegate.model.ids import VertexId
from tidegate.model.topology import Partitioner


def built(program: Program, settings: dict[str, str] | None = None) -> JobGraph:
    configuration = Configuration.from_dict(settings or {})
    return translate(build_stream_graph(program.made), configuration, "job")


def names(graph: JobGraph) -> list[str]:
    return [vertex.name for vertex in graph.topology.vertices]


def test_operators_in_a_row_of_equal_parallelism_become_one_vertex() -> None:
    assert names(built(word_count(2))) == ["Source: lines", "FlatMap", "Reduce -> Sink: Print"]
    assert names(built(word_count(1))) == ["Source: lines -> FlatMap", "Reduce -> Sink: Print"]


def test_chaining_can_be_switched_off() -> None:
    graph = built(word_count(1), {"pipeline.operator-chaining.enabled": "false"})
    assert names(graph) == ["Source: lines", "FlatMap", "Reduce", "Sink: Print"]


def test_a_chain_branches_where_its_operators_do() -> None:
    program = Program()
    source = program.source("a")
    mapped = program.step("Map", source)
    program.sink("x", mapped)
    kept = program.step("Filter", mapped)
    program.sink("y", kept)
    (vertex,) = built(program).topology.vertices
    assert vertex.name == "Source: a -> Map -> (Sink: x, Filter -> Sink: y)"
    assert [info.upstream for info in vertex.operators] == [None, 0, 1, 1, 3]


def test_an_operator_with_two_inputs_begins_a_chain() -> None:
    program = Program()
    union = UnionTransformation((program.source("a"), program.source("b")))
    program.sink("all", program.step("Map", union))
    assert names(built(program)) == ["Source: a", "Source: b", "Map -> Sink: all"]


@pytest.mark.feature("F006")
def test_unaligned_checkpoints_with_a_custom_partitioner_are_refused_unless_forced() -> None:
    def program() -> Program:
        made = Program()
        dealt = PartitionTransformation(made.source("a"), Partitioner.CUSTOM, partition=max)
        made.sink("all", made.step("Map", dealt))
        return made

    unaligned = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.unaligned.enabled": "true",
    }
    with pytest.raises(GraphError) as caught:
        built(program(), unaligned)
    assert "custom partitioners" in caught.value.what and "'Map'" in caught.value.where
    assert "execution.checkpointing.unaligned.forced" in caught.value.remedy
    forced = {**unaligned, "execution.checkpointing.unaligned.forced": "true"}
    assert built(program(), forced).settings.checkpoints.unaligned
    at_least_once = {**unaligned, "execution.checkpointing.mode": "AT_LEAST_ONCE"}
    assert not built(program(), at_least_once).settings.checkpoints.unaligned
    built(program(), {"execution.checkpointing.unaligned.enabled": "true"})


def test_a_stream_united_with_itself_has_two_edges_to_its_reader() -> None:
    program = Program()
    source = program.source("a")
    program.sink("all", UnionTransformation((source, source)))
    graph = built(program)
    assert [edge.partitioner for edge in graph.topology.edges] == [Partitioner.FORWARD] * 2
    assert [output.edge for output in graph.plan(graph.topology.vertices[0].id).outputs] == [0, 1]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (ChainingStrategy.HEAD, ["Source: a", "Map -> Sink: x"]),
        (ChainingStrategy.NEVER, ["Source: a", "Map", "Sink: x"]),
    ],
)
def test_chaining_hints_are_followed(strategy: ChainingStrategy, expected: list[str]) -> None:
    program = Program()
    mapped = program.step("Map", program.source("a"), chaining=strategy)
    program.sink("x", mapped)
    assert names(built(program)) == expected


@pytest.mark.parametrize("how", [each for each in Partitioner if each is not Partitioner.FORWARD])
def test_only_a_forward_edge_is_chained(how: Partitioner) -> None:
    program = Program()
    program.step("Map", partitioned(program.source("a"), how))
    graph = built(program)
    assert names(graph) == ["Source: a", "Map"]
    assert [edge.partitioner for edge in graph.topology.edges] == [how]


def test_sources_come_first_and_each_vertex_after_those_that_feed_it() -> None:
    program = Program()
    first = program.step("Map", keyed(program.source("a")))
    late = program.source("late")
    program.sink("x", keyed(UnionTransformation((first, late))))
    assert names(built(program)) == ["Source: a", "Source: late", "Map", "Sink: x"]


def test_a_vertex_has_the_id_of_its_head_and_a_uid_decides_it() -> None:
    program = word_count(1)
    program.made[2].state.uid = "counts"
    vertex = built(program).topology.vertices[1]
    assert vertex.id == VertexId(operator_id_of_uid("counts")) == vertex.operators[0].id
    assert vertex.operators[0].uid == "counts"


def test_two_operators_with_one_uid_are_refused() -> None:
    program = word_count()
    program.made[1].state.uid = program.made[2].state.uid = "same"
    with pytest.raises(GraphError, match="uid 'same' is on 'FlatMap' and on 'Reduce'"):
        built(program)


def test_without_generated_uids_each_operator_needs_its_own() -> None:
    program = word_count()
    for number, made in enumerate(program.made[1:]):
        made.state.uid = f"uid-{number}"
    with pytest.raises(GraphError, match="no UID or hash has been assigned to operator 'Source"):
        built(program, {"pipeline.auto-generate-uids": "false"})
    program.made[0].state.uid = "source"
    assert len(built(program, {"pipeline.auto-generate-uids": "false"}).plans) == 3


def test_the_plan_of_a_vertex_holds_its_operators_and_the_code_of_its_edges() -> None:
    graph = built(word_count(1))
    head, tail = graph.topology.vertices
    plan = graph.plan(head.id)
    assert [type(operator) for operator in plan.operators] == [Reader, Step]
    (output,) = plan.outputs
    assert output.key is not None
    assert (output.edge, output.key.column) == (0, "key")
    assert graph.topology.edges[0].operator == 1
    assert graph.plan(tail.id).outputs == ()


def test_a_side_output_is_read_by_its_tag_within_a_chain_and_across() -> None:
    program = Program()
    step = program.step("Process", program.source("a"))
    program.step("Near", SideOutputTransformation(step, "late"))
    program.step("Far", keyed(SideOutputTransformation(step, "bad")))
    graph = built(program)
    plan = graph.plan(graph.topology.vertices[0].id)
    assert plan.side_tags == (None, None, "late")
    assert [edge.tag for edge in graph.topology.edges] == ["bad"]


def test_operators_with_a_coordinator_are_shipped_by_themselves() -> None:
    graph = built(word_count(1))
    source = graph.topology.vertices[0].operators[0]
    assert [info.has_coordinator for info in graph.topology.vertices[0].operators] == [True, False]
    assert list(graph.coordinators) == [source.id]
    assert isinstance(graph.coordinated(source.id), Reader)
    assert graph.operator(source.id) == source


def test_what_cannot_be_shipped_is_refused_naming_its_operator() -> None:
    program = Program()
    fine = program.step("Fine", program.source("a"))
    program.step("Broken", fine, held=threading.Lock())
    with pytest.raises(GraphError, match="operator 'Broken' cannot be sent to the slots"):
        built(program)


def test_a_key_that_cannot_be_shipped_is_refused_naming_the_operator_behind_it() -> None:
    program = Program()
    lock = threading.Lock()
    key = KeyBy(selector=lambda value: (lock, value))
    program.step("Count", PartitionTransformation(program.source("a"), Partitioner.HASH, key))
    with pytest.raises(GraphError, match="operator 'key_by before Count' cannot be sent"):
        built(program)


def test_lambdas_and_what_main_defines_are_shipped_by_value() -> None:
    program = Program()
    factor = 3
    program.step("Map", program.source("a"), held=lambda value: value * factor)
    graph = built(program)
    held = cast("Step", graph.plan(graph.topology.vertices[0].id).operators[1]).held
    assert callable(held)
    assert held(4) == 12


SETTINGS = {
    "execution.checkpointing.interval": "500 ms",
    "execution.checkpointing.min-pause": "2 s",
    "execution.checkpointing.dir": "file:///tmp/checkpoints",
    "execution.checkpointing.num-retained": "3",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "7",
}


@pytest.mark.feature("F007")
def test_the_settings_are_the_same_in_another_process() -> None:
    graph = built(word_count(), SETTINGS)
    assert graph.settings == job_settings(Configuration.from_dict(SETTINGS))
    assert graph.settings.checkpoints.interval_ms == 2_000
    script = (
        "import pickle, sys\n"
        "graph = pickle.load(sys.stdin.buffer)\n"
        "sys.stdout.buffer.write(pickle.dumps((graph, repr(graph.settings))))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(graph),
        stdout=subprocess.PIPE,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
    )
    returned, settings = pickle.loads(run.stdout)
    assert settings == repr(graph.settings)
    assert returned == graph


def test_the_job_as_text() -> None:
    program = word_count(2)
    program.made[2].state.uid = "counts"
    graph = built(program, SETTINGS)
    ids = {info.name: info.id.hex()[:8] for v in graph.topology.vertices for info in v.operators}
    assert explain_text(graph) == "\n".join(
        [
            "Job 'job': 3 vertices, 2 slots, checkpoints each 2000 ms to file:///tmp/checkpoints",
            "",
            "1. Source: lines",
            "     parallelism 1 of at most 128",
            f"     - Source: lines (id {ids['Source: lines']})",
            "     > REBALANCE to 2",
            "",
            "2. FlatMap",
            "     parallelism 2 of at most 128",
            f"     - FlatMap (id {ids['FlatMap']})",
            "     > HASH to 3",
            "",
            "3. Reduce -> Sink: Print",
            "     parallelism 2 of at most 128",
            f"     - Reduce (id {ids['Reduce']}, uid 'counts')",
            f"     - Sink: Print (id {ids['Sink: Print']})",
        ]
    )


def test_the_job_as_a_mermaid_chart() -> None:
    assert explain_mermaid(built(word_count(2))) == "\n".join(
        [
            "flowchart LR",
            '    v1["Source: lines<br/>× 1"]',
            '    v2["FlatMap<br/>× 2"]',
            '    v3["Reduce<br/>Sink: Print<br/>× 2"]',
            '    v1 -- "REBALANCE" --> v2',
            '    v2 -- "HASH" --> v3',
        ]
    )


def test_the_plan_has_the_operators_as_written_and_the_vertices_as_chained() -> None:
    program = word_count(2)
    graph = built(program)
    plan = json.loads(execution_plan(build_stream_graph(program.made), graph))
    assert [(n["id"], n["pact"], n["contents"], n["parallelism"]) for n in plan["nodes"]] == [
        (1, "Data Source", "Source: lines", 1),
        (2, "Operator", "FlatMap", 2),
        (3, "Operator", "Reduce", 2),
        (4, "Data Sink", "Sink: Print", 2),
    ]
    assert "predecessors" not in plan["nodes"][0]
    assert plan["nodes"][2]["predecessors"] == [
        {"id": 2, "ship_strategy": "HASH", "side": "second"}
    ]
    assert [vertex["description"] for vertex in plan["vertices"]] == [
        "Reduce -&gt; Sink: Print<br/>",
        "FlatMap<br/>",
        "Source: lines<br/>",
    ]
    assert plan["vertices"][0]["inputs"][0]["id"] == plan["vertices"][1]["id"]

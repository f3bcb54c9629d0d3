"""Programs that Flink 2.3 was given too: the same exchanges, chains and operator ids."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden import FIXTURES

from tests.graph.programs import Program, partitioned
from tidegate.config.configuration import Configuration
from tidegate.graph.chaining import chainable
from tidegate.graph.job_graph import translate
from tidegate.graph.stream_graph import StreamGraph, build_stream_graph
from tidegate.graph.transformations import (
    OperatorTransformation,
    Transformation,
    UnionTransformation,
)
from tidegate.model.topology import Partitioner

GOLDEN = FIXTURES / "golden-rules.jsonl"

Case = dict[str, Any]


def cases() -> list[Any]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    found = [case for case in map(json.loads, lines) if case["kind"] == "autoIds"]
    return [pytest.param(case, id=f"{case['shape']}-{case['chaining']}") for case in found]


def program(case: Case) -> Program:
    """The case as transformations; exchanges are set only where parallelism does not imply them."""
    made = Program()
    by_index: dict[int, OperatorTransformation] = {}
    for node in case["nodes"]:
        inputs: list[Transformation] = []
        for index, how in node["inputs"]:
            given = by_index[index]
            implied = (
                "FORWARD" if given.placement.parallelism == node["parallelism"] else "REBALANCE"
            )
            inputs.append(given if how == implied else partitioned(given, Partitioner[how]))
        settings = {"parallelism": node["parallelism"], "uid": node["uid"]}
        if not inputs:
            by_index[node["index"]] = made.source(node["name"], **settings)
            continue
        two_ports = node["name"].startswith("Co-")
        united = inputs if two_ports or len(inputs) == 1 else [UnionTransformation(tuple(inputs))]
        by_index[node["index"]] = made.step(node["name"], *united, **settings)
    return made


def stream_graph(case: Case) -> StreamGraph:
    return build_stream_graph(program(case).made)


@pytest.mark.parametrize("case", cases())
def test_the_exchanges_and_what_can_be_chained(case: Case) -> None:
    graph = stream_graph(case)
    chained = chainable(graph, enabled=case["chaining"])
    made = {
        (edge.source - 1, edge.target - 1): (edge.partitioner.value, together)
        for edge, together in zip(graph.edges, chained, strict=True)
    }
    assert made == {
        (node["index"], target): (how, together)
        for node in case["nodes"]
        for target, how, together in node["outputs"]
    }


@pytest.mark.parametrize("case", cases())
def test_the_ids_of_the_operators_of_a_whole_program(case: Case) -> None:
    settings = {"pipeline.operator-chaining.enabled": str(case["chaining"]).lower()}
    graph = translate(stream_graph(case), Configuration.from_dict(settings), "job")
    made = [info.id.hex() for vertex in graph.topology.vertices for info in vertex.operators]
    assert sorted(made) == sorted(node["operatorId"] for node in case["nodes"])
    if not case["chaining"]:
        assert len(graph.topology.vertices) == len(case["nodes"])

"""A job for readers: as text, as a Mermaid diagram, and as the JSON of Flink's plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tidegate.graph.guarantees import guarantees

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.graph.guarantees import EndToEnd
    from tidegate.graph.job_graph import JobGraph
    from tidegate.graph.stream_graph import StreamEdge, StreamGraph
    from tidegate.model.settings import JobSettings
    from tidegate.model.topology import Edge, FunctionInfo, OperatorInfo, Topology, Vertex

_SHORT_ID: Final = 8


def explain_text(graph: JobGraph) -> str:
    """Text for a terminal: vertices with their operators, and where their rows go."""
    vertices = graph.topology.vertices
    lines = [
        f"Job {graph.name!r}: {_count(len(vertices), 'vertex', 'vertices')}, {_resources(graph)}"
    ]
    numbers = {vertex.id: number for number, vertex in enumerate(vertices, 1)}
    for number, vertex in enumerate(vertices, 1):
        lines += ["", f"{number}. {vertex.name}", f"     {_parallelism(vertex)}"]
        for info in vertex.operators:
            lines.append(f"     {_operator(info)}")
            lines += [f"         {_function(each)}" for each in info.functions]
        for index in graph.topology.outputs(vertex.id):
            edge = graph.topology.edges[index]
            lines.append(f"     {_edge(edge, vertex)} to {numbers[edge.target]}")
    promises = _promises(graph)
    if promises:
        lines += ["", "Sinks, from end to end", *(f"     {line}" for line in _told(promises))]
    return "\n".join(lines)


def explain_mermaid(graph: JobGraph) -> str:
    """The job as a Mermaid flow chart, one box a vertex."""
    vertices = graph.topology.vertices
    numbers = {vertex.id: number for number, vertex in enumerate(vertices, 1)}
    lines = ["flowchart LR"]
    for vertex in vertices:
        names = "<br/>".join(_escaped(info.name) for info in vertex.operators)
        lines.append(f'    v{numbers[vertex.id]}["{names}<br/>× {vertex.parallelism}"]')
    for edge in graph.topology.edges:
        label = _escaped(_label(edge))
        lines.append(f'    v{numbers[edge.source]} -- "{label}" --> v{numbers[edge.target]}')
    return "\n".join(lines)


def execution_plan(stream_graph: StreamGraph, graph: JobGraph) -> str:
    """JSON of Flink's plan: the operators as written; ``vertices`` beside them, as chained."""
    nodes = [
        {
            "id": node.id,
            "type": node.name,
            "pact": node.kind.value,
            "contents": node.description or node.name,
            "parallelism": node.parallelism,
            **_predecessors([edge for edge in stream_graph.edges if edge.target == node.id]),
        }
        for node in stream_graph.nodes
    ]
    promises = _promises(graph)
    plan = {
        "nodes": nodes,
        "vertices": plan_nodes(graph.topology),
        "guarantees": [each.as_json() for each in promises],
    }
    return json.dumps(plan, indent=2)


def plan_nodes(topology: Topology) -> list[dict[str, object]]:
    """The ``nodes`` of the REST interface's plan; vertices that feed others come last."""
    return [
        {
            "id": vertex.id.hex(),
            "parallelism": vertex.parallelism,
            "operator": "",
            "operator_strategy": "",
            "description": _escaped(vertex.name) + "<br/>",
            "optimizer_properties": {},
            **_inputs(topology, vertex),
        }
        for vertex in reversed(topology.vertices)
    ]


def _inputs(topology: Topology, vertex: Vertex) -> dict[str, object]:
    edges = [topology.edges[index] for index in topology.inputs(vertex.id)]
    if not edges:
        return {}
    inputs = [
        {
            "num": number,
            "id": edge.source.hex(),
            "ship_strategy": edge.partitioner.value,
            "exchange": "pipelined_bounded",
        }
        for number, edge in enumerate(edges)
    ]
    return {"inputs": inputs}


def _predecessors(edges: Sequence[StreamEdge]) -> dict[str, object]:
    if not edges:
        return {}
    sides = ("first", "second")
    several = any(edge.port for edge in edges)
    return {
        "predecessors": [
            {
                "id": edge.source,
                "ship_strategy": edge.partitioner.value,
                "side": sides[min(edge.port, 1)] if several else "second",
            }
            for edge in edges
        ]
    }


def _resources(graph: JobGraph) -> str:
    if graph.settings.slot.final_only:
        tasks = sum(vertex.parallelism for vertex in graph.topology.vertices)
        return f"{_count(tasks, 'task', 'tasks')}, a batch: no checkpoints, sinks commit at its end"
    slots = graph.topology.slots_needed()
    return f"{_count(slots, 'slot', 'slots')}, {_checkpoints(graph.settings)}"


def _checkpoints(settings: JobSettings) -> str:
    checkpoints = settings.checkpoints
    if checkpoints.interval_ms is None:
        return "no periodic checkpoints"
    place = checkpoints.directory or "the driver's memory"
    return f"checkpoints each {checkpoints.interval_ms} ms to {place}"


def _promises(graph: JobGraph) -> tuple[EndToEnd, ...]:
    operators = [info for vertex in graph.topology.vertices for info in vertex.operators]
    return guarantees(operators, graph.settings)


def _told(promises: Sequence[EndToEnd]) -> Iterator[str]:
    for each in promises:
        yield f"- {each.sink}: {each.guarantee.value}"
        yield from (f"    since {why}" for why in each.why)
        yield from (f"    provided that {what}" for what in each.provided)


def _parallelism(vertex: Vertex) -> str:
    return f"parallelism {vertex.parallelism} of at most {vertex.max_parallelism}"


def _operator(info: OperatorInfo) -> str:
    uid = f", uid {info.uid!r}" if info.uid is not None else ""
    return f"- {info.name} (id {info.id.hex()[:_SHORT_ID]}{uid})"


def _function(info: FunctionInfo) -> str:
    if not info.by_row:
        return f"{info.call} is evaluated over columns"
    return f"{info.call} is called for each {info.each}: {info.by_row}"


def _edge(edge: Edge, source: Vertex) -> str:
    several = len(source.operators) > 1
    origin = f" from {source.operators[edge.operator].name}" if several else ""
    return f"> {_label(edge)}{origin}"


def _label(edge: Edge) -> str:
    return edge.partitioner.value if edge.tag is None else f"{edge.partitioner.value} [{edge.tag}]"


def _escaped(text: str) -> str:
    escapes = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"))
    for raw, escaped in escapes:
        text = text.replace(raw, escaped)
    return text


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"

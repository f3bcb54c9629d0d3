"""Decides which operators run in one task, by Flink's rules.

A chain is a tree: it begins at an operator that cannot be chained to its input and takes in all
that can be chained behind it. Source: Flink, StreamingJobGraphGenerator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.graph.transformations import ChainingStrategy, NodeKind
from tidegate.model.topology import Partitioner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.graph.stream_graph import StreamEdge, StreamGraph


@frozen
class Chain:
    """Operators that run together.

    nodes: ids, an operator after the one that feeds it; the first is the head. upstream: per node
    the index of the one that feeds it, None for the head. tags: per node the side output it reads.
    name: as in Flink, such as ``Source: a -> (Map, Filter -> Sink: b)``.
    """

    nodes: tuple[int, ...]
    upstream: tuple[int | None, ...]
    tags: tuple[str | None, ...]
    name: str


def chainable(graph: StreamGraph, *, enabled: bool) -> list[bool]:
    """True for each edge whose two operators may run in one task, by the edge's index."""
    nodes = {node.id: node for node in graph.nodes}
    inputs: dict[int, int] = {}
    for edge in graph.edges:
        inputs[edge.target] = inputs.get(edge.target, 0) + 1

    def may(edge: StreamEdge) -> bool:
        source, target = nodes[edge.source], nodes[edge.target]
        return (
            enabled
            and inputs[edge.target] == 1
            and edge.partitioner is Partitioner.FORWARD
            and source.parallelism == target.parallelism
            and source.chaining is not ChainingStrategy.NEVER
            and target.chaining is ChainingStrategy.ALWAYS
        )

    return [may(edge) for edge in graph.edges]


def chains(graph: StreamGraph, chained: Sequence[bool]) -> list[Chain]:
    """All chains, those that begin at a source first, else by the call that made their head.

    chained: as ``chainable`` says, one an edge.
    """
    behind: dict[int, list[StreamEdge]] = {node.id: [] for node in graph.nodes}
    inside: set[int] = set()
    for edge, together in zip(graph.edges, chained, strict=True):
        if together:
            behind[edge.source].append(edge)
            inside.add(edge.target)
    names = {node.id: node.name for node in graph.nodes}
    heads = [node for node in graph.nodes if node.id not in inside]
    heads.sort(key=lambda node: (node.kind is not NodeKind.SOURCE, node.id))
    return [_chain(head.id, behind, names) for head in heads]


def _chain(
    head: int, behind: Mapping[int, Sequence[StreamEdge]], names: Mapping[int, str]
) -> Chain:
    nodes: list[int] = []
    upstream: list[int | None] = []
    tags: list[str | None] = []
    waiting: list[tuple[int, int | None, str | None]] = [(head, None, None)]
    while waiting:
        node, fed_by, tag = waiting.pop()
        index = len(nodes)
        nodes.append(node)
        upstream.append(fed_by)
        tags.append(tag)
        # Reversed, since the last one is taken first: operators keep the order of the calls.
        waiting.extend((edge.target, index, edge.tag) for edge in reversed(behind[node]))
    return Chain(tuple(nodes), tuple(upstream), tuple(tags), _name(nodes, behind, names))


def _name(
    nodes: Sequence[int], behind: Mapping[int, Sequence[StreamEdge]], names: Mapping[int, str]
) -> str:
    made: dict[int, str] = {}
    for node in reversed(nodes):
        parts = [made[edge.target] for edge in behind[node]]
        match parts:
            case []:
                made[node] = names[node]
            case [only]:
                made[node] = f"{names[node]} -> {only}"
            case _:
                made[node] = f"{names[node]} -> ({', '.join(parts)})"
    return made[nodes[0]]

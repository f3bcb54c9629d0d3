"""The program as a graph of operators: what is no operator is dissolved into edges.

Source of the rules: Flink, StreamGraphGenerator and StreamGraph.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from flinkformat.key_groups import check_parallelism, default_max_parallelism
from tidegate.errors import GraphError, UserError
from tidegate.graph.transformations import (
    ChainingStrategy,
    NodeKind,
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
)
from tidegate.model.topology import Partitioner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tidegate.api.operator import KeyBy, Operator
    from tidegate.model.ids import OperatorId

_WORD: Final = re.compile("[A-Z]*[a-z0-9]+|[A-Z]+")

_PREFIXES: Final[Mapping[NodeKind, str]] = {
    NodeKind.SOURCE: "Source: ",
    NodeKind.OPERATOR: "",
    NodeKind.SINK: "Sink: ",
}


@frozen
class StreamNode:
    """An operator.

    name: what the program calls it, sources and sinks with their kind in front. max_parallelism: as
    set, or derived; ``max_parallelism_set`` tells which. parallelism_set: it is the operator's own,
    whatever the job's.
    """

    id: int
    kind: NodeKind
    name: str
    operator: Operator
    parallelism: int
    max_parallelism: int
    max_parallelism_set: bool = False
    parallelism_set: bool = False
    keyed: bool = False
    stateful: bool = False
    uid: str | None = None
    uid_hash: OperatorId | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    description: str = ""


@frozen
class StreamEdge:
    """Rows from one operator to another. source, target: ids of nodes.

    by_parallelism: the program chose no partitioner, it follows from the two parallelisms.
    """

    source: int
    target: int
    partitioner: Partitioner
    port: int = 0
    tag: str | None = None
    key: KeyBy | None = None
    partition: Callable[[object, int], int] | None = None
    by_parallelism: bool = False


@frozen
class StreamGraph:
    """nodes: in the order of the calls that made them. edges: by target, then port."""

    nodes: tuple[StreamNode, ...]
    edges: tuple[StreamEdge, ...]

    def missing_uids(self) -> dict[str, str]:
        """Suggested uids, by operator name, for operators with state and without a uid."""
        taken = {node.uid for node in self.nodes}
        proposed: dict[str, str] = {}
        for node in self.nodes:
            if not node.stateful or node.uid is not None or node.uid_hash is not None:
                continue
            uid = base = "-".join(_WORD.findall(node.name)).lower() or "operator"
            number = 1
            while uid in taken:
                number += 1
                uid = f"{base}-{number}"
            taken.add(uid)
            proposed[node.name if number == 1 else f"{node.name} ({number})"] = uid
        return proposed


def build_stream_graph(
    transformations: Sequence[Transformation], max_parallelism: int | None = None
) -> StreamGraph:
    """The graph of these operators and of all that they read.

    max_parallelism: of operators for which none was set. Raises GraphError with all faults found.
    """
    operators = _reachable(transformations)
    if not operators:
        raise GraphError(
            "No operators defined in streaming topology. Cannot execute.",
            remedy="Give a stream something to do, such as map or sink_to, before execute.",
        )
    nodes = tuple(_node(each, max_parallelism) for each in operators)
    by_id = {node.id: node for node in nodes}
    edges = tuple(edge for each in operators for edge in _edges_into(each, by_id))
    graph = StreamGraph(nodes, edges)
    _raise_all(
        [*_uid_faults(nodes), *_parallelism_faults(operators, nodes), *_edge_faults(graph, by_id)]
    )
    return graph


def _uid_faults(nodes: Sequence[StreamNode]) -> Iterator[GraphError]:
    named: dict[str, list[str]] = {}
    for node in nodes:
        if node.uid is not None:
            named.setdefault(node.uid, []).append(f"'{node.name}'")
    for uid, names in named.items():
        if len(names) > 1:
            yield GraphError(
                f"uid '{uid}' is on {' and on '.join(names)}",
                where=f"uid '{uid}'",
                remedy="Give each step a uid of its own: a restore finds its state by it.",
            )


def _reachable(transformations: Iterable[Transformation]) -> list[OperatorTransformation]:
    found: dict[int, OperatorTransformation] = {}
    seen: set[int] = set()
    waiting: list[Transformation] = list(transformations)
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        match each:
            case OperatorTransformation():
                found[each.id] = each
                waiting.extend(each.inputs)
            case UnionTransformation():
                waiting.extend(each.inputs)
            case PartitionTransformation() | SideOutputTransformation():
                waiting.append(each.input)
    return [found[number] for number in sorted(found)]


def _node(made: OperatorTransformation, max_parallelism: int | None) -> StreamNode:
    state, placement = made.state, made.placement
    chosen = placement.max_parallelism or max_parallelism
    return StreamNode(
        id=made.id,
        kind=made.kind,
        name=_PREFIXES[made.kind] + made.name,
        operator=made.operator,
        parallelism=placement.parallelism,
        max_parallelism=chosen or default_max_parallelism(placement.parallelism),
        max_parallelism_set=chosen is not None,
        parallelism_set=placement.is_set or placement.most is not None,
        keyed=state.keyed,
        stateful=state.kept,
        uid=state.uid,
        uid_hash=state.uid_hash,
        chaining=placement.chaining,
        description=made.notes.description,
    )


def _edges_into(made: OperatorTransformation, nodes: dict[int, StreamNode]) -> list[StreamEdge]:
    target = nodes[made.id]
    edges: list[StreamEdge] = []
    for port, given in enumerate(made.inputs):
        for source_id, partition, tag in _dissolve(given):
            if partition is None:
                kind = Partitioner.between(nodes[source_id].parallelism, target.parallelism)
                edges.append(StreamEdge(source_id, made.id, kind, port, tag, by_parallelism=True))
                continue
            edges.append(
                StreamEdge(
                    source_id,
                    made.id,
                    partition.partitioner,
                    port,
                    tag,
                    partition.key,
                    partition.partition,
                )
            )
    return edges


def _dissolve(
    given: Transformation,
) -> list[tuple[int, PartitionTransformation | None, str | None]]:
    """The operators behind an input, each with what partitions it and the side output it is of.

    Of several partitionings in a row the last one counts, as does of several tags.
    """
    found: list[tuple[int, PartitionTransformation | None, str | None]] = []
    waiting: list[tuple[Transformation, PartitionTransformation | None, str | None]]
    waiting = [(given, None, None)]
    while waiting:
        each, partition, tag = waiting.pop()
        match each:
            case OperatorTransformation():
                found.append((each.id, partition, tag))
            case PartitionTransformation():
                waiting.append((each.input, partition or each, tag))
            case SideOutputTransformation():
                waiting.append((each.input, partition, tag or each.tag))
            case UnionTransformation():
                waiting.extend((one, partition, tag) for one in reversed(each.inputs))
    return found


def _parallelism_faults(
    operators: Sequence[OperatorTransformation], nodes: Sequence[StreamNode]
) -> list[UserError]:
    faults: list[UserError] = []
    for made, node in zip(operators, nodes, strict=True):
        where, most = f"operator '{node.name}'", made.placement.most
        if most is not None and node.parallelism > most:
            faults.append(
                GraphError(
                    f"The parallelism of non parallel operator must be 1, not {node.parallelism}",
                    where=where,
                    remedy="Remove set_parallelism here; the next step may have its own.",
                )
            )
        try:
            check_parallelism(node.parallelism, node.max_parallelism)
        except UserError as error:
            faults.append(GraphError(error.what, where=where, remedy=error.remedy))
    return faults


def _edge_faults(graph: StreamGraph, nodes: dict[int, StreamNode]) -> list[UserError]:
    faults: list[UserError] = []
    for edge in graph.edges:
        source, target = nodes[edge.source], nodes[edge.target]
        if edge.partitioner is Partitioner.FORWARD and source.parallelism != target.parallelism:
            faults.append(
                GraphError(
                    "Forward partitioning does not allow change of parallelism. "
                    f"Upstream operation: {source.name} parallelism: {source.parallelism}, "
                    f"downstream operation: {target.name} parallelism: {target.parallelism}",
                    where=f"operator '{target.name}'",
                    remedy="You must use another partitioning strategy, such as broadcast, "
                    "rebalance, shuffle or global.",
                )
            )
        is_in_place = edge.partitioner is Partitioner.FORWARD and edge.key is not None
        is_told_all = edge.partitioner is Partitioner.BROADCAST and edge.port > 0
        has_keys = edge.partitioner is Partitioner.HASH or is_in_place or is_told_all
        if target.keyed and not has_keys:
            faults.append(
                GraphError(
                    f"operator '{target.name}' has keyed state, but its input from "
                    f"'{source.name}' has no key",
                    where=f"operator '{target.name}'",
                    remedy="Put key_by directly in front of it.",
                )
            )
    return faults


def _raise_all(faults: Sequence[UserError]) -> None:
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise GraphError(
            "; ".join(fault.what for fault in faults),
            where=", ".join(dict.fromkeys(fault.where for fault in faults)),
            remedy=" ".join(dict.fromkeys(fault.remedy for fault in faults)),
        )

"""The job as it is shipped: chained vertices, the code of each as bytes, and its settings.

A job graph is plain data: it can be pickled, and read where the user's code cannot.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

from flinkformat.frozen import frozen
from flinkformat.operator_ids import HashedEdge, HashedNode, operator_ids
from tidegate.api import ship
from tidegate.api.operator import Operator, OutputPlan, SourceOperator, VertexPlan
from tidegate.config import checkpointing, execution
from tidegate.config.execution import RuntimeExecutionMode
from tidegate.config.settings import job_settings
from tidegate.errors import GraphError
from tidegate.graph.chaining import Chain, chainable, chains
from tidegate.graph.transformations import NodeKind
from tidegate.model.ids import OperatorId, VertexId
from tidegate.model.topology import (
    Edge,
    FunctionInfo,
    OperatorInfo,
    Partitioner,
    Topology,
    Vertex,
)
from tidegate.traced.calls import why_by_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.api.coordinator import Coordinated
    from tidegate.api.job import FailureEnricher, JobStatusChangedListener, MasterTriggerRestoreHook
    from tidegate.api.source import Staged
    from tidegate.config.configuration import Configuration
    from tidegate.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
    from tidegate.model.settings import JobSettings


@frozen
class JobGraph:
    """A job ready to be submitted.

    plans: per vertex its ``VertexPlan``, as bytes of ``api.ship``. coordinators: the operators that
    have a coordinator, by themselves, so that the driver need not load the rest of their chain.
    hooks, enrichers, listeners, staged: master hooks, failure enrichers, job status listeners, and
    what sources have to have written; they live in the driver as they are.
    """

    name: str
    topology: Topology
    plans: Mapping[VertexId, bytes]
    settings: JobSettings
    coordinators: Mapping[OperatorId, bytes]
    hooks: tuple[MasterTriggerRestoreHook[Any], ...] = ()
    enrichers: tuple[FailureEnricher, ...] = ()
    listeners: tuple[JobStatusChangedListener, ...] = ()
    staged: Mapping[OperatorId, Staged] = field(default_factory=dict[OperatorId, "Staged"])

    def plan(self, vertex: VertexId) -> VertexPlan:
        """The code of a vertex. Raises UserCodeFailed if it cannot be loaded here."""
        return cast("VertexPlan", ship.loads(self.plans[vertex], name=self._vertex_name(vertex)))

    def coordinated(self, operator: OperatorId) -> Coordinated:
        """A copy of an operator, to make its coordinator. Raises UserCodeFailed, as ``plan``."""
        data = self.coordinators[operator]
        return cast("Coordinated", ship.loads(data, name=self.operator(operator).name))

    def operator(self, operator: OperatorId) -> OperatorInfo:
        return next(
            info
            for vertex in self.topology.vertices
            for info in vertex.operators
            if info.id == operator
        )

    def _vertex_name(self, vertex: VertexId) -> str:
        return self.topology.vertex(vertex).name


def translate(graph: StreamGraph, configuration: Configuration, name: str) -> JobGraph:
    """Chains a stream graph, and makes it fit to ship.

    Raises GraphError for a program that cannot become a job, ConfigError for settings that
    contradict themselves.
    """
    if not configuration.get(execution.AUTO_GENERATE_UIDS):
        _refuse_missing_uids(graph)
    settings = job_settings(_with_mode(graph, configuration))
    if settings.slot.final_only:
        _refuse_windows_of_the_clock(graph)
    if settings.checkpoints.unaligned and not configuration.get(
        checkpointing.FORCE_UNALIGNED_CHECKPOINTS
    ):
        _refuse_custom_partitioners(graph)
    chained = chainable(graph, enabled=configuration.get(execution.OPERATOR_CHAINING))
    ids = operator_ids(
        [HashedNode(node.id, node.uid) for node in graph.nodes],
        [
            HashedEdge(edge.source, edge.target, together)
            for edge, together in zip(graph.edges, chained, strict=True)
        ],
    )
    made = _Translation(graph, chained, ids, trace=settings.slot.trace_functions)
    return JobGraph(
        name=name,
        topology=Topology(tuple(made.vertices), tuple(made.edges)),
        plans=made.plans(),
        settings=settings,
        coordinators=made.coordinators(),
        staged=made.staged(),
    )


def _with_mode(graph: StreamGraph, configuration: Configuration) -> Configuration:
    """The configuration, with AUTOMATIC resolved. Raises GraphError for a batch without end."""
    mode = configuration.get(execution.RUNTIME_MODE)
    endless = [
        node.name
        for node in graph.nodes
        if isinstance(node.operator, SourceOperator) and not node.operator.bounded
    ]
    if mode is RuntimeExecutionMode.BATCH and endless:
        raise GraphError(
            "A job in BATCH mode needs bounded sources",
            where=f"operator '{endless[0]}'",
            remedy="Use a bounded source, or leave execution.runtime-mode at STREAMING.",
        )
    if mode is not RuntimeExecutionMode.AUTOMATIC:
        return configuration
    found = RuntimeExecutionMode.STREAMING if endless else RuntimeExecutionMode.BATCH
    return configuration.copy().set(execution.RUNTIME_MODE, found)


def _refuse_windows_of_the_clock(graph: StreamGraph) -> None:
    for node in graph.nodes:
        if node.operator.counts_on_clock:
            raise GraphError(
                "Windows of processing time have no place in a batch: its records came long ago",
                where=f"operator '{node.name}'",
                remedy="Use windows of event time, or run it with "
                "execution.runtime-mode: STREAMING.",
            )


class _Translation:
    def __init__(
        self,
        graph: StreamGraph,
        chained: Sequence[bool],
        ids: Mapping[int, OperatorId],
        *,
        trace: bool,
    ) -> None:
        self._trace = trace
        self._edges_to: dict[int, list[StreamEdge]] = {}
        for edge in graph.edges:
            self._edges_to.setdefault(edge.target, []).append(edge)
        self._nodes = {node.id: node for node in graph.nodes}
        self._ids = ids
        self._chains = chains(graph, chained)
        self._sinks = _sinks(graph)
        self.vertices = [self._vertex(chain) for chain in self._chains]
        pairs = zip(graph.edges, chained, strict=True)
        self._open = [edge for edge, together in pairs if not together]
        self.edges = self._edges()

    def _vertex(self, chain: Chain) -> Vertex:
        head = self._nodes[chain.nodes[0]]
        return Vertex(
            id=VertexId(self._ids[head.id]),
            name=chain.name,
            operators=tuple(
                self._info(self._nodes[node], upstream)
                for node, upstream in zip(chain.nodes, chain.upstream, strict=True)
            ),
            parallelism=head.parallelism,
            max_parallelism=head.max_parallelism,
            max_parallelism_set=head.max_parallelism_set,
            parallelism_set=any(self._nodes[node].parallelism_set for node in chain.nodes),
        )

    def _info(self, node: StreamNode, upstream: int | None) -> OperatorInfo:
        return OperatorInfo(
            id=self._ids[node.id],
            name=node.name,
            uid=node.uid,
            uid_hash=node.uid_hash,
            upstream=upstream,
            has_coordinator=_has_coordinator(node.operator),
            keyed=node.keyed,
            sink=node.id in self._sinks,
            functions=self._functions(node),
            delivery=node.operator.delivery,
        )

    def _functions(self, node: StreamNode) -> tuple[FunctionInfo, ...]:
        """Functions of rows and windows of an operator, its key selectors among them."""
        selectors = [
            ("key_by", why_by_row(edge.key.selector))
            for edge in self._edges_to.get(node.id, ())
            if edge.key is not None and edge.key.selector is not None
        ]
        rows, windows = [*selectors, *node.operator.by_row.items()], node.operator.by_window
        off = "" if self._trace else f"{execution.TRACE_FUNCTIONS.key} is off"
        return (
            *(FunctionInfo(call, off or reason) for call, reason in rows),
            *(FunctionInfo(call, off or reason, "window") for call, reason in windows.items()),
        )

    def _edges(self) -> list[Edge]:
        place = {
            node: (VertexId(self._ids[chain.nodes[0]]), index)
            for chain in self._chains
            for index, node in enumerate(chain.nodes)
        }
        return [
            Edge(
                source=place[edge.source][0],
                target=place[edge.target][0],
                partitioner=edge.partitioner,
                operator=place[edge.source][1],
                port=edge.port,
                tag=edge.tag,
                by_parallelism=edge.by_parallelism,
            )
            for edge in self._open
        ]

    def plans(self) -> dict[VertexId, bytes]:
        """The code of each vertex. Raises GraphError naming the operator that cannot be shipped."""
        return {
            vertex.id: self._shipped(chain, vertex)
            for chain, vertex in zip(self._chains, self.vertices, strict=True)
        }

    def _shipped(self, chain: Chain, vertex: Vertex) -> bytes:
        outputs = [
            (edge, self._output(index, edge))
            for index, edge in enumerate(self._open)
            if edge.source in chain.nodes
        ]
        plan = VertexPlan(
            operators=tuple(self._nodes[node].operator for node in chain.nodes),
            outputs=tuple(output for _, output in outputs),
            side_tags=chain.tags,
        )
        try:
            return ship.dumps(plan, name=vertex.name)
        except GraphError:
            self._name_culprit(chain, outputs)
            raise

    def _output(self, index: int, edge: StreamEdge) -> OutputPlan:
        reads_columns = self._nodes[edge.target].operator.reads_columns
        return OutputPlan(index, edge.key, edge.partition, reads_columns)

    def _name_culprit(self, chain: Chain, outputs: Sequence[tuple[StreamEdge, OutputPlan]]) -> None:
        for node in chain.nodes:
            ship.dumps(self._nodes[node].operator, name=self._nodes[node].name)
        for edge, output in outputs:
            ship.dumps(output, name=f"key_by before {self._nodes[edge.target].name}")

    def coordinators(self) -> dict[OperatorId, bytes]:
        return {
            self._ids[node.id]: ship.dumps(node.operator, name=node.name)
            for node in self._nodes.values()
            if _has_coordinator(node.operator)
        }

    def staged(self) -> dict[OperatorId, Staged]:
        found = {node.id: getattr(node.operator, "staged", None) for node in self._nodes.values()}
        return {self._ids[node]: staged for node, staged in found.items() if staged is not None}


def _sinks(graph: StreamGraph) -> set[int]:
    """Nodes that are declared as sinks, and everything behind one."""
    sinks = {node.id for node in graph.nodes if node.kind is NodeKind.SINK}
    for edge in graph.edges:  # by target, and what feeds a node was made before it
        if edge.source in sinks:
            sinks.add(edge.target)
    return sinks


def _has_coordinator(operator: Operator) -> bool:
    return callable(getattr(operator, "coordinator", None))


def _refuse_missing_uids(graph: StreamGraph) -> None:
    missing = [node.name for node in graph.nodes if node.uid is None and node.uid_hash is None]
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        raise GraphError(
            "Auto generated UIDs have been disabled but no UID or hash has been assigned to "
            f"operator {named}",
            where=execution.AUTO_GENERATE_UIDS.key,
            remedy="Give each a uid, or leave the option on.",
        )


def _refuse_custom_partitioners(graph: StreamGraph) -> None:
    names = {node.id: node.name for node in graph.nodes}
    behind = [names[e.target] for e in graph.edges if e.partitioner is Partitioner.CUSTOM]
    if behind:
        raise GraphError(
            "Unaligned checkpoints are not supported for custom partitioners: rows that a barrier "
            "has overtaken could not be redistributed at another parallelism",
            where="before " + ", ".join(f"'{name}'" for name in behind),
            remedy=f"Switch {checkpointing.UNALIGNED_CHECKPOINTS.key} off, or set "
            f"{checkpointing.FORCE_UNALIGNED_CHECKPOINTS.key} to true where the parallelism stays.",
        )

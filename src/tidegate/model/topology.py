"""The shape of a job: vertices, the operators chained in them, and the edges between.

It is what the two deciding machines know of a job graph: no code, no configuration of operators.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.model.ids import ChannelId, OperatorId, SubtaskId, VertexId

if TYPE_CHECKING:
    from collections.abc import Iterator


class Partitioner(Enum):
    """How rows of an edge find their target subtask; names are Flink's."""

    FORWARD = "FORWARD"
    HASH = "HASH"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    SHUFFLE = "SHUFFLE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    CUSTOM = "CUSTOM"

    @staticmethod
    def between(producers: int, consumers: int) -> Partitioner:
        """The partitioner between two parallelisms when a program chooses none."""
        assert producers > 0 and consumers > 0, "a vertex has subtasks"
        return Partitioner.FORWARD if producers == consumers else Partitioner.REBALANCE

    @property
    def is_pointwise(self) -> bool:
        """True if a producer reaches only some consumers."""
        return self in (Partitioner.FORWARD, Partitioner.RESCALE)

    @property
    def is_redistributable(self) -> bool:
        """True if rows in flight can be dealt out again to another number of readers."""
        return self in (
            Partitioner.HASH,
            Partitioner.REBALANCE,
            Partitioner.SHUFFLE,
            Partitioner.GLOBAL,
        )


class DeliveryGuarantee(Enum):
    """Promise of a sink for a job that fails and is restored.

    EXACTLY_ONCE: rows come into sight with their checkpoint, each once. AT_LEAST_ONCE: no row is
    lost, some may be there twice. NONE: rows may be lost and doubled.
    """

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


@frozen
class Delivery:
    """The promise of a sink in a job with checkpoints. provided: what has to hold outside it."""

    guarantee: DeliveryGuarantee
    provided: tuple[str, ...] = ()


@frozen
class FunctionInfo:
    """A function of rows or windows. call: what it is given to, such as ``map``.

    by_row: why it is called for each of them; empty if it is evaluated over columns. each: what it
    would be called for, ``row`` or ``window``.
    """

    call: str
    by_row: str = ""
    each: str = "row"


@frozen
class OperatorInfo:
    """One operator of a chain.

    upstream: index in the vertex's ``operators`` of the one that feeds it; None for the head.
    uid_hash: a second id to look state up by, as given by the user. has_coordinator: whether the
    driver runs a coordinator for it. keyed: whether its rows come by key, so that it may have keyed
    state. sink: whether it is part of a sink, as its writer is, its committer, and steps behind
    either. functions: those that may be evaluated over columns. delivery: what it promises of the
    rows that it takes out of the job, if it does.
    """

    id: OperatorId
    name: str
    uid: str | None = None
    uid_hash: OperatorId | None = None
    upstream: int | None = None
    has_coordinator: bool = False
    keyed: bool = False
    sink: bool = False
    functions: tuple[FunctionInfo, ...] = ()
    delivery: Delivery | None = None


@frozen
class Vertex:
    """A chain of operators that runs as ``parallelism`` subtasks.

    operators: from head to tail; an operator stands after the one that feeds it. max_parallelism:
    number of key groups. max_parallelism_set: whether the user chose it. parallelism_set: whether
    the user chose the parallelism of an operator in it, or one of them cannot have another.
    """

    id: VertexId
    name: str
    operators: tuple[OperatorInfo, ...]
    parallelism: int
    max_parallelism: int
    max_parallelism_set: bool = False
    parallelism_set: bool = False

    def __post_init__(self) -> None:
        ids = {operator.id for operator in self.operators}
        assert len(ids) == len(self.operators), "state is found by id, so none stands twice"

    def subtasks(self) -> tuple[SubtaskId, ...]:
        return tuple(SubtaskId(self.id, i) for i in range(self.parallelism))


@frozen
class Edge:
    """Rows from one vertex to another.

    operator: index in the source vertex's ``operators`` of the one whose output it carries.
    port: which input of the target's head it feeds. tag: name of the side output it carries; None
    for the main output. by_parallelism: the user chose no partitioner, it follows from the two
    parallelisms.
    """

    source: VertexId
    target: VertexId
    partitioner: Partitioner
    operator: int
    port: int = 0
    tag: str | None = None
    by_parallelism: bool = False


@frozen
class Topology:
    """vertices: in topological order, sources first. edges: in the order they were made."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        places = {vertex.id: place for place, vertex in enumerate(self.vertices)}
        assert len(places) == len(self.vertices), "a vertex stands once in a job"
        for edge in self.edges:
            # Restores and plans walk from sources to sinks, and rely on it.
            assert places[edge.source] < places[edge.target], "an edge leads downstream"

    def vertex(self, vertex: VertexId) -> Vertex:
        return next(v for v in self.vertices if v.id == vertex)

    def name_of(self, subtask: SubtaskId) -> str:
        """``name (2/4)``: vertex, index from 1, parallelism."""
        vertex = self.vertex(subtask.vertex)
        assert subtask.index < vertex.parallelism, "a subtask of another parallelism"
        return f"{vertex.name} ({subtask.index + 1}/{vertex.parallelism})"

    def inputs(self, vertex: VertexId) -> tuple[int, ...]:
        return tuple(i for i, e in enumerate(self.edges) if e.target == vertex)

    def outputs(self, vertex: VertexId) -> tuple[int, ...]:
        return tuple(i for i, e in enumerate(self.edges) if e.source == vertex)

    def subtasks(self) -> Iterator[SubtaskId]:
        for vertex in self.vertices:
            yield from vertex.subtasks()

    def channels(self, edge: int) -> tuple[ChannelId, ...]:
        made = self.edges[edge]
        producers = self.vertex(made.source).parallelism
        consumers = self.vertex(made.target).parallelism
        if not made.partitioner.is_pointwise:
            return tuple(ChannelId(edge, p, c) for p in range(producers) for c in range(consumers))
        pairs = sorted(
            (p, c) for c in range(consumers) for p in pointwise_producers(c, producers, consumers)
        )
        assert {c for _, c in pairs} == set(range(consumers)), "each consumer is fed"
        return tuple(ChannelId(edge, p, c) for p, c in pairs)

    def lets_overtake(self, edge: int) -> bool:
        """True if a barrier may overtake data on an edge.

        It may where any split of the rows over other readers keeps their meaning: on exchanges
        where each row goes to one of all readers by its key, or to any. A vertex with one input on
        which nothing may be overtaken has all of its inputs aligned.
        Source: checkpoint coordination §5, the table of alignment types.
        """
        target = self.edges[edge].target
        return all(
            self.edges[index].partitioner.is_redistributable for index in self.inputs(target)
        )

    def slots_needed(self) -> int:
        """Slots for the job when every slot hosts one subtask of each vertex."""
        return max((v.parallelism for v in self.vertices), default=0)


def pointwise_producers(consumer: int, producers: int, consumers: int) -> range:
    """Producers that feed one consumer over a pointwise edge.

    Source: Flink, VertexInputInfoComputationUtils (pointwise distribution).
    """
    assert 0 <= consumer < consumers, "a consumer of another parallelism"
    if producers >= consumers:
        return range(consumer * producers // consumers, (consumer + 1) * producers // consumers)
    return range(consumer * producers // consumers, consumer * producers // consumers + 1)

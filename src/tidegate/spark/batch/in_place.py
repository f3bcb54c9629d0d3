"""DataFrames that a batch reads as Spark computes them, without files in between.

A partition of the frame becomes the task of a subtask of the source, so the frame has at most as
many as the source has subtasks: `coalesce` joins more of them, within their tasks. Subtasks without
a partition have a task of their own all the same, for they may have state. A task knows its subtask
by the number of its partition, also where it has no rows: the same again where Spark runs it again.

Spark may run several sources in one stage, one behind another, so what is read in place and has
several readers has to come first for each of them. Where two such would be first, one is written
into files, as for a stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.ids import OperatorId, VertexId
    from tidegate.model.topology import Topology


_LEAVES: Final = "spark.sql.leafNodeDefaultParallelism"
"""How many partitions Spark makes where the data says nothing."""


@runtime_checkable
class StagedFrame(Protocol):
    """A DataFrame that can be written into files, as a ``Staged``, or be read in place."""

    @property
    def frame(self) -> DataFrame:
        """The query that Spark computes."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Columns of the records."""
        ...

    @property
    def can_be_read_in_place(self) -> bool:
        """True if a batch can find out how many partitions it has."""
        ...


class FramesInPlace:
    """The DataFrames of a job that its tasks read; the others have to be written before."""

    def __init__(self, graph: JobGraph) -> None:
        self._topology = graph.topology
        self._frames: dict[VertexId, StagedFrame] = {}
        first: set[VertexId | None] = set()
        for vertex in graph.topology.vertices:
            staged = graph.staged.get(vertex.operators[0].id)
            if not isinstance(staged, StagedFrame) or not staged.can_be_read_in_place:
                continue
            readers = readers_of(graph.topology, vertex.id)
            if len(readers) > 1:
                if first & readers:
                    continue
                first |= readers
            self._frames[vertex.id] = staged

    @property
    def operators(self) -> frozenset[OperatorId]:
        """Sources that are read in place."""
        return frozenset(self._topology.vertex(each).operators[0].id for each in self._frames)

    def __contains__(self, vertex: object) -> bool:
        return vertex in self._frames

    def of(self, vertex: VertexId) -> StagedFrame:
        return self._frames[vertex]

    def adopt_settings(self, session: SparkSession, but: Collection[str]) -> None:
        """Give a session what is set in those of the frames: they were made to run with that.

        but: settings that stay.
        """
        for staged in self._frames.values():
            own = session.conf.getAll
            for key, value in staged.frame.sparkSession.conf.getAll.items():
                other = key not in but and own.get(key) != value
                if other and session.conf.isModifiable(key):
                    session.conf.set(key, value)
        if self._frames and _LEAVES not in session.conf.getAll:
            # Else it is the number of cores, of which there may be more when Spark plans again.
            session.conf.set(_LEAVES, session.sparkContext.defaultParallelism)

    def in_order(self, sources: Sequence[VertexId]) -> list[VertexId]:
        """The steps that one reader reads, in the order in which it has to read them."""
        topology, frames = self._topology, self._frames
        return sorted(
            sources, key=lambda each: each not in frames or len(readers_of(topology, each)) == 1
        )

    def first_partition(self, vertex: VertexId) -> int:
        """Number of partitions before those of a frame, for whoever reads them."""
        topology = self._topology
        reader = next(iter(readers_of(topology, vertex)))
        order = self.in_order(sources_of(topology, reader))
        before = order[: order.index(vertex)]
        return sum(topology.vertex(each).parallelism for each in before)


def readers_of(topology: Topology, vertex: VertexId) -> frozenset[VertexId | None]:
    """Steps that read what a step makes; None is the driver, which reads from the last ones."""
    edges = topology.outputs(vertex)
    return frozenset(topology.edges[edge].target for edge in edges) or frozenset({None})


def sources_of(topology: Topology, reader: VertexId | None) -> list[VertexId]:
    """Steps whose rows a step reads, or the driver, each once."""
    if reader is None:
        return [each.id for each in topology.vertices if not topology.outputs(each.id)]
    return list(dict.fromkeys(topology.edges[edge].source for edge in topology.inputs(reader)))


def partitioned(session: SparkSession, frame: DataFrame, most: int) -> tuple[DataFrame, int]:
    """A frame as a query of a session, and how many partitions it has there: so many at most.

    Spark plans it for that, and computes what it would broadcast. They are counted below a step in
    Python, as they run: a frame that Spark finds to be empty may have none there, and one else.
    """
    nothing = session.range(1).where(sql.lit(False))
    # PySpark looks each column up by its name, and takes a dot or a backtick in it for its own.
    columns = [sql.lit(None).cast(f.dataType).alias(f"c{at}") for at, f in enumerate(frame.schema)]
    own = nothing.select(*columns).unionAll(frame).coalesce(most)
    return own, own.mapInArrow(_as_given, own.schema).rdd.getNumPartitions()


def _as_given(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches

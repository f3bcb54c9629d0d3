"""A stage of a batch, as its tasks get it: a vertex, its code, and what it starts and ends with."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.model.control import Deploy
from tidegate.model.deployment import Deployment
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SubtaskId
from tidegate.model.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from tidegate.api.operator import Combiner
    from tidegate.model.control import SlotInvitation
    from tidegate.model.elements import Barrier, OperatorEvent
    from tidegate.model.ids import CheckpointId, JobId, OperatorId, VertexId
    from tidegate.model.restore import SubtaskRestore
    from tidegate.model.settings import JobSettings


@frozen
class FramePartitions:
    """How tasks find their rows. schema: of the records.

    first: number of the partition of Spark's stage that holds the rows of subtask 0. count: of the
    partitions that follow, from that one on.
    """

    schema: pa.Schema
    first: int
    count: int

    def subtask(self, partition: int) -> int:
        """Index of the subtask that a partition is for. Raises ValueError if it is for none."""
        index = partition - self.first
        if not 0 <= index < self.count:
            raise ValueError(
                f"a DataFrame had {self.count} partitions when the batch was planned, and has "
                "others now: give it a number of them with repartition()"
            )
        return index


@frozen
class Stage:
    """A vertex as tasks of Spark get it.

    events: what the coordinators of its operators have to say, by subtask. path: the driver's
    import path on the same machine, else (). barrier: of the snapshot that the batch ends with.
    restored, restores: the snapshot that it starts from, and the state in it by subtask.
    event_time_ms: where event time had come in it. frame: how tasks find the rows of a DataFrame
    that Spark gives them; None where the source reads, or the shuffle is read. combiners: join rows
    before they are sent, by edge. in_any_order: edges to who needs no order of event times in Arrow
    batches. invitation: to the driver, for tasks to tell it what they do;
    None where it does not listen. kept_for: the job for whom state is kept that is written at the
    end; None for this one. only_commits: nothing is read, and sinks commit what was restored.
    tries: how often Spark runs a task that fails.
    """

    job: JobId
    topology: Topology
    vertex: VertexId
    plan: bytes
    settings: JobSettings
    events: Mapping[int, Sequence[tuple[OperatorId, OperatorEvent]]] = field(
        default_factory=dict[int, "Sequence[tuple[OperatorId, OperatorEvent]]"]
    )
    path: tuple[str, ...] = ()
    barrier: Barrier | None = None
    restored: CheckpointId | None = None
    restores: Mapping[int, SubtaskRestore] = field(default_factory=dict[int, "SubtaskRestore"])
    event_time_ms: int | None = None
    frame: FramePartitions | None = None
    combiners: Mapping[int, Combiner] = field(default_factory=dict[int, "Combiner"])
    in_any_order: frozenset[int] = frozenset()
    invitation: SlotInvitation | None = None
    kept_for: JobId | None = None
    only_commits: bool = False
    tries: int = 1

    @property
    def parallelism(self) -> int:
        return self.topology.vertex(self.vertex).parallelism

    @property
    def position(self) -> int:
        """Place of the vertex in the topology."""
        return [each.id for each in self.topology.vertices].index(self.vertex)

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.topology.inputs(self.vertex)

    @property
    def senders(self) -> frozenset[VertexId]:
        """Vertices whose rows come to it."""
        return frozenset(self.topology.edges[edge].source for edge in self.inputs)

    @property
    def outputs(self) -> tuple[int, ...]:
        return self.topology.outputs(self.vertex)

    @property
    def as_seen(self) -> Topology:
        """The topology as a task sees it: one channel for all rows that come over an edge."""
        vertices = tuple(
            replace(each, parallelism=1) if each.id in self.senders else each
            for each in self.topology.vertices
        )
        return Topology(vertices, self.topology.edges)


def deployment_of(stage: Stage, index: int, attempt: int) -> Deployment:
    """The subtask of a stage in one of its tasks."""
    execution = ExecutionId(SubtaskId(stage.vertex, index), Attempt(attempt), Epoch(1))
    deploy = Deploy(execution, stage.plan, stage.as_seen, {}, {}, {}, stage.restored)
    if (start := stage.restores.get(index)) is not None:
        deploy = replace(deploy, state=start.operators, checksums=start.checksums)
    return Deployment(stage.job, stage.settings, deploy)

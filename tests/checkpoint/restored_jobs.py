"""Snapshots and topologies that a job is restored from."""

from __future__ import annotations

from flinkformat.handles import (
    FileStateHandle,
)
from flinkformat.snapshots import (
    CheckpointMetadata,
    Finished,
    OperatorState,
    SubtaskState,
)
from tidegate.model.ids import CheckpointId, OperatorId, VertexId
from tidegate.model.topology import Edge, OperatorInfo, Partitioner, Topology, Vertex

SOURCE, COUNT, SINK = (OperatorId(bytes([n]) * 16) for n in (1, 2, 3))


FILE = FileStateHandle("f", 100)


def vertex(*operators: OperatorInfo, **fields: object) -> Vertex:
    given: dict[str, object] = {"parallelism": 2, "max_parallelism": 128}
    head = operators[0]
    return Vertex(VertexId(head.id), head.name, operators, **(given | fields))  # type: ignore[arg-type]


def job(
    source: Vertex | None = None,
    count: Vertex | None = None,
    partitioner: Partitioner = Partitioner.HASH,
) -> Topology:
    """source → count, sink in one chain."""
    source = source or vertex(OperatorInfo(SOURCE, "flights", has_coordinator=True))
    count = count or vertex(
        OperatorInfo(COUNT, "count", uid="counts"), OperatorInfo(SINK, "sink", upstream=0)
    )
    edges = (Edge(source.id, count.id, partitioner, operator=0),)
    return Topology((source, count), edges)


def snapshot(*operators: OperatorState) -> CheckpointMetadata:
    return CheckpointMetadata(checkpoint_id=CheckpointId(17), operators=operators)


def operator(
    operator_id: OperatorId, *subtasks: SubtaskState | Finished, **fields: object
) -> OperatorState:
    given: dict[str, object] = {
        "operator_id": operator_id,
        "parallelism": len(subtasks),
        "max_parallelism": 128,
        "subtasks": dict(enumerate(subtasks)),
    }
    return OperatorState(**(given | fields))  # type: ignore[arg-type]

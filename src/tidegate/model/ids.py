"""Names of things: jobs, operators, subtasks, checkpoints, slots, channels."""

from __future__ import annotations

from typing import NamedTuple, NewType

from flinkformat.frozen import frozen
from flinkformat.ids import CheckpointId as CheckpointId
from flinkformat.ids import OperatorId as OperatorId

JobId = NewType("JobId", str)
"""32 hexadecimal digits, as in Flink."""

VertexId = NewType("VertexId", bytes)
"""16 bytes: the operator id of the head of the vertex's chain, as in Flink."""

SlotId = NewType("SlotId", str)
"""One life of one slot; a slot that returns has a new one."""

Epoch = NewType("Epoch", int)
"""One run of the job under one leader: the fencing token. Only grows."""

Attempt = NewType("Attempt", int)
"""One deployment of a subtask, from 0. Only grows within an epoch."""


@frozen(order=True)
class SubtaskId:
    """One parallel instance of a vertex. index: from 0."""

    vertex: VertexId
    index: int


class ExecutionId(NamedTuple):
    """One attempt at running a subtask; what acknowledgements carry."""

    subtask: SubtaskId
    attempt: Attempt
    epoch: Epoch


class ChannelId(NamedTuple):
    """An ordered lane from one subtask to another.

    edge: index into ``Topology.edges``. producer, consumer: subtask indexes on either side.
    """

    edge: int
    producer: int
    consumer: int

"""Where in-flight data of an unaligned checkpoint go when the job starts again. Pure functions.

All of it goes to the subtasks that were to read it: what had come to a reader, then what its
producer had not sent yet. They read it before anything new. With another parallelism, rows of a
keyed edge go where their key groups go; other rows go, old reader by old reader, round the new
ones, for there any reader will do. A row's order behind the others of its channel is kept.

Source: checkpoint coordination §15.4, §17.4. Flink gives unsent data back to the producer unless
`execution.checkpointing.unaligned.recover-output-on-downstream.enabled` is set; here it is always
as with that option, for one way serves each parallelism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from flinkformat.key_groups import KeyGroupRange
from flinkformat.metadata.channels import unmerge_input, unmerge_output
from flinkformat.snapshots import FINISHED
from tidegate.checkpoint.restore.fitting import state_of
from tidegate.errors import RestoreRefused
from tidegate.model.ids import ChannelId, SubtaskId
from tidegate.model.restore import InFlightData
from tidegate.model.topology import Partitioner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flinkformat.handles import InputChannelStateHandle, ResultSubpartitionStateHandle
    from flinkformat.snapshots import CheckpointMetadata, SubtaskState
    from tidegate.model.ids import OperatorId
    from tidegate.model.topology import OperatorInfo, Topology, Vertex


@frozen
class _Piece:
    """Data of one old channel. unsent: they had not left their producer."""

    edge: int
    producer: int
    consumer: int
    unsent: bool
    handle: InputChannelStateHandle | ResultSubpartitionStateHandle


def deal_in_flight(
    metadata: CheckpointMetadata, topology: Topology
) -> dict[SubtaskId, tuple[InFlightData, ...]]:
    """Data that each subtask reads before anything new.

    Raises RestoreRefused for data that have no channel to go to.
    """
    dealt: dict[SubtaskId, list[InFlightData]] = {}
    pieces = sorted(
        _pieces(metadata, topology), key=lambda p: (p.edge, p.consumer, p.producer, p.unsent)
    )
    places = [(piece.edge, piece.consumer, piece.producer, piece.unsent) for piece in pieces]
    assert len(set(places)) == len(places), "data of one channel twice: their order is not known"
    for piece in pieces:
        target = topology.vertex(topology.edges[piece.edge].target)
        producers = topology.vertex(topology.edges[piece.edge].source).parallelism
        for consumer, key_groups in _readers(metadata, topology, piece, target):
            assert consumer < target.parallelism, "a reader that is there"
            # Its producer may be gone with another parallelism: any channel of the edge will do.
            channel = ChannelId(piece.edge, piece.producer % producers, consumer)
            data = InFlightData(channel, piece.handle.delegate, piece.handle.offsets, key_groups)
            dealt.setdefault(SubtaskId(target.id, consumer), []).append(data)
    return {subtask: tuple(data) for subtask, data in dealt.items()}


def _readers(
    metadata: CheckpointMetadata, topology: Topology, piece: _Piece, target: Vertex
) -> Iterator[tuple[int, KeyGroupRange | None]]:
    """Readers of a piece, each with the key groups of its share."""
    old = _old_parallelism(metadata, target)
    count = target.parallelism
    partitioner = topology.edges[piece.edge].partitioner
    if partitioner is Partitioner.GLOBAL:
        yield 0, None
    elif old == count:
        yield piece.consumer, None
    elif partitioner is not Partitioner.HASH:
        yield piece.consumer % count, None
    else:
        for consumer in range(count):
            wanted = KeyGroupRange.of(consumer, count, target.max_parallelism)
            if old is not None:
                had = KeyGroupRange.of(piece.consumer, old, target.max_parallelism)
                if had.intersection(wanted).is_empty:
                    continue
            yield consumer, wanted


def _old_parallelism(metadata: CheckpointMetadata, vertex: Vertex) -> int | None:
    """Old parallelism; None if no operator of the vertex has state."""
    states = (state_of(metadata, operator) for operator in vertex.operators)
    return next((state.parallelism for state in states if state is not None), None)


def _pieces(metadata: CheckpointMetadata, topology: Topology) -> Iterator[_Piece]:
    misplaced: dict[OperatorId, str] = {}
    for vertex in topology.vertices:
        inputs, outputs = topology.inputs(vertex.id), topology.outputs(vertex.id)
        senders = {topology.edges[index].operator for index in outputs}
        for position, operator in enumerate(vertex.operators):
            for handle in _inputs(metadata, operator):
                if position == 0 and _carries(topology, inputs, handle.gate_index):
                    edge = inputs[handle.gate_index]
                    yield _Piece(edge, handle.channel_index, handle.subtask_index, False, handle)
                else:
                    misplaced[operator.id] = operator.name
            for sent in _outputs(metadata, operator):
                if position in senders and _carries(topology, outputs, sent.partition_index):
                    edge = outputs[sent.partition_index]
                    yield _Piece(edge, sent.subtask_index, sent.subpartition_index, True, sent)
                else:
                    misplaced[operator.id] = operator.name
    if misplaced:
        names = ", ".join(f"'{name}' ({id_.hex()})" for id_, name in misplaced.items())
        raise RestoreRefused(
            "Cannot recover from unaligned checkpoint when topology changes, such that data "
            "exchanges with persisted data are now chained.",
            where=f"operators with channel state: {names}",
            remedy="Restore from a savepoint or an aligned checkpoint, or give the in-flight data "
            "up with execution.state-recovery.without-channel-state.checkpoint-id: "
            f"{metadata.checkpoint_id}.",
        )


def _carries(topology: Topology, edges: tuple[int, ...], index: int) -> bool:
    """True if an edge of that place exists and may have in-flight data."""
    return index < len(edges) and topology.lets_overtake(edges[index])


def _inputs(
    metadata: CheckpointMetadata, operator: OperatorInfo
) -> Iterator[InputChannelStateHandle]:
    for subtask in _unfinished(metadata, operator):
        for handle in subtask.input_channel:
            yield from unmerge_input(handle)


def _outputs(
    metadata: CheckpointMetadata, operator: OperatorInfo
) -> Iterator[ResultSubpartitionStateHandle]:
    for subtask in _unfinished(metadata, operator):
        for handle in subtask.result_subpartition:
            yield from unmerge_output(handle)


def _unfinished(metadata: CheckpointMetadata, operator: OperatorInfo) -> Iterator[SubtaskState]:
    state = state_of(metadata, operator)
    for subtask in () if state is None else state.subtasks.values():
        if subtask is not FINISHED:
            yield subtask

"""Which state each subtask starts from, when a snapshot meets a job that may have changed.

`assign` is used by a first start, a failover and a rescale alike. Before it, a start from a
snapshot that this run did not take goes through `checkpoint.restore.fitting`.
Source: Flink, StateAssignmentOperation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flinkformat.snapshots import EMPTY, FINISHED, SubtaskState
from flinkformat.state_streams import streams
from tidegate.checkpoint.provenance import checksums_of, name_of
from tidegate.checkpoint.restore.fitting import state_of, states_of
from tidegate.checkpoint.restore.in_flight_targets import deal_in_flight
from tidegate.checkpoint.restore.redistribution import redistribute_keyed, redistribute_operator
from tidegate.errors import RestoreRefused
from tidegate.model.files import checksum_name
from tidegate.model.ids import SubtaskId
from tidegate.model.restore import RestoredOperatorState, SubtaskRestore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import CheckpointMetadata, OperatorState
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import OperatorId
    from tidegate.model.restore import InFlightData
    from tidegate.model.topology import Topology, Vertex

NOTHING = RestoredOperatorState()


def assign(
    metadata: CheckpointMetadata, topology: Topology, *, drop_in_flight: bool = False
) -> dict[SubtaskId, SubtaskRestore]:
    """Start of every subtask of the job, by the rules of each kind of state.

    topology: with the snapshot's max parallelism, as `fit` returns it. drop_in_flight: in-flight
    data of an unaligned snapshot are lost, as the user wants. Raises RestoreRefused if such a
    snapshot meets other chains, or a vertex is finished in part of its operators.
    """
    assigned: dict[SubtaskId, SubtaskRestore] = {}
    in_flight = {} if drop_in_flight else deal_in_flight(metadata, topology)
    for vertex in topology.vertices:
        restores = _assign_vertex(metadata, vertex, in_flight)
        assigned.update(zip(vertex.subtasks(), restores, strict=True))
    assert assigned.keys() == set(topology.subtasks()), "each subtask starts from something"
    assert in_flight.keys() <= assigned.keys(), "in-flight data go to somebody who reads them"
    known = checksums_of(metadata)
    return {
        subtask: replace(restore, checksums=_checksums(restore, known))
        for subtask, restore in assigned.items()
    }


def _checksums(
    restore: SubtaskRestore, known: Mapping[str, FileChecksum]
) -> dict[str, FileChecksum]:
    handles = (
        *(piece.file for piece in restore.in_flight),
        *(
            handle
            for state in restore.operators.values()
            for kind in (
                state.managed_operator,
                state.raw_operator,
                state.managed_keyed,
                state.raw_keyed,
            )
            for handle in kind
        ),
    )
    paths = (checksum_name(stream.handle) for handle in handles for stream in streams(handle))
    return {path: known[name_of(path)] for path in paths if path and name_of(path) in known}


def coordinator_states(
    metadata: CheckpointMetadata, topology: Topology
) -> dict[OperatorId, bytes | None]:
    """State for the coordinator of each operator that has one; None for a new operator."""
    return {
        operator.id: None
        if (state := state_of(metadata, operator)) is None or state.coordinator_state is None
        else state.coordinator_state.data
        for vertex in topology.vertices
        for operator in vertex.operators
        if operator.has_coordinator
    }


def _assign_vertex(
    metadata: CheckpointMetadata,
    vertex: Vertex,
    in_flight: Mapping[SubtaskId, tuple[InFlightData, ...]],
) -> list[SubtaskRestore]:
    states = states_of(metadata, vertex)
    finished = {state is not None and state.fully_finished for state in states.values()}
    if len(finished) > 1:
        raise RestoreRefused(
            "JobVertex could not have mixed finished and unfinished operators",
            where=f"vertex '{vertex.name}' in checkpoint {metadata.checkpoint_id}",
            remedy="Restore with the chains that the snapshot was taken with.",
        )
    if finished == {True}:
        return [SubtaskRestore({}, finished=True)] * vertex.parallelism
    dealt = {
        operator: _redistribute(state, vertex)
        for operator, state in states.items()
        if state is not None
    }
    return [
        SubtaskRestore(
            {
                operator: parts[subtask]
                for operator, parts in dealt.items()
                if parts[subtask] != NOTHING
            },
            finished=False,
            in_flight=in_flight.get(SubtaskId(vertex.id, subtask), ()),
        )
        for subtask in range(vertex.parallelism)
    ]


def _redistribute(operator: OperatorState, vertex: Vertex) -> list[RestoredOperatorState]:
    old = _by_subtask(operator)
    count, key_groups = vertex.parallelism, operator.max_parallelism
    managed_operator = redistribute_operator([s.managed_operator for s in old], count)
    raw_operator = redistribute_operator([s.raw_operator for s in old], count)
    managed_keyed = redistribute_keyed([s.managed_keyed for s in old], count, key_groups)
    raw_keyed = redistribute_keyed([s.raw_keyed for s in old], count, key_groups)
    assert len(managed_keyed) == len(managed_operator) == count, "a part for each subtask"
    return [
        RestoredOperatorState(
            managed_operator=managed_operator[subtask],
            raw_operator=raw_operator[subtask],
            managed_keyed=managed_keyed[subtask],
            raw_keyed=raw_keyed[subtask],
        )
        for subtask in range(count)
    ]


def _by_subtask(operator: OperatorState) -> list[SubtaskState]:
    """The state of every old subtask; a finished one has none."""
    states = (operator.subtasks.get(index, EMPTY) for index in range(operator.parallelism))
    return [EMPTY if state is FINISHED else state for state in states]

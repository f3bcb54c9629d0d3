"""Which state each subtask starts from, when a snapshot meets a job that may have changed.

`assign` is used by a first start, a failover and a rescale alike. Before it, a start from a
snapshot that this run did not take goes through `checkpoint.fitting`.
Source: Flink, StateAssignmentOperation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.checkpoint.fitting import state_of, states_of
from tidegate.checkpoint.redistribution import redistribute_keyed, redistribute_operator
from tidegate.errors import RestoreRefused
from tidegate.model.snapshots import (
    EMPTY,
    FINISHED,
    RestoredOperatorState,
    SubtaskRestore,
    SubtaskState,
)

if TYPE_CHECKING:
    from tidegate.model.ids import OperatorId, SubtaskId
    from tidegate.model.snapshots import CheckpointMetadata, OperatorState
    from tidegate.model.topology import Topology, Vertex

NOTHING = RestoredOperatorState()


def assign(metadata: CheckpointMetadata, topology: Topology) -> dict[SubtaskId, SubtaskRestore]:
    """What every subtask of the job starts from, by the rules of each kind of state.

    topology: with the snapshot's max parallelism, as `fit` returns it. Raises RestoreRefused where
    an unaligned snapshot meets another parallelism or other chains, or a vertex is finished in
    part of its operators.
    """
    assigned: dict[SubtaskId, SubtaskRestore] = {}
    for vertex in topology.vertices:
        restores = _assign_vertex(metadata, topology, vertex)
        assigned.update(zip(vertex.subtasks(), restores, strict=True))
    return assigned


def coordinator_states(
    metadata: CheckpointMetadata, topology: Topology
) -> dict[OperatorId, bytes | None]:
    """What the coordinator of each operator that has one starts from; None for a new operator."""
    return {
        operator.id: None
        if (state := state_of(metadata, operator)) is None or state.coordinator_state is None
        else state.coordinator_state.data
        for vertex in topology.vertices
        for operator in vertex.operators
        if operator.has_coordinator
    }


def _assign_vertex(
    metadata: CheckpointMetadata, topology: Topology, vertex: Vertex
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
    _check_channel_state(metadata, topology, vertex)
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
    # With another parallelism there is no channel state: _check_channel_state has refused it.
    channels = old if len(old) == count else [EMPTY] * count
    return [
        RestoredOperatorState(
            managed_operator=managed_operator[subtask],
            raw_operator=raw_operator[subtask],
            managed_keyed=managed_keyed[subtask],
            raw_keyed=raw_keyed[subtask],
            input_channel=channels[subtask].input_channel,
            result_subpartition=channels[subtask].result_subpartition,
        )
        for subtask in range(count)
    ]


def _by_subtask(operator: OperatorState) -> list[SubtaskState]:
    """The state of every old subtask; a finished one has none."""
    states = (operator.subtasks.get(index, EMPTY) for index in range(operator.parallelism))
    return [EMPTY if state is FINISHED else state for state in states]


def _check_channel_state(metadata: CheckpointMetadata, topology: Topology, vertex: Vertex) -> None:
    """Refuses in-flight data that has no channel to go back to."""
    senders = {topology.edges[index].operator for index in topology.outputs(vertex.id)}
    misplaced: list[str] = []
    for index, operator in enumerate(vertex.operators):
        state = state_of(metadata, operator)
        subtasks = [] if state is None else _by_subtask(state)
        has_input = any(subtask.input_channel for subtask in subtasks)
        has_output = any(subtask.result_subpartition for subtask in subtasks)
        if (has_input and index > 0) or (has_output and index not in senders):
            misplaced.append(f"'{operator.name}' ({operator.id.hex()})")
        if (has_input or has_output) and len(subtasks) != vertex.parallelism:
            raise RestoreRefused(
                "in-flight data of an unaligned checkpoint cannot be spread over another "
                "parallelism yet",
                where=f"operator '{operator.name}': parallelism {len(subtasks)} in checkpoint "
                f"{metadata.checkpoint_id}, {vertex.parallelism} in the program",
                remedy=f"Restore with parallelism {len(subtasks)}, or from a savepoint or an "
                "aligned checkpoint.",
            )
    if misplaced:
        raise RestoreRefused(
            "Cannot recover from unaligned checkpoint when topology changes, such that data "
            "exchanges with persisted data are now chained.",
            where=f"operators with channel state: {', '.join(misplaced)}",
            remedy="Restore from a savepoint or an aligned checkpoint.",
        )

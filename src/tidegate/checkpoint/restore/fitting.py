"""Checks that a snapshot fits a job, before anything is restored from it.

All that can be known from ids, parallelisms and finished tasks is said here, all faults at once;
whether the bytes of a state still fit its type is known only where they are read.
Source: Flink, Checkpoints.loadAndValidateCheckpoint, StateAssignmentOperation and
VertexFinishedStateChecker.
"""

from __future__ import annotations

import dataclasses
import difflib
from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.snapshots import FINISHED
from tidegate.checkpoint.provenance import hook_states
from tidegate.errors import MaxParallelismChanged, OperatorMissing, RestoreRefused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from flinkformat.snapshots import CheckpointMetadata, OperatorState
    from tidegate.model.ids import OperatorId
    from tidegate.model.topology import OperatorInfo, Topology, Vertex


def fit(
    metadata: CheckpointMetadata,
    topology: Topology,
    *,
    allow_unclaimed_state: bool = False,
    keyed_names: Mapping[OperatorId, Sequence[str]] | None = None,
) -> Topology:
    """The topology with which the job can be restored from the snapshot.

    A vertex whose max parallelism the user did not set takes over the snapshot's.
    allow_unclaimed_state: state of operators that the job lacks is dropped rather than refused.
    keyed_names: of the states of these operators, for the error, as far as they are known.
    Raises OperatorMissing, MaxParallelismChanged or RestoreRefused.
    """
    if not allow_unclaimed_state:
        _check_operators(metadata, topology, keyed_names or {})
    fitted, faults = lay_over(metadata, topology)
    if faults:
        raise _all_at_once(faults)
    return fitted


def lay_over(
    metadata: CheckpointMetadata, topology: Topology
) -> tuple[Topology, list[RestoreRefused]]:
    """The topology as `fit` gives it, and everything that `fit` refuses beside unclaimed state."""
    faults: list[RestoreRefused] = []
    vertices = tuple(_fit_vertex(metadata, vertex, faults) for vertex in topology.vertices)
    fitted = dataclasses.replace(topology, vertices=vertices)
    try:
        _check_finished_vertices(metadata, fitted)
    except RestoreRefused as error:
        faults.append(error)
    return fitted, faults


def check_hooks(metadata: CheckpointMetadata, hooks: Collection[str]) -> None:
    """Raises RestoreRefused for the state of master hooks that the job lacks. hooks: by name."""
    missing = sorted(state.name for state in hook_states(metadata) if state.name not in hooks)
    if missing:
        raise RestoreRefused(
            f"the checkpoint has state of master hook {', '.join(map(repr, missing))}, which the "
            "job has not",
            where=f"checkpoint {metadata.checkpoint_id}",
            remedy="Register that hook, or drop its state with "
            "execution.state-recovery.ignore-unclaimed-state.",
        )


def _all_at_once(faults: Sequence[RestoreRefused]) -> RestoreRefused:
    """One error for several; of the first one's kind."""
    first = faults[0]
    if len(faults) == 1:
        return first
    return type(first)(
        "; ".join(fault.what for fault in faults),
        where="; ".join(fault.where for fault in faults),
        remedy=" ".join(dict.fromkeys(fault.remedy for fault in faults)),
    )


def state_of(metadata: CheckpointMetadata, operator: OperatorInfo) -> OperatorState | None:
    """State of an operator: by the hash that its user set, else by its own id."""
    for wanted in (operator.uid_hash, operator.id):
        for state in metadata.operators:
            if state.operator_id == wanted:
                return state
    return None


def states_of(
    metadata: CheckpointMetadata, vertex: Vertex
) -> dict[OperatorId, OperatorState | None]:
    """State of each operator of a vertex, by the id that it has in the job."""
    return {operator.id: state_of(metadata, operator) for operator in vertex.operators}


def unclaimed(metadata: CheckpointMetadata, topology: Topology) -> list[OperatorState]:
    """State in the snapshot of operators that the job lacks."""
    operators = (operator for vertex in topology.vertices for operator in vertex.operators)
    known = {wanted for operator in operators for wanted in (operator.id, operator.uid_hash)}
    return [
        state for state in metadata.operators if state.operator_id not in known and state.has_state
    ]


def _check_operators(
    metadata: CheckpointMetadata,
    topology: Topology,
    keyed_names: Mapping[OperatorId, Sequence[str]],
) -> None:
    missing = unclaimed(metadata, topology)
    if not missing:
        return
    new = operators_without_state(metadata, topology)
    shown = [_shown(state, keyed_names.get(state.operator_id, ())) for state in missing]
    raise OperatorMissing(
        f"Cannot map checkpoint/savepoint state for {'; '.join(shown)} to the new program, because "
        "the operator is not available in the new program.",
        where=f"checkpoint {metadata.checkpoint_id}",
        remedy=" ".join(advice(state, likely_operator(state, new)) for state in missing)
        + " To drop the state instead, restore with --allow-non-restored-state "
        "(execution.state-recovery.ignore-unclaimed-state: true).",
    )


def operators_without_state(metadata: CheckpointMetadata, topology: Topology) -> list[OperatorInfo]:
    """Operators unknown to the snapshot: new or renamed ones."""
    operators = (operator for vertex in topology.vertices for operator in vertex.operators)
    return [operator for operator in operators if state_of(metadata, operator) is None]


def _shown(state: OperatorState, keyed_names: Sequence[str]) -> str:
    name = f"'{state.name}' " if state.name else ""
    uid = f"uid '{state.uid}', " if state.uid else ""
    held = " and ".join(_kinds_held(state, keyed_names))
    return (
        f"operator {name}({uid}id {state.operator_id.hex()}, {state.state_size} bytes) with {held}"
    )


def _kinds_held(state: OperatorState, keyed_names: Sequence[str]) -> list[str]:
    """Kinds of state that an operator has; those of its subtasks by name if told."""
    subtasks = [subtask for subtask in state.subtasks.values() if subtask is not FINISHED]
    handles = [s for each in subtasks for s in (each.managed_operator, each.raw_operator) if s]
    names = sorted({name for handle in handles for name in handle.states})
    in_flight = any(each.input_channel or each.result_subpartition for each in subtasks)
    kinds = {
        f"keyed state {', '.join(map(repr, keyed_names))}".rstrip(): _has_keyed_state(state),
        f"operator state {', '.join(map(repr, names))}": bool(names),
        "coordinator state": state.coordinator_state is not None,
        "in-flight data": in_flight,
    }
    return [kind for kind, has in kinds.items() if has]


def advice(state: OperatorState, likely: OperatorInfo | None) -> str:
    """Advice on the program's text by which the state finds its operator again."""
    call = f"uid('{state.uid}')" if state.uid else f"set_uid_hash('{state.operator_id.hex()}')"
    if likely is None:
        return f"Bring the operator back and give it {call}."
    uid = f", now uid '{likely.uid}'," if likely.uid else ""
    return f"If it is the operator '{likely.name}'{uid} give that one {call}."


def likely_operator(state: OperatorState, new: Sequence[OperatorInfo]) -> OperatorInfo | None:
    """The operator without state to which the state probably belongs."""
    words: dict[str, OperatorInfo] = {}
    for operator in reversed(new):
        words[operator.name] = operator
        if operator.uid:
            words[operator.uid] = operator
    for wanted in (state.uid, state.name):
        close = difflib.get_close_matches(wanted, words, n=1) if wanted else []
        if close:
            return words[close[0]]
    return new[0] if len(new) == 1 else None


def _fit_vertex(
    metadata: CheckpointMetadata, vertex: Vertex, faults: list[RestoreRefused]
) -> Vertex:
    states = [state for state in states_of(metadata, vertex).values() if state is not None]
    old = {state.max_parallelism for state in states}
    if not old:
        return vertex
    where = f"vertex '{vertex.name}' in checkpoint {metadata.checkpoint_id}"
    if len(old) > 1 and len({s.max_parallelism for s in states if _has_keyed_state(s)}) > 1:
        faults.append(
            MaxParallelismChanged(
                f"the operators of vertex '{vertex.name}' have keyed state with different max "
                f"parallelisms: {sorted(old)}",
                where=where,
                remedy="Keep them in chains of their own, with disable_chaining().",
            )
        )
    keyed = [state.max_parallelism for state in states if _has_keyed_state(state)]
    restored = (keyed or [state.max_parallelism for state in states])[-1]
    if restored < vertex.parallelism:
        faults.append(
            MaxParallelismChanged(
                f"The state for task '{vertex.name}' can not be restored. The maximum parallelism "
                f"({restored}) of the restored state is lower than the configured parallelism "
                f"({vertex.parallelism}). Please reduce the parallelism of the task to be lower "
                "or equal to the maximum parallelism.",
                where=where,
                remedy=f"Set a parallelism of at most {restored}.",
            )
        )
    elif restored != vertex.max_parallelism and vertex.max_parallelism_set:
        faults.append(
            MaxParallelismChanged(
                "Max parallelism mismatch between checkpoint/savepoint state and new program. "
                f"Cannot map vertex '{vertex.name}' with max parallelism {restored} to new program "
                f"with max parallelism {vertex.max_parallelism}.",
                where=where,
                remedy=f"Set the max parallelism to {restored} again, or leave it unset.",
            )
        )
    return dataclasses.replace(vertex, max_parallelism=restored)


def _has_keyed_state(state: OperatorState) -> bool:
    return any(
        subtask is not FINISHED
        and (subtask.managed_keyed is not None or subtask.raw_keyed is not None)
        for subtask in state.subtasks.values()
    )


class _Status(Enum):
    """Progress of an operator's subtasks; the values are Flink's words."""

    ALL_RUNNING = "all running"
    PARTIALLY_FINISHED = "partially finished"
    FULLY_FINISHED = "fully finished"


def _check_finished_vertices(metadata: CheckpointMetadata, topology: Topology) -> None:
    """Refuses a job in which data would reach vertices that had already ended."""
    statuses = {vertex.id: _status_of(metadata, vertex) for vertex in topology.vertices}
    for vertex in topology.vertices:
        status = statuses[vertex.id]
        if status is _Status.ALL_RUNNING:
            continue
        for source, pointwise in _producers(topology, vertex).items():
            found = statuses[source.id]
            fully = found is _Status.FULLY_FINISHED
            if status is _Status.PARTIALLY_FINISHED and pointwise:
                fully = found is not _Status.ALL_RUNNING
            if not fully:
                raise RestoreRefused(
                    f"Illegal JobGraph modification. Cannot run a program with {status.value} "
                    f"vertices predeceased with {found.value} ones.",
                    where=f"vertex '{vertex.name}' behind vertex '{source.name}' in checkpoint "
                    f"{metadata.checkpoint_id}",
                    remedy="Put new steps behind those that have not finished, or restore from "
                    "a snapshot taken before they did.",
                )


def _status_of(metadata: CheckpointMetadata, vertex: Vertex) -> _Status:
    found = {_operator_status(state) for state in states_of(metadata, vertex).values()}
    if len(found) > 1:
        raise RestoreRefused(
            f"Can not restore vertex {vertex.name} which contain mixed operator finished state: "
            f"{sorted(status.name for status in found)}",
            where=f"checkpoint {metadata.checkpoint_id}",
            remedy="Restore with the chains that the snapshot was taken with.",
        )
    return found.pop()


def _operator_status(state: OperatorState | None) -> _Status:
    if state is None:
        return _Status.ALL_RUNNING
    if state.fully_finished:
        return _Status.FULLY_FINISHED
    finished = any(subtask is FINISHED for subtask in state.subtasks.values())
    return _Status.PARTIALLY_FINISHED if finished else _Status.ALL_RUNNING


def _producers(topology: Topology, vertex: Vertex) -> dict[Vertex, bool]:
    """The vertices in front of one, each with whether all edges from it are pointwise."""
    producers: dict[Vertex, bool] = {}
    for index in topology.inputs(vertex.id):
        edge = topology.edges[index]
        source = topology.vertex(edge.source)
        producers[source] = producers.get(source, True) and edge.partitioner.is_pointwise
    return producers

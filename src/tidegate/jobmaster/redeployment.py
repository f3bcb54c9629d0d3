"""A deployment: what it waits for, and each subtask's share of the newest completed checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidegate.checkpoint.provenance import hook_states, provenance_of
from tidegate.checkpoint.restore.assignment import assign, coordinator_states
from tidegate.checkpoint.restore.fitting import fit
from tidegate.jobmaster.commands import RestoreHooks, StartCoordinators
from tidegate.jobmaster.slots import SlotWait

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import CheckpointMetadata
    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.model.ids import ExecutionId, OperatorId, SubtaskId
    from tidegate.model.restore import SubtaskRestore
    from tidegate.model.settings import RestoreSettings
    from tidegate.model.topology import Topology


@dataclass(slots=True)
class Redeployment:
    """Subtasks that are to be deployed, and what stands in the way.

    subtasks: whole regions, in the order of the topology. due_ms: not before then; None for the
    first deployment. planned: nothing has failed, it is wanted. waited: it is due. slots: the wait
    for them. hooks_asked, hooks_ready: how far the master hooks are.
    """

    subtasks: tuple[SubtaskId, ...]
    due_ms: int | None = None
    planned: bool = False
    waited: bool = False
    slots: SlotWait = field(default_factory=SlotWait)
    hooks_asked: bool = False
    hooks_ready: bool = False


def shares(
    newest: CompletedCheckpoint | None, topology: Topology, settings: RestoreSettings
) -> dict[SubtaskId, SubtaskRestore]:
    """Share of each subtask. Raises RestoreRefused as `assign` does."""
    if newest is None:
        return {}
    # Only what was in flight in the snapshot that the user names is dropped, not what later
    # checkpoints of this job have kept.
    drop = newest.checkpoint == settings.without_in_flight_of
    return assign(_taken_from(newest, topology, settings), topology, drop_in_flight=drop)


def fitted(newest: CompletedCheckpoint, topology: Topology, settings: RestoreSettings) -> Topology:
    """The topology with which the job can go on from there. Raises RestoreRefused otherwise."""
    # Unclaimed state was judged when the job started: a rescale neither adds nor removes operators.
    made = fit(newest.metadata, topology, allow_unclaimed_state=True)
    shares(newest, made, settings)
    return made


def restore_hooks(newest: CompletedCheckpoint | None, *, allow_unmatched: bool) -> RestoreHooks:
    if newest is None:
        return RestoreHooks(None, (), allow_unmatched)
    return RestoreHooks(newest.checkpoint, hook_states(newest.metadata), allow_unmatched)


def start_coordinators(
    newest: CompletedCheckpoint | None,
    topology: Topology,
    executions: Mapping[OperatorId, tuple[ExecutionId, ...]],
    settings: RestoreSettings,
) -> StartCoordinators:
    """States from which the operators' coordinators start."""
    if newest is None:
        return StartCoordinators(None, dict.fromkeys(executions), executions)
    states = coordinator_states(_taken_from(newest, topology, settings), topology)
    started = {operator: states.get(operator) for operator in executions}
    return StartCoordinators(newest.checkpoint, started, executions)


def _taken_from(
    newest: CompletedCheckpoint, topology: Topology, settings: RestoreSettings
) -> CheckpointMetadata:
    """The snapshot; to a fork, another job's without what it holds for sinks.

    That job lives, and commits it: whoever else did so would commit it twice, or for good what that
    job gives up.
    """
    metadata = newest.metadata
    if settings.fork is None or _job_of(metadata) == settings.fork:
        return metadata
    operators = (operator for vertex in topology.vertices for operator in vertex.operators)
    sinks = {known for each in operators if each.sink for known in (each.id, each.uid_hash)}
    kept = (s for s in metadata.operators if s.operator_id not in sinks or s.fully_finished)
    return replace(metadata, operators=tuple(kept))


def _job_of(metadata: CheckpointMetadata) -> object:
    """The name of the job that took the snapshot; None if it does not say."""
    provenance = provenance_of(metadata)
    return None if provenance is None else provenance.facts.get("job_name")

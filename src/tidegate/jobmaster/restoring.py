"""What a deployment starts from: everybody's share of the newest completed checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.checkpoint.assignment import assign, coordinator_states
from tidegate.checkpoint.fitting import fit
from tidegate.checkpoint.metadata.provenance import hook_states
from tidegate.jobmaster.commands import RestoreHooks, StartCoordinators

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.checkpoint.completed import CompletedCheckpoint
    from tidegate.model.ids import ExecutionId, OperatorId, SubtaskId
    from tidegate.model.settings import RestoreSettings
    from tidegate.model.snapshots import SubtaskRestore
    from tidegate.model.topology import Topology


def shares(
    newest: CompletedCheckpoint | None, topology: Topology, settings: RestoreSettings
) -> dict[SubtaskId, SubtaskRestore]:
    """What each subtask starts from. Raises RestoreRefused as `assign` does."""
    if newest is None:
        return {}
    drop = newest.checkpoint == settings.without_in_flight_of
    return assign(newest.metadata, topology, drop_in_flight=drop)


def fitted(newest: CompletedCheckpoint, topology: Topology, settings: RestoreSettings) -> Topology:
    """The topology with which the job can go on from there. Raises RestoreRefused otherwise."""
    made = fit(newest.metadata, topology, allow_unclaimed_state=True)
    shares(newest, made, settings)
    return made


def restore_hooks(newest: CompletedCheckpoint | None, *, allow_unmatched: bool) -> RestoreHooks:
    """The states of the master hooks."""
    if newest is None:
        return RestoreHooks(None, (), allow_unmatched)
    return RestoreHooks(newest.checkpoint, hook_states(newest.metadata), allow_unmatched)


def start_coordinators(
    newest: CompletedCheckpoint | None,
    topology: Topology,
    executions: Mapping[OperatorId, tuple[ExecutionId, ...]],
) -> StartCoordinators:
    """What the operators' coordinators start from."""
    states = coordinator_states(newest.metadata, topology) if newest else {}
    started = {operator: states.get(operator) for operator in executions}
    return StartCoordinators(newest.checkpoint if newest else None, started, executions)

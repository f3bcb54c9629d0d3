"""The life of the job, as far as checkpoints go: whether they may be taken, and of whom.

Source: checkpoint coordination §2, §4, §9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.checkpoint.coordinator.plan import Executions, calculate_plan
from tidegate.model.control import JobStatus
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from tidegate.checkpoint.coordinator.plan import CheckpointPlan
    from tidegate.checkpoint.coordinator.requests import Request
    from tidegate.model.control import ExecutionState
    from tidegate.model.ids import ExecutionId
    from tidegate.model.topology import Topology


class Readiness:
    """Knows what keeps checkpoints off: a job that starts, fails over, stops or has ended.

    topology: of the job as it runs now. executions: its attempts. ended: how the job ended.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.executions = Executions(topology)
        self.ended: JobStatus | None = None
        self._status = JobStatus.CREATED
        self._failing_over = False
        self._held_by: Request | None = None

    @property
    def wanted(self) -> bool:
        """True while the whole job runs and nothing keeps checkpoints off."""
        return (
            self._status is JobStatus.RUNNING
            and self.executions.all_run
            and not self._failing_over
            and self._held_by is None
            and self.ended is None
        )

    def status_changed(self, status: JobStatus) -> None:
        self._status = status

    def execution_changed(self, execution: ExecutionId, state: ExecutionState) -> bool:
        """Note the state of an attempt; false for one that a newer attempt has replaced."""
        return self.executions.change(execution, state)

    def failover_started(self) -> None:
        """Subtasks have to be restored; a savepoint that was to stop the job has failed."""
        self._failing_over = True
        self._held_by = None

    def restored(self) -> None:
        self._failing_over = False

    def rescaled(self, topology: Topology) -> None:
        """The job goes on with other subtasks, of which none is deployed yet."""
        self.topology, self.executions = topology, Executions(topology)
        assert not self.executions.all_run, "the new subtasks have still to start"

    def end(self, status: JobStatus) -> None:
        """The job is over: checkpoints are never ready again."""
        assert self.ended is None, "a job ends once"
        self.ended = status

    def hold(self, request: Request) -> None:
        """Nothing but this request is triggered from now on, unless it fails."""
        assert self._held_by is None, "a request that comes while another holds is refused"
        self._held_by = request

    def let_go(self, request: Request) -> bool:
        """A request is over without success; true if it held others back."""
        held = self._held_by is request
        if held:
            self._held_by = None
        return held

    def refusal(self, request: Request) -> FailureReason | None:
        """The reason to turn a request away as it comes; None if it may wait for its turn."""
        if self.ended is not None:
            return FailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
        if self._held_by is not None and self._held_by is not request:
            return FailureReason.CHECKPOINT_COORDINATOR_SUSPEND
        return None

    def hindrance(self, request: Request) -> FailureReason | None:
        """The reason why a request fails whose turn has come; None if it may begin."""
        reason = self.refusal(request)
        # After a failover checkpoints are taken again, and none may follow the savepoint of a stop.
        lost_hold = request.holds and self._held_by is not request
        if reason is None and (self._failing_over or lost_hold):
            return FailureReason.JOB_FAILOVER_REGION
        return reason

    def plan(self, *, after_tasks_finish: bool) -> CheckpointPlan:
        """The attempts that take part in a checkpoint now. Raises `CheckpointAborted`."""
        current = self.executions.current()
        return calculate_plan(self.topology, current, after_tasks_finish=after_tasks_finish)

"""A checkpoint under way: who has acknowledged, and with what.

Source: checkpoint coordination §6, §16.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from flinkformat.handles import ByteStreamStateHandle, StateDistribution
from flinkformat.snapshots import (
    FINISHED,
    CheckpointMetadata,
    Finished,
    OperatorState,
    SubtaskState,
)
from tidegate.checkpoint.coordinator.commands import (
    NotifyCoordinatorAborted,
    NotifyCoordinatorComplete,
    SnapshotCoordinator,
    TriggerHooks,
)
from tidegate.checkpoint.provenance import Provenance, to_master_state
from tidegate.checkpoint.registry import private_paths
from tidegate.model.control import CheckpointAborted, CheckpointComplete, TriggerCheckpoint
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import MasterState
    from tidegate.checkpoint.coordinator.plan import CheckpointPlan, Executions
    from tidegate.checkpoint.coordinator.requests import Request
    from tidegate.model.control import CheckpointAcknowledged
    from tidegate.model.elements import CheckpointOptions
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import CheckpointId, ExecutionId, OperatorId, VertexId
    from tidegate.model.topology import OperatorInfo, Topology, Vertex


class AcknowledgeResult(Enum):
    """What an acknowledgement has changed; names as in Flink."""

    SUCCESS = "SUCCESS"
    DUPLICATE = "DUPLICATE"
    UNKNOWN = "UNKNOWN"
    DISCARDED = "DISCARDED"


class Stage(Enum):
    """How far a checkpoint has come."""

    LOCATION = "its folder is being made"
    COORDINATORS = "operators' coordinators are taking their snapshots"
    HOOKS = "hooks are being called"
    READY = "subtasks are to be triggered"
    ACKNOWLEDGING = "subtasks are to acknowledge"
    WAITING = "all have acknowledged; another checkpoint is being written"
    WRITING = "its metadata is being written"
    ADDING = "its pointer is being added"
    DISPOSED = "completed or given up"


@dataclass(slots=True)
class PendingCheckpoint:
    """A checkpoint under way.

    triggered_ms, begun_ms: its trigger on the wall clock and on the monotonic one. location: its
    folder; None until it is known. checksums: of the files written for it, by path.
    """

    checkpoint: CheckpointId
    request: Request
    plan: CheckpointPlan
    topology: Topology
    triggered_ms: int
    begun_ms: int
    deadline_ms: int
    stage: Stage = Stage.LOCATION
    location: str | None = None
    coordinators: dict[OperatorId, bytes | None] = field(default_factory=dict)
    master_states: tuple[MasterState, ...] = ()
    checksums: dict[str, FileChecksum] = field(default_factory=dict)
    written_bytes: int = 0
    _missing: dict[ExecutionId, None] = field(init=False)
    _acknowledged: dict[ExecutionId, None] = field(default_factory=dict)
    _states: dict[OperatorId, dict[int, SubtaskState]] = field(default_factory=dict)
    _finished_on_restore: dict[VertexId, None] = field(default_factory=dict)
    _finished_operators: dict[VertexId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._missing = dict.fromkeys(self.plan.to_wait_for)

    @property
    def is_savepoint(self) -> bool:
        """Whether somebody asked for it."""
        return self.request.properties.is_savepoint

    @property
    def is_synchronous(self) -> bool:
        """Whether the job stops with it."""
        return self.request.kind.is_synchronous

    @property
    def all_acknowledged(self) -> bool:
        """Whether nobody is waited for any more."""
        return self.stage is Stage.ACKNOWLEDGING and not self._missing

    def may_expire(self) -> bool:
        """Whether it still waits for somebody; its time counts up to the last acknowledgement."""
        return self.stage not in (Stage.WAITING, Stage.WRITING, Stage.ADDING, Stage.DISPOSED)

    def takes_part(self, execution: ExecutionId) -> bool:
        """Whether this attempt has to acknowledge, or has."""
        return execution in self._missing or execution in self._acknowledged

    def waits_for(self, execution: ExecutionId) -> bool:
        """Whether this attempt has still to acknowledge."""
        return execution in self._missing

    def acknowledge(
        self, message: CheckpointAcknowledged, state: Mapping[OperatorId, SubtaskState] | None
    ) -> AcknowledgeResult:
        """Count an acknowledgement. state: the message's, registered, without placeholders."""
        execution = message.execution
        if self.stage is Stage.DISPOSED:
            return AcknowledgeResult.DISCARDED
        if execution in self._acknowledged:
            return AcknowledgeResult.DUPLICATE
        if execution not in self._missing:
            return AcknowledgeResult.UNKNOWN
        del self._missing[execution]
        self._acknowledged[execution] = None
        vertex = execution.subtask.vertex
        if message.finished_on_restore:
            self._finished_on_restore[vertex] = None
        elif state is not None:
            for operator in self.topology.vertex(vertex).operators:
                subtasks = self._states.setdefault(operator.id, {})
                if operator.id in state:
                    subtasks[execution.subtask.index] = state[operator.id]
        if message.finished_operators:
            self._finished_operators[vertex] = self._finished_operators.get(vertex, 0) + 1
        self.checksums.update(message.figures.checksums)
        self.written_bytes += message.figures.bytes_written
        return AcknowledgeResult.SUCCESS

    def location_ready(self, location: str) -> list[SnapshotCoordinator | TriggerHooks]:
        """The folder is there: ask the operators' coordinators, if there are any."""
        self.location = location
        self.stage = Stage.COORDINATORS
        for vertex in self.topology.vertices:
            if vertex.id not in self.plan.fully_finished:
                for operator in vertex.operators:
                    if operator.has_coordinator:
                        self.coordinators[operator.id] = None
        asked = [SnapshotCoordinator(self.checkpoint, operator) for operator in self.coordinators]
        return [*asked] or self._call_hooks()

    def coordinator_acknowledged(
        self, operator: OperatorId, data: bytes
    ) -> list[SnapshotCoordinator | TriggerHooks]:
        """Note the state of an operator's coordinator; after the last one come the hooks."""
        assert self.coordinators.get(operator, b"") is None, "nobody has asked this coordinator"
        self.coordinators[operator] = data
        self.written_bytes += len(data)
        if any(known is None for known in self.coordinators.values()):
            return []
        return self._call_hooks()

    def _call_hooks(self) -> list[SnapshotCoordinator | TriggerHooks]:
        self.stage = Stage.HOOKS
        return [TriggerHooks(self.checkpoint, self.triggered_ms)]

    def hooks_triggered(self, states: tuple[MasterState, ...]) -> None:
        """The hooks have been called; the subtasks' turn has come."""
        self.master_states = states
        self.stage = Stage.READY

    def trigger(self, options: CheckpointOptions) -> list[TriggerCheckpoint]:
        """Trigger the sources' subtasks; all others get barriers."""
        self.stage = Stage.ACKNOWLEDGING
        return [
            TriggerCheckpoint(execution, self.checkpoint, self.triggered_ms, options)
            for execution in self.plan.to_trigger
        ]

    def awaited_of(self, operator: OperatorId) -> tuple[ExecutionId, ...]:
        """Attempts that host an operator and have to acknowledge."""
        return tuple(
            execution
            for execution in self.plan.to_wait_for
            if any(
                known.id == operator
                for known in self.topology.vertex(execution.subtask.vertex).operators
            )
        )

    def tell_complete(
        self, executions: Executions, subsumed: CheckpointId | None
    ) -> list[CheckpointComplete | NotifyCoordinatorComplete]:
        """Tell all that live on that it is complete."""
        return [
            *(
                CheckpointComplete(execution, self.checkpoint, subsumed)
                for execution in self.plan.to_notify
                if executions.is_alive(execution)
            ),
            *(NotifyCoordinatorComplete(known, self.checkpoint) for known in self.coordinators),
        ]

    def tell_aborted(
        self, executions: Executions, latest: CheckpointId | None
    ) -> list[CheckpointAborted | NotifyCoordinatorAborted]:
        """Tell all that live on that it was given up. latest: the newest completed checkpoint."""
        return [
            *(
                CheckpointAborted(execution, self.checkpoint, latest)
                for execution in self.plan.to_notify
                if executions.is_alive(execution)
            ),
            *(NotifyCoordinatorAborted(known, self.checkpoint) for known in self.coordinators),
        ]

    def private_paths(self) -> tuple[str, ...]:
        """Paths of the files acknowledged so far that belong to it alone, each once."""
        return tuple(
            dict.fromkeys(
                path
                for subtasks in self._states.values()
                for state in subtasks.values()
                for path in private_paths(state)
            )
        )

    def states(self) -> list[SubtaskState]:
        """The states acknowledged so far."""
        return [state for subtasks in self._states.values() for state in subtasks.values()]

    def metadata(self, facts: Mapping[str, object]) -> CheckpointMetadata:
        """What ``_metadata`` has to say.

        facts: what else is to be found in it, such as job name and versions. Raises
        `CheckpointAborted` where union list state would be incomplete, since some subtasks of its
        vertex have finished.
        """
        operators = tuple(
            state
            for vertex in self.topology.vertices
            for operator in vertex.operators
            if (state := self._operator_state(vertex, operator)) is not None
        )
        return CheckpointMetadata(
            checkpoint_id=self.checkpoint,
            operators=operators,
            master_states=(*self.master_states, to_master_state(Provenance(facts, self.checksums))),
            properties=self.request.properties,
        )

    def _operator_state(self, vertex: Vertex, operator: OperatorInfo) -> OperatorState | None:
        over = vertex.id in self.plan.fully_finished or vertex.id in self._finished_on_restore
        finished = [
            execution.subtask.index
            for execution in self.plan.finished
            if execution.subtask.vertex == vertex.id
        ]
        data = self.coordinators.get(operator.id)
        if not (over or finished or data is not None or operator.id in self._states):
            return None
        acknowledged = self._states.get(operator.id, {})
        if not over:
            self._refuse_broken_union(vertex, len(finished), acknowledged)
        subtasks: dict[int, SubtaskState | Finished] = {}
        if not over:
            subtasks.update(dict.fromkeys(finished, FINISHED))
            subtasks.update(acknowledged)
        return OperatorState(
            operator_id=operator.id,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            name=operator.name,
            uid=operator.uid,
            coordinator_state=None if over or data is None else self._inline(operator, data),
            subtasks=dict(sorted(subtasks.items())),
            fully_finished=over,
        )

    def _inline(self, operator: OperatorInfo, data: bytes) -> ByteStreamStateHandle:
        return ByteStreamStateHandle(f"coordinator-{operator.id.hex()}-{self.checkpoint}", data)

    def _refuse_broken_union(
        self, vertex: Vertex, finished: int, acknowledged: Mapping[int, SubtaskState]
    ) -> None:
        ended = finished + self._finished_operators.get(vertex.id, 0)
        if 0 < ended < vertex.parallelism and any(map(_has_union_state, acknowledged.values())):
            raise FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING.aborted(
                f"{vertex.name} has union list state, and {ended} of its {vertex.parallelism} "
                "subtasks have finished: the union would be incomplete.",
                where=f"checkpoint {self.checkpoint}",
            )


def _has_union_state(state: SubtaskState) -> bool:
    return any(
        info.mode is StateDistribution.UNION
        for handle in (state.managed_operator, state.raw_operator)
        if handle is not None
        for info in handle.states.values()
    )

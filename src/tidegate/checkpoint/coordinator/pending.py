"""A checkpoint under way: how far it has come, who has acknowledged, and with what.

Source: checkpoint coordination §6, §16.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from flinkformat.handles import ByteStreamStateHandle, StateDistribution
from flinkformat.snapshots import (
    FINISHED,
    CheckpointMetadata,
    Finished,
    OperatorState,
    SubtaskState,
)
from flinkformat.state_streams import private_paths
from tidegate.checkpoint.coordinator.commands import (
    NotifyCoordinatorAborted,
    NotifyCoordinatorComplete,
    SnapshotCoordinator,
    TriggerHooks,
)
from tidegate.checkpoint.provenance import Provenance, to_master_state
from tidegate.model.control import CheckpointAborted, CheckpointComplete, TriggerCheckpoint
from tidegate.model.failure_reason import FailureReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.snapshots import CheckpointProperties, MasterState
    from tidegate.checkpoint.coordinator.plan import CheckpointPlan, Executions
    from tidegate.checkpoint.coordinator.requests import Request
    from tidegate.model.control import CheckpointAcknowledged
    from tidegate.model.elements import CheckpointOptions
    from tidegate.model.files import FileChecksum
    from tidegate.model.ids import CheckpointId, ExecutionId, OperatorId, SubtaskId, VertexId
    from tidegate.model.topology import OperatorInfo, Topology, Vertex


class AcknowledgeResult(Enum):
    """Effect of an acknowledgement; names as in Flink."""

    SUCCESS = "SUCCESS"
    DUPLICATE = "DUPLICATE"
    UNKNOWN = "UNKNOWN"
    DISCARDED = "DISCARDED"


class Stage(Enum):
    """Progress of a checkpoint."""

    LOCATION = "its folder is being made"
    COORDINATORS = "operators' coordinators are taking their snapshots"
    HOOKS = "hooks are being called"
    READY = "subtasks are to be triggered"
    ACKNOWLEDGING = "subtasks are to acknowledge"
    WAITING = "all have acknowledged; another checkpoint is being written"
    WRITING = "its metadata is being written"
    ADDING = "its pointer is being added"
    DISPOSED = "completed or given up"


_BEFORE: Final = {
    Stage.COORDINATORS: Stage.LOCATION,
    Stage.HOOKS: Stage.COORDINATORS,
    Stage.READY: Stage.HOOKS,
    Stage.ACKNOWLEDGING: Stage.READY,
    Stage.WAITING: Stage.ACKNOWLEDGING,
    Stage.WRITING: Stage.WAITING,
    Stage.ADDING: Stage.WRITING,
}
"""The stage before each; a checkpoint is disposed of at any."""


class Acknowledgements:
    """Acknowledgements of one checkpoint, and the state that came with them.

    checksums: of the files written for it, by path.
    """

    def __init__(self, checkpoint: CheckpointId, plan: CheckpointPlan, topology: Topology) -> None:
        self._checkpoint = checkpoint
        self._plan = plan
        self._topology = topology
        self._missing = dict.fromkeys(plan.to_wait_for)
        self._acknowledged: dict[ExecutionId, None] = {}
        self._states: dict[OperatorId, dict[int, SubtaskState]] = {}
        self._finished_on_restore: dict[VertexId, None] = {}
        self._finished_operators: dict[VertexId, int] = {}
        self.checksums: dict[str, FileChecksum] = {}
        self.written_bytes = 0

    @property
    def complete(self) -> bool:
        return not self._missing

    def takes_part(self, execution: ExecutionId) -> bool:
        """True if this attempt has to acknowledge, or has."""
        return execution in self._missing or execution in self._acknowledged

    def waits_for(self, execution: ExecutionId) -> bool:
        return execution in self._missing

    def add(
        self, message: CheckpointAcknowledged, state: Mapping[OperatorId, SubtaskState] | None
    ) -> AcknowledgeResult:
        """Count an acknowledgement. state: the message's, registered, without placeholders."""
        execution = message.execution
        if execution in self._acknowledged:
            return AcknowledgeResult.DUPLICATE
        if execution not in self._missing:
            return AcknowledgeResult.UNKNOWN
        del self._missing[execution]
        self._acknowledged[execution] = None
        counted = len(self._missing) + len(self._acknowledged)
        assert counted == len(self._plan.to_wait_for), "an attempt counts on one side"
        vertex = execution.subtask.vertex
        if message.finished_on_restore:
            self._finished_on_restore[vertex] = None
        elif state is not None:
            self._note(execution.subtask, state)
        if message.finished_operators:
            self._finished_operators[vertex] = self._finished_operators.get(vertex, 0) + 1
        self.checksums.update(message.figures.checksums)
        self.written_bytes += message.figures.bytes_written
        return AcknowledgeResult.SUCCESS

    def _note(self, subtask: SubtaskId, state: Mapping[OperatorId, SubtaskState]) -> None:
        for operator in self._topology.vertex(subtask.vertex).operators:
            subtasks = self._states.setdefault(operator.id, {})
            assert subtask.index not in subtasks, "a subtask has one attempt in a checkpoint"
            if operator.id in state:
                subtasks[subtask.index] = state[operator.id]

    def states(self) -> list[SubtaskState]:
        return [state for subtasks in self._states.values() for state in subtasks.values()]

    def metadata(
        self,
        coordinators: Mapping[OperatorId, bytes | None],
        facts: Mapping[str, object],
        properties: CheckpointProperties,
        hooks: tuple[MasterState, ...] = (),
    ) -> CheckpointMetadata:
        """The content of ``_metadata``, as of `PendingCheckpoint`. hooks: their states."""
        operators = tuple(
            state
            for vertex in self._topology.vertices
            for operator in vertex.operators
            if (state := self.operator_state(vertex, operator, coordinators.get(operator.id)))
            is not None
        )
        return CheckpointMetadata(
            checkpoint_id=self._checkpoint,
            operators=operators,
            master_states=(*hooks, to_master_state(Provenance(facts, self.checksums))),
            properties=properties,
        )

    def operator_state(
        self, vertex: Vertex, operator: OperatorInfo, coordinator: bytes | None
    ) -> OperatorState | None:
        """The state of one operator; None if there is nothing to be said of it.

        coordinator: state of the operator's coordinator. Raises `CheckpointAborted` where union
        list state would be incomplete, since some subtasks of its vertex have finished.
        """
        over = vertex.id in self._plan.fully_finished or vertex.id in self._finished_on_restore
        finished = [
            execution.subtask.index
            for execution in self._plan.finished
            if execution.subtask.vertex == vertex.id
        ]
        if not (over or finished or coordinator is not None or operator.id in self._states):
            return None
        acknowledged = self._states.get(operator.id, {})
        assert not acknowledged.keys() & set(finished), "who has finished acknowledges nothing"
        subtasks: dict[int, SubtaskState | Finished] = {}
        if not over:
            self._refuse_broken_union(vertex, len(finished), acknowledged)
            subtasks.update(dict.fromkeys(finished, FINISHED))
            subtasks.update(acknowledged)
        return OperatorState(
            operator_id=operator.id,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            name=operator.name,
            uid=operator.uid,
            coordinator_state=None if over else self._inline(operator, coordinator),
            subtasks=dict(sorted(subtasks.items())),
            fully_finished=over,
        )

    def _inline(self, operator: OperatorInfo, data: bytes | None) -> ByteStreamStateHandle | None:
        if data is None:
            return None
        return ByteStreamStateHandle(f"coordinator-{operator.id.hex()}-{self._checkpoint}", data)

    def _refuse_broken_union(
        self, vertex: Vertex, finished: int, acknowledged: Mapping[int, SubtaskState]
    ) -> None:
        ended = finished + self._finished_operators.get(vertex.id, 0)
        assert ended <= vertex.parallelism, "a subtask ends once"
        if 0 < ended < vertex.parallelism and any(map(_has_union_state, acknowledged.values())):
            raise FailureReason.CHECKPOINT_DECLINED_TASK_CLOSING.aborted(
                f"{vertex.name} has union list state, and {ended} of its {vertex.parallelism} "
                "subtasks have finished: the union would be incomplete.",
                where=f"checkpoint {self._checkpoint}",
            )


class PendingCheckpoint:
    """A checkpoint under way.

    triggered_ms, begun_ms: its trigger on the wall clock and on the monotonic one. location: its
    folder; None until it is known. coordinators: the state of each operator's coordinator that was
    asked, None until it answers.
    """

    def __init__(
        self,
        checkpoint: CheckpointId,
        request: Request,
        plan: CheckpointPlan,
        topology: Topology,
        triggered_ms: int,
        begun_ms: int,
        deadline_ms: int,
    ) -> None:
        assert deadline_ms >= begun_ms, "a checkpoint has time"
        self.checkpoint = checkpoint
        self.request = request
        self.plan = plan
        self.topology = topology
        self.triggered_ms = triggered_ms
        self.begun_ms = begun_ms
        self.deadline_ms = deadline_ms
        self.stage = Stage.LOCATION
        self.location: str | None = None
        self.coordinators: dict[OperatorId, bytes | None] = {}
        self.acknowledgements = Acknowledgements(checkpoint, plan, topology)
        self._master_states: tuple[MasterState, ...] = ()

    @property
    def is_savepoint(self) -> bool:
        """True if it belongs to whoever asked for it."""
        return self.request.properties.is_savepoint

    @property
    def is_synchronous(self) -> bool:
        return self.request.kind.is_synchronous

    @property
    def written_bytes(self) -> int:
        """Bytes written for it so far, by subtasks and by operators' coordinators."""
        coordinators = (data for data in self.coordinators.values() if data is not None)
        return self.acknowledgements.written_bytes + sum(map(len, coordinators))

    @property
    def all_acknowledged(self) -> bool:
        return self.stage is Stage.ACKNOWLEDGING and self.acknowledgements.complete

    def may_expire(self) -> bool:
        """True while its time counts: to the last acknowledgement, and while it is written."""
        return self.stage not in (Stage.WAITING, Stage.ADDING, Stage.DISPOSED)

    def enter(self, stage: Stage) -> None:
        """Moves one stage further, or to the end when it is disposed of."""
        assert self.stage is not Stage.DISPOSED, "what is disposed of stays so"
        assert stage is Stage.DISPOSED or self.stage is _BEFORE[stage], self.stage.value
        # From here on storage knows of it: nobody may be missing, and files have a place to lie.
        written = stage in (Stage.WAITING, Stage.WRITING, Stage.ADDING)
        assert not written or self.acknowledgements.complete, "somebody has not acknowledged"
        assert not written or self.location is not None, "the folder comes first"
        self.stage = stage

    def acknowledge(
        self, message: CheckpointAcknowledged, state: Mapping[OperatorId, SubtaskState] | None
    ) -> AcknowledgeResult:
        """Count an acknowledgement. state: the message's, registered, without placeholders."""
        assert message.checkpoint == self.checkpoint, "another checkpoint is acknowledged"
        if self.stage is Stage.DISPOSED:
            return AcknowledgeResult.DISCARDED
        return self.acknowledgements.add(message, state)

    def location_ready(self, location: str) -> list[SnapshotCoordinator | TriggerHooks]:
        """The folder is there: ask the operators' coordinators, if there are any."""
        assert self.location is None, "a checkpoint has one folder"
        self.enter(Stage.COORDINATORS)
        self.location = location
        for vertex in self.topology.vertices:
            # The coordinator of a vertex that is over has nobody to split work to.
            if vertex.id not in self.plan.fully_finished:
                for operator in vertex.operators:
                    if operator.has_coordinator:
                        self.coordinators[operator.id] = None
        asked = [SnapshotCoordinator(self.checkpoint, operator) for operator in self.coordinators]
        return [*asked] or self._call_hooks()

    def coordinator_acknowledged(
        self, operator: OperatorId, data: bytes
    ) -> list[SnapshotCoordinator | TriggerHooks]:
        """Stores the state of an operator's coordinator; hooks follow after the last one."""
        assert self.coordinators.get(operator, b"") is None, "nobody has asked this coordinator"
        assert self.stage is Stage.COORDINATORS, self.stage.value
        self.coordinators[operator] = data
        if any(known is None for known in self.coordinators.values()):
            return []
        return self._call_hooks()

    def _call_hooks(self) -> list[SnapshotCoordinator | TriggerHooks]:
        assert None not in self.coordinators.values(), "hooks come after the last coordinator"
        self.enter(Stage.HOOKS)
        return [TriggerHooks(self.checkpoint, self.triggered_ms)]

    def hooks_triggered(self, states: tuple[MasterState, ...]) -> None:
        """The hooks have been called; the subtasks' turn has come."""
        self.enter(Stage.READY)
        self._master_states = states

    def trigger(self, options: CheckpointOptions) -> list[TriggerCheckpoint]:
        assert self.plan.to_trigger, "a barrier begins somewhere"
        self.enter(Stage.ACKNOWLEDGING)
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
        assert subsumed is None or subsumed < self.checkpoint, "only older ones are subsumed"
        return [
            *(
                CheckpointComplete(execution, self.checkpoint, subsumed)
                for execution in self.plan.to_wait_for
                if executions.is_alive(execution)
            ),
            *(NotifyCoordinatorComplete(known, self.checkpoint) for known in self.coordinators),
        ]

    def tell_aborted(
        self, executions: Executions, latest: CheckpointId | None
    ) -> list[CheckpointAborted | NotifyCoordinatorAborted]:
        """Tell all that live on that it was given up. latest: the newest completed checkpoint."""
        assert latest != self.checkpoint, "what is complete is not given up"
        return [
            *(
                CheckpointAborted(execution, self.checkpoint, latest)
                for execution in self.plan.to_wait_for
                if executions.is_alive(execution)
            ),
            *(NotifyCoordinatorAborted(known, self.checkpoint) for known in self.coordinators),
        ]

    def private_paths(self) -> tuple[str, ...]:
        """Paths of the files acknowledged so far that belong to it alone, each once."""
        states = self.acknowledgements.states()
        return tuple(dict.fromkeys(path for state in states for path in private_paths(state)))

    def metadata(self, facts: Mapping[str, object]) -> CheckpointMetadata:
        """The content of ``_metadata``.

        facts: what else is to be found in it, such as job name and versions. Raises
        `CheckpointAborted` where union list state would be incomplete, since some subtasks of its
        vertex have finished.
        """
        return self.acknowledgements.metadata(
            self.coordinators, facts, self.request.properties, self._master_states
        )


def _has_union_state(state: SubtaskState) -> bool:
    return any(
        info.mode is StateDistribution.UNION
        for handle in (state.managed_operator, state.raw_operator)
        if handle is not None
        for info in handle.states.values()
    )

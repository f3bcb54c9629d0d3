"""The job graph expanded into attempts: which subtask runs where, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.jobmaster.view import SubtaskView, VertexView
from tidegate.model.control import ExecutionState, SubtaskFigures
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SubtaskId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidegate.model.ids import ChannelId, OperatorId, SlotId
    from tidegate.model.topology import Topology


@dataclass(slots=True)
class Execution:
    """One attempt at running one subtask. entered_ms: monotonic time of each state."""

    id: ExecutionId
    slot: SlotId
    state: ExecutionState = ExecutionState.CREATED
    restored: bool = False
    restore_ms: int = 0
    figures: SubtaskFigures = field(default_factory=SubtaskFigures)
    entered_ms: dict[ExecutionState, int] = field(default_factory=dict)

    def enter(self, state: ExecutionState, now_ms: int) -> None:
        """It is in another state."""
        self.state = state
        self.entered_ms[state] = now_ms


class ExecutionGraph:
    """The current attempt of every subtask of a job.

    All subtasks that are deployed together share one attempt number, so that both ends of a
    channel can be told from their former lives by one number.
    """

    def __init__(self, topology: Topology, epoch: Epoch) -> None:
        self.topology = topology
        self.attempt = Attempt(-1)
        self._epoch = epoch
        self._executions: dict[SubtaskId, Execution] = {}

    def deploy(self, slots: Sequence[SlotId], now_ms: int) -> list[Execution]:
        """A new attempt of every subtask; subtask i of each vertex shares slot i."""
        self.attempt = Attempt(self.attempt + 1)
        self._executions = {}
        for subtask in self.topology.subtasks():
            execution = Execution(
                ExecutionId(subtask, self.attempt, self._epoch), slots[subtask.index]
            )
            execution.enter(ExecutionState.CREATED, now_ms)
            self._executions[subtask] = execution
        return list(self._executions.values())

    def current(self, execution: ExecutionId) -> Execution | None:
        """The execution of that id; None where it is of an older attempt or another epoch."""
        found = self._executions.get(execution.subtask)
        return found if found is not None and found.id == execution else None

    def __iter__(self) -> Iterator[Execution]:
        return iter(self._executions.values())

    def on_slot(self, slot: SlotId) -> list[Execution]:
        """The executions on a slot, ended ones included."""
        return [execution for execution in self if execution.slot == slot]

    @property
    def all_ended(self) -> bool:
        """Whether nothing runs any more."""
        return all(execution.state.is_terminal for execution in self)

    @property
    def all_finished(self) -> bool:
        """Whether every subtask has come to its end in order."""
        return bool(self._executions) and all(e.state is ExecutionState.FINISHED for e in self)

    @property
    def all_restored(self) -> bool:
        """Whether every subtask waits for its start."""
        return bool(self._executions) and all(execution.restored for execution in self)

    def peers(self, execution: Execution) -> dict[ChannelId, SlotId]:
        """The slot at the other end of each channel of a subtask."""
        subtask = execution.id.subtask
        found: dict[ChannelId, SlotId] = {}
        for edge in self.topology.inputs(subtask.vertex):
            source = self.topology.edges[edge].source
            for channel in self.topology.channels(edge):
                if channel.consumer == subtask.index:
                    found[channel] = self._executions[SubtaskId(source, channel.producer)].slot
        for edge in self.topology.outputs(subtask.vertex):
            target = self.topology.edges[edge].target
            for channel in self.topology.channels(edge):
                if channel.producer == subtask.index:
                    found[channel] = self._executions[SubtaskId(target, channel.consumer)].slot
        return found

    def executions_of_operators(self) -> dict[OperatorId, tuple[ExecutionId, ...]]:
        """Per operator with a coordinator its subtasks' attempts, by index."""
        return {
            operator.id: tuple(self._executions[subtask].id for subtask in vertex.subtasks())
            for vertex in self.topology.vertices
            for operator in vertex.operators
            if operator.has_coordinator
        }

    def view(self, wall_offset_ms: int) -> tuple[VertexView, ...]:
        """The vertices with their subtasks."""
        return tuple(
            VertexView(
                vertex.id,
                vertex.name,
                vertex.parallelism,
                vertex.max_parallelism,
                tuple(
                    _subtask_view(self._executions[subtask], wall_offset_ms)
                    for subtask in vertex.subtasks()
                    if subtask in self._executions
                ),
            )
            for vertex in self.topology.vertices
        )


def _subtask_view(execution: Execution, wall_offset_ms: int) -> SubtaskView:
    entered: Mapping[ExecutionState, int] = {
        state: at_ms + wall_offset_ms for state, at_ms in execution.entered_ms.items()
    }
    return SubtaskView(
        execution.id.subtask.index,
        execution.id.attempt,
        execution.state,
        execution.slot,
        entered,
        execution.figures,
        execution.restore_ms,
    )

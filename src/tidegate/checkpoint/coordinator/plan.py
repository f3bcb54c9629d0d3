"""Participants of a checkpoint: whom to trigger, to wait for, to tell; who has finished.

Source: checkpoint coordination §4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flinkformat.frozen import frozen
from tidegate.model.control import ExecutionState
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.errors import CheckpointAborted
    from tidegate.model.ids import ExecutionId, SubtaskId, VertexId
    from tidegate.model.topology import Topology, Vertex


@frozen
class CheckpointPlan:
    """The attempts concerned, vertex by vertex in topological order.

    to_trigger: they get the trigger from the driver, all others by barriers. to_wait_for: they
    have to acknowledge, and hear of the end. finished: their state is filled in at completion.
    fully_finished: vertices of which every subtask has finished.
    """

    to_trigger: tuple[ExecutionId, ...]
    to_wait_for: tuple[ExecutionId, ...]
    finished: tuple[ExecutionId, ...]
    fully_finished: tuple[VertexId, ...]


class Executions:
    """The current attempt of each subtask, and its state."""

    def __init__(self, topology: Topology) -> None:
        self._current: dict[SubtaskId, tuple[ExecutionId, ExecutionState]] = {}
        self._not_running = dict.fromkeys(topology.subtasks())

    @property
    def all_run(self) -> bool:
        """True if every subtask runs or has finished."""
        return not self._not_running

    def change(self, execution: ExecutionId, state: ExecutionState) -> bool:
        """Records a change; False for no change, and for an older attempt's."""
        known = self._current.get(execution.subtask)
        if known is not None and _rank(execution) < _rank(known[0]):
            return False
        self._current[execution.subtask] = (execution, state)
        if state in (ExecutionState.RUNNING, ExecutionState.FINISHED):
            self._not_running.pop(execution.subtask, None)
        else:
            self._not_running[execution.subtask] = None
        return True

    def is_alive(self, execution: ExecutionId) -> bool:
        """True if this attempt is the current one of its subtask, and not over."""
        known = self._current.get(execution.subtask)
        return known is not None and known[0] == execution and not known[1].is_terminal

    @property
    def oldest_attempt(self) -> Attempt:
        return min(
            (execution.attempt for execution, _ in self._current.values()), default=Attempt(0)
        )

    def current(self) -> Mapping[SubtaskId, tuple[ExecutionId, ExecutionState]]:
        """Attempt and state of every subtask that was deployed."""
        return self._current


def _rank(execution: ExecutionId) -> tuple[int, int]:
    return (execution.epoch, execution.attempt)


def calculate_plan(
    topology: Topology,
    executions: Mapping[SubtaskId, tuple[ExecutionId, ExecutionState]],
    *,
    after_tasks_finish: bool,
) -> CheckpointPlan:
    """The plan for a checkpoint that is triggered now.

    executions: as of `Executions.current`. Raises `CheckpointAborted` with
    NOT_ALL_REQUIRED_TASKS_RUNNING where a subtask has no attempt, one has to acknowledge that does
    not run, or one has finished and ``after_tasks_finish`` is off.
    """
    for subtask in topology.subtasks():
        if subtask not in executions:
            raise _not_running(topology, subtask, "has not been deployed")
    finished = {
        subtask: None
        for subtask in topology.subtasks()
        if executions[subtask][1] is ExecutionState.FINISHED
    }
    if finished and not after_tasks_finish:
        raise _not_running(topology, next(iter(finished)), "has finished already")
    to_wait_for: list[ExecutionId] = []
    for subtask in topology.subtasks():
        execution, state = executions[subtask]
        if subtask in finished:
            continue
        if state is not ExecutionState.RUNNING:
            raise _not_running(topology, subtask, f"is {state.value}")
        to_wait_for.append(execution)
    assert len(to_wait_for) + len(finished) == len(executions), "each subtask on one side"
    if not to_wait_for:
        raise FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING.aborted("Every subtask has finished.")
    return CheckpointPlan(
        to_trigger=tuple(
            executions[subtask][0]
            for vertex in topology.vertices
            for subtask in _triggered(topology, vertex, finished)
        ),
        to_wait_for=tuple(to_wait_for),
        finished=tuple(executions[subtask][0] for subtask in finished),
        fully_finished=tuple(
            vertex.id
            for vertex in topology.vertices
            if all(subtask in finished for subtask in vertex.subtasks())
        ),
    )


def _triggered(
    topology: Topology, vertex: Vertex, finished: Mapping[SubtaskId, None]
) -> list[SubtaskId]:
    """Running subtasks of a vertex that no running producer will send a barrier to."""
    candidates = [subtask for subtask in vertex.subtasks() if subtask not in finished]
    for index in topology.inputs(vertex.id):
        edge = topology.edges[index]
        producers = topology.vertex(edge.source).subtasks()
        if all(producer not in finished for producer in producers):
            return []
        if edge.partitioner.is_pointwise:
            fed = {
                channel.consumer
                for channel in topology.channels(index)
                if producers[channel.producer] not in finished
            }
            candidates = [subtask for subtask in candidates if subtask.index not in fed]
        elif any(producer not in finished for producer in producers):
            return []
    return candidates


def _not_running(topology: Topology, subtask: SubtaskId, what: str) -> CheckpointAborted:
    return FailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING.aborted(
        f"{topology.name_of(subtask)} {what}."
    )

"""Who takes part in a checkpoint: checkpoint coordination §4."""

from __future__ import annotations

import pytest

from tests.checkpoint.world import THREE, chain, vertex
from tidegate.checkpoint.coordinator.plan import CheckpointPlan, Executions, calculate_plan
from tidegate.errors import CheckpointAborted
from tidegate.model.control import ExecutionState
from tidegate.model.ids import Attempt, Epoch, ExecutionId, SubtaskId, VertexId
from tidegate.model.topology import Partitioner, Topology


def name(name: str, index: int) -> SubtaskId:
    return SubtaskId(VertexId(name.encode().ljust(16, b".")), index)


def execution(subtask: SubtaskId, attempt: int = 0, epoch: int = 1) -> ExecutionId:
    return ExecutionId(subtask, Attempt(attempt), Epoch(epoch))


def plan(
    topology: Topology, *finished: SubtaskId, after_tasks_finish: bool = True
) -> CheckpointPlan:
    executions = Executions(topology)
    for subtask in topology.subtasks():
        state = ExecutionState.FINISHED if subtask in finished else ExecutionState.RUNNING
        executions.change(execution(subtask), state)
    return calculate_plan(topology, executions.current(), after_tasks_finish=after_tasks_finish)


def triggered(plan: CheckpointPlan) -> list[SubtaskId]:
    return [execution.subtask for execution in plan.to_trigger]


@pytest.mark.feature("F011", "F035", "F065")
def test_while_all_run_the_sources_are_triggered_and_all_take_part() -> None:
    made = plan(THREE)
    assert triggered(made) == [name("source", 0), name("source", 1)]
    assert len(made.to_wait_for) == 6
    assert made.finished == ()
    assert made.fully_finished == ()


def test_a_source_that_has_finished_is_not_waited_for() -> None:
    made = plan(THREE, name("source", 0))
    assert triggered(made) == [name("source", 1)]
    assert len(made.to_wait_for) == 5
    assert [e.subtask for e in made.finished] == [name("source", 0)]
    assert made.fully_finished == ()


def test_behind_finished_sources_the_next_subtasks_are_triggered() -> None:
    made = plan(THREE, name("source", 0), name("source", 1))
    assert triggered(made) == [name("map", 0), name("map", 1), name("map", 2)]
    assert made.fully_finished == (name("source", 0).vertex,)


def test_one_running_producer_is_enough_where_all_feed_all() -> None:
    topology = chain(vertex("source", 2), vertex("map", 2), partitioner=Partitioner.HASH)
    assert triggered(plan(topology, name("source", 0))) == [name("source", 1)]


def test_where_each_feeds_its_own_a_subtask_is_triggered_if_its_producer_has_finished() -> None:
    topology = chain(vertex("source", 3), vertex("map", 3), partitioner=Partitioner.FORWARD)
    made = plan(topology, name("source", 1))
    assert triggered(made) == [name("source", 0), name("source", 2), name("map", 1)]


def test_a_subtask_with_a_running_producer_on_any_input_is_not_triggered() -> None:
    left, right = vertex("left", 2), vertex("right", 2)
    joined = vertex("join", 2)
    pointwise = chain(left, joined, partitioner=Partitioner.FORWARD).edges
    everyone = chain(right, joined, partitioner=Partitioner.HASH).edges
    topology = Topology((left, right, joined), (*pointwise, *everyone))
    one_side = plan(topology, name("left", 0), name("left", 1))
    assert triggered(one_side) == [name("right", 0), name("right", 1)]
    both = plan(topology, *(name(side, i) for side in ("left", "right") for i in range(2)))
    assert triggered(both) == [name("join", 0), name("join", 1)]


def test_a_subtask_that_was_never_deployed_forbids_a_checkpoint() -> None:
    with pytest.raises(CheckpointAborted, match=r"source \(1/2\) has not been deployed") as raised:
        calculate_plan(THREE, {}, after_tasks_finish=True)
    assert raised.value.reason == "NOT_ALL_REQUIRED_TASKS_RUNNING"


@pytest.mark.parametrize(
    "state", [ExecutionState.INITIALIZING, ExecutionState.CANCELING, ExecutionState.FAILED]
)
def test_a_subtask_that_does_not_run_forbids_a_checkpoint(state: ExecutionState) -> None:
    executions = Executions(THREE)
    for subtask in THREE.subtasks():
        executions.change(execution(subtask), ExecutionState.RUNNING)
    executions.change(execution(name("map", 2)), state)
    with pytest.raises(CheckpointAborted, match=rf"map \(3/3\) is {state.value}"):
        calculate_plan(THREE, executions.current(), after_tasks_finish=True)


def test_a_finished_subtask_forbids_checkpoints_where_the_option_is_off() -> None:
    with pytest.raises(CheckpointAborted, match=r"source \(2/2\) has finished already"):
        plan(THREE, name("source", 1), after_tasks_finish=False)


def test_nobody_left_to_wait_for_makes_no_checkpoint() -> None:
    with pytest.raises(CheckpointAborted, match="Every subtask has finished"):
        plan(THREE, *THREE.subtasks())


def test_an_older_attempt_has_nothing_to_say() -> None:
    executions = Executions(THREE)
    subtask = name("map", 0)
    assert executions.change(execution(subtask, attempt=1), ExecutionState.RUNNING)
    assert not executions.change(execution(subtask, attempt=0), ExecutionState.FAILED)
    assert not executions.change(execution(subtask, attempt=7, epoch=0), ExecutionState.FAILED)
    assert executions.is_alive(execution(subtask, attempt=1))
    assert not executions.is_alive(execution(subtask, attempt=0))
    assert executions.change(execution(subtask, attempt=0, epoch=2), ExecutionState.FINISHED)
    assert not executions.is_alive(execution(subtask, attempt=0, epoch=2))


def test_all_run_once_each_runs_or_has_finished() -> None:
    executions = Executions(THREE)
    for subtask in THREE.subtasks():
        assert not executions.all_run
        executions.change(execution(subtask), ExecutionState.RUNNING)
    assert executions.all_run
    executions.change(execution(name("map", 0)), ExecutionState.FINISHED)
    assert executions.all_run
    executions.change(execution(name("map", 1)), ExecutionState.CANCELING)
    assert not executions.all_run

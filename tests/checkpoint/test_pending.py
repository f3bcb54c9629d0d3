"""A checkpoint under way: acknowledgements, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkformat.handles import (
    FileStateHandle,
    OperatorStreamStateHandle,
    StateDistribution,
    StateMetaInfo,
)
from flinkformat.snapshots import EMPTY, FINISHED, MasterState, SubtaskState
from tests.checkpoint.world import THREE, chain, keyed_state, vertex
from tidegate.checkpoint.coordinator.pending import AcknowledgeResult, PendingCheckpoint, Stage
from tidegate.checkpoint.coordinator.plan import Executions, calculate_plan
from tidegate.checkpoint.coordinator.requests import periodic_request
from tidegate.errors import CheckpointAborted
from tidegate.model.control import CheckpointAcknowledged, CheckpointFigures, ExecutionState
from tidegate.model.ids import Attempt, CheckpointId, Epoch, ExecutionId, OperatorId, SubtaskId
from tidegate.model.settings import CheckpointSettings
from tidegate.model.topology import OperatorInfo, Topology

TWO = chain(vertex("source", 2, coordinator=True), vertex("sink", 1))
SOURCE = TWO.vertices[0]


def pending(
    topology: Topology = TWO,
    *,
    finished: tuple[SubtaskId, ...] = (),
    stage: Stage = Stage.ACKNOWLEDGING,
) -> PendingCheckpoint:
    executions = Executions(topology)
    for subtask in topology.subtasks():
        state = ExecutionState.FINISHED if subtask in finished else ExecutionState.RUNNING
        executions.change(execution(subtask), state)
    made = PendingCheckpoint(
        checkpoint=CheckpointId(4),
        request=periodic_request(CheckpointSettings(interval_ms=1_000), 0),
        plan=calculate_plan(topology, executions.current(), after_tasks_finish=True),
        topology=topology,
        triggered_ms=1_000,
        begun_ms=0,
        deadline_ms=500,
    )
    made.stage = stage
    return made


def execution(subtask: SubtaskId) -> ExecutionId:
    return ExecutionId(subtask, Attempt(0), Epoch(1))


def message(subtask: SubtaskId, **more: object) -> CheckpointAcknowledged:
    made = CheckpointAcknowledged(execution(subtask), CheckpointId(4), None, CheckpointFigures())
    return replace(made, **more)  # type: ignore[arg-type]


def acknowledge(
    checkpoint: PendingCheckpoint,
    subtask: SubtaskId,
    state: SubtaskState | None = None,
    **more: object,
) -> AcknowledgeResult:
    states = None if state is None else {OperatorId(bytes(subtask.vertex)): state}
    return checkpoint.acknowledge(message(subtask, **more), states)


def union_state() -> SubtaskState:
    names = {"offsets": StateMetaInfo(StateDistribution.UNION, (0,))}
    return SubtaskState(managed_operator=OperatorStreamStateHandle(names, FileStateHandle("/a", 1)))


FIRST, SECOND, SINK = TWO.subtasks()


@pytest.mark.feature("F136")
def test_an_awaited_attempt_counts_once() -> None:
    checkpoint = pending()
    assert acknowledge(checkpoint, FIRST) is AcknowledgeResult.SUCCESS
    assert acknowledge(checkpoint, FIRST) is AcknowledgeResult.DUPLICATE
    assert checkpoint.acknowledgements.takes_part(execution(FIRST))
    assert not checkpoint.acknowledgements.waits_for(execution(FIRST))


@pytest.mark.feature("F136")
def test_an_attempt_that_was_not_asked_is_unknown() -> None:
    stranger = replace(message(FIRST), execution=execution(FIRST)._replace(attempt=Attempt(3)))
    assert pending().acknowledge(stranger, None) is AcknowledgeResult.UNKNOWN


@pytest.mark.feature("F136")
def test_after_the_end_everything_is_discarded() -> None:
    checkpoint = pending()
    checkpoint.stage = Stage.DISPOSED
    assert acknowledge(checkpoint, FIRST) is AcknowledgeResult.DISCARDED


def test_all_have_acknowledged_when_the_last_one_has() -> None:
    checkpoint = pending()
    for subtask in TWO.subtasks():
        assert not checkpoint.all_acknowledged
        acknowledge(checkpoint, subtask)
    assert checkpoint.all_acknowledged


@pytest.mark.feature("F137")
def test_state_is_found_by_operator_and_subtask() -> None:
    checkpoint = pending()
    acknowledge(checkpoint, SECOND, keyed_state("/b"))
    acknowledge(checkpoint, FIRST, keyed_state("/a"))
    acknowledge(checkpoint, SINK)
    (operator,) = checkpoint.metadata({}).operators
    assert operator.operator_id == SOURCE.operators[0].id
    assert list(operator.subtasks.items()) == [(0, keyed_state("/a")), (1, keyed_state("/b"))]
    assert (operator.name, operator.parallelism, operator.max_parallelism) == ("source", 2, 128)
    assert checkpoint.private_paths() == ("/b", "/a")


def test_an_operator_without_state_beside_one_with_state_is_listed() -> None:
    chained = OperatorInfo(OperatorId(b"map".ljust(16, b".")), "map", upstream=0)
    source = replace(SOURCE, operators=(*SOURCE.operators, chained))
    topology = Topology((source,), ())
    checkpoint = pending(topology)
    acknowledge(checkpoint, FIRST, keyed_state("/a"))
    acknowledge(checkpoint, SECOND)
    first, second = checkpoint.metadata({}).operators
    assert first.subtasks == {0: keyed_state("/a")}
    assert second.subtasks == {}


def test_operators_coordinators_are_asked_and_their_state_is_kept() -> None:
    checkpoint = pending(stage=Stage.LOCATION)
    operator = SOURCE.operators[0].id
    (asked,) = checkpoint.location_ready("/chk-4")
    assert asked.checkpoint == 4
    assert checkpoint.awaited_of(operator) == (execution(FIRST), execution(SECOND))
    checkpoint.coordinator_acknowledged(operator, b"splits")
    assert checkpoint.stage is Stage.HOOKS
    checkpoint.hooks_triggered((MasterState("hook", 1, b"x"),))
    metadata = checkpoint.metadata({"job": "flights"})
    state = metadata.operators[0].coordinator_state
    assert state is not None
    assert state.data == b"splits"
    assert [s.name for s in metadata.master_states] == ["hook", "tidegate"]
    assert checkpoint.written_bytes == len(b"splits")


def test_a_coordinator_that_was_not_asked_is_a_fault_of_our_own() -> None:
    with pytest.raises(AssertionError, match="nobody has asked"):
        pending().coordinator_acknowledged(SOURCE.operators[0].id, b"splits")


def test_hooks_wait_for_the_last_coordinator() -> None:
    topology = chain(vertex("left", 1, coordinator=True), vertex("right", 1, coordinator=True))
    checkpoint = pending(topology, stage=Stage.LOCATION)
    assert len(checkpoint.location_ready("/chk-4")) == 2
    left, right = (v.operators[0].id for v in topology.vertices)
    assert checkpoint.coordinator_acknowledged(left, b"l") == []
    assert len(checkpoint.coordinator_acknowledged(right, b"r")) == 1


def test_the_coordinator_of_a_vertex_that_has_finished_is_not_asked() -> None:
    checkpoint = pending(finished=(FIRST, SECOND), stage=Stage.LOCATION)
    checkpoint.location_ready("/chk-4")
    assert checkpoint.stage is Stage.HOOKS


def test_a_subtask_that_has_finished_is_marked() -> None:
    checkpoint = pending(finished=(FIRST,))
    acknowledge(checkpoint, SECOND, keyed_state("/b"))
    acknowledge(checkpoint, SINK)
    (operator,) = checkpoint.metadata({}).operators
    assert operator.subtasks == {0: FINISHED, 1: keyed_state("/b")}


def test_a_vertex_restored_as_finished_is_written_as_finished() -> None:
    checkpoint = pending()
    for subtask in (FIRST, SECOND):
        acknowledge(checkpoint, subtask, finished_on_restore=True)
    acknowledge(checkpoint, SINK)
    (operator,) = checkpoint.metadata({}).operators
    assert operator.fully_finished
    assert operator.subtasks == {}


def test_union_state_needs_all_subtasks_or_none() -> None:
    checkpoint = pending(finished=(FIRST,))
    acknowledge(checkpoint, SECOND, union_state())
    with pytest.raises(CheckpointAborted, match="1 of its 2 subtasks have finished") as raised:
        checkpoint.metadata({})
    assert raised.value.reason == "CHECKPOINT_DECLINED_TASK_CLOSING"


def test_union_state_is_incomplete_when_only_some_have_ended_their_operators() -> None:
    checkpoint = pending()
    acknowledge(checkpoint, FIRST, union_state(), finished_operators=True)
    acknowledge(checkpoint, SECOND, union_state())
    with pytest.raises(CheckpointAborted):
        checkpoint.metadata({})


def test_union_state_is_whole_when_all_have_ended_their_operators() -> None:
    checkpoint = pending()
    for subtask in (FIRST, SECOND):
        acknowledge(checkpoint, subtask, union_state(), finished_operators=True)
    assert checkpoint.metadata({}).operators[0].subtasks == {0: union_state(), 1: union_state()}


def test_other_state_of_a_partly_finished_vertex_is_fine() -> None:
    checkpoint = pending(finished=(FIRST,))
    acknowledge(checkpoint, SECOND, EMPTY)
    assert checkpoint.metadata({}).operators[0].subtasks == {0: FINISHED, 1: EMPTY}


def test_nothing_at_all_makes_an_empty_snapshot() -> None:
    checkpoint = pending(THREE)
    for subtask in THREE.subtasks():
        acknowledge(checkpoint, subtask)
    metadata = checkpoint.metadata({})
    assert metadata.operators == ()
    assert metadata.checkpoint_id == 4

"""Which completed checkpoints are kept: checkpoint coordination §10.3, §10.4."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkformat.handles import (
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    SegmentFileStateHandle,
    StateScope,
)
from flinkformat.key_groups import KeyGroupRange
from flinkformat.snapshots import (
    FINISHED,
    CheckpointProperties,
    OperatorState,
    RetentionPolicy,
    SavepointFormatType,
    SavepointType,
    SubtaskState,
)
from tests.checkpoint.world import keyed_state, restored_checkpoint
from tidegate.checkpoint.completed import CompletedCheckpoint, CompletedCheckpoints
from tidegate.checkpoint.coordinator.disposal import Disposal
from tidegate.checkpoint.coordinator.statistics import StatisticsTracker
from tidegate.checkpoint.registry import SharedStateRegistry
from tidegate.model.control import JobStatus
from tidegate.model.ids import CheckpointId, OperatorId

STOP = CheckpointProperties.for_savepoint(
    SavepointType.terminate(SavepointFormatType.CANONICAL), forced=True
)


def ids(checkpoints: tuple[CompletedCheckpoint, ...] | list[CompletedCheckpoint]) -> list[int]:
    return [c.checkpoint for c in checkpoints]


@pytest.mark.feature("F040")
def test_the_newest_are_kept() -> None:
    store = CompletedCheckpoints(2)
    assert store.latest is None
    assert store.latest_id is None
    subsumed = [ids(store.add(restored_checkpoint(number))) for number in range(1, 5)]
    assert subsumed == [[], [], [1], [2]]
    assert ids(store.retained) == [3, 4]
    assert store.latest_id == 4


def test_at_least_one_is_kept() -> None:
    store = CompletedCheckpoints(0)
    store.add(restored_checkpoint(1))
    assert ids(store.add(restored_checkpoint(2))) == [1]


def test_who_is_kept_is_known_before_the_checkpoint_is_added() -> None:
    store = CompletedCheckpoints(2, [restored_checkpoint(1), restored_checkpoint(2)])
    assert store.retained_with(restored_checkpoint(3)) == (2, 3)
    assert ids(store.retained) == [1, 2]


@pytest.mark.feature("F203")
def test_the_latest_is_the_last_that_was_added() -> None:
    store = CompletedCheckpoints(2, [restored_checkpoint(7)])
    store.add(restored_checkpoint(8))
    assert store.latest == restored_checkpoint(8)
    assert store.find(CheckpointId(7)) == restored_checkpoint(7)
    assert store.find(CheckpointId(6)) is None


def test_shared_files_are_measured_by_the_oldest_that_is_no_savepoint() -> None:
    store = CompletedCheckpoints(3)
    assert store.lowest_checkpoint is None
    store.add(restored_checkpoint(1, STOP))
    store.add(restored_checkpoint(2))
    assert store.lowest_checkpoint == 2


def test_the_savepoint_of_a_stop_makes_the_last_checkpoint_needless() -> None:
    store = CompletedCheckpoints(1, [restored_checkpoint(1)])
    assert ids(store.add(restored_checkpoint(2, STOP))) == [1]
    assert store.end(JobStatus.FINISHED) == []
    assert ids(store.retained) == [2]


@pytest.mark.feature("F050")
@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, {JobStatus.SUSPENDED}),
        (RetentionPolicy.DELETE_ON_CANCELLATION, {JobStatus.FAILED, JobStatus.SUSPENDED}),
        (
            RetentionPolicy.RETAIN_ON_CANCELLATION,
            {JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED},
        ),
    ],
)
@pytest.mark.parametrize(
    "status", [JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED]
)
def test_the_policy_says_what_outlives_a_job(
    policy: RetentionPolicy, kept: set[JobStatus], status: JobStatus
) -> None:
    completed = restored_checkpoint(1, CheckpointProperties.for_checkpoint(policy))
    store = CompletedCheckpoints(1)
    store.add(completed)
    assert store.end(status) == ([] if status in kept else [completed])
    assert ids(store.retained) == ([1] if status in kept else [])
    assert ids(store.dropped) == ([] if status in kept else [1])


@pytest.mark.parametrize("policy", RetentionPolicy)
@pytest.mark.parametrize("status", [JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED])
def test_what_a_job_started_from_is_kept_until_it_has_a_checkpoint_of_its_own(
    policy: RetentionPolicy, status: JobStatus
) -> None:
    properties = CheckpointProperties.for_checkpoint(policy)
    found = [restored_checkpoint(number, properties) for number in (6, 7)]
    store = CompletedCheckpoints(2, found)
    assert store.end(status) == [] and ids(store.retained) == [6, 7]
    store.add(restored_checkpoint(8, properties))
    assert bool(store.end(status)) == found[0].discarded_on(status)


def test_a_finished_job_drops_what_it_started_from() -> None:
    store = CompletedCheckpoints(2, [restored_checkpoint(7)])
    assert ids(store.end(JobStatus.FINISHED)) == [7]


def test_a_job_does_not_end_by_running() -> None:
    with pytest.raises(AssertionError):
        restored_checkpoint(1).discarded_on(JobStatus.RUNNING)


def test_the_private_files_of_a_checkpoint_are_those_of_its_subtasks() -> None:
    operator = OperatorState(
        operator_id=OperatorId(b"o" * 16),
        parallelism=3,
        max_parallelism=3,
        subtasks={0: keyed_state("/a"), 1: FINISHED, 2: keyed_state("/b")},
    )
    completed = restored_checkpoint(1)
    metadata = replace(completed.metadata, operators=(operator,))
    found = replace(completed, metadata=metadata)
    assert found.private_paths() == ("/a", "/b")
    assert found.paths().keys() == {"/a", "/b"}


def test_a_file_that_states_share_is_named_once_and_not_released_as_shared() -> None:
    def operator(letter: bytes, start: int) -> OperatorState:
        segment = SegmentFileStateHandle("/merged", start, 10, StateScope.EXCLUSIVE, f"l{start}")
        keyed = KeyGroupsStateHandle(KeyGroupRange(0, 0), (0,), segment, "k")
        state = SubtaskState(
            managed_keyed=keyed, managed_operator=OperatorStreamStateHandle({}, segment)
        )
        return OperatorState(
            operator_id=OperatorId(letter * 16),
            parallelism=1,
            max_parallelism=1,
            subtasks={0: state},
        )

    completed = restored_checkpoint(1)
    metadata = replace(completed.metadata, operators=(operator(b"a", 0), operator(b"b", 10)))
    found = replace(completed, metadata=metadata)
    assert found.private_paths() == ("/merged",)
    assert found.paths().keys() == {"/merged"}
    registry = SharedStateRegistry()
    ours = CheckpointProperties.for_checkpoint(RetentionPolicy.DELETE_ON_CANCELLATION)
    registry.register_restored(metadata, ours)
    assert len(registry) == 0


def test_what_is_given_up_can_be_taken_back_before_the_next_checkpoint() -> None:
    """Somebody may put the file back by then."""
    store = CompletedCheckpoints(3, [restored_checkpoint(number) for number in (1, 2, 3)])
    for damaged, older in ((3, 2), (2, 1)):
        given_up = store.give_up(CheckpointId(damaged))
        assert given_up is not None and given_up.checkpoint == older
    assert store.give_up(CheckpointId(1)) is None
    assert ids(store.retained) == [1]
    store.take_back()
    assert ids(store.retained) == [1, 2, 3]


@pytest.mark.parametrize("status", [JobStatus.SUSPENDED, JobStatus.CANCELED, JobStatus.FAILED])
def test_what_could_not_be_read_at_the_start_is_pointed_at_until_the_next_checkpoint(
    status: JobStatus,
) -> None:
    def kept(*, own: bool, status: JobStatus) -> set[CheckpointId]:
        found = [restored_checkpoint(1), restored_checkpoint(3)]
        damaged = [CheckpointId(2), CheckpointId(4)]
        completed = CompletedCheckpoints(3, found, damaged=damaged)
        if own:
            completed.add(restored_checkpoint(5))
        disposal = Disposal(completed, SharedStateRegistry(), StatisticsTracker(1))
        return set(disposal.end(status).retained)

    assert kept(own=False, status=status) == {1, 2, 3, 4}
    assert not kept(own=True, status=status) & {2, 4}
    assert not kept(own=False, status=JobStatus.FINISHED) & {2, 4}


def test_what_is_given_up_is_forgotten_with_the_next_checkpoint() -> None:
    store = CompletedCheckpoints(3, [restored_checkpoint(1), restored_checkpoint(2)])
    store.give_up(CheckpointId(2))
    store.add(restored_checkpoint(3))
    store.take_back()
    assert ids(store.retained) == [1, 3]

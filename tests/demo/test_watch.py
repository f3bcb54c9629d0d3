"""From views of a job to news."""

from dataclasses import replace

import pytest

from examples.demo.news import (
    AllRunning,
    CheckpointBegun,
    CheckpointCompleted,
    CheckpointFailed,
    Failure,
    JobRestored,
    Progress,
    SlotGone,
    SlotUp,
    StatusChanged,
)
from examples.demo.watch import JobWatch
from flinkformat.snapshots import CheckpointProperties, RetentionPolicy
from tests.demo.views import EMPTY
from tidegate.checkpoint.coordinator.statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    RestoredStatistics,
)
from tidegate.jobmaster.view import FailureView, JobView, SlotView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, JobStatus, SubtaskFigures
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, SnapshotKind
from tidegate.model.ids import CheckpointId, SlotId, VertexId

NOW_MS = 5_000


def checkpoint(number: int, status: CheckpointStatus) -> CheckpointStatistics:
    return CheckpointStatistics(
        checkpoint=CheckpointId(number),
        kind=SnapshotKind.CHECKPOINT,
        properties=CheckpointProperties.for_checkpoint(RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS),
        status=status,
        trigger_ms=4_000 + number,
        vertices=(),
        state_size=900,
        checkpointed_size=300,
        duration_ms=12,
        failure="expired" if status is CheckpointStatus.FAILED else None,
    )


def with_checkpoints(*newest_first: CheckpointStatistics) -> JobView:
    return replace(EMPTY, checkpoints=replace(EMPTY.checkpoints, history=newest_first))


def news_of(*views: JobView) -> list[object]:
    """What the last view tells after those before it."""
    watch = JobWatch()
    for view in views[:-1]:
        watch.look(view, NOW_MS)
    return list(watch.look(views[-1], NOW_MS))


def slot(name: str, pid: int) -> SlotView:
    return SlotView(SlotId(name), "here", pid, 0, 0)


def test_what_has_been_told_is_not_told_again() -> None:
    view = replace(
        with_checkpoints(checkpoint(1, CheckpointStatus.COMPLETED)), slots=(slot("a", 1),)
    )
    assert news_of(view) != []
    assert news_of(view, view) == []


def test_slots_come_and_go() -> None:
    before = replace(EMPTY, slots=(slot("a", 1), slot("b", 2)))
    after = replace(EMPTY, slots=(slot("b", 2), slot("c", 3)))
    assert news_of(before, after) == [SlotGone(NOW_MS, "a", 1), SlotUp(NOW_MS, "c", "here", 3)]


def test_a_status_carries_the_moment_at_which_it_was_entered() -> None:
    running = replace(EMPTY, status=JobStatus.RUNNING, timestamps_ms={JobStatus.RUNNING: 4_321})
    assert news_of(EMPTY, running) == [StatusChanged(4_321, "RUNNING")]


def test_a_restart_between_two_looks_is_told_as_running_again() -> None:
    running = replace(EMPTY, status=JobStatus.RUNNING, timestamps_ms={JobStatus.RUNNING: 1_000})
    again = replace(running, timestamps_ms={JobStatus.RUNNING: 2_000})
    assert news_of(running, again) == [StatusChanged(2_000, "RUNNING")]


def test_checkpoints_begin_and_end_in_their_order() -> None:
    before = with_checkpoints(checkpoint(1, CheckpointStatus.IN_PROGRESS))
    after = with_checkpoints(
        checkpoint(2, CheckpointStatus.FAILED), checkpoint(1, CheckpointStatus.COMPLETED)
    )
    assert news_of(EMPTY, before) == [CheckpointBegun(4_001, 1)]
    assert news_of(before, after) == [
        CheckpointCompleted(NOW_MS, 1, 12, 300, 900),
        CheckpointBegun(4_002, 2),
        CheckpointFailed(NOW_MS, 2, "expired"),
    ]


def test_each_restore_is_told_even_from_the_same_checkpoint() -> None:
    def restored(at_ms: int) -> JobView:
        latest = RestoredStatistics(CheckpointId(7), at_ms, False, None, 0)
        return replace(EMPTY, checkpoints=replace(EMPTY.checkpoints, latest_restored=latest))

    assert news_of(EMPTY, restored(1)) == [JobRestored(NOW_MS, 7)]
    assert news_of(restored(1), restored(2)) == [JobRestored(NOW_MS, 7)]


def test_failures_are_told_oldest_first() -> None:
    first, second = FailureView(1, "one", "", None), FailureView(2, "two", "map (1/2)", None)
    assert news_of(EMPTY, replace(EMPTY, failures=(second, first))) == [
        Failure(1, "one", ""),
        Failure(2, "two", "map (1/2)"),
    ]


def subtask(
    index: int,
    state: ExecutionState,
    running_ms: int = 0,
    rows: int = 0,
    watermark_ms: int | None = None,
) -> SubtaskView:
    entered = {ExecutionState.RUNNING: running_ms}
    figures = SubtaskFigures(rows_out=rows, watermark_ms=watermark_ms)
    return SubtaskView(index, 0, state, None, entered, figures)


def with_vertices(**vertices: list[SubtaskView]) -> JobView:
    return replace(
        EMPTY,
        vertices=tuple(
            VertexView(VertexId(name.encode().ljust(16)), name, len(subtasks), 128, tuple(subtasks))
            for name, subtasks in vertices.items()
        ),
    )


def test_all_run_when_the_last_subtask_does() -> None:
    running, other = ExecutionState.RUNNING, ExecutionState.INITIALIZING
    nearly = with_vertices(flights=[subtask(0, running, 7_000)], counts=[subtask(0, other)])
    whole = with_vertices(flights=[subtask(0, running, 7_000)], counts=[subtask(0, running, 7_009)])
    assert news_of(EMPTY, nearly) == []
    assert news_of(nearly, whole) == [AllRunning(7_009)]
    assert news_of(whole, whole) == []


def test_subtasks_that_had_finished_before_a_restore_do_not_keep_the_job_from_running() -> None:
    running, finished = ExecutionState.RUNNING, ExecutionState.FINISHED
    whole = with_vertices(flights=[subtask(0, finished)], counts=[subtask(0, running, 7_009)])
    over = with_vertices(flights=[subtask(0, finished)], counts=[subtask(0, finished, 7_009)])
    assert news_of(EMPTY, whole) == [AllRunning(7_009)]
    assert news_of(EMPTY, over) == []


def test_progress_is_what_the_first_source_has_emitted() -> None:
    deploying = ExecutionState.DEPLOYING
    view = with_vertices(
        flights=[subtask(0, deploying, rows=100), subtask(1, deploying, rows=120)],
        counts=[subtask(0, deploying, rows=90)],
    )
    assert news_of(EMPTY, view) == [Progress(NOW_MS, 220)]


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        ((None, 7_000, 8_000), 7_000),
        ((None, MIN_TIMESTAMP_MS, 8_000), None),
        ((None, 7_000, MAX_WATERMARK_MS), 7_000),
        ((None, MAX_WATERMARK_MS, MAX_WATERMARK_MS), None),
        ((None, None, None), None),
    ],
)
def test_event_time_has_come_as_far_as_the_last_of_the_subtasks(
    marks: tuple[int | None, ...], told: int | None
) -> None:
    running = ExecutionState.RUNNING
    subtasks = [subtask(i, running, rows=5, watermark_ms=ms) for i, ms in enumerate(marks)]
    progress = [news for news in news_of(EMPTY, with_vertices(job=subtasks)) if is_progress(news)]
    assert progress == [Progress(NOW_MS, 15, told)]


def is_progress(news: object) -> bool:
    return isinstance(news, Progress)

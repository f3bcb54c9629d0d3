"""Figures of checkpoints: checkpoint coordination §12.1."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from flinkformat.snapshots import SavepointFormatType
from tests.checkpoint.world import WALL_MS, World, keyed_state
from tidegate.checkpoint.coordinator import events, statistics
from tidegate.checkpoint.coordinator.statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    Counts,
)
from tidegate.model.control import CheckpointFigures
from tidegate.model.elements import SnapshotKind
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import CheckpointId, VertexId
from tidegate.model.settings import CheckpointSettings

EVERY_SECOND = CheckpointSettings(interval_ms=1_000, tolerable_failures=100)


def started(settings: CheckpointSettings = EVERY_SECOND, *, acknowledges: bool = False) -> World:
    world = World(settings, acknowledges=acknowledges)
    world.start()
    return world


def test_a_subtask_s_share_is_shown_in_full() -> None:
    world = started()
    source = world.subtask("source", 1)
    world.states = {source: keyed_state("/chk-1/a", size=500)}
    world.advance(0)
    world.now_ms = 40
    figures = CheckpointFigures(
        sync_ms=1,
        async_ms=2,
        alignment_ms=3,
        start_delay_ms=4,
        bytes_written=100,
        processed_bytes=6,
        persisted_bytes=7,
        unaligned=True,
    )
    world.acknowledge(1, source, figures=figures)
    (row,) = world.coordinator.statistics.history
    vertex = row.vertex(source.vertex)
    assert vertex is not None
    assert vertex.subtasks[0] is None
    (share,) = vertex.acknowledged
    assert (share.index, share.ack_ms, share.ack_delay_ms) == (1, WALL_MS + 40, 40)
    assert (share.sync_ms, share.async_ms, share.alignment_ms, share.start_delay_ms) == (1, 2, 3, 4)
    assert (share.state_size, share.checkpointed_size) == (500, 100)
    assert (share.processed_bytes, share.persisted_bytes, share.unaligned) == (6, 7, True)
    assert (row.latest_ack_ms, row.duration_ms, row.unaligned) == (WALL_MS + 40, 40, True)
    assert (row.acknowledged, row.subtasks) == (1, 6)
    assert vertex.latest_ack_ms == WALL_MS + 40
    assert vertex.total(lambda s: s.state_size) == 500
    assert row.vertex(VertexId(b"?" * 16)) is None


@pytest.mark.feature("F233")
def test_a_checkpoint_that_failed_keeps_the_shares_of_those_that_were_in_time() -> None:
    world = started(replace(EVERY_SECOND, timeout_ms=500))
    source, other = world.subtask("source", 0), world.subtask("source", 1)
    world.states = {source: keyed_state("/chk-1/a", size=500)}
    world.advance(0)
    world.now_ms = 40
    world.acknowledge(1, source, figures=CheckpointFigures(async_ms=30, bytes_written=100))
    (seen,) = world.coordinator.statistics.history
    assert (seen.status, seen.acknowledged) == (CheckpointStatus.IN_PROGRESS, 1)
    world.advance(600)
    failed = world.coordinator.statistics.latest_failed
    assert failed is not None and failed.reason is FailureReason.CHECKPOINT_EXPIRED
    assert (failed.acknowledged, failed.subtasks) == (1, 6)
    assert (failed.state_size, failed.checkpointed_size) == (500, 100)
    assert failed.vertices == seen.vertices
    share = failed.vertex(source.vertex)
    assert share is not None and share.subtasks[1] is None
    assert [(each.index, each.ack_delay_ms, each.async_ms) for each in share.acknowledged] == [
        (0, 40, 30)
    ]
    world.acknowledge(1, other)
    assert world.coordinator.statistics.find(CheckpointId(1)) == failed, "it came too late"


def test_a_vertex_sums_up_its_subtasks() -> None:
    world = started()
    world.advance(0)
    for index in range(3):
        figures = CheckpointFigures(sync_ms=10 * index)
        world.acknowledge(1, world.subtask("map", index), figures=figures)
    vertex = world.coordinator.statistics.history[0].vertices[1]
    spread = vertex.distribution(lambda s: s.sync_ms)
    assert (spread.count, spread.min, spread.max, spread.avg) == (3, 0, 20, 10)
    assert spread.percentiles is None


def test_before_the_first_report_a_vertex_is_empty() -> None:
    world = started()
    world.advance(0)
    vertex = world.coordinator.statistics.history[0].vertices[0]
    assert vertex.latest_ack_ms == -1
    assert vertex.distribution(lambda s: s.sync_ms).count == 0


def test_a_completed_checkpoint_says_where_it_is() -> None:
    world = started()
    world.advance(0)
    world.now_ms = 25
    world.acknowledge(1)
    final = world.coordinator.statistics.latest_completed
    assert final is not None
    assert final.status is CheckpointStatus.COMPLETED
    assert (final.pointer, final.metadata_size, final.duration_ms) == ("/chk-1", 100, 25)
    assert (final.trigger_ms, final.checkpointed_size) == (WALL_MS, 6)


def test_the_latest_of_each_kind_outlive_the_history() -> None:
    world = started(replace(EVERY_SECOND, history_max=1))
    world.advance(0)
    world.acknowledge(1)
    world.request(1, SnapshotKind.SAVEPOINT)
    world.acknowledge(2)
    world.advance(1_000)
    world.decline(3, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    world.send(events.Restored(CheckpointId(1), WALL_MS + 9))
    statistics = world.coordinator.statistics
    assert [row.checkpoint for row in statistics.history] == [3]
    latest = (
        statistics.latest_completed,
        statistics.latest_savepoint,
        statistics.latest_failed,
        statistics.latest_restored,
    )
    assert [one and one.checkpoint for one in latest] == [1, 2, 3, 1]
    assert statistics.find(CheckpointId(2)) == statistics.latest_savepoint
    assert statistics.find(CheckpointId(9)) is None


def test_counts_return_to_nothing_in_progress() -> None:
    world = started(replace(EVERY_SECOND, max_concurrent=3))
    world.advance(2_000)
    world.acknowledge(2)
    world.decline(3, world.subtask("map"), FailureReason.CHECKPOINT_DECLINED)
    assert world.coordinator.statistics.counts == Counts(
        restored=0, total=3, in_progress=0, completed=1, failed=2
    )


@pytest.mark.feature("F210")
def test_without_a_history_counts_are_kept() -> None:
    world = started(replace(EVERY_SECOND, history_max=0), acknowledges=True)
    world.advance(1_000)
    statistics = world.coordinator.statistics
    assert statistics.history == ()
    assert statistics.counts.completed == 2
    assert statistics.latest_completed is not None


@pytest.mark.feature("F232")
def test_percentiles_ascend() -> None:
    world = started()
    for checkpoint in range(1, 101):
        world.advance(1_000 if checkpoint > 1 else 0)
        world.now_ms += checkpoint
        world.acknowledge(checkpoint)
    spread = world.coordinator.statistics.summary.duration_ms
    assert spread.percentiles is not None
    values = [spread.percentiles[p] for p in (50.0, 90.0, 95.0, 99.0, 99.9)]
    assert values == sorted(values)
    assert values[-1] <= spread.max
    assert (spread.count, spread.min) == (100, 1)


def test_percentiles_lie_between_the_ranks() -> None:
    world = started()
    for checkpoint, duration_ms in enumerate((10, 20, 40), start=1):
        world.advance(1_000 - world.now_ms % 1_000 if checkpoint > 1 else 0)
        world.now_ms += duration_ms
        world.acknowledge(checkpoint)
    spread = world.coordinator.statistics.summary.duration_ms
    assert spread.percentiles == {50.0: 20.0, 90.0: 40.0, 95.0: 40.0, 99.0: 40.0, 99.9: 40.0}
    assert spread.avg == 23


def test_one_checkpoint_is_every_percentile() -> None:
    world = started()
    world.advance(0)
    world.acknowledge(1)
    percentiles = world.coordinator.statistics.summary.state_size.percentiles
    assert percentiles is not None
    assert set(percentiles.values()) == {0.0}


def test_the_summary_looks_back_on_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "SUMMARY_WINDOW", 2)
    world = started()
    for checkpoint in range(1, 5):
        world.advance(1_000 - world.now_ms % 1_000 if checkpoint > 1 else 0)
        world.now_ms += checkpoint
        world.acknowledge(checkpoint)
    spread = world.coordinator.statistics.summary.duration_ms
    assert (spread.count, spread.min, spread.max) == (2, 3, 4)


@pytest.mark.slow
def test_no_statistics_are_kept_for_the_summary_alone() -> None:
    """A job at a checkpoint a second completes 86,400 a day; five numbers of each are enough."""
    world = started(replace(EVERY_SECOND, history_max=2))

    def kept_at(last: int) -> int:
        for checkpoint in range(world.coordinator.statistics.counts.completed + 1, last + 1):
            world.advance(1_000 if checkpoint > 1 else 0)
            world.acknowledge(checkpoint)
        gc.collect()
        return sum(isinstance(each, CheckpointStatistics) for each in gc.get_objects())

    few = kept_at(20)
    assert kept_at(60) == few


def test_the_summary_of_nothing_is_empty() -> None:
    assert started().coordinator.statistics.summary.duration_ms.percentiles is None


@pytest.mark.feature("F076")
def test_each_kind_of_snapshot_is_shown_by_its_type() -> None:
    world = started(replace(EVERY_SECOND, unaligned=True))
    world.advance(0)
    world.acknowledge(1)
    world.advance(1_000)
    overtaken = CheckpointFigures(persisted_bytes=10, unaligned=True)
    world.acknowledge(2, figures=overtaken)
    for number, kind in enumerate((SnapshotKind.SAVEPOINT, SnapshotKind.SUSPEND), start=3):
        world.request(number, kind)
        world.acknowledge(number)
    types = [row.type.value for row in reversed(world.coordinator.statistics.history)]
    assert types == ["CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"]


@pytest.mark.feature("F231")
def test_type_and_format_are_right_for_canonical_native_and_full() -> None:
    world = started(CheckpointSettings())
    for number, asked in enumerate(
        (
            events.CheckpointRequested(1, SnapshotKind.SAVEPOINT, "/sp"),
            events.CheckpointRequested(
                2, SnapshotKind.SAVEPOINT, "/sp", format=SavepointFormatType.NATIVE
            ),
            events.CheckpointRequested(3, SnapshotKind.FULL_CHECKPOINT),
            events.CheckpointRequested(
                4, SnapshotKind.TERMINATE, "/sp", format=SavepointFormatType.NATIVE
            ),
        ),
        start=1,
    ):
        world.send(asked)
        world.acknowledge(number)
    rows = list(reversed(world.coordinator.statistics.history))
    assert [(row.type.value, row.savepoint_format) for row in rows] == [
        ("SAVEPOINT", SavepointFormatType.CANONICAL),
        ("SAVEPOINT", SavepointFormatType.NATIVE),
        ("CHECKPOINT", None),
        ("SYNC_SAVEPOINT", SavepointFormatType.NATIVE),
    ]
    assert [row.kind for row in rows][2] is SnapshotKind.FULL_CHECKPOINT


@pytest.mark.feature("F012")
def test_without_an_interval_nothing_is_taken_and_a_savepoint_can_be() -> None:
    world = started(CheckpointSettings())
    world.advance(1_000_000)
    assert world.coordinator.wake_at_ms is None and world.counts() == (0, 0, 0, 0)
    world.request(1, SnapshotKind.SAVEPOINT)
    world.acknowledge(1)
    assert world.counts() == (1, 0, 1, 0)
    latest = world.coordinator.statistics.latest_savepoint
    assert latest is not None and latest.pointer == "/sp/savepoint-1"

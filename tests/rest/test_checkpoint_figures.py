"""Each figure of a checkpoint is shown under its name, and under no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.checkpoint.failures import FailureReason
from tidegate.checkpoint.statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskStatistics,
    VertexStatistics,
)
from tidegate.model.elements import SnapshotKind
from tidegate.model.ids import CheckpointId, VertexId
from tidegate.model.settings import CheckpointSettings
from tidegate.model.snapshots import CheckpointProperties
from tidegate.rest.shapes import checkpoints

FIRST = SubtaskStatistics(
    index=0,
    ack_ms=1_011,
    ack_delay_ms=11,
    state_size=120,
    checkpointed_size=13,
    sync_ms=14,
    async_ms=15,
    processed_bytes=16,
    persisted_bytes=17,
    alignment_ms=18,
    start_delay_ms=19,
    unaligned=False,
)
SECOND = replace(FIRST, index=1, ack_ms=1_021, ack_delay_ms=21, state_size=220, checkpointed_size=3)
VERTEX = VertexStatistics(VertexId(b"v" * 16), (FIRST, SECOND, None))
RUNNING = CheckpointStatistics(
    checkpoint=CheckpointId(7),
    kind=SnapshotKind.CHECKPOINT,
    properties=CheckpointProperties.for_checkpoint(CheckpointSettings().retention),
    status=CheckpointStatus.IN_PROGRESS,
    trigger_ms=1_000,
    vertices=(VERTEX,),
    state_size=340,
    checkpointed_size=16,
    processed_bytes=32,
    persisted_bytes=34,
    subtasks=3,
    acknowledged=2,
    latest_ack_ms=1_021,
    duration_ms=21,
)
SHOWN = {
    "className": "in_progress",
    "id": 7,
    "status": "IN_PROGRESS",
    "is_savepoint": False,
    "savepointFormat": None,
    "trigger_timestamp": 1_000,
    "latest_ack_timestamp": 1_021,
    "checkpointed_size": 16,
    "state_size": 340,
    "end_to_end_duration": 21,
    "alignment_buffered": 0,
    "processed_data": 32,
    "persisted_data": 34,
    "num_subtasks": 3,
    "num_acknowledged_subtasks": 2,
    "checkpoint_type": "CHECKPOINT",
    "tasks": {},
}


def test_a_checkpoint_under_way_shows_what_has_come_so_far() -> None:
    assert checkpoints.checkpoint(RUNNING) == SHOWN


def test_a_completed_one_says_where_it_is_and_whether_it_was_deleted() -> None:
    completed = replace(
        RUNNING, status=CheckpointStatus.COMPLETED, pointer="/chk-7", discarded=True
    )
    more = {"className": "completed", "status": "COMPLETED", "external_path": "/chk-7"}
    assert checkpoints.checkpoint(completed) == SHOWN | more | {"discarded": True}


def test_a_failed_one_says_when_and_why() -> None:
    failed = replace(
        RUNNING,
        status=CheckpointStatus.FAILED,
        failed_ms=1_500,
        reason=FailureReason.CHECKPOINT_EXPIRED,
        failure="it took too long",
    )
    more = {"className": "failed", "status": "FAILED", "failure_timestamp": 1_500}
    assert checkpoints.checkpoint(failed) == SHOWN | more | {"failure_message": "it took too long"}


def test_a_vertex_shows_the_sums_of_its_subtasks_and_their_slowest() -> None:
    shown = checkpoints.checkpoint(RUNNING, tasks=True)["tasks"]
    assert shown == {
        VERTEX.vertex.hex(): {
            "id": 7,
            "status": "IN_PROGRESS",
            "latest_ack_timestamp": 1_021,
            "checkpointed_size": 16,
            "state_size": 340,
            "end_to_end_duration": 21,
            "alignment_buffered": 0,
            "processed_data": 32,
            "persisted_data": 34,
            "num_subtasks": 3,
            "num_acknowledged_subtasks": 2,
        }
    }


@pytest.mark.feature("F233")
def test_a_checkpoint_that_failed_shows_who_had_acknowledged_it() -> None:
    failed = replace(RUNNING, status=CheckpointStatus.FAILED, failed_ms=1_500, failure="over")
    page = checkpoints.subtasks(failed, VERTEX)
    assert (page["status"], page["num_subtasks"], page["num_acknowledged_subtasks"]) == (
        "FAILED",
        3,
        2,
    )
    shares = page["subtasks"]
    assert isinstance(shares, list)
    assert [(each["index"], each["status"], each.get("aborted")) for each in shares] == [
        (0, "completed", False),
        (1, "completed", False),
        (2, "pending_or_failed", None),
    ]


def test_the_spread_over_subtasks_is_of_the_figure_that_it_is_named_after() -> None:
    summary = checkpoints.subtasks(RUNNING, VERTEX)["summary"]
    assert isinstance(summary, dict)
    shown = {
        "checkpointed_size": (3, 13),
        "state_size": (120, 220),
        "end_to_end_duration": (11, 21),
    }
    for name, spread in shown.items():
        assert (summary[name]["min"], summary[name]["max"]) == spread
    assert summary["checkpoint_duration"]["sync"]["max"] == 14
    assert summary["checkpoint_duration"]["async"]["max"] == 15
    assert summary["alignment"]["processed"]["max"] == 16
    assert summary["alignment"]["persisted"]["max"] == 17
    assert summary["alignment"]["duration"]["max"] == 18

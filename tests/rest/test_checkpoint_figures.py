"""Each figure of a checkpoint is shown under its name, and under no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rest.world import DONE, FAILED, RUNNING, SAVED, SEEN, VERTEX
from tidegate.checkpoint.coordinator.statistics import PERCENTILES, CheckpointStatus
from tidegate.model.failure_reason import FailureReason
from tidegate.rest.shapes import checkpoint_shapes as checkpoints

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


def shown_spread(number: int) -> dict[str, float]:
    least = {"min": number + 1, "max": number + 3, "avg": number + 2}
    names = ("p50", "p90", "p95", "p99", "p999")
    return {
        **least,
        **{name: number + p for name, p in zip(names, PERCENTILES, strict=True)},
    }


def test_the_page_of_all_shows_counts_spreads_and_the_latest_of_each_kind() -> None:
    nothing = dict.fromkeys(shown_spread(0), 0)
    assert checkpoints.overview(SEEN) == {
        "counts": {"restored": 2, "total": 21, "in_progress": 1, "completed": 17, "failed": 3},
        "summary": {
            "checkpointed_size": shown_spread(100),
            "state_size": shown_spread(200),
            "end_to_end_duration": shown_spread(300),
            "alignment_buffered": nothing,
            "processed_data": shown_spread(400),
            "persisted_data": shown_spread(500),
        },
        "latest": {
            "completed": checkpoints.checkpoint(DONE),
            "savepoint": checkpoints.checkpoint(SAVED),
            "failed": checkpoints.checkpoint(FAILED),
            "restored": {
                "id": 3,
                "restore_timestamp": 1_234,
                "is_savepoint": True,
                "external_path": "/saved",
            },
        },
        "history": [checkpoints.checkpoint(RUNNING), checkpoints.checkpoint(DONE)],
    }


def test_a_savepoint_says_what_it_is() -> None:
    page = checkpoints.checkpoint(SAVED)
    assert (page["is_savepoint"], page["checkpoint_type"], page["savepointFormat"]) == (
        True,
        "SAVEPOINT",
        "NATIVE",
    )


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
    first, second, missing = page["subtasks"]  # type: ignore[misc]
    assert first == {
        "className": "completed",
        "index": 0,
        "ack_timestamp": 1_011,
        "end_to_end_duration": 11,
        "checkpointed_size": 13,
        "state_size": 120,
        "checkpoint": {"sync": 14, "async": 15},
        "alignment": {"buffered": 0, "processed": 16, "persisted": 17, "duration": 18},
        "start_delay": 19,
        "unaligned_checkpoint": False,
        "aborted": False,
        "status": "completed",
    }
    assert (second["index"], second["status"]) == (1, "completed")
    assert missing == {"className": "pending", "index": 2, "status": "pending_or_failed"}


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
    assert set(summary["alignment"]["buffered"].values()) == {0}
    assert summary["start_delay"]["max"] == 19

"""Each setting of checkpoints is shown under its name on the configuration page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flinkformat.snapshots import RetentionPolicy
from tidegate.model.settings import CheckpointingMode, CheckpointSettings, JobSettings
from tidegate.rest.shapes.checkpoint_shapes import DISABLED_MS, config

SETTINGS = CheckpointSettings(
    interval_ms=1_001, timeout_ms=2_002, min_pause_ms=303, max_concurrent=4, tolerable_failures=5
)


def shown(**changed: object) -> dict[str, object]:
    return config(JobSettings(checkpoints=replace(SETTINGS, **changed)))  # type: ignore[arg-type]


@pytest.mark.feature("F003", "F016", "F045", "F046")
@pytest.mark.parametrize(
    ("changed", "field", "value"),
    [
        ({}, "interval", 1_001),
        ({"interval_ms": None}, "interval", DISABLED_MS),
        ({}, "timeout", 2_002),
        ({}, "min_pause", 303),
        ({}, "max_concurrent", 4),
        ({}, "tolerable_failed_checkpoints", 5),
        ({"mode": CheckpointingMode.EXACTLY_ONCE}, "mode", "exactly_once"),
        ({"mode": CheckpointingMode.AT_LEAST_ONCE}, "mode", "at_least_once"),
        ({"state_backend": "hashmap"}, "state_backend", "HashMapStateBackend"),
        ({"state_backend": "rocksdb"}, "state_backend", "EmbeddedRocksDBStateBackend"),
        ({"storage": "jobmanager"}, "checkpoint_storage", "JobManagerCheckpointStorage"),
        ({"storage": "filesystem"}, "checkpoint_storage", "FileSystemCheckpointStorage"),
        ({"unaligned": True}, "unaligned_checkpoints", True),
        ({"unaligned": False}, "unaligned_checkpoints", False),
        ({"aligned_timeout_ms": 77}, "aligned_checkpoint_timeout", 77),
        ({"after_tasks_finish": True}, "checkpoints_after_tasks_finish", True),
        ({"after_tasks_finish": False}, "checkpoints_after_tasks_finish", False),
        (
            {"retention": RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS},
            "externalization",
            {"enabled": False, "delete_on_cancellation": True},
        ),
        (
            {"retention": RetentionPolicy.DELETE_ON_CANCELLATION},
            "externalization",
            {"enabled": True, "delete_on_cancellation": True},
        ),
        (
            {"retention": RetentionPolicy.RETAIN_ON_CANCELLATION},
            "externalization",
            {"enabled": True, "delete_on_cancellation": False},
        ),
    ],
)
def test_a_setting_is_shown(changed: dict[str, object], field: str, value: object) -> None:
    assert shown(**changed)[field] == value

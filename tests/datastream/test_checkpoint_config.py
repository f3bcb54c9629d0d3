from __future__ import annotations

import pytest

from flinkformat.snapshots import RetentionPolicy
from tidegate import CheckpointConfig, CheckpointingMode, ConfigError, Configuration, Duration
from tidegate.config import checkpointing
from tidegate.config.checkpointing import checkpoint_settings


def test_an_interval_that_is_too_short_turns_no_checkpoints_on() -> None:
    configuration = Configuration().set(checkpointing.CHECKPOINT_INTERVAL, 9)
    assert not CheckpointConfig(configuration).is_checkpointing_enabled()


def test_the_config_object_is_a_view_with_chained_setters() -> None:
    configuration = Configuration()
    checkpoints = CheckpointConfig(configuration)
    assert checkpoints.get_checkpoint_interval() == -1
    assert not checkpoints.is_checkpointing_enabled()
    returned = (
        checkpoints.set_checkpoint_interval(500)
        .set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        .set_checkpoint_timeout(1_000)
        .set_min_pause_between_checkpoints(20)
        .set_max_concurrent_checkpoints(2)
        .set_tolerable_checkpoint_failure_number(3)
        .set_externalized_checkpoint_retention(RetentionPolicy.RETAIN_ON_CANCELLATION)
        .enable_unaligned_checkpoints()
        .set_alignment_timeout(Duration.of_seconds(1))
        .set_force_unaligned_checkpoints()
    )
    assert returned is checkpoints
    assert checkpoints.is_checkpointing_enabled()
    assert checkpoints.get_checkpoint_interval() == 500
    assert checkpoints.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert checkpoints.get_checkpoint_timeout() == 1_000
    assert checkpoints.get_min_pause_between_checkpoints() == 20
    assert checkpoints.get_max_concurrent_checkpoints() == 2
    assert checkpoints.get_tolerable_checkpoint_failure_number() == 3
    assert not checkpoints.is_fail_on_checkpointing_errors()
    assert checkpoints.is_externalized_checkpoints_enabled()
    assert checkpoints.is_unaligned_checkpoints_enabled()
    assert checkpoints.get_alignment_timeout() == Duration.of_seconds(1)
    assert checkpoints.is_force_unaligned_checkpoints()
    assert not checkpoints.disable_unaligned_checkpoints().is_unaligned_checkpoints_enabled()
    assert checkpoints.set_fail_on_checkpointing_errors(True).is_fail_on_checkpointing_errors()
    checkpoints.set_fail_on_checkpointing_errors(False)
    assert checkpoints.get_tolerable_checkpoint_failure_number() == 2**31 - 1
    assert checkpoint_settings(configuration).retention is RetentionPolicy.RETAIN_ON_CANCELLATION


def test_an_interval_that_would_count_as_none_is_refused_in_code() -> None:
    with pytest.raises(ConfigError, match="below 10 ms"):
        CheckpointConfig(Configuration()).set_checkpoint_interval(0)

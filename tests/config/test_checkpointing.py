from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config import checkpointing, execution
from tidegate.config.checkpointing import checkpoint_settings
from tidegate.config.configuration import Configuration
from tidegate.errors import ConfigError
from tidegate.model.settings import CheckpointingMode, CheckpointSettings


def with_interval(interval: object = "1 s") -> Configuration:
    return Configuration().set(checkpointing.CHECKPOINT_INTERVAL, interval)


def test_without_an_interval_nothing_is_triggered_and_the_cheaper_mode_holds() -> None:
    settings = checkpoint_settings(Configuration())
    assert settings == CheckpointSettings(mode=CheckpointingMode.AT_LEAST_ONCE)
    assert not settings.periodic


@pytest.mark.parametrize("interval", [1, 5, "9 ms"])
def test_an_interval_below_ten_milliseconds_is_refused_and_zero_is_none(interval: object) -> None:
    with pytest.raises(ConfigError, match="which is below 10 ms") as caught:
        checkpoint_settings(with_interval(interval))
    assert "'10 s'" in caught.value.remedy
    assert checkpoint_settings(with_interval(0)).interval_ms is None
    assert checkpoint_settings(with_interval("10 ms")).interval_ms == 10


def test_flinks_interval_without_end_is_none() -> None:
    configuration = with_interval(2**63 - 1).set(
        checkpointing.CHECKPOINT_INTERVAL_DURING_BACKLOG, "9223372036854775807 ms"
    )
    settings = checkpoint_settings(configuration)
    assert settings.interval_ms is None and settings.interval_during_backlog_ms == 0
    assert settings.mode is CheckpointingMode.AT_LEAST_ONCE


def test_a_batch_job_takes_no_checkpoints() -> None:
    configuration = with_interval().set(execution.RUNTIME_MODE, "batch")
    assert checkpoint_settings(configuration).interval_ms is None


@pytest.mark.feature("F032")
def test_a_pause_of_more_than_a_year_counts_as_a_year() -> None:
    configuration = with_interval().set(checkpointing.CHECKPOINT_MIN_PAUSE, "3650 d")
    assert checkpoint_settings(configuration).min_pause_ms == 31_536_000_000


def test_files_are_merged_up_to_a_size_only_where_that_is_asked_for() -> None:
    configuration = with_interval().set(checkpointing.MERGED_FILE_SIZE, "1 mb")
    assert checkpoint_settings(configuration).merged_file_max_bytes is None
    configuration.set(checkpointing.FILE_MERGING, True)
    assert checkpoint_settings(configuration).merged_file_max_bytes == 1 << 20
    defaults = with_interval().set(checkpointing.FILE_MERGING, True)
    assert checkpoint_settings(defaults).merged_file_max_bytes == 32 << 20


@pytest.mark.feature("F033")
def test_the_interval_is_raised_to_the_pause() -> None:
    configuration = with_interval("100 ms").set(checkpointing.CHECKPOINT_MIN_PAUSE, "1000 ms")
    assert checkpoint_settings(configuration).interval_ms == 1_000


def test_unaligned_checkpoints_need_exactly_once() -> None:
    configuration = with_interval().set(checkpointing.UNALIGNED_CHECKPOINTS, True)
    assert checkpoint_settings(configuration).unaligned
    configuration.set(checkpointing.CHECKPOINT_MODE, "at-least-once")
    assert not checkpoint_settings(configuration).unaligned


def test_all_contradictions_are_told_at_once() -> None:
    configuration = with_interval("10 s")
    configuration.set(checkpointing.UNALIGNED_CHECKPOINTS, True)
    configuration.set(checkpointing.MAX_CONCURRENT_CHECKPOINTS, 2, where="conf.yaml, line 3")
    configuration.set(checkpointing.CHECKPOINT_INTERVAL_DURING_BACKLOG, "5 s")
    configuration.set(checkpointing.CHECKPOINT_STORAGE, "filesystem")
    with pytest.raises(ConfigError) as caught:
        checkpoint_settings(configuration)
    assert "maxConcurrentCheckpoints can't be > 1" in caught.value.what
    assert "must be larger than or equal to that in normal situation" in caught.value.what
    assert "no folder is set" in caught.value.what
    assert caught.value.where == "conf.yaml, line 3"
    assert "execution.checkpointing.dir" in caught.value.remedy


def test_sources_that_wait_for_a_checkpoint_need_periodic_ones() -> None:
    paused = Configuration.from_dict({"pipeline.sources.pause-until-first-checkpoint": "true"})
    with pytest.raises(ConfigError, match="no periodic one is taken") as caught:
        checkpoint_settings(paused)
    assert "execution.checkpointing.interval" in caught.value.remedy
    paused.set(checkpointing.CHECKPOINT_INTERVAL, "1 s")
    assert checkpoint_settings(paused).pause_sources


def test_a_backlog_interval_of_nought_takes_none_meanwhile() -> None:
    configuration = with_interval().set(checkpointing.CHECKPOINT_INTERVAL_DURING_BACKLOG, "5 ms")
    assert checkpoint_settings(configuration).interval_during_backlog_ms == 0
    configuration.set(checkpointing.CHECKPOINT_INTERVAL_DURING_BACKLOG, "1 min")
    assert checkpoint_settings(configuration).interval_during_backlog_ms == 60_000


def test_the_storage_follows_from_the_folder_unless_it_is_set() -> None:
    assert checkpoint_settings(with_interval()).storage == "jobmanager"
    configuration = with_interval().set(checkpointing.CHECKPOINT_DIRECTORY, "/c")
    assert checkpoint_settings(configuration).storage == "filesystem"
    assert checkpoint_settings(configuration).directory == "/c"
    configuration.set(checkpointing.CHECKPOINT_STORAGE, "JobManager")
    assert checkpoint_settings(configuration).storage == "jobmanager"


def test_a_relative_folder_is_that_of_the_program_for_all_its_processes() -> None:
    configuration = with_interval().set(checkpointing.CHECKPOINT_DIRECTORY, "checkpoints")
    assert checkpoint_settings(configuration).directory == str(Path.cwd() / "checkpoints")
    configuration.set(checkpointing.CHECKPOINT_DIRECTORY, "s3://bucket/checkpoints")
    assert checkpoint_settings(configuration).directory == "s3://bucket/checkpoints"


def test_no_checkpoint_retained_counts_as_the_default() -> None:
    configuration = with_interval().set(checkpointing.RETAINED_CHECKPOINTS, 0)
    assert checkpoint_settings(configuration).retained_max == 2
    configuration.set(checkpointing.RETAINED_CHECKPOINTS, 3)
    assert checkpoint_settings(configuration).retained_max == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.checkpointing.timeout", "9 ms"),
        ("execution.checkpointing.min-pause", -1),
        ("execution.checkpointing.max-concurrent-checkpoints", 0),
        ("execution.checkpointing.tolerable-failed-checkpoints", -1),
        ("execution.checkpointing.data-inline-threshold", "2 mb"),
    ],
)
def test_what_flink_rejects_is_rejected_when_it_is_set(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        Configuration().set(key, value)

"""PyFlink's restart strategies, state backends and checkpoint storages say what options say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidegate import (
    CheckpointConfig,
    ConfigError,
    Configuration,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    RestartStrategies,
    StreamExecutionEnvironment,
)
from tidegate.config.load import read_dynamic
from tidegate.config.settings import job_settings
from tidegate.model.settings import ExponentialDelay, FailureRate, FixedDelay, NoRestart

if TYPE_CHECKING:
    from tidegate import RestartStrategyConfiguration, StateBackend
    from tidegate.model.settings import RestartSettings

CHECKPOINTED = {"execution.checkpointing.interval": "1 s"}


@pytest.mark.parametrize(
    ("strategy", "meant"),
    [
        (RestartStrategies.no_restart(), NoRestart()),
        (RestartStrategies.fixed_delay_restart(3, 500), FixedDelay(3, 500)),
        (RestartStrategies.failure_rate_restart(2, 60_000, 500), FailureRate(2, 60_000, 500)),
        (RestartStrategies.fall_back_restart(), ExponentialDelay()),
    ],
)
def test_a_restart_strategy_is_what_the_job_has(
    strategy: RestartStrategyConfiguration, meant: RestartSettings
) -> None:
    configuration = Configuration.from_dict(CHECKPOINTED).set("restart-strategy.type", "none")
    strategy.apply_to(configuration)
    assert job_settings(configuration).restart == meant


@pytest.mark.parametrize(
    "strategy",
    [
        RestartStrategies.fixed_delay_restart(-1, 0),
        RestartStrategies.fixed_delay_restart(1, -1),
        RestartStrategies.failure_rate_restart(0, 1, 1),
    ],
)
def test_a_number_out_of_bounds_is_refused_by_its_option(
    strategy: RestartStrategyConfiguration,
) -> None:
    with pytest.raises(ConfigError, match="restart-strategy"):
        strategy.apply_to(Configuration())


def on_paths() -> EmbeddedRocksDBStateBackend:
    backend = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=False)
    backend.set_db_storage_paths("/mnt/fast", "/mnt/faster")
    return backend


@pytest.mark.parametrize(
    ("backend", "kind", "incremental", "folders"),
    [
        (HashMapStateBackend(), "hashmap", False, ()),
        (EmbeddedRocksDBStateBackend(), "rocksdb", True, ()),
        (on_paths(), "rocksdb", False, ("/mnt/fast", "/mnt/faster")),
    ],
)
def test_a_state_backend_is_what_the_job_has(
    backend: StateBackend, kind: str, incremental: bool, folders: tuple[str, ...]
) -> None:
    configuration = Configuration()
    backend.apply_to(configuration)
    settings = job_settings(configuration)
    assert settings.checkpoints.state_backend == kind
    files = settings.slot.state_files
    assert (files.incremental, files.folders) == (incremental, folders)


def test_state_in_memory_is_incremental_where_that_is_said() -> None:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.incremental", "true")
    assert job_settings(configuration).slot.state_files.incremental


def test_an_environment_takes_them() -> None:
    env = StreamExecutionEnvironment.local()
    assert env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 500)) is env
    assert env.set_state_backend(HashMapStateBackend()) is env
    settings = job_settings(env.get_configuration())
    assert settings.restart == FixedDelay(3, 500)
    assert settings.checkpoints.state_backend == "hashmap"


def test_what_a_rocksdb_backend_was_told_can_be_asked_for() -> None:
    assert EmbeddedRocksDBStateBackend().is_incremental_checkpoints_enabled()
    assert EmbeddedRocksDBStateBackend().get_db_storage_paths() == []
    assert on_paths().get_db_storage_paths() == ["/mnt/fast", "/mnt/faster"]
    assert not on_paths().is_incremental_checkpoints_enabled()


def test_a_checkpoint_storage_is_what_the_job_has() -> None:
    configuration = Configuration()
    config = CheckpointConfig(configuration)
    storage = FileSystemCheckpointStorage(
        "s3://bucket/chk/", 1_024, savepoint_path="s3://bucket/save"
    )
    assert config.set_checkpoint_storage(storage) is config
    settings = job_settings(configuration).checkpoints
    assert (settings.storage, settings.directory) == ("filesystem", "s3://bucket/chk")
    assert settings.inline_threshold_bytes == storage.get_min_file_size_threshold() == 1_024
    assert settings.savepoint_directory == storage.get_savepoint_path() == "s3://bucket/save"
    config.set_checkpoint_storage_dir("s3://bucket/other")
    assert job_settings(configuration).checkpoints.directory == "s3://bucket/other"
    config.set_checkpoint_storage(JobManagerCheckpointStorage())
    assert job_settings(configuration).checkpoints.storage == "jobmanager"


def test_a_folder_of_checkpoints_is_told_without_a_slash() -> None:
    assert (
        FileSystemCheckpointStorage("file:///tmp/chk//").get_checkpoint_path() == "file:///tmp/chk"
    )
    storage = FileSystemCheckpointStorage("/")
    assert storage.get_checkpoint_path() == "/"
    assert storage.get_savepoint_path() is None
    assert storage.get_min_file_size_threshold() == 20 * 1_024


@pytest.mark.feature("F256")
@pytest.mark.parametrize("backend", ["forst", "jobmanager", "filesystem", "my.own.Factory"])
def test_a_state_backend_that_is_not_offered_is_refused_with_those_that_are(backend: str) -> None:
    with pytest.raises(ConfigError, match=f"state.backend.type is '{backend}'") as refused:
        Configuration().set("state.backend.type", backend)
    assert refused.value.remedy == "Write 'hashmap' or 'rocksdb'."
    with pytest.raises(ConfigError, match=f"'{backend}'") as refused:
        read_dynamic([f"state.backend.type={backend}"])
    assert "'hashmap' or 'rocksdb'" in str(refused.value)

"""PyFlink's state backends, checkpoint storages and restart strategies, as values that set options.

A backend holds the state of a running job, a storage its snapshots; any goes with any."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from flinkformat.frozen import frozen
from tidegate.config import checkpointing, recovery, state_backend

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.config.option import ConfigOption
    from tidegate.config.spans import Span


class StateBackend(Protocol):
    """Where a running job keeps its keyed state."""

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options that say the same."""
        ...


@frozen
class HashMapStateBackend:
    """State in the memory of the slots."""

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options that say the same."""
        configuration.set(state_backend.STATE_BACKEND, "hashmap")


class PredefinedOptions(Enum):
    """Flink's sets of options for RocksDB; kept, without effect."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend:
    """State on the local disks of the slots, for more than fits into memory.

    enable_incremental_checkpointing: whether a checkpoint uploads only what is new since the one
    before; None leaves it to the configuration.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        self._incremental = enable_incremental_checkpointing
        self._paths: tuple[str, ...] = ()
        self._predefined = PredefinedOptions.DEFAULT
        self._transfer_threads: int | None = None

    def __repr__(self) -> str:
        return f"EmbeddedRocksDBStateBackend({self._incremental})"

    def is_incremental_checkpoints_enabled(self) -> bool:
        """True if only new data are uploaded, which is the default."""
        return self._incremental is not False

    def set_db_storage_paths(self, *paths: str) -> None:
        """The local folders for the files of each worker, of which its operators take turns."""
        self._paths = paths

    def get_db_storage_paths(self) -> list[str]:
        """The local folders for the files; empty if the slots choose."""
        return list(self._paths)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Keeps them, without effect: `state.backend.rocksdb.` has options for memory and files."""
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        """The options that were set."""
        return self._predefined

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """The threads of a slot that read and write the files of snapshots."""
        self._transfer_threads = number_of_transfering_threads

    def get_number_of_transfer_threads(self) -> int:
        """The number that was set, else the default."""
        if self._transfer_threads is None:
            return state_backend.TRANSFER_THREADS.default
        return self._transfer_threads

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options that say the same."""
        configuration.set(state_backend.STATE_BACKEND, "rocksdb")
        if self._transfer_threads is not None:
            configuration.set(state_backend.TRANSFER_THREADS, self._transfer_threads)
        if self._incremental is not None:
            configuration.set(state_backend.INCREMENTAL, self._incremental)
        if self._paths:
            configuration.set(state_backend.LOCAL_DIRECTORIES, ",".join(self._paths))


class CheckpointStorage(Protocol):
    """Where snapshots are kept."""

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options that say the same. Raises ConfigError."""
        ...


@frozen
class JobManagerCheckpointStorage:
    """Snapshots in the memory of the driver, for small state and for tests.

    checkpoint_path: kept, as is max_state_size; a driver holds whatever it is sent.
    """

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = 5 * 1024 * 1024

    checkpoint_path: str | None = None
    max_state_size: int = DEFAULT_MAX_STATE_SIZE

    def get_checkpoint_path(self) -> str | None:
        """The folder that was given."""
        return self.checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """None: savepoints have a folder of their own, `execution.checkpointing.savepoint-dir`."""
        return None

    def get_max_state_size(self) -> int:
        """The bytes that were given, else 5 MiB."""
        return self.max_state_size

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options that say the same."""
        configuration.set(checkpointing.CHECKPOINT_STORAGE, "jobmanager")


class FileSystemCheckpointStorage:
    """Snapshots in a folder that the driver and all slots reach.

    checkpoint_path: its path or URL. file_state_size_threshold: bytes below which state stands in
    the metadata; None for the default. write_buffer_size: kept; files are written as parts of
    `tidegate.snapshot.part-size`.
    """

    MAX_FILE_STATE_THRESHOLD: Final = 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        *,
        savepoint_path: str | None = None,
    ) -> None:
        self._checkpoint_path = checkpoint_path.rstrip("/") or checkpoint_path
        self._threshold = file_state_size_threshold
        self._write_buffer_size = write_buffer_size
        self._savepoint_path = savepoint_path

    def __repr__(self) -> str:
        return f"FileSystemCheckpointStorage({self._checkpoint_path!r})"

    def get_write_buffer_size(self) -> int:
        """The bytes that were given, else Flink's default."""
        return 4096 if self._write_buffer_size is None else self._write_buffer_size

    def get_checkpoint_path(self) -> str:
        """The folder, without a slash at its end."""
        return self._checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """The folder of savepoints that are asked for without one."""
        return self._savepoint_path

    def get_min_file_size_threshold(self) -> int:
        """Bytes below which state stands in the metadata."""
        return (
            checkpointing.INLINE_THRESHOLD.default if self._threshold is None else self._threshold
        )

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options that say the same. Raises ConfigError for a threshold out of bounds."""
        configuration.set(checkpointing.CHECKPOINT_STORAGE, "filesystem")
        configuration.set(checkpointing.CHECKPOINT_DIRECTORY, self._checkpoint_path)
        if self._threshold is not None:
            configuration.set(checkpointing.INLINE_THRESHOLD, self._threshold)
        if self._savepoint_path is not None:
            configuration.set(checkpointing.SAVEPOINT_DIRECTORY, self._savepoint_path)


@frozen
class RestartStrategyConfiguration:
    """A restart strategy with its numbers, by option. kind: None leaves it to the configuration."""

    kind: str | None
    numbers: tuple[tuple[ConfigOption[object], Span], ...] = ()

    def apply_to(self, configuration: Configuration) -> None:
        """Set the options that say the same. Raises ConfigError for a number out of bounds."""
        for option, number in self.numbers:
            configuration.set(option, number)
        if self.kind is None:
            configuration.unset(recovery.RESTART_STRATEGY)
        else:
            configuration.set(recovery.RESTART_STRATEGY, self.kind)


class RestartStrategies:
    """The strategies, for ``StreamExecutionEnvironment.set_restart_strategy``.

    >>> env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1_000))
    """

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """The first failure fails the job."""
        return RestartStrategyConfiguration("disable")

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: Span
    ) -> RestartStrategyConfiguration:
        """A limited number of restarts, each after a wait; a number is milliseconds."""
        attempts = recovery.FIXED_DELAY_ATTEMPTS, restart_attempts
        delay = recovery.FIXED_DELAY, delay_between_attempts
        return RestartStrategyConfiguration("fixed-delay", (attempts, delay))

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: Span, delay_interval: Span
    ) -> RestartStrategyConfiguration:
        """Restarts, each after a wait, while no more failures fall into an interval."""
        numbers = (
            (recovery.FAILURE_RATE_MAX, failure_rate),
            (recovery.FAILURE_RATE_INTERVAL, failure_interval),
            (recovery.FAILURE_RATE_DELAY, delay_interval),
        )
        return RestartStrategyConfiguration("failure-rate", numbers)

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """The configuration's strategy, else the default."""
        return RestartStrategyConfiguration(None)

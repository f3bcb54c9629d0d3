"""PyFlink's ``CheckpointConfig`` and ``ExecutionConfig``: views of a configuration, by topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flinkformat.snapshots import RetentionPolicy
from tidegate.config import checkpointing, execution, slots
from tidegate.config.checkpointing import INTERVAL_MIN_MS, is_periodic
from tidegate.config.option import ConfigOption
from tidegate.config.spans import millis_of
from tidegate.config.values import DurationType, TextType
from tidegate.datastream.settings.strategies import FileSystemCheckpointStorage
from tidegate.errors import ConfigError, Guiding
from tidegate.model.duration import Duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.config.configuration import Configuration
    from tidegate.config.spans import Span
    from tidegate.datastream.settings.strategies import CheckpointStorage
    from tidegate.model.settings import CheckpointingMode

_ALL_FAILURES_TOLERATED: Final = 2**31 - 1


class CheckpointConfig(Guiding):
    """The checkpointing part of a configuration; changing it changes the job.

    Setters return the object itself. All numbers of time are milliseconds.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __repr__(self) -> str:
        if not self.is_checkpointing_enabled():
            return "<CheckpointConfig: no checkpoints>"
        mode = self.get_checkpointing_mode().name
        return f"<CheckpointConfig: every {self.get_checkpoint_interval()} ms, {mode}>"

    def is_checkpointing_enabled(self) -> bool:
        """True if checkpoints are taken periodically."""
        return is_periodic(self.get_checkpoint_interval())

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Guarantee of checkpoints; exactly-once unless set."""
        return self._configuration.get(checkpointing.CHECKPOINT_MODE)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Sets the guarantee; at-least-once never blocks a channel."""
        return self._set(checkpointing.CHECKPOINT_MODE, checkpointing_mode)

    def get_checkpoint_interval(self) -> int:
        """Time between two checkpoints; -1 where none are taken."""
        interval_ms = self._configuration.get(checkpointing.CHECKPOINT_INTERVAL)
        return -1 if interval_ms is None else interval_ms

    def set_checkpoint_interval(self, checkpoint_interval: Span) -> CheckpointConfig:
        """Sets the time between two checkpoints. Raises ConfigError below 10 ms.

        checkpoint_interval: milliseconds, or a span such as ``timedelta(seconds=1)`` or ``"1 s"``.
        """
        interval_ms = millis_of(checkpoint_interval, where="checkpoint interval")
        if interval_ms < INTERVAL_MIN_MS:
            raise ConfigError(
                checkpointing.interval_fault(interval_ms), remedy=checkpointing.INTERVAL_REMEDY
            )
        return self._set(checkpointing.CHECKPOINT_INTERVAL, interval_ms)

    def get_checkpoint_timeout(self) -> int:
        """Time after which a checkpoint is aborted."""
        return self._configuration.get(checkpointing.CHECKPOINT_TIMEOUT)

    def set_checkpoint_timeout(self, checkpoint_timeout: Span) -> CheckpointConfig:
        """Sets the time after which a checkpoint is aborted; at least 10 ms."""
        return self._set(checkpointing.CHECKPOINT_TIMEOUT, checkpoint_timeout)

    def get_min_pause_between_checkpoints(self) -> int:
        """Least time from the end of a checkpoint to the next."""
        return self._configuration.get(checkpointing.CHECKPOINT_MIN_PAUSE)

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: Span
    ) -> CheckpointConfig:
        """Sets the least time from the end of a checkpoint to the next."""
        return self._set(checkpointing.CHECKPOINT_MIN_PAUSE, min_pause_between_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """Maximum number of checkpoints in progress."""
        return self._configuration.get(checkpointing.MAX_CONCURRENT_CHECKPOINTS)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Sets the maximum number of checkpoints in progress."""
        return self._set(checkpointing.MAX_CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """True if the first failed checkpoint restarts the job."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> CheckpointConfig:
        """Old form of the tolerable number: none, or all."""
        tolerated = 0 if fail_on_checkpointing_errors else _ALL_FAILURES_TOLERATED
        return self.set_tolerable_checkpoint_failure_number(tolerated)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Number of consecutive failed checkpoints that the job survives."""
        return self._configuration.get(checkpointing.TOLERABLE_FAILED_CHECKPOINTS)

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Sets the number of consecutive failed checkpoints that the job survives."""
        return self._set(
            checkpointing.TOLERABLE_FAILED_CHECKPOINTS, tolerable_checkpoint_failure_number
        )

    def set_externalized_checkpoint_retention(
        self, retention_mode: RetentionPolicy
    ) -> CheckpointConfig:
        """Sets which checkpoints are kept when the job ends."""
        return self._set(checkpointing.CHECKPOINT_RETENTION, retention_mode)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """True if any checkpoint may be kept when the job ends."""
        kept = self.get_externalized_checkpoint_retention()
        return kept is not RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS

    def get_externalized_checkpoint_retention(self) -> RetentionPolicy:
        """Checkpoints that are kept when the job ends."""
        return self._configuration.get(checkpointing.CHECKPOINT_RETENTION)

    def set_checkpoint_storage(self, storage: CheckpointStorage | str) -> CheckpointConfig:
        """Sets where checkpoints are kept; a text is the path or URL of a folder.

        >>> config.set_checkpoint_storage(FileSystemCheckpointStorage("s3://bucket/checkpoints"))
        """
        made = FileSystemCheckpointStorage(storage) if isinstance(storage, str) else storage
        made.apply_to(self._configuration)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Sets the folder where checkpoints are kept, a path or URL."""
        return self.set_checkpoint_storage(checkpoint_path)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """True if barriers overtake batches in flight."""
        return self._configuration.get(checkpointing.UNALIGNED_CHECKPOINTS)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Lets barriers overtake batches in flight; results do not differ."""
        return self._set(checkpointing.UNALIGNED_CHECKPOINTS, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Returns to aligned barriers."""
        return self.enable_unaligned_checkpoints(False)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Span) -> CheckpointConfig:
        """Sets the time after which an aligned checkpoint turns unaligned."""
        return self._set(checkpointing.ALIGNED_CHECKPOINT_TIMEOUT, alignment_timeout)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Time after which an aligned checkpoint turns unaligned."""
        return Duration.of_millis(self._configuration.get(checkpointing.ALIGNED_CHECKPOINT_TIMEOUT))

    def set_alignment_timeout(self, alignment_timeout: Span) -> CheckpointConfig:
        """Older name of ``set_aligned_checkpoint_timeout``."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Older name of ``get_aligned_checkpoint_timeout``."""
        return self.get_aligned_checkpoint_timeout()

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """Allows unaligned checkpoints where they are refused."""
        return self._set(checkpointing.FORCE_UNALIGNED_CHECKPOINTS, force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        """True if unaligned checkpoints are allowed where they are refused."""
        return self._configuration.get(checkpointing.FORCE_UNALIGNED_CHECKPOINTS)

    def _set(self, option: ConfigOption[object], value: object) -> CheckpointConfig:
        self._configuration.set(option, value)
        return self


_LATENCY_INTERVAL: Final = ConfigOption("metrics.latency.interval", DurationType(), 0, "")
# Flink's defaults, which programs for PyFlink expect to read; unset, slots keep to shorter ones.
_CANCELLATION_INTERVAL: Final = replace(slots.CANCELLATION_INTERVAL, default=30_000)
_CANCELLATION_TIMEOUT: Final = replace(slots.CANCELLATION_TIMEOUT, default=180_000)
_CLOSURE_CLEANER: Final = ConfigOption(
    "pipeline.closure-cleaner-level", TextType(), "RECURSIVE", ""
)


class ExecutionConfig(Guiding):
    """Settings of the whole job; changing them changes the job. Equal by content.

    Setters return the object itself. Settings of the JVM, such as its closure cleaner, are kept and
    have no effect.
    """

    PARALLELISM_DEFAULT: Final = -1
    PARALLELISM_UNKNOWN: Final = -2

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __repr__(self) -> str:
        return f"ExecutionConfig({self._configuration})"

    def get_parallelism(self) -> int:
        """Parallelism of operators that are made from now on and set none."""
        return self._configuration.get(execution.PARALLELISM)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Sets the parallelism of operators that are made from now on."""
        return self._set(execution.PARALLELISM, parallelism)

    def get_max_parallelism(self) -> int:
        """Number of key groups; -1 where it is derived from the parallelism."""
        return self._configuration.get(execution.MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Sets the number of key groups, the upper bound of any later parallelism."""
        return self._set(execution.MAX_PARALLELISM, max_parallelism)

    def get_auto_watermark_interval(self) -> int:
        """Milliseconds between two periodic watermarks."""
        return self._configuration.get(execution.AUTO_WATERMARK_INTERVAL)

    def set_auto_watermark_interval(self, interval: Span) -> ExecutionConfig:
        """Sets the time between two periodic watermarks; 0 emits none, a number is milliseconds."""
        return self._set(execution.AUTO_WATERMARK_INTERVAL, interval)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Passes values of mutable types on without a copy."""
        return self._set(execution.OBJECT_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Copies values of mutable types when they are emitted."""
        return self._set(execution.OBJECT_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        """True if values of mutable types are passed on without a copy."""
        return self._configuration.get(execution.OBJECT_REUSE)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Compresses keyed and operator state where it is written."""
        return self._set(checkpointing.SNAPSHOT_COMPRESSION, use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """True if keyed and operator state is compressed in snapshots."""
        return self._configuration.get(checkpointing.SNAPSHOT_COMPRESSION)

    def set_latency_tracking_interval(self, interval: Span) -> ExecutionConfig:
        """Keeps the milliseconds between two latency markers, of which none are sent."""
        return self._set(_LATENCY_INTERVAL, interval)

    def get_latency_tracking_interval(self) -> int:
        """The interval that was set, else 0."""
        return self._configuration.get(_LATENCY_INTERVAL)

    def set_task_cancellation_interval(self, interval: Span) -> ExecutionConfig:
        """Sets the time between two attempts to interrupt a cancelled task; a number is ms."""
        return self._set(_CANCELLATION_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        """Milliseconds that were set, else Flink's 30 s."""
        return self._configuration.get(_CANCELLATION_INTERVAL)

    def set_task_cancellation_timeout(self, timeout: Span) -> ExecutionConfig:
        """Sets the time after which a task that does not end is given up; a number is ms."""
        return self._set(_CANCELLATION_TIMEOUT, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """Milliseconds that were set, else Flink's 180 s."""
        return self._configuration.get(_CANCELLATION_TIMEOUT)

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Has no effect; the setting is kept."""
        return self._set(_CLOSURE_CLEANER, "RECURSIVE")

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Has no effect; the setting is kept."""
        return self._set(_CLOSURE_CLEANER, "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """The setting that was kept, else True."""
        return self._configuration.get(_CLOSURE_CLEANER) != "NONE"

    def get_global_job_parameters(self) -> dict[str, str]:
        """Free parameters that functions read through their runtime context."""
        return dict(self._configuration.get(execution.GLOBAL_JOB_PARAMETERS) or {})

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, object]
    ) -> ExecutionConfig:
        """Sets the free parameters; values become text."""
        texts = {key: str(value) for key, value in global_job_parameters_dict.items()}
        return self._set(execution.GLOBAL_JOB_PARAMETERS, texts)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Derives ids for operators without a uid."""
        return self._set(execution.AUTO_GENERATE_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuses operators without a uid at execute."""
        return self._set(execution.AUTO_GENERATE_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """True if ids are derived for operators without a uid."""
        return self._configuration.get(execution.AUTO_GENERATE_UIDS)

    def _set(self, option: ConfigOption[object], value: object) -> ExecutionConfig:
        self._configuration.set(option, value)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    def __hash__(self) -> int:
        return hash(self._configuration)

"""PyFlink's ``CheckpointConfig``: how a job is checkpointed, over a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.snapshots import RetentionPolicy
from tidegate.config import checkpointing
from tidegate.config.checkpointing import INTERVAL_MIN_MS
from tidegate.config.spans import millis_of
from tidegate.datastream.settings.state_backends import FileSystemCheckpointStorage
from tidegate.errors import ConfigError
from tidegate.model.duration import Duration

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.config.option import ConfigOption
    from tidegate.config.spans import Span
    from tidegate.datastream.settings.state_backends import CheckpointStorage
    from tidegate.model.settings import CheckpointingMode

_ALL_FAILURES_TOLERATED: Final = 2**31 - 1


class CheckpointConfig:
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
        return self.get_checkpoint_interval() > 0

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
                f"The checkpoint interval is {interval_ms} ms, which is below {INTERVAL_MIN_MS} ms",
                remedy="Give more, such as '10 s' or 10_000 milliseconds, or leave checkpointing "
                "off by setting no interval.",
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

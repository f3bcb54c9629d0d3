"""PyFlink's ``ExecutionConfig``: a view of the part of a configuration that is about execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.config import checkpointing, execution
from tidegate.config.option import ConfigOption
from tidegate.config.values import DurationType, TextType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.config.configuration import Configuration
    from tidegate.config.spans import Span


_LATENCY_INTERVAL: Final = ConfigOption("metrics.latency.interval", DurationType(), 0, "")
_CANCELLATION_INTERVAL: Final = ConfigOption(
    "task.cancellation.interval", DurationType(), 30_000, ""
)
_CANCELLATION_TIMEOUT: Final = ConfigOption(
    "task.cancellation.timeout", DurationType(), 180_000, ""
)
_CLOSURE_CLEANER: Final = ConfigOption(
    "pipeline.closure-cleaner-level", TextType(), "RECURSIVE", ""
)


class ExecutionConfig:
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
        """Keeps the milliseconds between two attempts to interrupt a task; here none is."""
        return self._set(_CANCELLATION_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        """The interval that was set, else 30 s."""
        return self._configuration.get(_CANCELLATION_INTERVAL)

    def set_task_cancellation_timeout(self, timeout: Span) -> ExecutionConfig:
        """Keeps the milliseconds after which a task that does not end would be given up."""
        return self._set(_CANCELLATION_TIMEOUT, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """The timeout that was set, else 180 s."""
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

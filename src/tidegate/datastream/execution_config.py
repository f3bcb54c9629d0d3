"""PyFlink's ``ExecutionConfig``: a view of the part of a configuration that is about execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.config import options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.config.configuration import Configuration
    from tidegate.config.option import ConfigOption


class ExecutionConfig:
    """Settings of the whole job; changing them changes the job. Equal by content.

    Setters return the object itself.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def get_parallelism(self) -> int:
        """Parallelism of operators that are made from now on and set none."""
        return self._configuration.get(options.PARALLELISM)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Sets the parallelism of operators that are made from now on."""
        return self._set(options.PARALLELISM, parallelism)

    def get_max_parallelism(self) -> int:
        """Number of key groups; -1 where it is derived from the parallelism."""
        return self._configuration.get(options.MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Sets the number of key groups, the upper bound of any later parallelism."""
        return self._set(options.MAX_PARALLELISM, max_parallelism)

    def get_auto_watermark_interval(self) -> int:
        """Milliseconds between two periodic watermarks."""
        return self._configuration.get(options.AUTO_WATERMARK_INTERVAL)

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Sets the milliseconds between two periodic watermarks; 0 emits none."""
        return self._set(options.AUTO_WATERMARK_INTERVAL, interval)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Passes values of mutable types on without a copy."""
        return self._set(options.OBJECT_REUSE, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Copies values of mutable types when they are emitted."""
        return self._set(options.OBJECT_REUSE, False)

    def is_object_reuse_enabled(self) -> bool:
        """Whether values of mutable types are passed on without a copy."""
        return self._configuration.get(options.OBJECT_REUSE)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Compresses keyed and operator state where it is written."""
        return self._set(options.SNAPSHOT_COMPRESSION, use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """Whether keyed and operator state is compressed where it is written."""
        return self._configuration.get(options.SNAPSHOT_COMPRESSION)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Free parameters that functions read through their runtime context."""
        return dict(self._configuration.get(options.GLOBAL_JOB_PARAMETERS) or {})

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, object]
    ) -> ExecutionConfig:
        """Sets them; values become text."""
        texts = {key: str(value) for key, value in global_job_parameters_dict.items()}
        return self._set(options.GLOBAL_JOB_PARAMETERS, texts)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Derives ids for operators without a uid."""
        return self._set(options.AUTO_GENERATE_UIDS, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuses operators without a uid at execute."""
        return self._set(options.AUTO_GENERATE_UIDS, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Whether ids are derived for operators without a uid."""
        return self._configuration.get(options.AUTO_GENERATE_UIDS)

    def _set(self, option: ConfigOption[object], value: object) -> ExecutionConfig:
        self._configuration.set(option, value)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    def __hash__(self) -> int:
        return hash(self._configuration)

"""How a job is checkpointed: the settings that travel with its graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.config import options
from tidegate.config.options import RuntimeExecutionMode
from tidegate.config.security import SNAPSHOTS_KEY
from tidegate.errors import ConfigError
from tidegate.model.settings import CheckpointingMode, CheckpointSettings

if TYPE_CHECKING:
    from tidegate.config.configuration import Configuration
    from tidegate.config.option import ConfigOption

INTERVAL_MIN_MS: Final = 10
"""A shorter interval counts as none; Flink's ``MINIMAL_CHECKPOINT_TIME``."""

MIN_PAUSE_MAX_MS: Final = 365 * 24 * 3600 * 1000
"""A longer pause counts as this; one year."""


def checkpoint_settings(configuration: Configuration) -> CheckpointSettings:
    """The settings that travel with a job graph, by the rules of Flink's translation.

    A short interval counts as none, a pause of more than a year as a year, and the interval is
    raised to the pause. Without periodic checkpoints the mode is at-least-once, the cheaper one.
    Raises ConfigError, with all faults at once, for what contradicts itself.
    """
    interval_ms = _interval_ms(configuration)
    min_pause_ms = min(configuration.get(options.CHECKPOINT_MIN_PAUSE), MIN_PAUSE_MAX_MS)
    mode = configuration.get(options.CHECKPOINT_MODE)
    if interval_ms is None:
        mode = CheckpointingMode.AT_LEAST_ONCE
    retained = configuration.get(options.RETAINED_CHECKPOINTS)
    settings = CheckpointSettings(
        interval_ms=interval_ms,
        timeout_ms=configuration.get(options.CHECKPOINT_TIMEOUT),
        min_pause_ms=min_pause_ms,
        max_concurrent=configuration.get(options.MAX_CONCURRENT_CHECKPOINTS),
        tolerable_failures=configuration.get(options.TOLERABLE_FAILED_CHECKPOINTS),
        mode=mode,
        unaligned=mode is CheckpointingMode.EXACTLY_ONCE
        and configuration.get(options.UNALIGNED_CHECKPOINTS),
        aligned_timeout_ms=configuration.get(options.ALIGNED_CHECKPOINT_TIMEOUT),
        during_recovery=configuration.get(options.CHECKPOINTS_DURING_RECOVERY),
        subtasks_a_channel_state_file=configuration.get(options.SUBTASKS_PER_CHANNEL_STATE_FILE),
        retention=configuration.get(options.CHECKPOINT_RETENTION),
        retained_max=retained if retained > 0 else options.RETAINED_CHECKPOINTS.default,
        after_tasks_finish=configuration.get(options.CHECKPOINTS_AFTER_TASKS_FINISH),
        interval_during_backlog_ms=_backlog_ms(configuration),
        storage=_storage(configuration),
        directory=_folder(configuration, options.CHECKPOINT_DIRECTORY),
        savepoint_directory=_folder(configuration, options.SAVEPOINT_DIRECTORY),
        inline_threshold_bytes=configuration.get(options.INLINE_THRESHOLD),
        merged_file_max_bytes=configuration.get(options.MERGED_FILE_SIZE)
        if configuration.get(options.FILE_MERGING)
        else None,
        key_file=_folder(configuration, SNAPSHOTS_KEY),
        snapshot_compression=configuration.get(options.SNAPSHOT_COMPRESSION),
        state_backend=configuration.get(options.STATE_BACKEND),
        history_max=configuration.get(options.CHECKPOINT_HISTORY),
        pause_sources=configuration.get(options.PAUSE_SOURCES_UNTIL_FIRST_CHECKPOINT),
    )
    _refuse_contradictions(settings, configuration)
    if interval_ms is not None and interval_ms < min_pause_ms:
        return replace(settings, interval_ms=min_pause_ms)
    return settings


def _interval_ms(configuration: Configuration) -> int | None:
    interval_ms = configuration.get(options.CHECKPOINT_INTERVAL)
    if configuration.get(options.RUNTIME_MODE) is RuntimeExecutionMode.BATCH:
        return None
    return None if interval_ms is None or interval_ms < INTERVAL_MIN_MS else interval_ms


def _backlog_ms(configuration: Configuration) -> int | None:
    backlog_ms = configuration.get(options.CHECKPOINT_INTERVAL_DURING_BACKLOG)
    return 0 if backlog_ms is not None and backlog_ms < INTERVAL_MIN_MS else backlog_ms


def _storage(configuration: Configuration) -> str:
    given = configuration.get(options.CHECKPOINT_STORAGE)
    if given is not None:
        return given
    return "filesystem" if _folder(configuration, options.CHECKPOINT_DIRECTORY) else "jobmanager"


def _folder(configuration: Configuration, option: ConfigOption[str | None]) -> str | None:
    """The folder as every process of the job sees it: a relative path is taken from here."""
    text = (configuration.get(option) or "").strip()
    if not text:
        return None
    return text if ":" in text else str(Path(text).absolute())


def _refuse_contradictions(settings: CheckpointSettings, configuration: Configuration) -> None:
    faults: list[tuple[str, ConfigOption[object], str]] = []
    if settings.unaligned and settings.max_concurrent > 1:
        faults.append(
            (
                "maxConcurrentCheckpoints can't be > 1 if UnalignedCheckpoints enabled",
                options.MAX_CONCURRENT_CHECKPOINTS,
                f"Set {options.MAX_CONCURRENT_CHECKPOINTS.key} to 1.",
            )
        )
    backlog_ms, interval_ms = settings.interval_during_backlog_ms, settings.interval_ms
    if backlog_ms and interval_ms is not None and backlog_ms < interval_ms:
        faults.append(
            (
                "Checkpoint interval during backlog must be larger than or equal to that in "
                f"normal situation ({backlog_ms} ms against {interval_ms} ms)",
                options.CHECKPOINT_INTERVAL_DURING_BACKLOG,
                f"Set {options.CHECKPOINT_INTERVAL_DURING_BACKLOG.key} to 0 or to at least "
                "the interval.",
            )
        )
    if settings.pause_sources and not settings.periodic:
        faults.append(
            (
                "Sources shall wait for the first checkpoint, but none is ever taken by itself",
                options.PAUSE_SOURCES_UNTIL_FIRST_CHECKPOINT,
                f"Set {options.CHECKPOINT_INTERVAL.key}, or switch the pause off.",
            )
        )
    if settings.storage == "filesystem" and settings.directory is None:
        faults.append(
            (
                "Checkpoints shall be kept in the file system, but there is no folder for them",
                options.CHECKPOINT_STORAGE,
                f"Set {options.CHECKPOINT_DIRECTORY.key}.",
            )
        )
    if faults:
        places = {configuration.where_set(option) for _, option, _ in faults} - {""}
        raise ConfigError(
            "; ".join(what for what, _, _ in faults),
            where=", ".join(sorted(places)),
            remedy=" ".join(remedy for _, _, remedy in faults),
        )

"""Checkpoints, when they are taken and where they are kept: their options and settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from flinkformat.snapshots import RetentionPolicy
from tidegate.config import execution, state_backend
from tidegate.config.execution import RuntimeExecutionMode
from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import (
    BooleanType,
    ChoiceType,
    DurationType,
    EnumType,
    IntegerType,
    MemoryType,
    TextType,
)
from tidegate.errors import ConfigError
from tidegate.model.settings import CheckpointingMode, CheckpointSettings

INTERVAL_MIN_MS: Final = 10
"""A shorter interval is refused, and 0 is none; Flink's ``MINIMAL_CHECKPOINT_TIME``."""
_NEVER_MS: Final = 2**63 - 1
"""Flink's interval of a job without periodic checkpoints, Java's Long.MAX_VALUE."""
INTERVAL_REMEDY: Final = (
    "Give more, such as '10 s' or 10_000 milliseconds, or leave checkpointing off by setting no "
    "interval."
)
MIN_PAUSE_MAX_MS: Final = 365 * 24 * 3600 * 1000
"""A longer pause counts as this; one year."""

_TEXT: Final = TextType()
_BOOLEAN: Final = BooleanType()
_DURATION: Final = DurationType()
_COUNT: Final = IntegerType(at_least=0)
_POSITIVE: Final = IntegerType(at_least=1)
_MINUTE_MS: Final = 60_000
_KIB: Final = 1024

CHECKPOINT_INTERVAL: Final[ConfigOption[int | None]] = ConfigOption(
    "execution.checkpointing.interval",
    _DURATION,
    None,
    "Time between two periodic checkpoints; unset, 0 or Flink's Long.MAX_VALUE, none are taken. "
    "From 1 to 9 ms it is refused. A value below the minimum pause is raised to it.",
)
CHECKPOINT_MODE: Final = ConfigOption(
    "execution.checkpointing.mode",
    EnumType(CheckpointingMode),
    CheckpointingMode.EXACTLY_ONCE,
    "Guarantee of checkpoints; at-least-once never blocks a channel.",
)
CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.timeout",
    DurationType(at_least_ms=10),
    10 * _MINUTE_MS,
    "A checkpoint that takes longer is aborted.",
)
CHECKPOINT_MIN_PAUSE: Final = ConfigOption(
    "execution.checkpointing.min-pause",
    _DURATION,
    0,
    "Minimum time from the end of one checkpoint to the start of the next periodic one; capped at "
    "a year.",
)
MAX_CONCURRENT_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.max-concurrent-checkpoints",
    _POSITIVE,
    1,
    "Maximum number of checkpoints in progress; 1 with unaligned checkpoints.",
)
TOLERABLE_FAILED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    _COUNT,
    0,
    "Number of consecutive failed checkpoints that the job survives without a restart.",
)
CHECKPOINT_INTERVAL_DURING_BACKLOG: Final[ConfigOption[int | None]] = ConfigOption(
    "execution.checkpointing.interval-during-backlog",
    _DURATION,
    None,
    "Interval while a source reports a backlog; 0 takes no checkpoints then, unset keeps the "
    "interval.",
)
CHECKPOINT_RETENTION: Final = ConfigOption(
    "execution.checkpointing.externalized-checkpoint-retention",
    EnumType(RetentionPolicy),
    RetentionPolicy.RETAIN_ON_CANCELLATION,
    "Checkpoints that are kept when the job is cancelled or fails; those of a finished job are "
    "deleted.",
    differs=(
        "Flink keeps none, and its documentation tells everybody to change that. Driver and job "
        "are one here, so somebody will probably want to resume a cancelled or failed job."
    ),
)
RETAINED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.num-retained",
    IntegerType(),
    2,
    "Number of completed checkpoints to keep; a value below 1 means the default.",
    old_keys=("state.checkpoints.num-retained",),
    differs="Flink keeps one. A second one helps if a file of the newest is damaged.",
)
CHECKPOINTS_AFTER_TASKS_FINISH: Final = ConfigOption(
    "execution.checkpointing.checkpoints-after-tasks-finish",
    _BOOLEAN,
    True,
    "Continue to take checkpoints after some tasks have finished; tasks wait for a last one. Where "
    "a source is bounded, false is refused beside sinks that commit with checkpoints, and beside "
    "execute_and_collect.",
    old_keys=("execution.checkpointing.checkpoints-after-tasks-finish.enabled",),
)
UNALIGNED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.unaligned.enabled",
    _BOOLEAN,
    False,
    "Let barriers overtake batches in flight, which become part of the checkpoint; needs "
    "exactly-once and one checkpoint at a time.",
    old_keys=("execution.checkpointing.unaligned",),
)
ALIGNED_CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.aligned-checkpoint-timeout",
    _DURATION,
    0,
    "With unaligned checkpoints: start aligned, and switch to unaligned after this time; 0 "
    "switches at once.",
    old_keys=("execution.checkpointing.alignment-timeout",),
)
PAUSE_SOURCES_UNTIL_FIRST_CHECKPOINT: Final = ConfigOption(
    "pipeline.sources.pause-until-first-checkpoint",
    _BOOLEAN,
    False,
    "Pause sources until the first checkpoint after each start and restart is complete; it is "
    "triggered early.",
)
FORCE_UNALIGNED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.unaligned.forced",
    _BOOLEAN,
    False,
    "Allow unaligned checkpoints where they are refused, such as with custom partitioners.",
)
CHECKPOINTS_DURING_RECOVERY: Final = ConfigOption(
    "execution.checkpointing.during-recovery.enabled",
    _BOOLEAN,
    True,
    "Take checkpoints while restored in-flight data are still being read.",
    differs=(
        "In Flink it is experimental. Here such data are saved again like any others; without it, "
        "a job under backpressure has no new checkpoint until they are read."
    ),
)
SUBTASKS_PER_CHANNEL_STATE_FILE: Final = ConfigOption(
    "execution.checkpointing.unaligned.max-subtasks-per-channel-state-file",
    IntegerType(1),
    5,
    "Number of subtasks of one slot that share a file of in-flight data; 1 gives each its own "
    "file.",
)
LAST_CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "tidegate.interrupt.checkpoint-timeout",
    _DURATION,
    10_000,
    "Time that Ctrl-C and SIGTERM wait for a last checkpoint before the job is suspended.",
)
CHECKPOINT_STORAGE: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.checkpointing.storage",
    ChoiceType(("jobmanager", "filesystem")),
    None,
    "Where checkpoints are kept; by default, in the file system if a directory is set, else in "
    "the driver's memory.",
    old_keys=("state.checkpoint-storage",),
)
CHECKPOINT_DIRECTORY: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.checkpointing.dir",
    _TEXT,
    None,
    "Folder of checkpoints: a path or URL that the driver and all slots can reach.",
    old_keys=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
SAVEPOINT_DIRECTORY: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.checkpointing.savepoint-dir",
    _TEXT,
    None,
    "Folder of savepoints that are requested without a folder.",
    old_keys=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
)
INLINE_THRESHOLD: Final = ConfigOption(
    "execution.checkpointing.data-inline-threshold",
    MemoryType(at_most=_KIB * _KIB),
    20 * _KIB,
    "State smaller than this is stored in the metadata file.",
    old_keys=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
)
FILE_MERGING: Final = ConfigOption(
    "execution.checkpointing.file-merging.enabled",
    _BOOLEAN,
    False,
    "Write all states of a subtask in a checkpoint to one file instead of a file each. Does not "
    "apply to savepoints, which can be moved.",
)
MERGED_FILE_SIZE: Final = ConfigOption(
    "execution.checkpointing.file-merging.max-file-size",
    MemoryType(),
    32 * _KIB * _KIB,
    "Size at which a merged file is full; later states go to another file.",
)
SNAPSHOT_COMPRESSION: Final = ConfigOption(
    "execution.checkpointing.snapshot-compression",
    _BOOLEAN,
    False,
    "Compress keyed and operator state in snapshots, except for files of state on disk, which "
    "have a compression of their own. Compressed and uncompressed snapshots are restored under "
    "either setting.",
)
SNAPSHOTS_KEY: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.security.snapshots.key-file",
    TextType(),
    None,
    "File on the driver's machine with a key of at least 16 characters that signs checkpoints and "
    "savepoints (HMAC-SHA256). If set, no snapshot without this signature is restored. Only its "
    "owner may have access to it.",
)
CHECKPOINT_HISTORY: Final = ConfigOption(
    "web.checkpoints.history",
    _COUNT,
    10,
    "Number of checkpoints in the statistics.",
    old_keys=("jobmanager.web.checkpoints.history",),
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    CHECKPOINT_INTERVAL,
    CHECKPOINT_MODE,
    CHECKPOINT_TIMEOUT,
    CHECKPOINT_MIN_PAUSE,
    MAX_CONCURRENT_CHECKPOINTS,
    TOLERABLE_FAILED_CHECKPOINTS,
    CHECKPOINT_INTERVAL_DURING_BACKLOG,
    CHECKPOINT_RETENTION,
    RETAINED_CHECKPOINTS,
    CHECKPOINTS_AFTER_TASKS_FINISH,
    UNALIGNED_CHECKPOINTS,
    ALIGNED_CHECKPOINT_TIMEOUT,
    PAUSE_SOURCES_UNTIL_FIRST_CHECKPOINT,
    FORCE_UNALIGNED_CHECKPOINTS,
    CHECKPOINTS_DURING_RECOVERY,
    SUBTASKS_PER_CHANNEL_STATE_FILE,
    LAST_CHECKPOINT_TIMEOUT,
    CHECKPOINT_STORAGE,
    CHECKPOINT_DIRECTORY,
    SAVEPOINT_DIRECTORY,
    INLINE_THRESHOLD,
    FILE_MERGING,
    MERGED_FILE_SIZE,
    SNAPSHOT_COMPRESSION,
    SNAPSHOTS_KEY,
    CHECKPOINT_HISTORY,
)


def checkpoint_settings(configuration: ReadableConfig) -> CheckpointSettings:
    """The settings that travel with a job graph, by the rules of Flink's translation.

    A short interval counts as none, a pause of more than a year as a year, and the interval is
    raised to the pause. Without periodic checkpoints the mode is at-least-once, the cheaper one.
    Raises ConfigError, with all faults at once, for what contradicts itself.
    """
    interval_ms = _interval_ms(configuration)
    min_pause_ms = min(configuration.get(CHECKPOINT_MIN_PAUSE), MIN_PAUSE_MAX_MS)
    mode = configuration.get(CHECKPOINT_MODE)
    if interval_ms is None:
        mode = CheckpointingMode.AT_LEAST_ONCE
    retained = configuration.get(RETAINED_CHECKPOINTS)
    settings = CheckpointSettings(
        interval_ms=interval_ms,
        timeout_ms=configuration.get(CHECKPOINT_TIMEOUT),
        min_pause_ms=min_pause_ms,
        max_concurrent=configuration.get(MAX_CONCURRENT_CHECKPOINTS),
        tolerable_failures=configuration.get(TOLERABLE_FAILED_CHECKPOINTS),
        mode=mode,
        unaligned=mode is CheckpointingMode.EXACTLY_ONCE
        and configuration.get(UNALIGNED_CHECKPOINTS),
        aligned_timeout_ms=configuration.get(ALIGNED_CHECKPOINT_TIMEOUT),
        during_recovery=configuration.get(CHECKPOINTS_DURING_RECOVERY),
        subtasks_a_channel_state_file=configuration.get(SUBTASKS_PER_CHANNEL_STATE_FILE),
        retention=configuration.get(CHECKPOINT_RETENTION),
        retained_max=retained if retained > 0 else RETAINED_CHECKPOINTS.default,
        after_tasks_finish=configuration.get(CHECKPOINTS_AFTER_TASKS_FINISH),
        interval_during_backlog_ms=_backlog_ms(configuration),
        storage=_storage(configuration),
        directory=_folder(configuration, CHECKPOINT_DIRECTORY),
        savepoint_directory=_folder(configuration, SAVEPOINT_DIRECTORY),
        inline_threshold_bytes=configuration.get(INLINE_THRESHOLD),
        merged_file_max_bytes=configuration.get(MERGED_FILE_SIZE)
        if configuration.get(FILE_MERGING)
        else None,
        key_file=_folder(configuration, SNAPSHOTS_KEY),
        snapshot_compression=configuration.get(SNAPSHOT_COMPRESSION),
        state_backend=configuration.get(state_backend.STATE_BACKEND),
        history_max=configuration.get(CHECKPOINT_HISTORY),
        pause_sources=configuration.get(PAUSE_SOURCES_UNTIL_FIRST_CHECKPOINT),
    )
    _refuse_contradictions(settings, configuration)
    if interval_ms is not None and interval_ms < min_pause_ms:
        return replace(settings, interval_ms=min_pause_ms)
    return settings


def interval_fault(interval_ms: int) -> str:
    """Says of an interval that it is too short."""
    return f"The checkpoint interval is {interval_ms} ms, which is below {INTERVAL_MIN_MS} ms"


def is_periodic(interval_ms: int) -> bool:
    """True if checkpoints are taken at this interval, as in Flink."""
    return INTERVAL_MIN_MS <= interval_ms < _NEVER_MS


def _interval_ms(configuration: ReadableConfig) -> int | None:
    interval_ms = configuration.get(CHECKPOINT_INTERVAL)
    if configuration.get(execution.RUNTIME_MODE) is RuntimeExecutionMode.BATCH:
        return None
    return interval_ms if interval_ms is not None and is_periodic(interval_ms) else None


def _backlog_ms(configuration: ReadableConfig) -> int | None:
    backlog_ms = configuration.get(CHECKPOINT_INTERVAL_DURING_BACKLOG)
    return 0 if backlog_ms is not None and not is_periodic(backlog_ms) else backlog_ms


def _storage(configuration: ReadableConfig) -> str:
    given = configuration.get(CHECKPOINT_STORAGE)
    if given is not None:
        return given
    return "filesystem" if _folder(configuration, CHECKPOINT_DIRECTORY) else "jobmanager"


def _folder(configuration: ReadableConfig, option: ConfigOption[str | None]) -> str | None:
    """Makes a relative path absolute, so that every process of the job sees the same folder."""
    text = (configuration.get(option) or "").strip()
    if not text:
        return None
    return text if ":" in text else str(Path(text).absolute())


def _refuse_contradictions(settings: CheckpointSettings, configuration: ReadableConfig) -> None:
    faults: list[tuple[str, ConfigOption[object], str]] = []
    if settings.unaligned and settings.max_concurrent > 1:
        faults.append(
            (
                "maxConcurrentCheckpoints can't be > 1 if UnalignedCheckpoints enabled",
                MAX_CONCURRENT_CHECKPOINTS,
                f"Set {MAX_CONCURRENT_CHECKPOINTS.key} to 1.",
            )
        )
    given_ms = configuration.get(CHECKPOINT_INTERVAL)
    if given_ms is not None and 0 < given_ms < INTERVAL_MIN_MS:
        faults.append((interval_fault(given_ms), CHECKPOINT_INTERVAL, INTERVAL_REMEDY))
    backlog_ms, interval_ms = settings.interval_during_backlog_ms, settings.interval_ms
    if backlog_ms and interval_ms is not None and backlog_ms < interval_ms:
        faults.append(
            (
                "Checkpoint interval during backlog must be larger than or equal to that in "
                f"normal situation ({backlog_ms} ms against {interval_ms} ms)",
                CHECKPOINT_INTERVAL_DURING_BACKLOG,
                f"Set {CHECKPOINT_INTERVAL_DURING_BACKLOG.key} to 0 or to at least the interval.",
            )
        )
    if settings.pause_sources and not settings.periodic:
        faults.append(
            (
                "Sources are set to wait for the first checkpoint, but no periodic one is taken",
                PAUSE_SOURCES_UNTIL_FIRST_CHECKPOINT,
                f"Set {CHECKPOINT_INTERVAL.key}, or switch the pause off.",
            )
        )
    if settings.storage == "filesystem" and settings.directory is None:
        faults.append(
            (
                "Checkpoints are set to be kept in the file system, but no folder is set",
                CHECKPOINT_STORAGE,
                f"Set {CHECKPOINT_DIRECTORY.key}.",
            )
        )
    if faults:
        places = {configuration.where_set(option) for _, option, _ in faults} - {""}
        raise ConfigError(
            "; ".join(what for what, _, _ in faults),
            where=", ".join(sorted(places)),
            remedy=" ".join(remedy for _, _, remedy in faults),
        )

"""Keyed state: where it is kept, its files, local copies and changelog; options and settings."""

from __future__ import annotations

import re
from typing import Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import (
    BooleanType,
    ChoiceType,
    DurationType,
    IntegerType,
    MemoryType,
    TextType,
)
from tidegate.model.settings import ChangelogSettings, StateFileSettings

STATE_BACKEND: Final = ConfigOption(
    "state.backend.type",
    ChoiceType(("hashmap", "rocksdb")),
    "hashmap",
    "Where a running job keeps keyed state: in memory (hashmap), or on the local disk (rocksdb).",
    old_keys=("state.backend",),
)
INCREMENTAL: Final[ConfigOption[bool | None]] = ConfigOption(
    "execution.checkpointing.incremental",
    BooleanType(),
    None,
    "Write only what no completed checkpoint has written yet; by default, on for state on disk.",
    old_keys=("state.backend.incremental",),
    differs="state on disk consists of files that never change, so naming them again costs nothing",
)
TRANSFER_THREADS: Final = ConfigOption(
    "state.backend.rocksdb.checkpoint.transfer.thread.num",
    IntegerType(at_least=1, at_most=256),
    4,
    "Number of files of one operator's state that are written or read at a time.",
)
LOCAL_DIRECTORIES: Final[ConfigOption[str | None]] = ConfigOption(
    "state.backend.rocksdb.localdir",
    TextType(),
    None,
    "Folders on each machine for the files of state on disk, separated by commas; by default, one "
    "below the system's folder for temporary files.",
)
FROM_LOCAL: Final = ConfigOption(
    "execution.state-recovery.from-local",
    BooleanType(),
    False,
    "Restore from a copy on the same machine, if there is one, rather than from the snapshot.",
    old_keys=("state.backend.local-recovery",),
)
LOCAL_BACKUP: Final[ConfigOption[bool | None]] = ConfigOption(
    "execution.checkpointing.local-backup.enabled",
    BooleanType(),
    None,
    "Keep a copy of the last checkpoint on the machine that wrote it; by default, on if "
    "execution.state-recovery.from-local is on.",
)
LOCAL_BACKUP_DIRECTORY: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.checkpointing.local-backup.dirs",
    TextType(),
    None,
    "Folder on each machine for those copies; by default, the first of "
    "state.backend.rocksdb.localdir, where copies are links that need no space.",
    old_keys=("taskmanager.state.local.root-dirs",),
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    STATE_BACKEND,
    INCREMENTAL,
    TRANSFER_THREADS,
    LOCAL_DIRECTORIES,
    FROM_LOCAL,
    LOCAL_BACKUP,
    LOCAL_BACKUP_DIRECTORY,
)


def state_file_settings(configuration: ReadableConfig, *, on_disk: bool) -> StateFileSettings:
    """Settings of files of state, and of the folders where state on disk is kept.

    on_disk: whether keyed state is in files while the job runs.
    """
    incremental = configuration.get(INCREMENTAL)
    from_local = configuration.get(FROM_LOCAL)
    backup = configuration.get(LOCAL_BACKUP)
    copies = _folders(configuration.get(LOCAL_BACKUP_DIRECTORY))
    return StateFileSettings(
        incremental=on_disk if incremental is None else incremental,
        transfer_threads=configuration.get(TRANSFER_THREADS),
        folders=_folders(configuration.get(LOCAL_DIRECTORIES)),
        copies_folder=copies[0] if copies else None,
        keeps_copies=from_local if backup is None else backup,
        takes_copies=from_local,
    )


def _folders(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in re.split(r"[,:]", text or "") if part.strip())


_MIB: Final = 1 << 20
_BYTES: Final = MemoryType()

CHANGELOG_ENABLED: Final = ConfigOption(
    "state.changelog.enabled",
    BooleanType(),
    False,
    "Write changes of keyed state to a log all the time, so that a checkpoint only has to write "
    "the end of the log, whatever the size of the state.",
    old_keys=("state.backend.changelog.enabled",),
)
CHANGELOG_STORAGE: Final = ConfigOption(
    "state.changelog.storage",
    ChoiceType(("memory", "filesystem")),
    "filesystem",
    "Where the log is kept: in files of the checkpoint folder, or in the metadata (memory).",
    old_keys=("state.backend.changelog.storage",),
    differs="in the metadata, the log of ten minutes would be written again with each checkpoint",
)
MATERIALIZE: Final = ConfigOption(
    "state.changelog.periodic-materialize.enabled",
    BooleanType(),
    True,
    "Write the whole state from time to time, in the background, so that the log can start anew.",
    old_keys=("state.backend.changelog.periodic-materialize.enabled",),
)
MATERIALIZE_INTERVAL: Final = ConfigOption(
    "state.changelog.periodic-materialize.interval",
    DurationType(at_least_ms=1),
    600_000,
    "Time between two such writes.",
    old_keys=("state.backend.changelog.periodic-materialize.interval",),
)
MATERIALIZE_FAILURES: Final = ConfigOption(
    "state.changelog.max-failures-allowed",
    IntegerType(at_least=0),
    3,
    "Number of consecutive failures of such writes before the subtask fails.",
    old_keys=("state.backend.changelog.max-failures-allowed",),
)
LOG_PERSIST_THRESHOLD: Final = ConfigOption(
    "state.changelog.dstl.dfs.preemptive-persist-threshold",
    _BYTES,
    5 * _MIB,
    "Approximate size of the changes of one operator that are written to the log before a "
    "checkpoint asks for them.",
    old_keys=("dstl.dfs.preemptive-persist-threshold",),
)
LOG_IN_FLIGHT_MAX: Final = ConfigOption(
    "state.changelog.dstl.dfs.upload.max-in-flight",
    _BYTES,
    100 * _MIB,
    "Bytes of one operator's log that may be in upload; beyond it, changes wait for the next "
    "checkpoint.",
    old_keys=("dstl.dfs.upload.max-in-flight",),
)
LOG_COMPRESSION: Final = ConfigOption(
    "state.changelog.dstl.dfs.compression.enabled",
    BooleanType(),
    False,
    "Compress the log.",
    old_keys=("dstl.dfs.compression.enabled",),
)
CHANGELOG_OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    CHANGELOG_ENABLED,
    CHANGELOG_STORAGE,
    MATERIALIZE,
    MATERIALIZE_INTERVAL,
    MATERIALIZE_FAILURES,
    LOG_PERSIST_THRESHOLD,
    LOG_IN_FLIGHT_MAX,
    LOG_COMPRESSION,
)


def changelog_settings(configuration: ReadableConfig) -> ChangelogSettings | None:
    if not configuration.get(CHANGELOG_ENABLED):
        return None
    materializes = configuration.get(MATERIALIZE)
    return ChangelogSettings(
        materialize_ms=configuration.get(MATERIALIZE_INTERVAL) if materializes else None,
        failures_max=configuration.get(MATERIALIZE_FAILURES),
        in_memory=configuration.get(CHANGELOG_STORAGE) == "memory",
        persist_bytes=configuration.get(LOG_PERSIST_THRESHOLD),
        in_flight_bytes=configuration.get(LOG_IN_FLIGHT_MAX),
        compressed=configuration.get(LOG_COMPRESSION),
    )

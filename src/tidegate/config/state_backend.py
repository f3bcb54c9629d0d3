"""Where keyed state is kept, its files and local copies: the options, and the settings."""

from __future__ import annotations

import re
from typing import Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import BooleanType, ChoiceType, IntegerType, TextType
from tidegate.model.settings import StateFileSettings

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

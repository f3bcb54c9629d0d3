"""The snapshot that a job starts from: its options, and the settings made of them."""

from __future__ import annotations

from typing import Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import BooleanType, EnumType, IntegerType, TextType
from tidegate.model.settings import ClaimMode, RestoreSettings

_TEXT: Final = TextType()
_BOOLEAN: Final = BooleanType()

RESTORE_PATH: Final[ConfigOption[str | None]] = ConfigOption(
    "execution.state-recovery.path",
    _TEXT,
    None,
    "Checkpoint or savepoint to start from.",
    old_keys=("execution.savepoint.path",),
)
RESTORE_CLAIM_MODE: Final = ConfigOption(
    "execution.state-recovery.claim-mode",
    EnumType(ClaimMode),
    ClaimMode.NO_CLAIM,
    "Ownership of the files of the snapshot that the job starts from.",
    old_keys=("execution.savepoint-restore-mode",),
)
IGNORE_UNCLAIMED_STATE: Final = ConfigOption(
    "execution.state-recovery.ignore-unclaimed-state",
    _BOOLEAN,
    False,
    "Ignore state in that snapshot that no operator takes.",
    old_keys=("execution.savepoint.ignore-unclaimed-state",),
)
RESTORE_WITHOUT_IN_FLIGHT_DATA: Final = ConfigOption(
    "execution.state-recovery.without-channel-state.checkpoint-id",
    IntegerType(-1),
    -1,
    "If this checkpoint is restored, drop its in-flight data; -1 for none.",
    old_keys=("execution.checkpointing.recover-without-channel-state.checkpoint-id",),
)
RESTORE_FALL_BACK: Final = ConfigOption(
    "tidegate.restore.fall-back",
    _BOOLEAN,
    False,
    "If the newest checkpoint is damaged, fall back to an older one; everything after it is read "
    "and written again. Otherwise the job is suspended.",
)
FORK_NAME: Final[ConfigOption[str | None]] = ConfigOption(
    "tidegate.fork.name",
    _TEXT,
    None,
    "Run the program as a fork, under this name, of the job whose snapshot it starts from. Its "
    "sinks start empty, so the original job commits what it has not committed yet. Set by "
    "`tidegate fork`.",
)

OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    RESTORE_PATH,
    RESTORE_CLAIM_MODE,
    IGNORE_UNCLAIMED_STATE,
    RESTORE_WITHOUT_IN_FLIGHT_DATA,
    RESTORE_FALL_BACK,
    FORK_NAME,
)


def restore_settings(configuration: ReadableConfig) -> RestoreSettings:
    without = configuration.get(RESTORE_WITHOUT_IN_FLIGHT_DATA)
    return RestoreSettings(
        path=configuration.get(RESTORE_PATH),
        allow_non_restored=configuration.get(IGNORE_UNCLAIMED_STATE),
        claim_mode=configuration.get(RESTORE_CLAIM_MODE),
        without_in_flight_of=None if without < 0 else without,
        fork=configuration.get(FORK_NAME),
        fall_back=configuration.get(RESTORE_FALL_BACK),
    )

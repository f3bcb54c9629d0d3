"""The changelog state backend: its options, and the settings made of them."""

from __future__ import annotations

from typing import Final

from tidegate.config.option import ConfigOption, ReadableConfig
from tidegate.config.values import (
    BooleanType,
    ChoiceType,
    DurationType,
    IntegerType,
    MemoryType,
)
from tidegate.model.settings import ChangelogSettings

_MIB: Final = 1 << 20
_BYTES: Final = MemoryType()

ENABLED: Final = ConfigOption(
    "state.changelog.enabled",
    BooleanType(),
    False,
    "Write changes of keyed state to a log all the time, so that a checkpoint only has to write "
    "the end of the log, whatever the size of the state.",
    old_keys=("state.backend.changelog.enabled",),
)
STORAGE: Final = ConfigOption(
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
FAILURES_MAX: Final = ConfigOption(
    "state.changelog.max-failures-allowed",
    IntegerType(at_least=0),
    3,
    "Number of consecutive failures of such writes before the subtask fails.",
    old_keys=("state.backend.changelog.max-failures-allowed",),
)
PERSIST_THRESHOLD: Final = ConfigOption(
    "state.changelog.dstl.dfs.preemptive-persist-threshold",
    _BYTES,
    5 * _MIB,
    "Approximate size of the changes of one operator that are written to the log before a "
    "checkpoint asks for them.",
    old_keys=("dstl.dfs.preemptive-persist-threshold",),
)
IN_FLIGHT_MAX: Final = ConfigOption(
    "state.changelog.dstl.dfs.upload.max-in-flight",
    _BYTES,
    100 * _MIB,
    "Bytes of one operator's log that may be in upload; beyond it, changes wait for the next "
    "checkpoint.",
    old_keys=("dstl.dfs.upload.max-in-flight",),
)
COMPRESSION: Final = ConfigOption(
    "state.changelog.dstl.dfs.compression.enabled",
    BooleanType(),
    False,
    "Compress the log.",
    old_keys=("dstl.dfs.compression.enabled",),
)
OPTIONS: Final[tuple[ConfigOption[object], ...]] = (
    ENABLED,
    STORAGE,
    MATERIALIZE,
    MATERIALIZE_INTERVAL,
    FAILURES_MAX,
    PERSIST_THRESHOLD,
    IN_FLIGHT_MAX,
    COMPRESSION,
)


def changelog_settings(configuration: ReadableConfig) -> ChangelogSettings | None:
    """Settings of the changelog of state; None if changes are not logged."""
    if not configuration.get(ENABLED):
        return None
    materializes = configuration.get(MATERIALIZE)
    return ChangelogSettings(
        materialize_ms=configuration.get(MATERIALIZE_INTERVAL) if materializes else None,
        failures_max=configuration.get(FAILURES_MAX),
        in_memory=configuration.get(STORAGE) == "memory",
        persist_bytes=configuration.get(PERSIST_THRESHOLD),
        in_flight_bytes=configuration.get(IN_FLIGHT_MAX),
        compressed=configuration.get(COMPRESSION),
    )

"""Every option that Tidegate reads: Flink's under Flink's keys, ours under ``tidegate.*``.

Each topic has a module with its options and with what makes settings of them. Source of keys,
defaults and old keys: Flink 2.3. An option whose default differs says why in ``differs``. An option
stands here only when something reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.config import (
    changelog,
    checkpointing,
    debloat,
    execution,
    high_availability,
    recovery,
    reporting,
    rest,
    restarts,
    rocksdb,
    security,
    slots,
    state_backend,
    warnings,
)
from tidegate.config.flink_keys import FLINK_KEYS

if TYPE_CHECKING:
    from tidegate.config.option import ConfigOption

TOPICS: Final[dict[str, tuple[ConfigOption[object], ...]]] = {
    "The program": execution.OPTIONS,
    "Checkpoints": checkpointing.OPTIONS,
    "What a job starts from": recovery.OPTIONS,
    "Restarts and rescales": restarts.OPTIONS,
    "Keyed state": state_backend.OPTIONS,
    "RocksDB": rocksdb.OPTIONS,
    "Changelog": changelog.OPTIONS,
    "Slots": slots.OPTIONS,
    "Buffer debloating": debloat.OPTIONS,
    "Reports": reporting.OPTIONS,
    "REST": rest.OPTIONS,
    "Security": security.OPTIONS,
    "High availability": high_availability.OPTIONS,
    "Warnings": warnings.OPTIONS,
}
ALL: Final = tuple(option for options in TOPICS.values() for option in options)
"""Every option there is, in the order of docs/reference/options.md."""

_BY_KEY: Final = {option.key: option for option in ALL}
_CANONICAL: Final = {old: option.key for option in ALL for old in option.old_keys}

FLINK_ONLY: Final = frozenset(FLINK_KEYS) - _BY_KEY.keys()
"""Keys that Flink reads and Tidegate does not: kept, so that configurations carry over."""


def by_key(key: str) -> ConfigOption[object] | None:
    """The option with this key; None if there is none."""
    return _BY_KEY.get(key)


def canonical_key(key: str) -> str:
    """Current spelling of a key, which may be an old one."""
    return _CANONICAL.get(key, key)

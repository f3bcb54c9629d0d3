"""Snapshots as data, without a job: opened, counted, compared, checked, written, migrated.

>>> from tidegate import snapshots
>>> for row in snapshots.open("savepoints/savepoint-1f2e3d-0123456789ab").rows("counts", "total"):
...     print(row.key, row.value)

Each function is loaded when it is first named. Files within are never called like one of them.
"""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidegate.migration.from_flink import migrate_savepoint as migrate
    from tidegate.snapshots.checking.fsck import fsck as check
    from tidegate.snapshots.differences import diff_snapshots as diff
    from tidegate.snapshots.snapshot import Snapshot
    from tidegate.snapshots.summary import inspect_snapshot as count
    from tidegate.snapshots.writing.writer import begin_savepoint as write

    open = Snapshot.open

__all__ = ["check", "count", "diff", "migrate", "open", "write"]

_PLACES: Final = {
    "check": ("tidegate.snapshots.checking.fsck", "fsck"),
    "count": ("tidegate.snapshots.summary", "inspect_snapshot"),
    "diff": ("tidegate.snapshots.differences", "diff_snapshots"),
    "migrate": ("tidegate.migration.from_flink", "migrate_savepoint"),
    "open": ("tidegate.snapshots.snapshot", "Snapshot.open"),
    "write": ("tidegate.snapshots.writing.writer", "begin_savepoint"),
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, place = _PLACES[name]
    found = globals()[name] = attrgetter(place)(import_module(module))
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

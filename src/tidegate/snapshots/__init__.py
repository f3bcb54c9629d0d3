"""Snapshots as data, without a job: opened, counted, compared, checked, written, migrated.

>>> from tidegate import snapshots
>>> for row in snapshots.open("savepoints/savepoint-1f2e3d-0123456789ab").rows("counts", "total"):
...     print(row.key, row.value)

Each function is loaded when it is first named. Files within are never called like one of them.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from tidegate.faces import named

    return named(__name__, name)


def __dir__() -> list[str]:
    from tidegate.faces import shown

    return shown(__name__)

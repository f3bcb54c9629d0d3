"""Versions that both ends of a job must share."""

from __future__ import annotations

import sys
from functools import cache

COMPARED = ("tidegate", "python", "pyarrow", "cloudpickle")


@cache  # a process keeps the code that it has loaded
def versions() -> dict[str, str]:
    """Versions of this process: of ourselves, of Python (minor), of what crosses the wire."""
    # Takes longer to load than most of what a slot needs, and a slot of this machine is told them.
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in ("tidegate", "pyarrow", "cloudpickle"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found

"""Versions that both ends of a job must share."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version

COMPARED = ("tidegate", "python", "pyarrow", "cloudpickle")


@cache  # a process keeps the code that it has loaded, and a slot that of its fork server
def versions() -> dict[str, str]:
    """Versions of this process: of ourselves, of Python (minor), of what crosses the wire."""
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in ("tidegate", "pyarrow", "cloudpickle"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found

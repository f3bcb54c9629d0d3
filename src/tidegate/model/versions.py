"""Versions that both ends of a job must share."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

COMPARED = ("tidegate", "python", "pyarrow", "cloudpickle")


def versions() -> dict[str, str]:
    """Versions of this process: of ourselves, of Python (minor), of what crosses the wire."""
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in ("tidegate", "pyarrow", "cloudpickle"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found

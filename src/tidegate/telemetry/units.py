"""Times and sizes as people read them."""

from __future__ import annotations


def time_text(micros: float) -> str:
    """A length of time, three digits of it."""
    for limit, size, unit in ((1e3, 1, "µs"), (1e6, 1e3, "ms"), (120e6, 1e6, "s")):
        if micros < limit:
            return f"{micros / size:.3g} {unit}"
    minutes = micros / 60e6
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.3g} h"


def size_text(size: float) -> str:
    """A number of bytes, three digits of it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:.3g} TB"

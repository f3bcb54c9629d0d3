"""Numbers that JSON lacks."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """A body in which numbers that JSON lacks have become their names, as in Flink."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [finite(inner) for inner in value]
        case _:
            return value

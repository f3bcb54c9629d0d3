"""Windows of streams; assigners, triggers and evictors stand in modules of their own."""

from tidegate.api.windows.window import (
    CountWindow,
    GlobalWindow,
    TimeWindow,
    Window,
)

__all__ = [
    "CountWindow",
    "GlobalWindow",
    "TimeWindow",
    "Window",
]

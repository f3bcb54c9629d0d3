"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """Time under the control of a test. wall_ms: first wall time, in milliseconds since 1970."""

    def __init__(self, wall_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def monotonic_ms(self) -> int:
        """Milliseconds since the clock was made."""
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._wall_ms

    def precise_s(self) -> float:
        """Seconds since the clock was made."""
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        """Moves time forward by this many milliseconds."""
        self._monotonic_ms += ms
        self._wall_ms += ms

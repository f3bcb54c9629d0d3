"""Number of rows that a source may emit now, to keep to a rate."""

from __future__ import annotations

import math

_BURST_S = 0.1
_PIECES_PER_S = 100


class RowRate:
    """Rows earned by time. rows_per_second: above 0.

    Rows not used within a tenth of a second are lost: a source that was held back does not catch up
    in a burst.
    """

    def __init__(self, rows_per_second: float, now_ms: int) -> None:
        self._per_ms = rows_per_second / 1000
        self._earned = 0.0
        self._earned_max = max(1.0, rows_per_second * _BURST_S)
        self._piece = max(1.0, rows_per_second / _PIECES_PER_S)
        self._now_ms = now_ms

    def allowed(self, now_ms: int) -> int:
        """Number of rows that may be emitted now."""
        self._earned += (now_ms - self._now_ms) * self._per_ms
        self._earned = min(self._earned, self._earned_max)
        self._now_ms = now_ms
        return int(self._earned)

    def used(self, rows: int) -> None:
        """Records that this many rows were emitted."""
        self._earned -= rows

    def next_ms(self) -> int:
        """Time at which to ask again."""
        missing = max(0.0, self._piece - self._earned)
        return self._now_ms + max(1, math.ceil(missing / self._per_ms))

"""Chance in tests: what it draws is known beforehand."""


class FixedChance:
    """Draws the lowest value, or the one it is told."""

    def __init__(self, ms: int | None = None) -> None:
        self.ms = ms
        self.drawn: list[tuple[int, int]] = []

    def uniform_ms(self, low: int, high: int) -> int:
        self.drawn.append((low, high))
        return low if self.ms is None else min(max(self.ms, low), high)

    def bits64(self) -> int:
        return 0

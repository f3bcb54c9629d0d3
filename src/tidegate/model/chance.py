"""Chance: the only way to draw."""

from __future__ import annotations

from random import Random
from typing import Protocol


class Chance(Protocol):
    """Source of randomness, passed to everything that draws."""

    def uniform_ms(self, low: int, high: int) -> int: ...

    def bits64(self) -> int:
        """Draws an integer of 64 random bits."""
        ...


class SeededChance:
    """Chance over one generator, made at a process's entry from a logged seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def uniform_ms(self, low: int, high: int) -> int:
        assert low <= high, "nothing lies between"
        return self._random.randint(low, high)

    def bits64(self) -> int:
        return self._random.getrandbits(64)

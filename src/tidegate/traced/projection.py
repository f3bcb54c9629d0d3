"""A function that takes some fields of a tuple."""

from __future__ import annotations


class Projection:
    """Takes some fields of a tuple, in the order of ``indexes``."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self.indexes = indexes

    def __call__(self, value: tuple[object, ...]) -> tuple[object, ...]:
        return tuple([value[index] for index in self.indexes])

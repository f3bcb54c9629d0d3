"""The row in hand, which operators set and the state of keys reads."""

from __future__ import annotations


class KeyCell:
    """Current key of keyed state: set by the operator before each row, read by the state.

    One for each keyed operator. Plain attributes, since they are set for every row. group: key
    group of the key; -1 without a key. timestamp_ms: event time of the row; None if it has none.
    """

    __slots__ = ("group", "key", "timestamp_ms")

    def __init__(self) -> None:
        self.key: object = None
        self.group: int = -1
        self.timestamp_ms: int | None = None

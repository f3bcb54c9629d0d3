"""Sharing one source among readers: splits from a list, and a number of rows a second."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tidegate.api import ship
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.source import EnumeratorContext
    from tidegate.model.ids import CheckpointId


_BURST_S = 0.1
_PIECES_PER_S = 500
"""So often, at most, a reader is woken: rows that come together wait for each other."""


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
        self._earned += (now_ms - self._now_ms) * self._per_ms
        self._earned = min(self._earned, self._earned_max)
        self._now_ms = now_ms
        return int(self._earned)

    def used(self, rows: int) -> None:
        self._earned -= rows

    def next_ms(self) -> int:
        missing = max(0.0, self._piece - self._earned)
        return self._now_ms + max(1, math.ceil(missing / self._per_ms))


Split = TypeVar("Split")


class SplitListEnumerator(Generic[Split]):
    """Gives splits from a list to readers that ask, an even share at a time.

    restored: a snapshot of such an enumerator; it takes the place of ``splits``.
    """

    def __init__(
        self, context: EnumeratorContext[Split], splits: Sequence[Split], restored: bytes | None
    ) -> None:
        self._context = context
        self._share = max(1, math.ceil(len(splits) / context.parallelism))
        self._left = list(splits)
        if restored is not None:
            self._left = restored_splits(type(splits[0]) if splits else object, restored)

    def start(self) -> None: ...

    def split_requested(self, subtask: int) -> None:
        if not self._left:
            self._context.no_more_splits(subtask)
            return
        given, self._left = self._left[: self._share], self._left[self._share :]
        self._context.assign(subtask, given)

    def add_back(self, subtask: int, splits: Sequence[Split]) -> None:
        self._left = [*splits, *self._left]

    def reader_ready(self, subtask: int) -> None: ...

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        return ship.dumps(self._left, name="split enumerator")

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...


def restored_splits(kind: type, data: bytes) -> list[Any]:
    """Splits that were left. Raises RestoreRefused unless it is a list of splits of that kind."""
    name = "a list of splits"
    left = cast("list[Any]", ship.restored(list, data, name=name))
    for split in left:
        ship.of_kind(kind, split, name=name)
    return left


def check_rate(rate: float | None, where: str) -> None:
    is_number = isinstance(cast("object", rate), int | float)
    if rate is not None and not (is_number and rate > 0):
        raise ConfigError(
            f"The rate is {rate!r} rows a second",
            where=where,
            remedy="Give a number above 0, or None for no limit.",
        )

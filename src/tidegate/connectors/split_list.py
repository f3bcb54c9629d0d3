"""An enumerator over splits that are all known at the start."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from tidegate.api import ship

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.source import EnumeratorContext
    from tidegate.model.ids import CheckpointId

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
            self._left = _restored(splits, restored)

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


def _restored(splits: Sequence[Split], data: bytes) -> list[Split]:
    """Splits that were left. Raises RestoreRefused unless it is a list of such splits."""
    name = "a list of splits"
    left = cast("list[Split]", ship.restored(list, data, name=name))
    for split in left if splits else ():
        ship.of_kind(type(splits[0]), split, name=name)
    return left

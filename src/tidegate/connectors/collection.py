"""A bounded source over a list that travels with the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from flinkformat.frozen import frozen
from tidegate.connectors.shares import SplitListEnumerator
from tidegate.model.elements import RowBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.source import EnumeratorContext, ReaderContext
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation


class _HasNext(Protocol):
    @property
    def next(self) -> int: ...


Split = TypeVar("Split", bound=_HasNext)


@frozen
class CollectionSplit:
    """The rest of the list. next: index of the next value."""

    next: int = 0


class CollectionSource:
    """The values of a list, in order; one split, so at parallelism 1.

    type_info: of the values; None for any Python object.
    """

    bounded = True
    split_type = CollectionSplit

    def __init__(self, values: Sequence[object], type_info: TypeInformation | None = None) -> None:
        self._values = list(values)
        self._type = type_info

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    def enumerator(
        self, context: EnumeratorContext[CollectionSplit], restored: bytes | None
    ) -> SplitListEnumerator[CollectionSplit]:
        return SplitListEnumerator(context, [CollectionSplit()], restored)

    def reader(self, context: ReaderContext) -> PositionReader[CollectionSplit]:
        values = self._values

        def next_batch(start: int) -> RowBatch:
            return RowBatch(values[start : start + context.rows])

        return PositionReader(len(values), next_batch, CollectionSplit)


class PositionReader(Generic[Split]):
    """Emits something that lies in memory from a position on; there is one split at most.

    length: of all there is. next_batch: what begins at a position. split_at: a split of a position.
    """

    def __init__(
        self,
        length: int,
        next_batch: Callable[[int], Batch],
        split_at: Callable[[int], Split],
    ) -> None:
        self._length = length
        self._next_batch = next_batch
        self._split_at = split_at
        self._next: int | None = None
        self._no_more = False

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            self._next = split.next

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> Batch | None:
        if self._next is None:
            return None
        batch = self._next_batch(self._next) if self._next < self._length else None
        self._next += 0 if batch is None else len(batch)
        if self._next >= self._length:
            self._next = None
        return batch

    @property
    def finished(self) -> bool:
        return self._no_more and self._next is None

    @property
    def wants_splits(self) -> bool:
        return self._next is None and not self._no_more

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[Split]:
        return () if self._next is None else (self._split_at(self._next),)

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...

"""A bounded source over a list that travels with the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.connectors.split_list import SplitListEnumerator
from tidegate.model.elements import RowBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.source import EnumeratorContext, ReaderContext
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation


@dataclass(frozen=True, slots=True)
class CollectionSplit:
    """What is left of the list. next: index of the next value."""

    next: int = 0


class CollectionSource:
    """The values of a list, in order; one split, so at parallelism 1.

    type_info: of the values; None for any Python object.
    """

    def __init__(self, values: Sequence[object], type_info: TypeInformation | None = None) -> None:
        self._values = list(values)
        self._type = type_info

    @property
    def bounded(self) -> bool:
        """It ends with the list."""
        return True

    @property
    def split_type(self) -> type[CollectionSplit]:
        """What is dealt out to readers."""
        return CollectionSplit

    @property
    def produced_type(self) -> TypeInformation | None:
        """The type that was given."""
        return self._type

    def enumerator(
        self, context: EnumeratorContext[CollectionSplit], restored: bytes | None
    ) -> SplitListEnumerator[CollectionSplit]:
        """Hands out the one split."""
        return SplitListEnumerator(context, [CollectionSplit()], restored)

    def reader(self, context: ReaderContext) -> CollectionReader:
        """Reads the list."""
        return CollectionReader(self._values, context)


class CollectionReader:
    """Emits a list from a position on."""

    def __init__(self, values: Sequence[object], context: ReaderContext) -> None:
        self._values = values
        self._context = context
        self._next: int | None = None
        self._no_more = False

    def add_splits(self, splits: Sequence[CollectionSplit]) -> None:
        """Read from there."""
        for split in splits:
            self._next = split.next

    def no_more_splits(self) -> None:
        """There is one at most."""
        self._no_more = True

    def poll(self) -> RowBatch | None:
        """The next values."""
        if self._next is None:
            return None
        values = list(self._values[self._next : self._next + self._context.rows])
        self._next += len(values)
        if self._next >= len(self._values):
            self._next = None
        return RowBatch(values) if values else None

    @property
    def finished(self) -> bool:
        """Whether all is read."""
        return self._no_more and self._next is None

    @property
    def wants_splits(self) -> bool:
        """Whether there is nothing to read."""
        return self._next is None and not self._no_more

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[CollectionSplit]:
        """The position."""
        return () if self._next is None else (CollectionSplit(self._next),)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to free."""

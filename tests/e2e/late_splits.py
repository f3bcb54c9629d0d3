"""A source whose enumerator gives a split away right after each of its snapshots."""

import pickle
from collections.abc import Sequence

from tests.e2e.journal import Journal
from tidegate import EnumeratorContext, ReaderContext
from tidegate.model.ids import CheckpointId


class LateSplitsSource:
    """Splits are numbers; what happens to each is noted. It gives no records."""

    bounded = False
    produced_type = None

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def enumerator(
        self, context: EnumeratorContext[int], restored: bytes | None
    ) -> "LateSplitsEnumerator":
        return LateSplitsEnumerator(context, self._journal, restored)

    def reader(self, context: ReaderContext) -> "LateSplitsReader":
        return LateSplitsReader(self._journal)


class LateSplitsEnumerator:
    """Its state is the next number."""

    def __init__(
        self, context: EnumeratorContext[int], journal: Journal, restored: bytes | None
    ) -> None:
        self._context, self._journal = context, journal
        self._next = 0 if restored is None else pickle.loads(restored)

    def snapshot(self, checkpoint: CheckpointId) -> bytes:
        self._context.call_later(0, lambda: self._give(checkpoint))
        return pickle.dumps(self._next)

    def _give(self, checkpoint: CheckpointId) -> None:
        self._journal.note("given", split=self._next, after=checkpoint)
        self._context.assign(0, [self._next])
        self._next += 1

    def start(self) -> None:
        pass

    def split_requested(self, subtask: int) -> None:
        pass

    def add_back(self, subtask: int, splits: Sequence[int]) -> None:
        pass

    def reader_ready(self, subtask: int) -> None:
        pass

    def on_complete(self, checkpoint: CheckpointId) -> None:
        pass

    def close(self) -> None:
        pass


class LateSplitsReader:
    """Its state is all splits that it got."""

    finished = False
    wants_splits = False

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._splits: list[int] = []

    def add_splits(self, splits: Sequence[int]) -> None:
        self._splits.extend(splits)
        for split in splits:
            self._journal.note("got", split=split)

    def no_more_splits(self) -> None:
        pass

    def poll(self) -> None:
        return None

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[int]:
        self._journal.note("cut")
        return tuple(self._splits)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        pass

    def close(self) -> None:
        pass

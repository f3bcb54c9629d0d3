"""The events as a source of ours: by records, or as Arrow batches of one type each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.nexmark.generator import Generator
from benchmarks.nexmark.measures import SourceMeasure
from tidegate.connectors.shares import SplitListEnumerator
from tidegate.model.elements import ArrowBatch, RowBatch


@dataclass(frozen=True, slots=True)
class EventSplit:
    """One reader's blocks from event ``next`` on: each ``readers``-th block.

    given: batches of the block that were given already, where they are Arrow batches.
    """

    next: int
    readers: int
    given: int = 0


@dataclass(frozen=True)
class EventSource:
    """The first ``count`` events. warm: events after which a reader begins to measure.

    stats: folder for what readers measure. block: events that are made at once; readers take blocks
    in turn. A multiple of 50 gives each Arrow batch the same share of its type.
    """

    generator: Generator
    count: int
    arrow: bool = False
    warm: int = 0
    stats: str | None = None
    block: int = 10_000

    bounded = True
    produced_type = None
    split_type = EventSplit

    def enumerator(self, context, restored: bytes | None) -> SplitListEnumerator[EventSplit]:
        readers = context.parallelism
        splits = [EventSplit(reader * self.block, readers) for reader in range(readers)]
        return SplitListEnumerator(context, splits, restored)

    def reader(self, context) -> "EventReader":
        measure = SourceMeasure(
            Path(self.stats) / f"source-{context.subtask}.json" if self.stats else None, self.warm
        )
        return EventReader(self, context, measure)


class EventReader:
    """Makes blocks of events and gives them in pieces."""

    def __init__(self, source: EventSource, context, measure: SourceMeasure) -> None:
        self._source, self._context, self._measure = source, context, measure
        self._splits: list[EventSplit] = []
        self._no_more = False
        self._made: list = []
        """What is left of the block that is under way."""

    def add_splits(self, splits: Sequence[EventSplit]) -> None:
        self._splits += [split for split in splits if split.next < self._source.count]

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> RowBatch | ArrowBatch | None:
        if not self._splits:
            return None
        split, source = self._splits[0], self._source
        end = min((split.next // source.block + 1) * source.block, source.count)
        batch = self._next_batch(split, end) if source.arrow else self._next_rows(split, end)
        if self._splits[0].next >= source.count:
            self._splits.pop(0)
        self._measure.passed(len(batch))
        return batch

    def _next_rows(self, split: EventSplit, end: int) -> RowBatch:
        if not self._made:
            self._made = self._source.generator.events(split.next, end)
        rows = self._made[: self._context.rows]
        del self._made[: len(rows)]
        reached = split.next + len(rows)
        self._splits[0] = replace(split, next=reached if self._made else self._block_after(split))
        return RowBatch(rows)

    def _next_batch(self, split: EventSplit, end: int) -> ArrowBatch:
        if not self._made:
            self._made = list(self._source.generator.batches(split.next, end))[split.given :]
        batch = self._made.pop(0)
        if self._made:
            self._splits[0] = replace(split, given=split.given + 1)
        else:
            self._splits[0] = replace(split, next=self._block_after(split), given=0)
        return ArrowBatch(batch)

    def _block_after(self, split: EventSplit) -> int:
        return (split.next // self._source.block + split.readers) * self._source.block

    @property
    def finished(self) -> bool:
        return self._no_more and not self._splits

    @property
    def wants_splits(self) -> bool:
        return not self._splits and not self._no_more

    def snapshot(self, checkpoint) -> Sequence[EventSplit]:
        return tuple(self._splits)

    def on_complete(self, checkpoint) -> None: ...

    def close(self) -> None:
        self._measure.close()

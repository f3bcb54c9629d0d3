"""Reading parts of files in a slot: a thread reads ahead, the loop takes what is there."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from tidegate.api.rows.batches import as_rows
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.connectors.shares import RowRate
from tidegate.model.elements import ArrowBatch, RowBatch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from tidegate.api.dead_letters import DeadLetter
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.source import ReaderContext
    from tidegate.connectors.files.splits import Block, FileFormat, FileSplit
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.storage.stores import Stores

_AHEAD_MAX: Final = 2
"""Blocks that are held ready."""


class FileReader:
    """Reads one part after another, in order of assignment.

    arrow: emits Arrow batches. rate: rows a second over all readers; None for no limit.
    letters: side output of what cannot be read; None if that is counted.
    """

    def __init__(
        self,
        context: ReaderContext,
        stores: Stores,
        file_format: FileFormat,
        *,
        arrow: bool,
        rate: float | None,
        letters: OutputTag[DeadLetter] | None = None,
    ) -> None:
        self._context = context
        self._stores = stores
        self._format = file_format
        self._arrow = arrow
        self._letters = letters
        self._total_rate = rate
        self._rate: RowRate | None = None
        self._waiting: deque[FileSplit] = deque()
        self._current: FileSplit | None = None
        self._blocks: Iterator[Block] | None = None
        self._ready: deque[Block] = deque()
        self._taken = 0
        self._reading = False
        self._no_more = False

    def add_splits(self, splits: Sequence[FileSplit]) -> None:
        self._waiting.extend(splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> Batch | None:
        self._read_ahead()
        if not self._ready:
            return None
        rows = self._context.arrow_rows if self._arrow else self._context.rows
        if self._rate is not None:
            rows = min(rows, self._rate.allowed(self._context.monotonic_ms()))
            if rows == 0:
                self._context.wake_at(self._rate.next_ms())
                return None
        return self._take(rows)

    @property
    def finished(self) -> bool:
        return self._no_more and self._current is None and not self._waiting

    @property
    def wants_splits(self) -> bool:
        return not self._no_more and self._current is None and not self._waiting

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[FileSplit]:
        splits = list(self._waiting)
        if self._current is not None:
            current = self._current
            if self._ready:
                block = self._ready[0]
                current = replace(current, offset=block.offset, rows=block.first + self._taken)
            splits.insert(0, current)
        return splits

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None:
        self._no_more = True
        self._waiting.clear()
        if self._blocks is not None:
            cast("Generator[Block]", self._blocks).close()

    def _read_ahead(self) -> None:
        if self._current is None:
            if not self._waiting:
                return
            self._begin(self._waiting.popleft())
        if not self._reading and self._blocks is not None and len(self._ready) < _AHEAD_MAX:
            blocks = self._blocks
            self._reading = True
            self._context.read_ahead(lambda: next(blocks, None), self._arrived)

    def _begin(self, split: FileSplit) -> None:
        self._current = split
        self._blocks = self._format.blocks(self._stores, split)
        if self._total_rate is not None:
            sharers = min(split.readers, self._context.parallelism)
            if self._rate is None:
                self._rate = RowRate(self._total_rate / sharers, self._context.monotonic_ms())

    def _arrived(self, result: object) -> None:
        self._reading = False
        if result is None:
            self._blocks = None
            self._end_if_read()
            return
        block = cast("Block", result)
        if len(block.rows) or block.bad:
            self._ready.append(block)

    def _take(self, rows: int) -> Batch:
        block = self._ready[0]
        if block.bad and not block.first and not self._taken:
            self._reject(block.bad)
        start, stop = self._taken, self._taken + rows
        whole = block.rows
        piece = whole.piece(start, stop) if isinstance(whole, ColumnRows) else whole[start:stop]
        self._taken += len(piece)
        if self._taken == len(block.rows):
            self._pass_over(block)
        if self._rate is not None:
            self._rate.used(len(piece))
        if isinstance(piece, pa.RecordBatch):
            batch = ArrowBatch(piece)
            return batch if self._arrow else as_rows(batch)
        return piece if isinstance(piece, ColumnRows) else RowBatch(list(piece))

    def _reject(self, bad: Sequence[DeadLetter]) -> None:
        if self._letters is None:
            self._context.skipped(len(bad))
        else:
            self._context.dead_letters(self._letters, bad)

    def _pass_over(self, block: Block) -> None:
        """Moves the position past the block that was read."""
        self._ready.popleft()
        self._taken = 0
        if self._current is not None:
            self._current = replace(self._current, offset=block.end, rows=0)
        self._end_if_read()

    def _end_if_read(self) -> None:
        if self._blocks is None and not self._ready:
            self._current = None

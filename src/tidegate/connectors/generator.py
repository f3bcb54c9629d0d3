"""Sources that make their rows: sequences of numbers, and a function of the row's number."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from flinkformat.frozen import frozen
from tidegate.api.pieces import TURN_S, PieceSize
from tidegate.connectors.shares import RowRate, SplitListEnumerator, check_rate
from tidegate.loops.forms import loaded_loops
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.typeinfo.copies import copier_of_results
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.source import EnumeratorContext, ReaderContext
    from tidegate.model.elements import Batch
    from tidegate.model.ids import CheckpointId
    from tidegate.typeinfo.types import TypeInformation

COLUMN: Final = "value"
"""Name of the column in the Arrow batches of a number sequence."""

_ENDLESS: Final = 2**63 - 1
_SPLITS_PER_READER: Final = 4


_LONGS = range(-(2**63), 2**63 - 1)


@frozen
class NumberSplit:
    """Every step-th number from ``next`` (inclusive) to ``end`` (exclusive).

    share: of all rows, for the rate.
    """

    next: int
    end: int
    step: int = 1
    share: float = 1.0


class NumberSequenceSource:
    """Numbers from start to end, both included, in order within a reader's part.

    arrow: as Arrow batches with one column, ``value``.
    """

    bounded = True
    split_type = NumberSplit

    def __init__(self, start: int, end: int, *, arrow: bool = False) -> None:
        self._start = start
        self._end = end
        self._arrow = arrow

    @property
    def produced_type(self) -> TypeInformation | None:
        return None if self._arrow else Types.LONG()

    def enumerator(
        self, context: EnumeratorContext[NumberSplit], restored: bytes | None
    ) -> SplitListEnumerator[NumberSplit]:
        total = max(0, self._end - self._start + 1)
        bounds = [
            self._start + total * i // context.parallelism for i in range(context.parallelism)
        ]
        stretches = zip(bounds, [*bounds[1:], self._start + total], strict=True)
        splits = [NumberSplit(first, end) for first, end in stretches if first < end]
        return SplitListEnumerator(context, splits, restored)

    def reader(self, context: ReaderContext) -> NumberReader:
        if self._arrow:
            return NumberReader(context, _column_of, columns=True)
        return NumberReader(context, _longs_of, columns=True)


class DataGeneratorSource:
    """``generator_function(number)`` for each number from 0.

    count: how many; None for an endless source. rate: rows a second over all readers; None for as
    fast as they are taken. The numbers are dealt out to the readers in turn; a reader gives its own
    in order.
    """

    split_type = NumberSplit

    def __init__(
        self,
        generator_function: Callable[[int], object],
        count: int | None = None,
        rate: float | None = None,
        type_info: TypeInformation | None = None,
    ) -> None:
        check_rate(rate, "DataGeneratorSource")
        self._function = generator_function
        self._count = count
        self._rate = rate
        self._type = type_info

    @property
    def bounded(self) -> bool:
        return self._count is not None

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type

    def enumerator(
        self, context: EnumeratorContext[NumberSplit], restored: bytes | None
    ) -> SplitListEnumerator[NumberSplit]:
        end = _ENDLESS if self._count is None else self._count
        step = context.parallelism * _SPLITS_PER_READER
        splits = [NumberSplit(i, end, step, 1 / step) for i in range(min(step, end))]
        # In this order a reader gets neighbouring splits, so its numbers are spread evenly.
        splits.sort(key=lambda split: split.next % context.parallelism)
        return SplitListEnumerator(context, splits, restored)

    def reader(self, context: ReaderContext) -> NumberReader:
        own = copier_of_results(self._type, loaded_loops())
        calls = _Calls(self._function, own, context.monotonic_ms)
        return NumberReader(context, calls.batch, rate=self._rate, rows_max=lambda: calls.rows)


class _Calls:
    """Calls a function for numbers, and learns how many calls take a few milliseconds.

    own: copies each result before the next call, which may change it; None where it cannot.
    """

    def __init__(
        self,
        function: Callable[[int], object],
        own: Callable[[object], object] | None,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._function = function
        self._own = own
        self._monotonic_ms = monotonic_ms
        self._size = PieceSize(_ENDLESS, TURN_S)

    @property
    def rows(self) -> int:
        return self._size.rows

    def batch(self, numbers: Sequence[int]) -> RowBatch:
        began_ms = self._monotonic_ms()
        # `map` would take a StopIteration that leaves the function for the end.
        call, own = self._function, self._own
        values = [call(n) for n in numbers] if own is None else [own(call(n)) for n in numbers]
        if values:
            self._size.took(len(values), (self._monotonic_ms() - began_ms) / 1000)
        return RowBatch(values)


class NumberReader:
    """Counts through its splits side by side, so that its numbers come in order.

    Splits that overlap have the same step. make: the batch for some numbers. columns: it makes
    columns, for which batches are as long as Arrow's. rows_max: of how many numbers at once.
    """

    def __init__(
        self,
        context: ReaderContext,
        make: Callable[[Sequence[int]], Batch],
        *,
        columns: bool = False,
        rate: float | None = None,
        rows_max: Callable[[], int] = lambda: _ENDLESS,
    ) -> None:
        self._context = context
        self._make = make
        self._rows_max = rows_max
        self._columns = columns
        self._total_rate = rate
        self._rate: RowRate | None = None
        self._splits: list[NumberSplit] = []
        self._no_more = False

    def add_splits(self, splits: Sequence[NumberSplit]) -> None:
        self._splits = sorted([*self._splits, *splits], key=_next_of)
        if self._total_rate is not None:
            share = sum(split.share for split in self._splits)
            now_ms = self._context.monotonic_ms()
            self._rate = RowRate(self._total_rate * share, now_ms) if share else None

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self) -> Batch | None:
        if not self._splits:
            return None
        rows = self._context.arrow_rows if self._columns else self._context.rows
        rows = min(rows, self._rows_max())
        if self._rate is not None:
            rows = min(rows, self._rate.allowed(self._context.monotonic_ms()))
            if rows == 0:
                self._context.wake_at(self._rate.next_ms())
                return None
        numbers = self._take(rows)
        if self._rate is not None:
            self._rate.used(len(numbers))
        return self._make(numbers)

    def _take(self, rows: int) -> Sequence[int]:
        """Removes the lowest remaining numbers, in order, up to a limit."""
        first, step = self._splits[0].next, self._splits[0].step
        near = [split for split in self._splits if split.next < first + step]
        far = self._splits[len(near) :]
        end = near[rows].next if rows < len(near) else first + rows // len(near) * step
        if far:
            end = min(end, far[0].next)
        taken = [range(split.next, min(split.end, end), step) for split in near]
        moved = [
            replace(split, next=split.next + len(numbers) * step)
            for split, numbers in zip(near, taken, strict=True)
        ]
        left = [split for split in moved if split.next < split.end]
        self._splits = sorted([*left, *far], key=_next_of)
        return _in_order(near, taken, end)

    @property
    def finished(self) -> bool:
        return self._no_more and not self._splits

    @property
    def wants_splits(self) -> bool:
        return not self._splits and not self._no_more

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[NumberSplit]:
        return tuple(self._splits)

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...


def _next_of(split: NumberSplit) -> int:
    return split.next


def _in_order(splits: list[NumberSplit], taken: list[range], end: int) -> Sequence[int]:
    """Numbers taken from splits up to an end; one range if the splits are evenly spread."""
    first, gap = splits[0], splits[0].step // len(splits)
    if gap * len(splits) == first.step and all(
        (split.next, split.end) == (first.next + place * gap, first.end)
        for place, split in enumerate(splits)
    ):
        return range(first.next, min(first.end, end), gap)
    return sorted(chain.from_iterable(taken))


def _longs_of(numbers: Sequence[int]) -> RowBatch:
    import numpy as np

    from tidegate.api.rows.column_rows import VALUE, ColumnRows

    if not isinstance(numbers, range) or numbers.start < _LONGS.start or numbers.stop > _LONGS.stop:
        return RowBatch(list(numbers))
    made = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
    return ColumnRows([made], form=VALUE)


def _column_of(numbers: Sequence[int]) -> ArrowBatch:
    import numpy as np
    import pyarrow as pa

    assert isinstance(numbers, range), "the stretches of a sequence do not overlap"
    made = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
    # `pa.array` would import pandas, which takes longer than a small job.
    column = pa.Array.from_buffers(pa.int64(), len(made), [None, pa.py_buffer(made)])
    return ArrowBatch(pa.RecordBatch.from_arrays([column], [COLUMN]))

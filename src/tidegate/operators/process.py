"""Process functions, with and without keys."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from tidegate.api.batches import as_rows
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.operators.emit import emit_rows
from tidegate.operators.failures import user_code_failed
from tidegate.operators.function import FunctionOperator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate.api.operator import KeyCell, OperatorContext, Output, Steps
    from tidegate.model.elements import Batch, RowBatch, Watermark
    from tidegate.typeinfo.types import TypeInformation


class OperatorTime:
    """The ``TimerService`` of a process function, as far as it goes without timers."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self.watermark_ms = MIN_TIMESTAMP_MS

    def current_processing_time(self) -> int:
        """Wall clock, milliseconds since 1970."""
        return self._context.processing_time()

    def current_watermark(self) -> int:
        """Event time that the operator has reached."""
        return self.watermark_ms


class RowContext:
    """The ``Context`` of a process function; one an operator, set anew for each row."""

    __slots__ = ("_time", "timestamp_ms")

    def __init__(self, time: OperatorTime) -> None:
        self._time = time
        self.timestamp_ms: int | None = None

    def timestamp(self) -> int | None:
        """Event time of the record, milliseconds; None where it has none."""
        return self.timestamp_ms

    def timer_service(self) -> OperatorTime:
        """Time."""
        return self._time

    def stamp(self) -> int:
        """Event time of a record that has one."""
        assert self.timestamp_ms is not None, "asked for rows with timestamps only"
        return self.timestamp_ms


class KeyedRowContext(RowContext):
    """The ``Context`` of a keyed process function."""

    __slots__ = ("_cell",)

    def __init__(self, time: OperatorTime, cell: KeyCell) -> None:
        super().__init__(time)
        self._cell = cell

    def get_current_key(self) -> object:
        """The record's key."""
        return self._cell.key


class ProcessOperator(FunctionOperator):
    """A process function without keys."""

    def __init__(self, function: object) -> None:
        super().__init__(function, "process_element")

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open the function."""
        self._time = OperatorTime(context)
        self._row = RowContext(self._time)
        super().open(context)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Note how far event time has come."""
        self._time.watermark_ms = watermark.ms
        out.emit_watermark(watermark)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """Process a batch; results of a row keep its timestamp."""
        rows = as_rows(batch)
        stamp = None if rows.timestamps_ms is None else self._row.stamp
        return emit_rows(self._results(rows), self._chunk_rows, out, stamp=stamp)

    def _results(self, rows: RowBatch) -> Iterator[object]:
        call, row, own = self._call, self._row, self._own
        value: object = None
        try:
            for value, row.timestamp_ms in zip(rows.values, stamps_of(rows), strict=False):
                results = call(value, row)
                if results is not None:
                    yield from results if own is None else map(own, results)
        except Exception as error:
            raise user_code_failed(error, operator=self._name, row=value) from error


class KeyedProcessOperator(ProcessOperator):
    """A process function on a keyed stream."""

    def __init__(self, function: object, key_type: TypeInformation | None = None) -> None:
        super().__init__(function)
        self.key_type = key_type

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open the function."""
        self._cell = context.current_key
        self._time = OperatorTime(context)
        self._row = KeyedRowContext(self._time, self._cell)
        FunctionOperator.open(self, context)

    def _results(self, rows: RowBatch) -> Iterator[object]:
        # The loop sets the key's cell in place: the cheapest form, and this is the hottest loop.
        call, row, cell, own = self._call, self._row, self._cell, self._own
        keys, groups = keys_of(rows)
        stamps = rows.timestamps_ms
        value: object = None
        try:
            if stamps is None:
                row.timestamp_ms = None
                for value, cell.key, cell.group in zip(rows.values, keys, groups, strict=True):
                    results = call(value, row)
                    if results is not None:
                        yield from results if own is None else map(own, results)
                return
            columns = zip(rows.values, keys, groups, stamps, strict=True)
            for value, cell.key, cell.group, row.timestamp_ms in columns:
                results = call(value, row)
                if results is not None:
                    yield from results if own is None else map(own, results)
        except Exception as error:
            raise user_code_failed(error, operator=self._name, row=value) from error


def stamps_of(rows: RowBatch) -> Iterable[int | None]:
    """A timestamp for each row, or None over and over."""
    return repeat(None) if rows.timestamps_ms is None else rows.timestamps_ms


def keys_of(rows: RowBatch) -> tuple[list[object], list[int]]:
    """Keys and key groups of the rows of a keyed edge."""
    assert rows.keys is not None and rows.key_groups is not None, "a keyed edge gives keys"
    return rows.keys, rows.key_groups

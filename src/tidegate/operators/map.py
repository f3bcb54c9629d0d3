"""Row by row without state: map, flat_map, filter."""

from __future__ import annotations

from contextlib import suppress
from itertools import compress
from operator import length_hint
from typing import TYPE_CHECKING

from tidegate.api.functions import SinkFunction
from tidegate.api.rows.batches import as_rows, shown
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.model.elements import MIN_TIMESTAMP_MS, RowBatch
from tidegate.model.topology import Delivery, DeliveryGuarantee
from tidegate.operators.emit import emit_rows, then_fail
from tidegate.operators.failures import raise_user_code_failed, user_code_failed
from tidegate.operators.function import FunctionOperator, row_call
from tidegate.operators.row_loop import stamps_of, user_call
from tidegate.traced.calls import batch_call, why_by_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.errors import TidegateError
    from tidegate.model.elements import Batch, Watermark
    from tidegate.operators.function import RowCall


class MapOperator(FunctionOperator):
    """Makes one value from each value."""

    def __init__(self, function: object) -> None:
        super().__init__(function, "map")

    @property
    def by_row(self) -> Mapping[str, str]:
        return {"map": why_by_row(row_call(self._function, self._method), named=True)}

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        trace = context.info.settings.trace_functions
        self._of_columns = batch_call(self._call, enabled=trace, named=True)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = as_rows(batch)
        if isinstance(rows, ColumnRows) and self._of_columns is not None:
            columns = self._of_columns(rows)
            if columns is not None:
                out.emit(ColumnRows(columns, form=self._of_columns.form, stamps=rows.stamps))
                return None
        mapped, failure = each(self._call, rows.values, self._name, own=self._own)
        if failure is None:
            out.emit(RowBatch(mapped, rows.timestamps_ms))
            return None
        stamps = rows.timestamps_ms
        out.emit(RowBatch(mapped, None if stamps is None else stamps[: len(mapped)]))
        return then_fail(failure)


class FilterOperator(FunctionOperator):
    """Keeps the values for which the function is true."""

    keeps_type = True

    def __init__(self, function: object) -> None:
        super().__init__(function, "filter")

    @property
    def by_row(self) -> Mapping[str, str]:
        return {"filter": why_by_row(row_call(self._function, self._method))}

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._of_columns = batch_call(self._call, enabled=context.info.settings.trace_functions)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = as_rows(batch)
        if isinstance(rows, ColumnRows) and self._of_columns is not None:
            columns = self._of_columns(rows)
            if columns is not None and not self._of_columns.is_tuple:
                kept = rows.take(columns[0].nonzero()[0])
                if len(kept):
                    out.emit(kept)
                return None
        keep, failure = each(self._call, rows.values, self._name)
        try:
            values = list(compress(rows.values, keep))
        except Exception as error:
            keep, failure = self._until(error, keep, rows.values)
            values = list(compress(rows.values, keep))
        if values:
            stamps = rows.timestamps_ms
            out.emit(RowBatch(values, None if stamps is None else list(compress(stamps, keep))))
        return None if failure is None else then_fail(failure)

    def _until(
        self, error: Exception, keep: list[object], values: list[object]
    ) -> tuple[list[object], TidegateError]:
        """Results up to the first that is neither true nor false, and the failure for that one."""
        told: list[object] = []
        with suppress(Exception):
            told.extend(map(bool, keep))
        at = min(len(told), len(keep) - 1)
        misfit = TypeError(f"{shown(keep[at])} is neither true nor false: {error}")
        failure = user_code_failed(misfit, operator=self._name, row=values[at], at=at)
        failure.__cause__ = error
        return told[:at], failure


class FlatMapOperator(FunctionOperator):
    """Makes any number of values from each value."""

    def __init__(self, function: object) -> None:
        super().__init__(function, "flat_map")

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._cell = context.state.cell
        self._user = user_call(self._call, self._own, self._loops, operator=self._name)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = as_rows(batch)
        results = self._loops.results_of_values(
            self._user, self._cell, rows.values, stamps_of(rows)
        )
        timed = None if rows.timestamps_ms is None else self._cell
        return emit_rows(results, self._draws, out, timed=timed)


def each(
    call: RowCall,
    values: list[object],
    operator: str,
    *,
    own: Callable[[object], object] | None = None,
) -> tuple[list[object], TidegateError | None]:
    """Results of a user's function for each value, up to the first failure.

    own: copies each result before the next call, which may change it. Result: beside the values
    the failure, with its row; None if there is none.
    """
    rest = iter(values)
    results: list[object] = []
    try:
        results.extend(map(call, rest) if own is None else map(own, map(call, rest)))
    except BaseException as error:
        at = len(values) - 1 - length_hint(rest)
        return results, user_code_failed(error, operator=operator, row=values[at], at=at)
    if len(results) < len(values):
        # `map` takes a StopIteration that leaves the function for its own end.
        stopped, at = StopIteration("raised by the function itself"), len(results)
        return results, user_code_failed(stopped, operator=operator, row=values[at], at=at)
    return results, None


class SinkContext:
    """The ``Context`` of a sink function; one for each operator, set for each row."""

    __slots__ = ("current_processing_time", "timestamp_ms", "watermark_ms")

    def __init__(self, context: OperatorContext) -> None:
        self.current_processing_time = context.time.processing_time
        self.timestamp_ms: int | None = None
        self.watermark_ms = MIN_TIMESTAMP_MS

    def current_watermark(self) -> int:
        return self.watermark_ms

    def timestamp(self) -> int | None:
        return self.timestamp_ms


class SinkFunctionOperator(FunctionOperator):
    """Calls a sink function, or a plain function, for each record."""

    writes = True

    def __init__(self, function: object) -> None:
        super().__init__(function, "invoke")

    @property
    def delivery(self) -> Delivery:
        return Delivery(DeliveryGuarantee.AT_LEAST_ONCE)

    def open(self, context: OperatorContext) -> None:
        self._row = SinkContext(context)
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        rows, context, call = as_rows(batch), self._row, self._call
        rest = iter(rows.values)
        value: object = None
        try:
            if isinstance(self._function, SinkFunction):
                for value, context.timestamp_ms in zip(rest, stamps_of(rows), strict=False):
                    call(value, context)
            else:
                for value in rest:
                    call(value)
        except BaseException as error:
            at = len(rows) - 1 - length_hint(rest)
            raise_user_code_failed(error, operator=self._name, row=value, at=at)

    def on_watermark(self, watermark: Watermark, out: Output) -> None:
        self._row.watermark_ms = watermark.ms

    def finish(self, out: Output) -> None:
        if isinstance(self._function, SinkFunction):
            self._guarded(self._function.finish)

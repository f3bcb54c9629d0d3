"""Rolling reduce on a keyed stream: each row emits the reduced value of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.api.functions import ReducingStateDescriptor
from tidegate.api.rows.batches import as_rows
from tidegate.model.elements import MAX_WATERMARK_MS, RowBatch
from tidegate.operators.aggregates.reduced_type import typed_reduce
from tidegate.operators.emit import ahead_of, emit_rows, then_fail
from tidegate.operators.failures import user_code_failed
from tidegate.operators.function import FunctionOperator, has_life, row_call
from tidegate.operators.keys import keys_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.state import ReducingState
    from tidegate.errors import TidegateError
    from tidegate.model.elements import Batch, Watermark
    from tidegate.typeinfo.types import TypeInformation

STATE_NAME = "_reduce_state"


class ReduceOperator(FunctionOperator):
    """A rolling reduce. type_info: of the values; None for any picklable value."""

    def __init__(self, function: object, type_info: TypeInformation | None = None) -> None:
        super().__init__(function, "reduce")
        self._type_info = type_info

    def open(self, context: OperatorContext) -> None:
        call = row_call(self._function, self._method)
        reduce = typed_reduce(call, self._type_info, context.info.name)
        descriptor = ReducingStateDescriptor(STATE_NAME, reduce, self._type_info)
        self._state = cast("ReducingState[object]", context.state.keyed_state(descriptor))
        self._cell = context.state.cell
        self._by_row = has_life(self._function)
        self._context = context
        self._final_only = context.info.settings.final_only
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = as_rows(batch)
        keys, groups = keys_of(rows)
        results: list[object] = []
        stamps, failure = rows.timestamps_ms, None
        try:
            if self._by_row:
                self._add_by_row(rows, self._emitter(results))
            else:
                self._state.add_rows(keys, groups, rows.values, self._emitter(results))
        except Exception as error:
            failure = self._failure(error, rows.values[len(results)])
            failure.__cause__ = None if failure is error else error
            stamps = None if stamps is None else stamps[: len(results)]
        if not self._final_only:
            out.emit(RowBatch(results, stamps))
        return None if failure is None else then_fail(failure)

    def _add_by_row(self, rows: RowBatch, emit: Callable[[object], None]) -> None:
        """Reduces row by row, for a function that may use state of the current key."""
        keys, groups = keys_of(rows)
        cell, state = self._cell, self._state
        for value, cell.key, cell.group in zip(rows.values, keys, groups, strict=True):
            state.add(value)
            emit(state.get())

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Emits the reduced value of each key at the end of a batch job."""
        if not (self._final_only and watermark.ms == MAX_WATERMARK_MS):
            return super().on_watermark(watermark, out)
        finals = (final for _, _, final in self._context.state.scan(STATE_NAME))
        return ahead_of(watermark, emit_rows(finals, self._draws, out), out)

    def _failure(self, error: Exception, row: object) -> TidegateError:
        return user_code_failed(error, operator=self._name, row=row)

    def _emitter(self, results: list[object]) -> Callable[[object], None]:
        own, append = self._own, results.append
        return append if own is None else lambda result: append(own(result))

"""A sink that is a function of each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.functions import SinkFunction
from tidegate.api.rows.batches import as_rows
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.operators.failures import user_code_failed
from tidegate.operators.function import FunctionOperator
from tidegate.operators.row_loop import stamps_of

if TYPE_CHECKING:
    from tidegate.api.operator import OperatorContext, Output
    from tidegate.model.elements import Batch, Watermark


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

    def open(self, context: OperatorContext) -> None:
        self._row = SinkContext(context)
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        rows, context, call = as_rows(batch), self._row, self._call
        value: object = None
        try:
            if isinstance(self._function, SinkFunction):
                for value, context.timestamp_ms in zip(rows.values, stamps_of(rows), strict=False):
                    call(value, context)
            else:
                for value in rows.values:
                    call(value)
        except Exception as error:
            raise user_code_failed(error, operator=self._name, row=value) from error

    def on_watermark(self, watermark: Watermark, out: Output) -> None:
        self._row.watermark_ms = watermark.ms

    def finish(self, out: Output) -> None:
        if isinstance(self._function, SinkFunction):
            self._guarded(self._function.finish)

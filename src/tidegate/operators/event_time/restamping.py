"""New event times in the middle of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import Operator
from tidegate.model.elements import MAX_WATERMARK_MS, ArrowBatch, RowBatch
from tidegate.operators.event_time.event_time import EventTime

if TYPE_CHECKING:
    from tidegate.api.operator import OperatorContext, Output
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.model.elements import Batch, Watermark, WatermarkStatus


class TimestampsOperator(Operator):
    """Replaces timestamps and watermarks by those of a strategy.

    Of the watermarks that come only the last one passes, for it says that nothing follows; an input
    that is idle is idle behind this step too.
    """

    keeps_type = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy

    def open(self, context: OperatorContext) -> None:
        self._time = EventTime(self._strategy, context)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        self._time.beat(out)
        if isinstance(batch, RowBatch):
            self._time.emit(RowBatch(batch.values, batch.timestamps_ms), out)
        else:
            self._time.emit(ArrowBatch(batch.batch, batch.timestamps_ms), out)

    def on_watermark(self, watermark: Watermark, out: Output) -> None:
        if watermark.ms == MAX_WATERMARK_MS:
            self._time.end(out)

    def on_watermark_status(self, status: WatermarkStatus, out: Output) -> None:
        self._time.input_status(status, out)

    def on_ready(self, out: Output) -> None:
        self._time.beat(out)

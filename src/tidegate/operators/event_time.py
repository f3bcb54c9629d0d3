"""Event time at a source: stamps batches and says how far time has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.api.batches import as_rows
from tidegate.api.watermarks import TimestampAssigner, WatermarkStrategy, WatermarkTracker
from tidegate.model.elements import (
    MIN_TIMESTAMP_MS,
    ArrowBatch,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.operators.failures import user_code_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.operator import OperatorContext, Output
    from tidegate.model.elements import Batch


class EventTime:
    """Applies a watermark strategy to the batches of one subtask.

    Watermarks come at most once in ``SlotSettings.watermark_ms``, the first after one interval.
    """

    def __init__(self, strategy: WatermarkStrategy, context: OperatorContext) -> None:
        self._context = context
        self._assign = assigner(strategy)
        self._idle_ms = strategy.idle_ms
        self._interval_ms = context.settings.watermark_ms
        periodic = strategy.lateness_ms is not None and self._interval_ms > 0
        self._tracker = WatermarkTracker(strategy.lateness_ms or 0) if periodic else None
        self._last_batch_ms = context.monotonic_ms()
        self._idle = False
        self._due_ms = self._last_batch_ms + self._interval_ms
        if periodic:
            context.wake_at(self._due_ms)

    def stamped(self, batch: Batch) -> Batch:
        """The batch with its timestamps; noted for the watermark."""
        if self._assign is not None:
            batch = with_timestamps(batch, self._assign, self._context.name)
        if self._tracker is not None and (greatest := greatest_timestamp(batch)) is not None:
            self._tracker.saw(greatest)
        if self._idle_ms is not None:
            self._last_batch_ms = self._context.monotonic_ms()
        return batch

    def emit_due(self, out: Output) -> None:
        """Emit the watermark where an interval has passed, and whether the source idles."""
        if self._tracker is None:
            return
        now_ms = self._context.monotonic_ms()
        self._emit_status(now_ms, out)
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self._interval_ms
            self._context.wake_at(self._due_ms)
            if (watermark_ms := self._tracker.advance()) is not None:
                out.emit_watermark(Watermark(watermark_ms))

    def _emit_status(self, now_ms: int, out: Output) -> None:
        if self._idle_ms is None:
            return
        idle = now_ms - self._last_batch_ms >= self._idle_ms
        if idle != self._idle:
            self._idle = idle
            out.emit_watermark(WatermarkStatus(idle))


def greatest_timestamp(batch: Batch) -> int | None:
    """The greatest event time in a batch; None where its rows have none."""
    if batch.timestamps_ms is None or not len(batch):
        return None
    if isinstance(batch, ArrowBatch):
        return int(batch.timestamps_ms.max())
    return max(batch.timestamps_ms)


def assigner(strategy: WatermarkStrategy) -> Callable[[Any, int], int] | None:
    """The function behind a strategy's assigner."""
    found = strategy.assigner
    return found.extract_timestamp if isinstance(found, TimestampAssigner) else found


def with_timestamps(batch: Batch, assign: Callable[[Any, int], int], operator: str) -> Batch:
    """The batch with timestamps by a user's function of a row; Arrow rows are given as dicts."""
    rows = as_rows(batch)
    old = rows.timestamps_ms or [MIN_TIMESTAMP_MS] * len(rows)
    stamps: list[int] = []
    try:
        stamps.extend(assign(value, stamp) for value, stamp in zip(rows.values, old, strict=True))
    except Exception as error:
        row = rows.values[len(stamps)]
        raise user_code_failed(error, operator=operator, row=row) from error
    if isinstance(batch, RowBatch):
        return RowBatch(batch.values, stamps, batch.keys, batch.key_groups)
    import numpy as np

    found = np.asarray(stamps, np.int64)
    return ArrowBatch(batch.batch, found, batch.key_column, batch.key_groups)

"""Event time of one subtask: stamps its batches and says how far time has come.

One object serves a source and a step in the middle of a stream. Its watermarks are placed within
the batch that they belong to: a watermark that a generator emits at a row leaves behind that row
and ahead of the next one.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from tidegate.api.operator import Operator
from tidegate.api.rows.batches import as_rows
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.api.watermarks import WatermarkGenerator
from tidegate.config.warnings import Warn
from tidegate.errors import GraphError
from tidegate.model.control import Remark
from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    MIN_TIMESTAMP_MS,
    ArrowBatch,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.operators.event_time.stamps import assigner_by_row, stamp_by
from tidegate.operators.failures import raise_user_code_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.api.operator import OperatorContext, Output
    from tidegate.api.watermarks import WatermarkStrategy
    from tidegate.model.elements import Batch

_SECONDS_OF_2001: Final = 10**9
"""Below are the small numbers of tests and examples."""

_MS_OF_1980: Final = 315_532_800_000


class EventTime:
    """Applies a watermark strategy to the batches of one subtask.

    Periodic watermarks come at most once in ``SlotSettings.watermark_ms``, the first after one
    interval; at the same beat it is seen whether the input idles. The owner calls ``beat`` whenever
    the slot calls it, which is asked to, and ahead of a batch rather than behind it: then there is
    room.
    """

    def __init__(self, strategy: WatermarkStrategy, context: OperatorContext) -> None:
        self._context = context
        self._marks = Marks()
        assigner = strategy.assigner
        settings, name = context.info.settings, context.info.name
        trace = settings.trace_functions
        self._stamp = None if assigner is None else stamp_by(assigner, name, trace=trace)
        final_only = settings.final_only  # time stands still until all has come
        self._generator = None if final_only else _generator(strategy, context.info.name)
        self._idle_ms = None if final_only else strategy.idle_ms
        self._quiet_ms = 0
        self._came = False
        self._periodic = self._generator is not None and context.info.settings.watermark_ms > 0
        self._beat_ms = context.info.settings.watermark_ms if self._periodic else self._idle_ms
        self._due_ms = 0
        self._arm()
        self._looks = self._stamp is not None

    @property
    def position_ms(self) -> int | None:
        """Watermark that the records so far allow; None before the first one, or while idle."""
        position = MIN_TIMESTAMP_MS
        if self._generator is not None and not self._marks.idle:
            position = max(self._generator.reached_ms, self._marks.reached_ms)
        return position if position > MIN_TIMESTAMP_MS else None

    def emit(self, batch: Batch, out: Output) -> None:
        if self._stamp is not None:
            batch = self._stamp(batch)
            if self._looks:
                self._look(batch)
        if self._idles:
            self._marks.mark_active()
        self._came, self._quiet_ms = True, 0
        if self._generator is not None:
            self._generator.saw(batch, self._marks)
        self._marks.pass_on(out, batch)

    def _look(self, batch: Batch) -> None:
        """Warns of times that look like seconds; checks one row of a batch."""
        stamps = batch.stamps if isinstance(batch, ColumnRows) else batch.timestamps_ms
        first = None if stamps is None or not len(batch) else int(stamps[0])
        if first is not None and _SECONDS_OF_2001 <= first < _MS_OF_1980:
            self._looks = False
            remark = Remark(Warn.TIMES_BEFORE_1980.value, self._context.info.name, str(first))
            self._context.tasks.remarks.append(remark)

    def beat(self, out: Output, *, reading: bool = True) -> None:
        """Where an interval has passed: emit the watermark, and see whether the input idles.

        Without room it is left to the next beat. reading: whether the owner would have read its
        input; where it or anyone else held that back, silence does not count.
        """
        if self._beat_ms is None or self._context.time.monotonic_ms() < self._due_ms:
            return
        self._arm()
        if not out.has_room:
            return
        if reading and not self._came and self._context.tasks.takes_input():
            self._quiet_ms += self._beat_ms
        self._came = False
        if self._idles:
            self._marks.mark_idle()
        elif self._periodic and self._generator is not None:
            self._generator.beat(self._marks)
        self._marks.pass_on(out)

    def input_status(self, status: WatermarkStatus, out: Output) -> None:
        if status.idle:
            self._marks.mark_idle()
        else:
            self._marks.mark_active()
        self._marks.pass_on(out)

    def end(self, out: Output) -> None:
        self._marks.mark_active()
        self._marks.emit_watermark(MAX_WATERMARK_MS)
        self._marks.pass_on(out)

    @property
    def _idles(self) -> bool:
        return self._idle_ms is not None and self._quiet_ms >= self._idle_ms

    def _arm(self) -> None:
        if self._beat_ms is not None:
            self._due_ms = self._context.time.monotonic_ms() + self._beat_ms
            self._context.time.wake_at(self._due_ms)


class Marks:
    """Events between batches: watermarks, which only advance, and changes of idleness.

    A ``WatermarkOutput``. row: how many rows of the batch at hand stand before what is said.
    """

    def __init__(self) -> None:
        self.reached_ms = MIN_TIMESTAMP_MS
        self.idle = False
        self.row = 0
        self._said: list[tuple[int, Watermark | WatermarkStatus]] = []

    def emit_watermark(self, timestamp: int) -> None:
        try:
            ms = index(timestamp)
        except TypeError:
            raise TypeError(
                f"a watermark is an int of milliseconds, not {type(timestamp).__name__}"
            ) from None
        if not MIN_TIMESTAMP_MS <= ms <= MAX_WATERMARK_MS:
            raise ValueError(f"a watermark has 64 bits, and {ms} has more")
        if ms > self.reached_ms:
            self.mark_active()
            self.reached_ms = ms
            self._said.append((self.row, Watermark(ms)))

    def mark_idle(self) -> None:
        """Adds an idle mark; not after the end of event time."""
        if not self.idle and self.reached_ms < MAX_WATERMARK_MS:
            self.idle = True
            self._said.append((self.row, WatermarkStatus(idle=True)))

    def mark_active(self) -> None:
        if self.idle:
            self.idle = False
            self._said.append((self.row, WatermarkStatus(idle=False)))

    def pass_on(self, out: Output, batch: Batch | None = None) -> None:
        start = 0
        for row, mark in self._said:
            if batch is not None and row > start:
                out.emit(batch.piece(start, row))
                start = row
            out.emit_watermark(mark)
        self._said.clear()
        self.row = 0
        if batch is not None and start < len(batch):
            out.emit(batch.piece(start, len(batch)) if start else batch)


class _Generator(Protocol):
    """Makes watermarks from batches. reached_ms: the watermark that they allow."""

    @property
    def reached_ms(self) -> int: ...

    def saw(self, batch: Batch, marks: Marks) -> None: ...

    def beat(self, marks: Marks) -> None: ...


def _generator(strategy: WatermarkStrategy, operator: str) -> _Generator | None:
    if strategy.supplier is not None:
        return _UserGenerator(_made(strategy.supplier, operator), operator)
    return None if strategy.lateness_ms is None else BoundedLateness(strategy.lateness_ms)


class BoundedLateness:
    """The greatest timestamp, less the lateness, less 1 ms; works on whole batches."""

    def __init__(self, lateness_ms: int) -> None:
        self._behind_ms = lateness_ms + 1
        self.reached_ms = MIN_TIMESTAMP_MS

    def saw(self, batch: Batch, marks: Marks) -> None:
        greatest = greatest_timestamp(batch)
        if greatest is not None:
            self.reached_ms = max(self.reached_ms, greatest - self._behind_ms)

    def beat(self, marks: Marks) -> None:
        marks.emit_watermark(self.reached_ms)


class _UserGenerator:
    """A user's generator, row by row. reached_ms: its last watermark."""

    reached_ms = MIN_TIMESTAMP_MS

    def __init__(self, generator: WatermarkGenerator[Any], operator: str) -> None:
        self._generator = generator
        self._operator = operator

    def saw(self, batch: Batch, marks: Marks) -> None:
        rows = as_rows(batch)
        stamps = rows.timestamps_ms or [MIN_TIMESTAMP_MS] * len(rows)
        on_event = self._generator.on_event
        value: object = None
        try:
            for value, stamp in zip(rows.values, stamps, strict=True):
                marks.row += 1
                on_event(value, stamp, marks)
        except BaseException as error:
            raise_user_code_failed(error, operator=self._operator, row=value)

    def beat(self, marks: Marks) -> None:
        try:
            self._generator.on_periodic_emit(marks)
        except BaseException as error:
            call = "on_periodic_emit"
            raise_user_code_failed(error, operator=self._operator, call=call)


def _made(supplier: Callable[[], object], operator: str) -> WatermarkGenerator[Any]:
    try:
        made = supplier()
    except BaseException as error:
        call = "supplier of watermark generators"
        raise_user_code_failed(error, operator=operator, call=call)
    if not isinstance(made, WatermarkGenerator):
        raise GraphError(
            f"the supplier of watermark generators gave {made!r}, which is not one",
            where=f"operator '{operator}'",
            remedy="Return an object of a class derived from WatermarkGenerator.",
        )
    return cast("WatermarkGenerator[Any]", made)


def greatest_timestamp(batch: Batch) -> int | None:
    """The greatest event time in a batch; None if its rows have none."""
    if batch.timestamps_ms is None or not len(batch):
        return None
    if isinstance(batch, ArrowBatch):
        return int(batch.timestamps_ms.max())
    if isinstance(batch, ColumnRows) and batch.stamps is not None:
        return int(batch.stamps.max())
    return max(batch.timestamps_ms)


class TimestampsOperator(Operator):
    """Replaces timestamps and watermarks by those of a strategy.

    Of the watermarks that come only the last one passes, for it says that nothing follows; an input
    that is idle is idle behind this step too.
    """

    keeps_type = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy

    @property
    def by_row(self) -> Mapping[str, str]:
        return assigner_by_row(self._strategy)

    def open(self, context: OperatorContext) -> None:
        self._time = EventTime(self._strategy, context)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        self._time.beat(out)
        if isinstance(batch, ColumnRows):
            self._time.emit(batch.stamped(batch.stamps), out)
        elif isinstance(batch, RowBatch):
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

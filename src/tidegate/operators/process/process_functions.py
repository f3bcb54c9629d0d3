"""Process functions, with and without keys: time, timers, side outputs."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

from tidegate.api.functions import TimeDomain
from tidegate.api.output_tag import MADE, is_aside
from tidegate.api.rows.batches import as_rows
from tidegate.errors import UserError
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.operators.emit import PIECE_MS, ahead_of, emit_rows, in_pieces
from tidegate.operators.failures import TEXTS, ReturnedBeside, may_give_text, user_code_failed
from tidegate.operators.function import FunctionOperator, row_call
from tidegate.typeinfo.copies import private_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.api.operator import (
        KeyCell,
        OperatorContext,
        Output,
        Steps,
        TimerQueue,
        Timers,
    )
    from tidegate.model.elements import Batch, RowBatch, Watermark
    from tidegate.typeinfo.types import TypeInformation

TIMERS = "user-timers"


class OperatorTime:
    """The ``TimerService`` of a function. timers: those of its keys; None where it has none."""

    def __init__(self, context: OperatorContext, timers: Timers | None = None) -> None:
        self._name = context.name
        self._timers = timers
        self.current_processing_time = context.processing_time
        self.watermark_ms = MIN_TIMESTAMP_MS

    def current_watermark(self) -> int:
        """Event time that the operator has reached."""
        return self.watermark_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        """Set a timer of the current key. Raises UserError where there are no keys."""
        self._keyed.event.register(timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Set a timer of the current key. Raises UserError where there are no keys."""
        self._keyed.processing.register(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Take back a timer of the current key. Raises UserError where there are no keys."""
        self._keyed.event.delete(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Take back a timer of the current key. Raises UserError where there are no keys."""
        self._keyed.processing.delete(timestamp)

    @property
    def _keyed(self) -> Timers:
        if self._timers is None:
            raise UserError(
                "Setting timers is only supported on a keyed stream",
                where=f"operator '{self._name}'",
                remedy="Call key_by before, and use the keyed form of the function.",
            )
        return self._timers


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
        """Time, and timers where there are keys."""
        return self._time


class KeyedRowContext(RowContext):
    """The ``Context`` and the ``OnTimerContext`` of a keyed process function."""

    __slots__ = ("_cell", "domain")

    def __init__(self, time: OperatorTime, cell: KeyCell) -> None:
        super().__init__(time)
        self._cell = cell
        self.domain = TimeDomain.EVENT_TIME

    def get_current_key(self) -> object:
        """The key of the record or timer."""
        return self._cell.key

    def time_domain(self) -> TimeDomain:
        """What the timer goes by."""
        return self.domain


class ProcessOperator(FunctionOperator):
    """A process function without keys."""

    methods: tuple[str, ...] = ("process_element",)
    """What is called for the rows of each input, by port."""

    def __init__(self, function: object) -> None:
        super().__init__(function, self.methods[0])

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open the function."""
        self._time = OperatorTime(context)
        self._row = RowContext(self._time)
        self._open(context)

    def _open(self, context: OperatorContext) -> None:
        super().open(context)
        self._calls = [row_call(self._function, method) for method in self.methods]
        if self._own is None and MADE.any and not context.settings.object_reuse:
            self._own = _own_aside  # the declared type is that of the main output

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Note how far event time has come."""
        self._time.watermark_ms = watermark.ms
        out.emit_watermark(watermark)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """Process a batch; results of a row keep its timestamp."""
        rows = as_rows(batch)
        self._call = self._calls[port]
        timed = None if rows.timestamps_ms is None else self._row
        return emit_rows(self._results(rows), self._draws, out, timed=timed)

    def _results(self, rows: RowBatch) -> Iterator[object]:
        call, row, own, texts = self._call, self._row, self._own, may_give_text(self._call)
        value = results = None
        try:
            for value, row.timestamp_ms in zip(rows.values, stamps_of(rows), strict=False):
                results = call(value, row)
                if results is not None:
                    if texts and type(results) in TEXTS:
                        raise TypeError("text is no iterable of records")
                    beside = yield from results if own is None else map(own, results)
                    if beside is not None:
                        raise ReturnedBeside(beside)
        except Exception as error:
            failed = user_code_failed(error, operator=self._name, row=value, returned=results)
            raise failed from error


class TimedOperator(ProcessOperator):
    """A function with keys and timers: what ``on_timer`` gives comes before the watermark."""

    def __init__(self, function: object, key_type: TypeInformation | None = None) -> None:
        super().__init__(function)
        self.key_type = key_type

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open the function."""
        self._cell = context.current_key
        self._timers = context.timers(TIMERS)
        self._time = OperatorTime(context, self._timers)
        self._monotonic_ms = context.monotonic_ms
        self._row = self._keyed_row = self._make_row(context)
        self._on_timer = cast("Callable[..., Any]", getattr(self._function, "on_timer"))  # noqa: B009
        self._open(context)

    def _make_row(self, context: OperatorContext) -> KeyedRowContext:
        return KeyedRowContext(self._time, self._cell)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Call what is due, then pass the watermark on."""
        self._time.watermark_ms = watermark.ms
        if is_due(self._timers.event, watermark.ms):
            due = self._fire(TimeDomain.EVENT_TIME, watermark.ms, out)
            return ahead_of(watermark, due, out)
        out.emit_watermark(watermark)
        return None

    def on_ready(self, out: Output) -> Steps | None:
        """Call what is due by the wall clock."""
        now_ms = self._time.current_processing_time()
        return self._fire(TimeDomain.PROCESSING_TIME, now_ms, out)

    def _fire(self, domain: TimeDomain, until_ms: int, out: Output) -> Steps:
        """Call what is due, in pieces."""
        self._keyed_row.domain = domain
        event_time = domain is TimeDomain.EVENT_TIME
        timers = self._timers.event if event_time else self._timers.processing
        timed = self._keyed_row if event_time else None
        due = timers.due(until_ms)

        def piece() -> Steps | None:
            fired = self._fired(self._until(self._monotonic_ms() + PIECE_MS, due))
            return emit_rows(fired, self._draws, out, timed=timed)

        return in_pieces(piece, partial(is_due, timers, until_ms))

    def _until(
        self, end_ms: int, due: Iterator[tuple[int, object]]
    ) -> Iterator[tuple[int, object]]:
        for timer in due:
            yield timer
            if self._monotonic_ms() >= end_ms:
                return

    def _fired(self, due: Iterator[tuple[int, object]]) -> Iterator[object]:
        call, row, own = self._on_timer, self._keyed_row, self._own
        texts, results = may_give_text(call), None
        try:
            for row.timestamp_ms, _ in due:
                results = call(row.timestamp_ms, row)
                if results is not None:
                    if texts and type(results) in TEXTS:
                        raise TypeError("text is no iterable of records")
                    beside = yield from results if own is None else map(own, results)
                    if beside is not None:
                        raise ReturnedBeside(beside)
        except Exception as error:
            failed = user_code_failed(error, operator=self._name, call="on_timer", returned=results)
            raise failed from error


class KeyedProcessOperator(TimedOperator):
    """A process function on a keyed stream."""

    def _results(self, rows: RowBatch) -> Iterator[object]:
        # The loop sets the key's cell in place: the cheapest form, and this is the hottest loop.
        call, row, cell, own = self._call, self._row, self._cell, self._own
        keys, groups = keys_of(rows)
        stamps, texts = rows.timestamps_ms, may_give_text(call)
        value = results = None
        try:
            if stamps is None:
                row.timestamp_ms = None
                for value, cell.key, cell.group in zip(rows.values, keys, groups, strict=True):
                    results = call(value, row)
                    if results is not None:
                        if texts and type(results) in TEXTS:
                            raise TypeError("text is no iterable of records")
                        beside = yield from results if own is None else map(own, results)
                        if beside is not None:
                            raise ReturnedBeside(beside)
                return
            columns = zip(rows.values, keys, groups, stamps, strict=True)
            for value, cell.key, cell.group, row.timestamp_ms in columns:
                results = call(value, row)
                if results is not None:
                    if texts and type(results) in TEXTS:
                        raise TypeError("text is no iterable of records")
                    beside = yield from results if own is None else map(own, results)
                    if beside is not None:
                        raise ReturnedBeside(beside)
        except Exception as error:
            failed = user_code_failed(error, operator=self._name, row=value, returned=results)
            raise failed from error


def is_due(timers: TimerQueue, until_ms: int) -> bool:
    """Whether a timer may be due by then."""
    return timers.next_ms is not None and timers.next_ms <= until_ms


def stamps_of(rows: RowBatch) -> Iterable[int | None]:
    """A timestamp for each row, or None over and over."""
    return repeat(None) if rows.timestamps_ms is None else rows.timestamps_ms


def keys_of(rows: RowBatch) -> tuple[list[object], list[int]]:
    """Keys and key groups of the rows of a keyed edge."""
    assert rows.keys is not None and rows.key_groups is not None, "a keyed edge gives keys"
    return rows.keys, rows.key_groups


def _own_aside(result: object) -> object:
    if not is_aside(result):
        return result
    tag, value = cast("tuple[object, object]", result)
    return tag, private_copy(value)

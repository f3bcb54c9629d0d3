"""One loop that calls a user's function for each row, with or without keys and times."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol, cast

from tidegate.api.operator import KeyCell
from tidegate.api.output_tag import MADE, is_aside
from tidegate.api.rows.batches import as_rows
from tidegate.operators.emit import emit_rows
from tidegate.operators.failures import TEXTS, ReturnedBeside, may_give_text, user_code_failed
from tidegate.operators.keys import keys_of
from tidegate.typeinfo.copies import private_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.model.elements import Batch, RowBatch
    from tidegate.operators.emit import Draws

    Columns = Iterable[tuple[object, object, int, int | None]]


class Context(Protocol):
    """The context that a function is given, which is told the event time of each row."""

    timestamp_ms: int | None


class RowLoop:
    """Calls a function for each row of a batch and passes its results on, with the row's time.

    An operator has one for each input. context: given to the function beside each row. cell: is
    told the key of each row; None if rows have no keys. own: makes a result the next operator's
    own; None if it may be shared.
    """

    __slots__ = ("_call", "_cell", "_context", "_draws", "_is_keyed", "_operator", "_own")

    def __init__(
        self,
        call: Callable[..., Any],
        context: Context,
        cell: KeyCell | None,
        *,
        draws: Draws,
        own: Callable[[object], object] | None,
        operator: str,
    ) -> None:
        self._call = call
        self._context = context
        self._is_keyed = cell is not None
        self._cell = KeyCell() if cell is None else cell
        self._draws = draws
        self._own = own
        self._operator = operator

    def process(self, batch: Batch, out: Output) -> Steps | None:
        rows = as_rows(batch)
        timed = None if rows.timestamps_ms is None else self._context
        return emit_rows(self._results(self._columns(rows)), self._draws, out, timed=timed)

    def fire(self, due: Iterator[tuple[int, object]], out: Output, *, timed: bool) -> Steps | None:
        """Call the function for timers, each of which sets the cell when it is drawn.

        timed: True if a result has the time of its timer.
        """
        cell = self._cell
        columns = ((ms, cell.key, cell.group, ms) for ms, _ in due)
        results = self._results(columns, call_name="on_timer")
        return emit_rows(results, self._draws, out, timed=self._context if timed else None)

    def _columns(self, rows: RowBatch) -> Columns:
        stamps = stamps_of(rows)
        if not self._is_keyed:
            return zip(rows.values, repeat(None), repeat(-1), stamps, strict=False)
        keys, groups = keys_of(rows)
        assert len(rows.values) == len(keys) == len(groups), "a key and a key group for each row"
        return zip(rows.values, keys, groups, stamps, strict=False)

    def _results(self, columns: Columns, *, call_name: str = "") -> Iterator[object]:
        # This is the hottest loop of programs of rows, so the cell and the time are set in place.
        # Where there are no keys or times the loop sets what nobody reads: that is lost in the
        # noise of benchmarks/w1_tidegate, and a second generator for each row is not.
        # FlatMapOperator and the interval join have this loop once more, without what they do not
        # need: through this one a row of flat_map costs 191 ns in place of 163, and a pair of the
        # join one more call.
        call, context, cell, own = self._call, self._context, self._cell, self._own
        texts = may_give_text(call)
        value = results = None
        try:
            for value, cell.key, cell.group, context.timestamp_ms in columns:
                results = call(value, context)
                if results is not None:
                    if texts and type(results) in TEXTS:
                        raise TypeError("text is not an iterable of records")
                    beside = yield from results if own is None else map(own, results)
                    if beside is not None:
                        raise ReturnedBeside(beside)
        except Exception as error:
            failed = user_code_failed(
                error, operator=self._operator, row=value, call=call_name, returned=results
            )
            raise failed from error


def owner(
    own: Callable[[object], object] | None, context: OperatorContext
) -> Callable[[object], object] | None:
    """Function that copies results, so that the next operator owns them; None without a need.

    own: of results of the declared type, which is that of the main output.
    """
    if own is None and MADE.any and not context.info.settings.object_reuse:
        return _own_aside
    return own


def stamps_of(rows: RowBatch) -> Iterable[int | None]:
    """A timestamp for each row, or None for all."""
    return repeat(None) if rows.timestamps_ms is None else rows.timestamps_ms


def _own_aside(result: object) -> object:
    if not is_aside(result):
        return result
    tag, value = cast("tuple[object, object]", result)
    return tag, private_copy(value)

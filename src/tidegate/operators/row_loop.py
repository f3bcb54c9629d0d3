"""One loop that calls a user's function for each row, with or without keys and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tidegate.api.output_tag import MADE, is_aside
from tidegate.api.rows.batches import as_rows
from tidegate.loops.forms import loops_with
from tidegate.operators.emit import emit_rows
from tidegate.operators.failures import ReturnedBeside, may_give_text, user_code_failed
from tidegate.operators.keys import keys_of
from tidegate.typeinfo.copies import private_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.loops.calls import UserCall
    from tidegate.loops.cells import KeyCell
    from tidegate.loops.forms import Loops
    from tidegate.model.elements import Batch, RowBatch
    from tidegate.operators.emit import Draws


class RowLoop:
    """Calls a function for each row of a batch and passes its results on, with the row's time.

    An operator has one for each input. user: the function. context: given to it beside each row.
    cell: told the row that is in hand. is_keyed: rows have keys.
    """

    __slots__ = ("_cell", "_context", "_draws", "_is_keyed", "_loops", "_user")

    def __init__(
        self, user: UserCall, context: object, cell: KeyCell, draws: Draws, *, is_keyed: bool
    ) -> None:
        self._user = user
        self._context = context
        self._cell = cell
        self._draws = draws
        self._is_keyed = is_keyed
        self._loops = loops_with(cell)

    def process(self, batch: Batch, out: Output) -> Steps | None:
        rows = as_rows(batch)
        values, count = rows.values, len(rows)
        keys, groups = keys_of(rows) if self._is_keyed else ([None] * count, [-1] * count)
        stamps = stamps_of(rows)
        assert len(keys) == len(groups) == len(stamps) == count, "a key and a time for each row"
        results = self._loops.results_of_rows(
            self._user, self._context, self._cell, values, keys, groups, stamps
        )
        timed = None if rows.timestamps_ms is None else self._cell
        return emit_rows(results, self._draws, out, timed=timed)

    def fire(self, due: Iterator[tuple[int, object]], out: Output, *, timed: bool) -> Steps | None:
        """Call the function for timers, each of which sets the cell when it is drawn.

        timed: True if a result has the time of its timer.
        """
        results = self._loops.results_of_timers(self._user, self._context, self._cell, due)
        return emit_rows(results, self._draws, out, timed=self._cell if timed else None)


def user_call(
    call: Callable[..., object],
    own: Callable[[object], object] | None,
    loops: Loops,
    *,
    operator: str,
    call_name: str = "",
) -> UserCall:
    """A function with what becomes of its results and failures. call_name: if it has no row."""

    def failed(error: BaseException, row: object, returned: object) -> Exception:
        return user_code_failed(
            error, operator=operator, row=row, call=call_name, returned=returned
        )

    return loops.user_call(call, own, may_give_text(call), ReturnedBeside, failed)


def owner(
    own: Callable[[object], object] | None, context: OperatorContext
) -> Callable[[object], object] | None:
    """Function that copies results, so that the next operator owns them; None without a need.

    own: of results of the declared type, which is that of the main output.
    """
    if own is None and MADE.any and not context.info.settings.object_reuse:
        return _own_aside
    return own


def stamps_of(rows: RowBatch) -> list[Any]:
    """A timestamp for each row, or None for all."""
    stamps = rows.timestamps_ms
    return [None] * len(rows) if stamps is None else stamps


def _own_aside(result: object) -> object:
    if not is_aside(result):
        return result
    tag, value = cast("tuple[object, object]", result)
    return tag, private_copy(value)

"""Results of windows as columns, by window functions of which symbols show all that they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tidegate.api.rows.column_rows import TUPLE, ColumnRows
from tidegate.traced.calls import named
from tidegate.traced.evaluation import evaluated_whole
from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Field, Traced, trace, trace_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import RowForm
    from tidegate.api.windows import TimeWindow
    from tidegate.operators.aggregates.folded import FoldedKeys

_KEY, _WINDOW, _ELEMENT = range(3)


class ColumnResults:
    """Evaluates what makes a result of what a window holds, for all keys of a window together.

    of_element: makes the only element of what is gathered; None if that is the element. function:
    the window function; None if the element is the result. form: of what is gathered. width: its
    fields. Raises NotPure if a function has to be called.
    """

    def __init__(self, of_element: object, function: object, *, form: RowForm, width: int) -> None:
        self._of_element = of_element
        self._function = function
        self._form = form
        self._width = width
        self._traced: tuple[Traced | None, Traced | None] | None = self._trace()

    def rows(self, window: TimeWindow, held: FoldedKeys) -> ColumnRows | None:
        """A result for each key, in the order of key groups; None where functions are called."""
        order = held.groups.argsort(kind="stable")
        gathered = [each.take(order) for each in held.values]
        traced = self._current()
        if traced is None or held.form != self._form:
            return None
        of_element, function = traced
        count, form = len(order), self._form
        columns: Sequence[NDArray[Any] | None] | None = gathered
        if of_element is not None:
            columns = evaluated_whole(of_element.expressions, named(gathered, form, 0), count)
            form = of_element.form
        if columns is not None and function is not None:
            fields = named(cast("Any", columns), form, _ELEMENT)
            fields[Field(_KEY, None)] = held.keys.take(order)
            fields[Field(_WINDOW, "start", attribute=True)] = np.full(count, window.start)
            fields[Field(_WINDOW, "end", attribute=True)] = np.full(count, window.end)
            columns = evaluated_whole(function.expressions, fields, count)
            form = function.form
        if columns is None:
            return None
        stamps = np.full(count, window.max_timestamp())
        return ColumnRows(cast("Any", columns), form=form, stamps=stamps)

    def _current(self) -> tuple[Traced | None, Traced | None] | None:
        """The functions as globals and cells are now; None once one of them is not pure."""
        try:
            if self._traced is not None and not all(map(_is_current, self._traced)):
                self._traced = self._trace()
        except NotPure:
            # A cell may come to hold something else again, which is no reason to look each time.
            self._traced = None
        return self._traced

    def _trace(self) -> tuple[Traced | None, Traced | None]:
        of_element, width, form = None, self._width, self._form
        if self._of_element is not None:
            of_element = self._trace_element()
            width, form = len(of_element.expressions), of_element.form
        function = None
        if self._function is not None:
            function = trace_window(self._function, width if form == TUPLE else None)
        return of_element, function

    def _trace_element(self) -> Traced:
        try:
            return trace(self._of_element)
        except NotPure as reason:
            if self._function is None:
                raise
            raise NotPure(f"in get_result, {reason}") from None


def _is_current(traced: Traced | None) -> bool:
    return traced is None or traced.is_current()

"""Functions of rows as functions of batches of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Traced, trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import ColumnRows
    from tidegate.traced.evaluation import Fields


class BatchCall:
    """Evaluates a pure function over batches; None where the function has to be called."""

    def __init__(self, traced: Traced) -> None:
        self._traced: Traced | None = traced

    @property
    def is_tuple(self) -> bool:
        """True if the function returns a tuple of its columns, False if its only column."""
        return self._traced is not None and self._traced.is_tuple

    def __call__(
        self, rows: ColumnRows, second: NDArray[Any] | None = None
    ) -> list[NDArray[Any]] | None:
        """A column for each part of the result; None where a result might differ from Python's.

        second: the second argument of a function that takes two.
        """
        traced = self._current()
        if traced is None:
            return None
        fields = fields_of(rows)
        if second is not None:
            fields[1, None] = second
        # NumPy is loaded where batches are, not by whoever writes a program.
        from tidegate.traced.evaluation import evaluated

        return cast("list[NDArray[Any]] | None", evaluated(traced.expressions, fields, len(rows)))

    def _current(self) -> Traced | None:
        """The function as its globals and cells are now."""
        traced = self._traced
        if traced is None:
            return None
        try:
            if not traced.is_current():
                self._traced = traced = trace(traced.function, traced.arguments)
        except NotPure:
            self._traced = traced = None
        return traced


def batch_call(function: object, arguments: int = 1, *, enabled: bool) -> BatchCall | None:
    """A call for batches; None for a function that does more than symbols show."""
    if not enabled:
        return None
    try:
        return BatchCall(trace(function, arguments))
    except NotPure:
        return None


def why_by_row(function: object, arguments: int = 1) -> str:
    """Why a function is called for each row; empty if it is evaluated over columns."""
    try:
        trace(function, arguments)
    except NotPure as reason:
        return str(reason)
    return ""


def fields_of(rows: ColumnRows, argument: int = 0) -> Fields:
    """Columns by the names that a function has for them. argument: number of the row."""
    if not rows.is_tuple:
        return {(argument, None): rows.columns[0]}
    width = rows.width
    return {
        (argument, name): column
        for index, column in enumerate(rows.columns[:width])
        for name in (index, index - width)
    }

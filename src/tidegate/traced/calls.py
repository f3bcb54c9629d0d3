"""Functions of rows as functions of batches of columns."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tidegate.traced.evaluation import Doubt, Evaluation
from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Field, Traced, trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import ColumnRows


class BatchCall:
    """Evaluates a pure function over batches; None where the function has to be called."""

    def __init__(self, traced: Traced) -> None:
        self._traced: Traced | None = traced
        self.is_tuple = traced.is_tuple

    def __call__(self, rows: ColumnRows) -> list[NDArray[Any]] | None:
        """A column for each part of the result; None where a result might differ from Python's."""
        traced = self._current()
        if traced is None:
            return None
        evaluation = Evaluation(fields_of(rows), len(rows))
        try:
            return [evaluation.column(each) for each in traced.expressions]
        except Doubt:
            return None

    def _current(self) -> Traced | None:
        """The function as its globals and cells are now."""
        traced = self._traced
        if traced is None:
            return None
        try:
            if not traced.is_current():
                self._traced = traced = trace(traced.function)
        except NotPure:
            self._traced = traced = None
        return traced


def batch_call(function: object, *, enabled: bool) -> BatchCall | None:
    """A call for batches; None for a function that does more than symbols show."""
    if not enabled:
        return None
    try:
        return BatchCall(trace(function))
    except NotPure:
        return None


def field_of(selector: object) -> Field | None:
    """The field that a function takes, if it does nothing else; ``itemgetter`` too."""
    if type(selector) is itemgetter:
        _, parts = selector.__reduce__()  # pyright: ignore[reportAssignmentType]
        return Field(0, parts[0]) if len(parts) == 1 and type(parts[0]) in (int, str) else None
    try:
        traced = trace(selector)
    except NotPure:
        return None
    only = traced.expressions[0]
    return only if not traced.is_tuple and isinstance(only, Field) else None


def fields_of(rows: ColumnRows) -> dict[tuple[int, int | str | None], NDArray[Any]]:
    """Columns by the names that a function has for them."""
    if not rows.is_tuple:
        return {(0, None): rows.columns[0]}
    count = len(rows.columns)
    return {
        (0, name): column
        for index, column in enumerate(rows.columns)
        for name in (index, index - count)
    }

"""Functions of rows as functions of batches of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from flinkformat.row import Row
from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Field, Traced, trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import ColumnRows, RowForm
    from tidegate.model.nullable import FieldValues
    from tidegate.traced.evaluation import Fields


class BatchCall:
    """Evaluates a pure function over batches; None where the function has to be called."""

    def __init__(self, traced: Traced, *, named: bool) -> None:
        self._traced: Traced | None = traced
        self._named = named
        self.form = traced.form

    @property
    def is_tuple(self) -> bool:
        """True if the function returns a tuple of its columns, False if its only column."""
        return self.form.is_tuple

    def __call__(
        self, rows: ColumnRows, second: NDArray[Any] | None = None
    ) -> list[FieldValues] | None:
        """A column for each part of the result; None where a result might differ from Python's.

        second: the second argument of a function that takes two.
        """
        traced = self._current()
        if traced is None:
            return None
        fields = fields_of(rows)
        if second is not None:
            fields[Field(1, None)] = second
        # NumPy is loaded where batches are, not by whoever writes a program.
        from tidegate.traced.evaluation import evaluated

        return cast("list[FieldValues] | None", evaluated(traced.expressions, fields, len(rows)))

    def _current(self) -> Traced | None:
        """The function as its globals and cells are now."""
        traced = self._traced
        if traced is None:
            return None
        try:
            if not traced.is_current():
                traced = trace(traced.function, traced.arguments, named=self._named)
                self._traced, self.form = traced, traced.form
        except NotPure:
            self._traced = traced = None
        return traced


def batch_call(
    function: object, arguments: int = 1, *, enabled: bool, named: bool = False
) -> BatchCall | None:
    """A call for batches; None for a function that does more than symbols show.

    named: it may return a dict or a record.
    """
    if not enabled:
        return None
    try:
        return BatchCall(trace(function, arguments, named=named), named=named)
    except NotPure:
        return None


def why_by_row(function: object, arguments: int = 1, *, named: bool = False) -> str:
    """Why a function is called for each row; empty if it is evaluated over columns.

    named: it may return a dict or a record.
    """
    try:
        trace(function, arguments, named=named)
    except NotPure as reason:
        return str(reason)
    return ""


def fields_of(rows: ColumnRows, argument: int = 0) -> Fields:
    """Columns by the names that a function has for them. argument: number of the row."""
    return named(rows.columns[: rows.width], rows.form, argument)


def named(columns: Sequence[FieldValues], form: RowForm, argument: int) -> Fields:
    """Columns of the fields of an argument by the names that a function has for them."""
    places = names_of(form, len(columns), argument)
    return {name: columns[at] for name, at in places.items()}


def names_of(form: RowForm, width: int, argument: int) -> dict[Field, int]:
    """Positions of the fields of an argument by the names that a function has for them."""
    if not form.is_tuple and not form.names:
        return {Field(argument, None): 0}
    is_row = form.record is Row
    places: dict[Field, int] = {}
    # Of two of one name Python takes the first.
    for at, name in enumerate(form.names):
        if form.record is None or is_row:
            places.setdefault(Field(argument, name), at)
        if form.record is not None and not (is_row and hasattr(Row, name)):
            places.setdefault(Field(argument, name, attribute=True), at)
    if form.is_tuple or is_row:
        for at in range(width):
            places[Field(argument, at)] = places[Field(argument, at - width)] = at
    return places

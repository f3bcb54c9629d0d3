"""Functions that add a row to what was gathered, each field by itself: they fold whole columns."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from flinkformat.frozen import frozen
from tidegate.traced.calls import fields_of, names_of
from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Binary, Expression, Field, Traced, parts_of, trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import ColumnRows, RowForm


class FoldKind(Enum):
    """Ways to make a field of the result from the same field before and a term of the new row.

    SUM: the two together. TOTAL: the same, with 0 in front, so that -0.0 becomes 0.0.
    """

    KEEP = "KEEP"
    LAST = "LAST"
    SUM = "SUM"
    TOTAL = "TOTAL"
    MIN = "MIN"
    MAX = "MAX"


@frozen
class Fold:
    """How one field comes to be. term: of the new row alone; None for KEEP."""

    kind: FoldKind
    term: Expression | None = None


class Folds:
    """A fold for each field of the result.

    form: of the result. argument: number of the new row among the function's arguments. traced: the
    function; None where we wrote it.
    """

    def __init__(
        self, folds: tuple[Fold, ...], *, form: RowForm, argument: int, traced: Traced | None
    ) -> None:
        self.folds = folds
        self.form = form
        self._argument = argument
        self._traced = traced

    def terms(self, rows: ColumnRows) -> list[NDArray[Any] | None] | None:
        """The terms of each row; None where one might differ from what Python computes."""
        folds = self._current()
        if not folds:
            return None
        from tidegate.traced.evaluation import evaluated_whole

        terms = [each.term for each in folds]
        return evaluated_whole(terms, fields_of(rows, self._argument), len(rows))

    def _current(self) -> tuple[Fold, ...]:
        """The folds as globals and cells are now; none once the function is no fold any more."""
        try:
            if self._traced is not None and not self._traced.is_current():
                now = folds_of(self._traced.function, self._argument)
                self.folds, self.form, self._traced = now.folds, now.form, now._traced
        except NotPure:
            self.folds = ()
        return self.folds


def folds_of(function: object, argument: int = 1) -> Folds:
    """The folds of a function of a row and what was gathered. Raises NotPure if it is none.

    argument: number of the row among the two.
    """
    traced = trace(function, 2, named=True)
    expressions, gathered = traced.expressions, 1 - argument
    places = names_of(traced.form, len(expressions), gathered)
    folds = [_fold(each, gathered, places, at) for at, each in enumerate(expressions)]
    return Folds(tuple(folds), form=traced.form, argument=argument, traced=traced)


def _fold(expression: Expression, gathered: int, places: Mapping[Field, int], at: int) -> Fold:
    """gathered: the argument that was; places: the positions of its fields. at: of this field."""
    if _place(expression, places) == at:
        return Fold(FoldKind.KEEP)
    if gathered not in _arguments(expression):
        return Fold(FoldKind.LAST, expression)
    if isinstance(expression, Binary) and expression.operation == "add":
        sides = expression.left, expression.right
        for one, term in (sides, sides[::-1]):
            if _place(one, places) == at and gathered not in _arguments(term):
                return Fold(FoldKind.SUM, term)
    is_plain = Field(gathered, None) in places
    part = "its result" if is_plain else f"field {at} of its result"
    raise NotPure(f"{part} is neither what it was, nor of the new row, nor the sum of both")


def _place(expression: Expression, places: Mapping[Field, int]) -> int | None:
    return places.get(expression) if isinstance(expression, Field) else None


def _arguments(expression: Expression) -> set[int]:
    if isinstance(expression, Field):
        return {expression.argument}
    return set[int]().union(*map(_arguments, parts_of(expression)))

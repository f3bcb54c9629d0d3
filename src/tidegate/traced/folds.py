"""Reduce functions that treat each field by itself: they fold whole columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Binary, Expression, Field, trace


class FoldKind(Enum):
    """Ways to make a field of the result from one of the old row and one of the new row.

    SUM: the two together. TOTAL: the same, with 0 in front, so that -0.0 becomes 0.0.
    """

    KEEP = "KEEP"
    LAST = "LAST"
    SUM = "SUM"
    TOTAL = "TOTAL"
    MIN = "MIN"
    MAX = "MAX"


@dataclass(frozen=True, slots=True)
class Fold:
    """How one field comes to be. field: of the new row, by position; the field itself for KEEP."""

    kind: FoldKind
    field: int


@dataclass(frozen=True, slots=True)
class Folds:
    """A whole reduce function: a fold for each field of its result.

    is_tuple: False for rows that are no tuples, which have one field.
    """

    fields: tuple[Fold, ...]
    is_tuple: bool


def folds_of(function: object) -> Folds:
    """The folds of a function of two rows. Raises NotPure for one that is not made of folds."""
    traced = trace(function, 2)
    fields = enumerate(traced.expressions)
    folds = [_fold(index, each, is_tuple=traced.is_tuple) for index, each in fields]
    return Folds(tuple(folds), traced.is_tuple)


def _fold(index: int, expression: Expression, *, is_tuple: bool) -> Fold:
    own = index if is_tuple else None
    match expression:
        case Field(0, name) if name == own:
            return Fold(FoldKind.KEEP, index)
        case Field(1, name):
            return Fold(FoldKind.LAST, _position(name, is_tuple=is_tuple))
        case Binary("add", Field(0, name), Field(1, added)) | Binary(
            "add", Field(1, added), Field(0, name)
        ) if name == own:
            return Fold(FoldKind.SUM, _position(added, is_tuple=is_tuple))
        case _:
            raise NotPure(
                f"field {index} of its result is neither a field of one row nor the sum of two"
            )


def _position(name: int | str | None, *, is_tuple: bool) -> int:
    if is_tuple and isinstance(name, int) and name >= 0:
        return name
    if not is_tuple and name is None:
        return 0
    raise NotPure(f"it takes {'a whole row' if name is None else f'the field {name!r}'}")

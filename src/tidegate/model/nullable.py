"""Columns of which some values are None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class Nullable:
    """A column with nulls. It has no dtype, so that nobody takes it for a column without them.

    values: of shape (rows,), as of a column without nulls; under a null stands what is false: 0,
    0.0, False, and None among texts. nulls: bool of the same shape, true where the value is None.
    """

    __slots__ = ("nulls", "values")

    def __init__(self, values: NDArray[Any], nulls: NDArray[np.bool_]) -> None:
        assert len(values) == len(nulls), "the mask says of each value if it is there"
        self.values: Final = values
        self.nulls: Final = nulls

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> FieldValues:
        return masked(self.values[rows], self.nulls[rows])

    def take(self, positions: NDArray[np.intp]) -> FieldValues:
        """The values at these positions, in that order."""
        return masked(self.values.take(positions), self.nulls.take(positions))

    def nonzero(self) -> tuple[NDArray[np.intp], ...]:
        """Positions of the values that are true, in a tuple of one, as of an array."""
        return self.values.nonzero()

    def tolist(self) -> list[Any]:
        """The values as Python's, None where there is none."""
        values = self.values.tolist()
        if self.values.dtype.kind != "O":
            for row in self.nulls.nonzero()[0].tolist():
                values[row] = None
        return values


FieldValues: TypeAlias = "NDArray[Any] | Nullable"
"""The values of one field, a row each."""


def masked(values: NDArray[Any], nulls: NDArray[np.bool_]) -> FieldValues:
    """The values as a column with these nulls, of which there may be none."""
    return Nullable(values, nulls) if nulls.any() else values


def kind_of(column: FieldValues) -> np.dtype[Any]:
    """The type of the values that are not None."""
    return values_of(column).dtype


def values_of(column: FieldValues) -> NDArray[Any]:
    """The values of a column, with what stands under its nulls."""
    return column.values if isinstance(column, Nullable) else column


def strung(parts: Sequence[FieldValues]) -> FieldValues:
    """Columns of one type, one after the other."""
    import numpy as np

    values = np.concatenate([values_of(each) for each in parts])
    if not any(isinstance(each, Nullable) for each in parts):
        return values
    masks = [
        each.nulls if isinstance(each, Nullable) else np.zeros(len(each), np.bool_)
        for each in parts
    ]
    return Nullable(values, np.concatenate(masks))

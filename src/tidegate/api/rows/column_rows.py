"""Rows whose fields are columns: rows are made on demand, once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from tidegate.model.elements import RowBatch
from tidegate.typeinfo.types import BOOLEAN, DOUBLE, LONG, TupleTypeInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tidegate.typeinfo.types import TypeInformation


@cache
def _kinds() -> dict[object, np.dtype[Any]]:
    """NumPy's types of columns by the types of their values, ours and Python's."""
    import numpy as np

    long, double, boolean = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)
    by_type = {LONG: long, DOUBLE: double, BOOLEAN: boolean}
    return {**by_type, int: long, float: double, bool: boolean}


class ColumnRows(RowBatch):
    """A batch of rows as columns, which whoever asks for ``values`` sees as rows.

    columns: one a field, int64, float64 or bool without nulls, each of shape (rows,); a key that is
    no field stands behind them. is_tuple: a row is a tuple of the fields, else the only field
    itself. stamps: event times, int64 of shape (rows,), or None. key_column: position of the
    column that is the key; None where rows have no keys. groups: their key groups, int16 of shape
    (rows,). width: number of fields; None if each column is one.
    """

    __slots__ = ("_made", "columns", "groups", "is_tuple", "key_column", "stamps", "width")

    def __init__(
        self,
        columns: Sequence[NDArray[Any]],
        *,
        is_tuple: bool,
        stamps: NDArray[np.int64] | None = None,
        key_column: int | None = None,
        groups: NDArray[np.int16] | None = None,
        width: int | None = None,
    ) -> None:
        self.columns = tuple(columns)
        self.width = len(columns) if width is None else width
        assert self.width and (is_tuple or self.width == 1), "a row that is no tuple has one field"
        assert (key_column is None) == (groups is None), "keys come with their key groups"
        self.is_tuple = is_tuple
        self.stamps = stamps
        self.key_column = key_column
        self.groups = groups
        self._made: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def fields(self) -> tuple[object, ...]:
        """Kinds of the fields as `fields_of_type` gives them."""
        return (self.is_tuple, *(each.dtype for each in self.columns[: self.width]))

    @property
    def shape(self) -> tuple[object, ...]:
        """Batches of one shape can be joined."""
        kinds = tuple(each.dtype for each in self.columns)
        return kinds, self.is_tuple, self.stamps is None, self.key_column, self.width

    @property
    def values(self) -> list[object]:  # pyright: ignore[reportIncompatibleVariableOverride]
        if "values" not in self._made:
            # A key is the very object that stands in its row.
            key = self.keys
            fields = [
                key if key is not None and index == self.key_column else each.tolist()
                for index, each in enumerate(self.columns[: self.width])
            ]
            self._made["values"] = list(zip(*fields, strict=True)) if self.is_tuple else fields[0]
        return self._made["values"]

    @property
    def timestamps_ms(self) -> list[int] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.stamps is None else self._list("stamps", self.stamps)

    @property
    def keys(self) -> list[object] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.key_column is None:
            return None
        return cast("list[object]", self._list("keys", self.columns[self.key_column]))

    @property
    def key_groups(self) -> list[int] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.groups is None else self._list("groups", self.groups)

    def _list(self, name: str, column: NDArray[Any]) -> list[Any]:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = column.tolist()
        return made

    def keyed(self, key: int | NDArray[Any], groups: NDArray[np.int16]) -> ColumnRows:
        """The same rows with keys. key: position of the field that is the key, or a column."""
        columns = self.columns[: self.width]
        if not isinstance(key, int):
            columns, key = (*columns, key), self.width
        return ColumnRows(
            columns,
            is_tuple=self.is_tuple,
            stamps=self.stamps,
            key_column=key,
            groups=groups,
            width=self.width,
        )

    def stamped(self, stamps: NDArray[np.int64] | None) -> ColumnRows:
        """The same rows, without keys, at these event times."""
        return ColumnRows(self.columns[: self.width], is_tuple=self.is_tuple, stamps=stamps)

    def piece(self, start: int, stop: int) -> ColumnRows:
        """Rows start (inclusive) to stop (exclusive), without copying."""
        return self._each(lambda column: column[start:stop])

    def take(self, positions: NDArray[np.intp]) -> ColumnRows:
        """The rows at these positions, in that order."""
        return self._each(lambda column: column.take(positions))

    def _each(self, part: Any) -> ColumnRows:
        return ColumnRows(
            [part(each) for each in self.columns],
            is_tuple=self.is_tuple,
            stamps=None if self.stamps is None else part(self.stamps),
            key_column=self.key_column,
            groups=None if self.groups is None else part(self.groups),
            width=self.width,
        )


def fields_of_type(type_info: TypeInformation) -> tuple[object, ...] | None:
    """Kinds of the columns whose rows are of this type as they are; None if none are."""
    is_tuple = type(type_info) is TupleTypeInfo
    kinds = [_kinds().get(each) for each in (type_info.children if is_tuple else (type_info,))]
    # A NumPy type equals None where that stands for float64, so `in` would not do.
    return (is_tuple, *kinds) if kinds and all(kind is not None for kind in kinds) else None


def as_columns(rows: RowBatch) -> ColumnRows | None:
    """The rows as columns, without keys; None unless each field is of one such type throughout."""
    import numpy as np

    values: list[Any] = rows.values
    kinds = _kinds()
    is_tuple = type(values[0]) is tuple
    if not is_tuple:
        fields: list[Sequence[object]] = [values]
    elif not values[0] or set(map(type, values)) != {tuple}:
        return None
    else:
        try:
            fields = list(zip(*values, strict=True))
        except ValueError:
            return None  # of different lengths
    columns: list[NDArray[Any]] = []
    for field in fields:
        first = type(field[0])
        kind = kinds.get(first)
        if kind is None or list(map(type, field)).count(first) != len(field):
            return None
        try:
            columns.append(np.fromiter(cast("Any", field), kind, len(field)))
        except OverflowError:
            return None  # a number of more than 64 bits
    stamps = rows.timestamps_ms
    try:
        made = None if stamps is None else np.fromiter(stamps, np.int64, len(stamps))
    except TypeError:
        return None  # some rows have no time
    return ColumnRows(columns, is_tuple=is_tuple, stamps=made)


def joined(parts: Sequence[ColumnRows]) -> ColumnRows:
    """The rows of batches of one shape, one after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    import numpy as np

    assert all(each.shape == first.shape for each in parts), "only batches of one shape are joined"
    stamps = [each.stamps for each in parts if each.stamps is not None]
    groups = [each.groups for each in parts if each.groups is not None]
    return ColumnRows(
        [np.concatenate(fields) for fields in zip(*(each.columns for each in parts), strict=True)],
        is_tuple=first.is_tuple,
        stamps=np.concatenate(stamps) if stamps else None,
        key_column=first.key_column,
        groups=np.concatenate(groups) if groups else None,
        width=first.width,
    )

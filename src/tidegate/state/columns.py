"""Columns over dense rows: one value a key, NumPy where values have a fixed width, else objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from tidegate.errors import ConfigError, SerializerIncompatible
from tidegate.state.key_rows import KeyRows, with_room

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tidegate.api.state import ColumnStateDescriptor
    from tidegate.state.long_index import Longs
    from tidegate.typeinfo.types import TypeInformation


class Column:
    """One value a key; implements ``api.state.ColumnState``."""

    def __init__(
        self, rows: KeyRows, name: str, arrow: pa.DataType, default: object, where: str
    ) -> None:
        self._rows = rows
        self._where = where
        self.name = name
        self.arrow = arrow
        place = f"{where}, column '{name}'"
        self.dtype = dtype_of(arrow, place)
        self.default = _default(default, self.dtype, place)
        self._values = np.empty(0, self.dtype)

    def get(self, index: Longs) -> NDArray[Any]:
        """The values of these rows, as a copy."""
        self._make_room()
        return self._values.take(index)

    def put(self, index: Longs, values: NDArray[Any]) -> None:
        """Set the values of these rows."""
        self._make_room()
        self._values[index] = values

    def at(self, ufunc: np.ufunc, index: Longs, values: ArrayLike) -> None:
        """Let each of the values change its row, one after another."""
        self._make_room()
        ufunc.at(self._values, index, values)

    def take_over(self, old: Column) -> None:
        """Take a restored column's values; raises SerializerIncompatible unless this is as wide."""
        same = old.arrow == self.arrow
        numbers = self.dtype.kind != "O" and old.dtype.kind == self.dtype.kind
        if not same and not (numbers and np.can_cast(old.dtype, self.dtype, "safe")):
            raise SerializerIncompatible(
                f"The column was {old.arrow} and is now {self.arrow}",
                where=f"{self._where}, column '{self.name}'",
                remedy="Go back to the old type or a wider one, or give the column a new name.",
            )
        self._values = old.get(np.arange(len(self._rows))).astype(self.dtype)

    def copied(self) -> NDArray[Any]:
        """The values of all rows, as a copy; lists, which may still grow, too."""
        self._make_room()
        values = self._values[: len(self._rows)].copy()
        if not pa.types.is_list(self.arrow):
            return values
        lists = (tuple(each) if isinstance(each, list | set) else each for each in values)
        return np.fromiter(lists, object, len(values))

    def _make_room(self) -> None:
        held = len(self._values)
        if held < len(self._rows):
            self._values = with_room(self._values, len(self._rows))
            self._values[held:] = self.default


def dtype_of(arrow: pa.DataType, where: str) -> np.dtype[Any]:
    """NumPy's type for a column; raises ConfigError where a column can't be of the type."""
    is_a = pa.types
    if is_a.is_integer(arrow) or is_a.is_floating(arrow) or is_a.is_boolean(arrow):
        return np.dtype(arrow.to_pandas_dtype())
    if is_a.is_timestamp(arrow):
        return np.dtype(f"datetime64[{arrow.unit}]")
    if is_a.is_date32(arrow):
        return np.dtype("datetime64[D]")
    if is_a.is_duration(arrow):
        return np.dtype(f"timedelta64[{arrow.unit}]")
    if is_a.is_null(arrow) or is_a.is_dictionary(arrow) or is_a.is_union(arrow):
        raise ConfigError(
            f"A column of state can't be of type {arrow}",
            where=where,
            remedy="Use the type of its values: a number, a text, a time, a list or the like.",
        )
    return np.dtype(object)


def array_of(values: NDArray[Any], arrow: pa.DataType) -> pa.Array:
    """The values of a column in Arrow's form; raises what Arrow raises where they don't fit."""
    return pa.array(values.tolist() if values.dtype.kind == "O" else values, arrow)


def values_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """The values of a column as it keeps them."""
    if dtype_of(column.type, "").kind == "O":
        return np.fromiter(column.to_pylist(), object, len(column))
    return column.to_numpy()


def default_bytes(default: NDArray[Any]) -> bytes:
    """A default as it is written; nothing for the None of objects."""
    return b"" if default.dtype.kind == "O" else default.tobytes()


def default_of(data: bytes, arrow: pa.DataType, where: str) -> object:
    """A default as it was written."""
    dtype = dtype_of(arrow, where)
    return None if dtype.kind == "O" else np.frombuffer(data, dtype)[0]


def _default(default: object, dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    if default is None:
        return np.zeros((), dtype) if dtype.kind != "O" else np.array(None, object)
    try:
        if dtype.kind == "O":
            raise TypeError("a column of Python objects begins as None")
        return np.asarray(default).astype(dtype)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{default!r} is no default for a column of {dtype}",
            where=where,
            remedy="Give the descriptor a default of the column's type, or none.",
        ) from error


@dataclass(frozen=True, slots=True)
class CopiedColumn:
    """A column as at the barrier."""

    name: str
    arrow: pa.DataType
    default: NDArray[Any]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """Keys and columns of a namespace as at the barrier."""

    namespace: int
    keys: pa.Array
    key_groups: NDArray[np.int16]
    columns: list[CopiedColumn]


class ColumnTable:
    """Keys and their columns; implements ``api.state.KeyedPane``. key_type: None where unknown."""

    def __init__(self, where: str, key_type: TypeInformation | None = None) -> None:
        self._where = where
        self.rows = KeyRows(where)
        self._columns: dict[str, Column] = {}
        self._asked: dict[str, ColumnStateDescriptor] = {}
        if key_type is not None:
            self.rows.declare(key_type)

    def __len__(self) -> int:
        return len(self.rows)

    def index(self, keys: pa.Array, key_groups: NDArray[Any]) -> Longs:
        """The row of each key; new keys get the next free rows."""
        return self.rows.index(keys, key_groups)

    def keys(self) -> pa.Array:
        """The key of each row."""
        return self.rows.stored()[0]

    def key_groups(self) -> NDArray[np.int16]:
        """The key group of each row."""
        return self.rows.stored()[1]

    def column(self, descriptor: ColumnStateDescriptor) -> Column:
        """The column of that name.

        Raises SerializerIncompatible where the restored one is of another type, and ConfigError
        where the name has been asked for with another descriptor.
        """
        name = descriptor.name
        asked = self._asked.get(name)
        if asked == descriptor:
            return self._columns[name]
        if asked is not None:
            raise ConfigError(
                f"The column '{name}' is asked for as {descriptor} and before as {asked}",
                where=self._where,
                remedy="Use one descriptor, or two names.",
            )
        column = Column(self.rows, name, descriptor.type, descriptor.default, self._where)
        if name in self._columns:
            column.take_over(self._columns[name])
        self._asked[name] = descriptor
        self._columns[name] = column
        return column

    def load(
        self,
        keys: pa.Array,
        key_groups: NDArray[Any],
        columns: Sequence[tuple[str, pa.ChunkedArray, object]],
    ) -> None:
        """Take in restored keys, all new, with the name, values and default of each column."""
        rows = self.rows.load(keys, key_groups)
        for name, values, default in columns:
            column = self._columns.get(name)
            if column is None:
                column = Column(self.rows, name, values.type, default, self._where)
                self._columns[name] = column
            column.put(rows, values_of(values))

    def copied(self, namespace: int) -> CopiedTable:
        """All of it as it is now."""
        keys, groups = self.rows.stored()
        columns = [
            CopiedColumn(each.name, each.arrow, each.default, each.copied())
            for each in self._columns.values()
        ]
        return CopiedTable(namespace, keys, groups, columns)

    @property
    def key_type(self) -> TypeInformation:
        """The type of the keys; only where there are some."""
        return cast("TypeInformation", self.rows.key_type)

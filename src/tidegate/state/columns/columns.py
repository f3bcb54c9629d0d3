"""Columns over dense rows: one value a key, NumPy where values have a fixed width, else objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from flinkformat.frozen import frozen
from tidegate.errors import ConfigError, FormatError, SerializerIncompatible, UserError
from tidegate.state.columns.column_pages import FrozenArray
from tidegate.state.columns.key_rows import KeyRows, with_room
from tidegate.typeinfo.arrow import arrow_faults
from tidegate.typeinfo.copies import private_copy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from tidegate.api.state import ColumnStateDescriptor
    from tidegate.typeinfo.long_index import Longs

_PACKED_SHARE: Final = 4
"""A pane is packed where it has less than this part of the keys: else there is little to save."""


class Column:
    """One value a key; implements ``api.state.ColumnState``.

    A column that is packed holds the values of some rows only, and is read but not written.
    """

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
        self._packed: Longs | None = None
        self._frozen: FrozenArray | None = None

    def get(self, index: Longs) -> NDArray[Any]:
        if self._packed is not None:
            return self._values.take(np.searchsorted(self._packed, index))
        self._make_room()
        return self._values.take(index)

    def put(self, index: Longs, values: ArrayLike) -> None:
        fitting = values if self.dtype.kind == "O" else self._fitting(np.asarray(values))
        self._make_room()
        if self._frozen is not None:
            self._frozen.save(index)
        self._values[index] = fitting

    def at(self, ufunc: np.ufunc, index: Longs, values: ArrayLike) -> None:
        self._make_room()
        if self._frozen is not None:
            self._frozen.save(index)
        ufunc.at(self._values, index, values)

    def _fitting(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values as the column holds them. Raises UserError where NumPy would make others of them.

        Fractions of numbers and of time may be rounded only where the column holds such fractions.
        """
        given, own = values.dtype, self.dtype
        if given == own or np.can_cast(given, own, "safe"):
            return values
        try:
            with np.errstate(invalid="ignore"):
                cast = values.astype(own)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._unfit(str(error)) from error
        if own.kind in "iub" or given.kind == own.kind in "mM":
            same = np.asarray(cast == values, np.bool_)
            if own.kind in "mM":
                same |= np.isnat(values)
            if not same.all():
                raise self._unfit(f"it was given {values[~same].tolist()[0]!r}")
        return cast

    def _unfit(self, why: str) -> UserError:
        return UserError(
            f"The column '{self.name}' of state can't hold a value as {self.dtype}: {why}",
            where=f"{self._where}, column '{self.name}'",
            remedy="Fill nulls and round before, or declare the column as a wider type, such as"
            " float64.",
        )

    def take_over(self, old: Column) -> None:
        """Takes a restored column's values. Raises SerializerIncompatible if they don't fit."""
        faults = arrow_faults(old.arrow, self.arrow)
        if faults:
            raise SerializerIncompatible(
                f"The column was {old.arrow} and is now {self.arrow}: {'; '.join(faults)}",
                where=f"{self._where}, column '{self.name}'",
                remedy="Go back to the old type or a wider one, or give the column a new name.",
            )
        self._packed = old._packed
        rows = np.arange(len(self._rows)) if self._packed is None else self._packed
        values = old.get(rows)
        if old.arrow != self.arrow and self.dtype.kind == "O":
            values = values_of(pa.chunked_array([array_of(values, self.arrow)]))
        self._values = values.astype(self.dtype)

    def freeze(self) -> FrozenColumn:
        """A frozen copy; values that may be changed in place are copied deeply, and at once."""
        packed, nested = self._packed is not None, pa.types.is_nested(self.arrow)
        if not packed:
            self._make_room()
        count = len(self._values) if packed else len(self._rows)
        copy = _copied_deeply if nested else None if packed else np.copy
        self._frozen = frozen = FrozenArray(self._values, count, copy)
        if nested:
            for _ in frozen.steps():
                pass
        return FrozenColumn(self.name, self.arrow, self.default, frozen, packed)

    def pack(self, rows: Longs) -> None:
        """Keeps only the values of these rows, which ascend."""
        self._values = self.get(rows)
        self._packed = rows

    def unpack(self) -> None:
        """Expands the column to a value for each row."""
        if self._packed is not None:
            packed, values = self._packed, self._values
            self._packed, self._values = None, np.empty(0, self.dtype)
            self.put(packed, values)

    def renumber(self, kept: Longs, numbers: Longs) -> None:
        """Keeps only these rows. numbers: from old to new rows."""
        if self._packed is not None:
            self._packed = numbers.take(self._packed)
        else:
            self._make_room()
            self._values = self._values.take(kept)

    def _make_room(self) -> None:
        held = len(self._values)
        if held < len(self._rows):
            self._values = with_room(self._values, len(self._rows))
            self._values[held:] = self.default


def dtype_of(arrow: pa.DataType, where: str) -> np.dtype[Any]:
    """NumPy's type for a column. Raises ConfigError for an impossible type."""
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
    """Values of a column as an Arrow array. Raises Arrow's error if they don't fit."""
    return pa.array(values.tolist() if values.dtype.kind == "O" else values, arrow)


def values_of(column: pa.ChunkedArray) -> NDArray[Any]:
    if dtype_of(column.type, "").kind == "O":
        return np.fromiter(column.to_pylist(), object, len(column))
    return column.to_numpy()


def default_bytes(default: NDArray[Any]) -> bytes:
    """Encodes a default; empty for the None of objects."""
    return b"" if default.dtype.kind == "O" else default.tobytes()


def default_of(data: bytes, arrow: pa.DataType, where: str) -> object:
    """Decodes a default. Raises FormatError for an impossible type."""
    try:
        dtype = dtype_of(arrow, where)
    except ConfigError as error:
        raise FormatError(
            error.what,
            where=where,
            remedy="Restore from another checkpoint; this one is damaged.",
        ) from error
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
            f"{default!r} is not a default for a column of {dtype}",
            where=where,
            remedy="Give the descriptor a default of the column's type, or none.",
        ) from error


def _copied_deeply(values: NDArray[Any]) -> NDArray[Any]:
    return np.fromiter(map(private_copy, values), object, len(values))


@frozen
class FrozenColumn:
    """A column frozen at the barrier. packed: it has only values of its pane's rows."""

    name: str
    arrow: pa.DataType
    default: NDArray[Any]
    frozen: FrozenArray
    packed: bool

    def values(self, rows: Longs) -> NDArray[Any]:
        """Values of the pane's rows, once all is copied."""
        held = self.frozen.values()
        return held if self.packed or len(held) == len(rows) else held.take(rows)


@frozen
class FrozenRows:
    """Rows of a pane, or of all keys, frozen at the barrier.

    present: one truth value for each key.
    """

    count: int
    present: FrozenArray | None = None
    packed: Longs | None = None

    def rows(self) -> Longs:
        """The rows, ascending, once all is copied."""
        if self.packed is not None:
            return self.packed
        if self.present is not None:
            return np.flatnonzero(self.present.values())
        return np.arange(self.count)


class Columns:
    """Columns by name over the rows of an operator's keys."""

    def __init__(self, rows: KeyRows, where: str) -> None:
        self._rows = rows
        self._where = where
        self._by_name: dict[str, Column] = {}
        self._asked: dict[str, ColumnStateDescriptor] = {}

    def __iter__(self) -> Iterator[Column]:
        return iter(self._by_name.values())

    def column(self, descriptor: ColumnStateDescriptor) -> Column:
        """The column of that name.

        Raises SerializerIncompatible if the restored one is of another type, and ConfigError
        where the name has been asked for with another descriptor.
        """
        name = descriptor.name
        asked = self._asked.get(name)
        if asked == descriptor:
            return self._by_name[name]
        if asked is not None:
            raise ConfigError(
                f"The column '{name}' is asked for as {descriptor} and before as {asked}",
                where=self._where,
                remedy="Use one descriptor, or two names.",
            )
        column = Column(self._rows, name, descriptor.type, descriptor.default, self._where)
        if name in self._by_name:
            column.take_over(self._by_name[name])
        self._asked[name] = descriptor
        self._by_name[name] = column
        return column

    def load(self, rows: Longs, table: pa.Table, defaults: Mapping[str, object]) -> None:
        """Sets restored values of rows, and the initial value of other rows, by column."""
        for field in table.schema:
            column = self._by_name.get(field.name)
            if column is None:
                default = defaults[field.name]
                column = Column(self._rows, field.name, field.type, default, self._where)
                self._by_name[field.name] = column
            column.put(rows, values_of(table.column(field.name)))


class Pane:
    """Columns of some of an operator's keys; implements ``api.state.KeyedPane``.

    Written to, it has room for all keys; packed, for its own.
    """

    def __init__(self, rows: KeyRows, where: str) -> None:
        self._rows = rows
        self.columns = Columns(rows, where)
        self._present = np.zeros(0, np.bool_)
        self._packed: Longs | None = None
        self._frozen: FrozenArray | None = None

    def add(self, rows: Longs) -> None:
        if self._packed is not None:
            own, self._packed = self._packed, None
            for column in self.columns:
                column.unpack()
            self.add(own)
        held = len(self._present)
        if held < len(self._rows):
            self._present = with_room(self._present, len(self._rows))
            self._present[held:] = False
        if self._frozen is not None:
            self._frozen.save(rows)
        self._present[rows] = True

    def freeze(self) -> FrozenRows:
        """A frozen copy of the pane's rows."""
        count = len(self._rows)
        if self._packed is not None:
            return FrozenRows(count, packed=self._packed)
        self._frozen = FrozenArray(self._present, min(count, len(self._present)))
        return FrozenRows(count, present=self._frozen)

    def rows(self) -> Longs:
        return np.flatnonzero(self._present) if self._packed is None else self._packed

    def column(self, descriptor: ColumnStateDescriptor) -> Column:
        return self.columns.column(descriptor)

    def pack(self) -> None:
        """Shrinks the pane to its own rows, until the next write."""
        own = self.rows()
        if self._packed is None and len(own) * _PACKED_SHARE < len(self._rows):
            for column in self.columns:
                column.pack(own)
            self._packed, self._present = own, np.zeros(0, np.bool_)

    def renumber(self, kept: Longs, numbers: Longs) -> None:
        """Keeps only these rows. numbers: from old to new rows."""
        for column in self.columns:
            column.renumber(kept, numbers)
        if self._packed is not None:
            self._packed = numbers.take(self._packed)
        else:
            self.add(kept[:0])
            self._present = self._present.take(kept)

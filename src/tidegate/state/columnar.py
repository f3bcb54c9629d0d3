"""Columnar keyed state: a dense row for each key, and a NumPy array over the rows for each column.

Made for whole batches: `KeyRows.index` finds the rows of a batch's keys, `Column.get` and `put`
gather and scatter values. A snapshot copies the columns plainly (a million values are 8 MB and some
3 ms; keys are only ever added, so theirs are not copied), and sorts them by key group when it is
written, off the loop, since NumPy and Arrow let go of the interpreter meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from tidegate.errors import ConfigError, SerializerIncompatible
from tidegate.state.format import ColumnsHeader
from tidegate.state.key_rows import KeyRows, with_room
from tidegate.typeinfo.descriptions import describe, type_described
from tidegate.typeinfo.types import PICKLED, TypeInformation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tidegate.api.state import ColumnStateDescriptor
    from tidegate.state.long_index import Longs

KEY: Final = "key"
"""Name of the keys' field in a snapshot's schema; the columns' fields come after it."""


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

    def take_over(self, old: Column) -> None:
        """Take a restored column's values; raises SerializerIncompatible unless this is as wide."""
        wider = old.dtype.kind == self.dtype.kind and np.can_cast(old.dtype, self.dtype, "safe")
        if not wider:
            raise SerializerIncompatible(
                f"The column was {old.arrow} and is now {self.arrow}",
                where=f"{self._where}, column '{self.name}'",
                remedy="Go back to the old type or a wider one, or give the column a new name.",
            )
        self._make_room()
        self._values[: len(self._rows)] = old.copied()

    def copied(self) -> NDArray[Any]:
        """The values of all rows, as a copy."""
        self._make_room()
        return self._values[: len(self._rows)].copy()

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
    raise ConfigError(
        f"A column of state can't be of type {arrow}",
        where=where,
        remedy="Use integers, floats, booleans, timestamps, date32 or durations; keep other values"
        " as row state.",
    )


def _default(default: object, dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    try:
        return np.asarray(default).astype(dtype)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{default!r} is no default for a column of {dtype}",
            where=where,
            remedy="Give the descriptor a default of the column's type.",
        ) from error


@dataclass(frozen=True, slots=True)
class _Copied:
    name: str
    arrow: pa.DataType
    default: bytes
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class ColumnsSnapshot:
    """Keys and columns as at the barrier; written off the loop.

    key_type: the keys' type as JSON.
    """

    key_type: str
    keys: pa.Array
    key_groups: NDArray[np.int16]
    columns: list[_Copied]

    @property
    def header(self) -> ColumnsHeader:
        """What a snapshot says of its columnar state."""
        defaults = {column.name: column.default for column in self.columns}
        return ColumnsHeader(self._schema().serialize().to_pybytes(), defaults)

    def _schema(self) -> pa.Schema:
        fields = [pa.field(column.name, column.arrow) for column in self.columns]
        key = pa.field(KEY, self.keys.type, metadata={"type": self.key_type})
        return pa.schema([key, *fields])

    def sections(self) -> Iterator[tuple[int, int, bytes]]:
        """Key group, rows and Arrow IPC record batch, for each key group that has keys."""
        order = np.argsort(self.key_groups, kind="stable")
        groups, starts = np.unique(self.key_groups[order], return_index=True)
        values = [pa.array(column.values, column.arrow) for column in self.columns]
        batch = pa.record_batch([self.keys, *values], schema=self._schema()).take(pa.array(order))
        ends = [*starts[1:], len(order)]
        for group, start, end in zip(groups, starts, ends, strict=True):
            section = batch.slice(start, end - start)
            yield int(group), len(section), section.serialize().to_pybytes()


class KeyedColumnStates:
    """All columnar state of one operator."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._rows = KeyRows(where)
        self._columns: dict[str, Column] = {}
        self._asked: dict[str, ColumnStateDescriptor] = {}

    def key_rows(self, key_type: TypeInformation | None) -> KeyRows:
        """The rows of the operator's keys; raises SerializerIncompatible for another key type."""
        if key_type is not None and key_type != PICKLED:
            self._rows.declare(key_type)
        return self._rows

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
        column = Column(self._rows, name, descriptor.type, descriptor.default, self._where)
        if name in self._columns:
            column.take_over(self._columns[name])
        self._asked[name] = descriptor
        self._columns[name] = column
        return column

    def load(self, header: ColumnsHeader, sections: Sequence[tuple[int, memoryview]]) -> None:
        """Take in sections of a snapshot, each with its key group; before anything is asked for."""
        schema = pa.ipc.read_schema(pa.py_buffer(header.schema))
        self._rows.declare(type_described(json.loads(schema.field(0).metadata[b"type"])))
        batches = [
            pa.ipc.read_record_batch(pa.py_buffer(section), schema) for _, section in sections
        ]
        if not batches:
            return
        groups = np.repeat([group for group, _ in sections], [len(batch) for batch in batches])
        table = pa.Table.from_batches(batches, schema)
        rows = self._rows.load(table.column(0).combine_chunks(), groups)
        for field, values in zip(list(schema)[1:], table.columns[1:], strict=True):
            column = self._columns.get(field.name) or self._restored(field, header)
            column.put(rows, values.to_numpy())

    def _restored(self, field: pa.Field, header: ColumnsHeader) -> Column:
        default = np.frombuffer(header.defaults[field.name], dtype_of(field.type, self._where))[0]
        column = Column(self._rows, field.name, field.type, default, self._where)
        self._columns[field.name] = column
        return column

    def snapshot(self) -> ColumnsSnapshot | None:
        """The quick part of a snapshot; None where there are no keys."""
        if not len(self._rows):
            return None
        keys, groups = self._rows.stored()
        columns = [
            _Copied(each.name, each.arrow, each.default.tobytes(), each.copied())
            for each in self._columns.values()
        ]
        return ColumnsSnapshot(
            json.dumps(describe(cast("TypeInformation", self._rows.key_type))),
            keys,
            groups,
            columns,
        )

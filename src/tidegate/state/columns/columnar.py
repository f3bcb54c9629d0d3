"""Columnar keyed state: a dense row for each key, and a NumPy array over the rows for each column.

Made for whole batches: `KeyRows.index` finds the rows of a batch's keys, `Column.get` and `put`
gather and scatter values. An operator has columns over all its keys, or panes: columns for each
number, such as the slices of time of its windows. Keys that no pane has any more are forgotten.

A snapshot copies the columns page by page, before a page is written to or when its turn comes
(`column_pages`; keys are only ever added, so theirs are not copied), and sorts them by key group
when it is written, off the loop, since NumPy and Arrow let go of the interpreter meanwhile.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from flinkformat.frozen import frozen
from tidegate.errors import SerializerIncompatible, UserError
from tidegate.state.columns.columns import (
    Columns,
    FrozenColumn,
    FrozenRows,
    Pane,
    array_of,
    default_bytes,
    default_of,
)
from tidegate.state.columns.key_rows import KeyRows
from tidegate.state.format.blocks import COLUMNS, Block, ColumnsHeader
from tidegate.typeinfo.descriptions import describe, type_described
from tidegate.typeinfo.types import PICKLED, TypeInformation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tidegate.state.columns.column_pages import FrozenArray
    from tidegate.typeinfo.long_index import Longs

KEY: Final = "key"
"""Name of the keys' field in a snapshot's schema; the columns' fields come after it."""

PANE: Final = "pane"
"""Name of the field that numbers the panes, after the keys' where there are panes."""

_ROWS_KEPT: Final = 4096
"""Keys without a pane are not looked for as long as there are no more keys than this."""


class KeyedColumnStates:
    """All columnar state of one operator.

    Also implements ``api.state.KeyedColumns`` and ``KeyedPanes``, of which an operator has one.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._rows = KeyRows(where)
        self._columns = Columns(self._rows, where)
        self.index, self.column = self._rows.index, self._columns.column
        self._panes: dict[int, Pane] = {}
        self._has_panes = False
        self._rows_max = _ROWS_KEPT

    def __len__(self) -> int:
        return len(self._rows)

    def keyed_columns(self, key_type: TypeInformation | None) -> KeyedColumnStates:
        """Columns over all keys. Raises SerializerIncompatible for another key type."""
        if self._has_panes:
            raise self._other_shape("windows", "one column a key")
        self._declare(key_type)
        return self

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedColumnStates:
        """Panes of the operator. Raises SerializerIncompatible for another key type."""
        if len(self._rows) and not self._has_panes:
            raise self._other_shape("one column a key", "windows")
        self._has_panes = True
        self._declare(key_type)
        return self

    def keys(self, rows: Longs) -> pa.Array:
        return self._rows.stored()[0].take(pa.array(rows))

    def key_groups(self, rows: Longs) -> NDArray[np.int16]:
        return self._rows.stored()[1].take(rows)

    def pane(self, namespace: int) -> Pane:
        found = self._panes.get(namespace)
        if found is None:
            found = self._panes[namespace] = self.temporary()
        return found

    def namespaces(self) -> list[int]:
        return sorted(self._panes)

    def drop(self, namespaces: Iterable[int]) -> None:
        for namespace in namespaces:
            del self._panes[namespace]
        if len(self._rows) > self._rows_max:
            self._forget_keys()

    def temporary(self) -> Pane:
        return Pane(self._rows, self._where)

    def _forget_keys(self) -> None:
        """Forgets keys without a pane, if they are at least half of all."""
        has_pane = np.zeros(len(self._rows), np.bool_)
        for pane in self._panes.values():
            has_pane[pane.rows()] = True
        kept = np.flatnonzero(has_pane)
        if len(kept) * 2 <= len(has_pane):
            numbers = np.cumsum(has_pane) - 1
            for pane in self._panes.values():
                pane.renumber(kept, numbers)
            self._rows.retain(kept)
        self._rows_max = max(_ROWS_KEPT, 2 * len(kept))

    def load(self, header: ColumnsHeader, sections: Sequence[tuple[int, memoryview]]) -> None:
        """Loads sections of a snapshot, each with its key group; before anything is requested."""
        schema = pa.ipc.read_schema(pa.py_buffer(header.schema))
        self._rows.declare(type_described(json.loads(schema.field(0).metadata[b"type"])))
        batches = [
            pa.ipc.read_record_batch(pa.py_buffer(section), schema) for _, section in sections
        ]
        if not batches:
            return
        groups = np.repeat([group for group, _ in sections], [len(batch) for batch in batches])
        defaults = {
            name: default_of(data, schema.field(name).type, self._where)
            for name, data in header.defaults.items()
        }
        table = pa.Table.from_batches(batches, schema)
        keys = table.column(0).combine_chunks()
        if not header.panes:
            rows = self._rows.load(keys, groups)
            self._columns.load(rows, table.remove_column(0), defaults)
            return
        self._has_panes = True
        rows = self._rows.index(keys, groups)
        numbers = table.column(1).to_numpy()
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        columns = table.select(table.column_names[2:])
        for number, chosen in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            pane = self.pane(number)
            pane.add(rows[chosen])
            pane.columns.load(rows[chosen], columns.take(pa.array(chosen)), defaults)

    def snapshot(self) -> ColumnsSnapshot | None:
        """The quick part of a snapshot, which copies nothing; None if there are no keys."""
        if not len(self._rows):
            return None
        if self._has_panes:
            tables = [
                FrozenTable(number, pane.freeze(), [column.freeze() for column in pane.columns])
                for number, pane in self._panes.items()
            ]
        else:
            columns = [column.freeze() for column in self._columns]
            tables = [FrozenTable(0, FrozenRows(len(self._rows)), columns)]
        if not tables:
            return None
        keys, groups = self._rows.parts()
        key_type = json.dumps(describe(cast("TypeInformation", self._rows.key_type)))
        return ColumnsSnapshot(
            key_type, keys, groups, tables, panes=self._has_panes, where=self._where
        )

    def _declare(self, key_type: TypeInformation | None) -> None:
        if key_type is not None and key_type != PICKLED:
            self._rows.declare(key_type)

    def _other_shape(self, before: str, now: str) -> SerializerIncompatible:
        return SerializerIncompatible(
            f"The columnar state was of {before} and is now of {now}",
            where=self._where,
            remedy="Give the operator a new uid, so that it starts without state.",
        )


@frozen
class FrozenTable:
    """Columns of a pane, or the only ones, frozen at the barrier."""

    pane: int
    rows: FrozenRows
    columns: list[FrozenColumn]

    def arrays(self) -> Iterator[FrozenArray]:
        if self.rows.present is not None:
            yield self.rows.present
        yield from (column.frozen for column in self.columns)


@frozen
class ColumnsSnapshot:
    """Keys and columns as at the barrier: copied in steps on the loop, then written off it.

    key_type: the keys' type as JSON. keys: in parts.
    """

    key_type: str
    keys: Sequence[pa.Array]
    key_groups: NDArray[np.int16]
    tables: list[FrozenTable]
    panes: bool
    where: str

    def steps(self) -> Iterator[int]:
        """Copies a page in each step; yields the number of its rows."""
        for table in self.tables:
            for array in table.arrays():
                yield from array.steps()

    def release(self) -> None:
        for table in self.tables:
            for array in table.arrays():
                array.release()

    @property
    def header(self) -> ColumnsHeader:
        defaults = {name: default_bytes(each.default) for name, each in self._columns().items()}
        return ColumnsHeader(self._schema().serialize().to_pybytes(), defaults, self.panes)

    def _columns(self) -> dict[str, FrozenColumn]:
        """A column for each name; panes differ only after a change of the program."""
        return {column.name: column for table in self.tables for column in table.columns}

    def _schema(self) -> pa.Schema:
        key = pa.field(KEY, self.keys[0].type, metadata={"type": self.key_type})
        pane = [pa.field(PANE, pa.int64())] if self.panes else []
        fields = [pa.field(name, each.arrow) for name, each in self._columns().items()]
        return pa.schema([key, *pane, *fields])

    def blocks(self) -> dict[int, list[Block]]:
        """Rows of each key group that has keys, as an Arrow IPC record batch."""
        rows = [table.rows.rows() for table in self.tables]
        key_groups = np.concatenate([self.key_groups.take(each) for each in rows])
        order = np.argsort(key_groups, kind="stable")
        groups, starts = np.unique(key_groups[order], return_index=True)
        batch = pa.record_batch(self._arrays(rows), schema=self._schema()).take(pa.array(order))
        ends = [*starts[1:], len(order)]
        parts = [batch.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]
        return {
            int(group): [Block(COLUMNS, 0, len(part), b"", part.serialize().to_pybytes())]
            for group, part in zip(groups, parts, strict=True)
        }

    def _arrays(self, rows: list[Longs]) -> list[pa.Array]:
        keys = pa.concat_arrays(self.keys).take(pa.array(np.concatenate(rows)))
        numbers = [table.pane for table in self.tables]
        panes = [pa.array(np.repeat(numbers, [*map(len, rows)]))] if self.panes else []
        return [keys, *panes, *(self._values(each, rows) for each in self._columns().values())]

    def _values(self, column: FrozenColumn, rows: list[Longs]) -> pa.Array:
        parts: list[NDArray[Any]] = []
        for table, own in zip(self.tables, rows, strict=True):
            found = [each.values(own) for each in table.columns if each.name == column.name]
            parts += found or [np.repeat(column.default, len(own))]
        try:
            return array_of(np.concatenate(parts), column.arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"The column '{column.name}' of state holds values that are not of "
                f"type {column.arrow}: {error}",
                where=self.where,
                remedy="Put values of the descriptor's type, or change the descriptor.",
            ) from error


def columns_of(header: ColumnsHeader) -> tuple[TypeInformation, dict[str, str]]:
    """Key type, and the Arrow type of each column by name, in a snapshot."""
    schema = pa.ipc.read_schema(pa.py_buffer(header.schema))
    key = type_described(json.loads(schema.field(0).metadata[b"type"]))
    columns = list(schema)[2 if header.panes else 1 :]
    return key, {field.name: str(field.type) for field in columns}

"""Columnar keyed state: a dense row for each key, and a NumPy array over the rows for each column.

Made for whole batches: `KeyRows.index` finds the rows of a batch's keys, `Column.get` and `put`
gather and scatter values. An operator has one table of keys and columns, or panes: a table for
each number, such as the slices of time of its windows, that goes with its keys when it is dropped.

A snapshot copies the columns plainly (a million values are 8 MB and some 3 ms; keys are only ever
added, so theirs are not copied), and sorts them by key group when it is written, off the loop,
since NumPy and Arrow let go of the interpreter meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tidegate.errors import SerializerIncompatible, UserError
from tidegate.state.columns import (
    ColumnTable,
    CopiedColumn,
    CopiedTable,
    array_of,
    default_bytes,
    default_of,
)
from tidegate.state.format import ColumnsHeader
from tidegate.typeinfo.descriptions import describe, type_described
from tidegate.typeinfo.types import PICKLED, TypeInformation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tidegate.api.state import ColumnStateDescriptor
    from tidegate.state.columns import Column

KEY: Final = "key"
"""Name of the keys' field in a snapshot's schema; the columns' fields come after it."""

PANE: Final = "pane"
"""Name of the field that numbers the panes, after the keys' where there are panes."""


class KeyedColumnStates:
    """All columnar state of one operator; also implements ``api.state.KeyedPanes``."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._key_type: TypeInformation | None = None
        self._table = ColumnTable(where)
        self._panes: dict[int, ColumnTable] = {}

    def keyed_columns(self, key_type: TypeInformation | None) -> ColumnTable:
        """The operator's one table; raises SerializerIncompatible for another key type."""
        if self._panes:
            raise self._other_shape("windows", "one column a key")
        if key_type is not None and key_type != PICKLED:
            self._table.rows.declare(key_type)
        return self._table

    def column(self, descriptor: ColumnStateDescriptor) -> Column:
        """A column of the one table."""
        return self._table.column(descriptor)

    def keyed_panes(self, key_type: TypeInformation | None) -> KeyedColumnStates:
        """The operator's panes; raises SerializerIncompatible for another key type."""
        if len(self._table):
            raise self._other_shape("one column a key", "windows")
        if key_type is not None and key_type != PICKLED:
            self._key_type = key_type
            for pane in self._panes.values():
                pane.rows.declare(key_type)
        return self

    def pane(self, namespace: int) -> ColumnTable:
        """The pane of that number; made where there is none."""
        found = self._panes.get(namespace)
        if found is None:
            found = self._panes[namespace] = self.temporary()
        return found

    def namespaces(self) -> list[int]:
        """The numbers of all panes, ascending."""
        return sorted(self._panes)

    def drop(self, namespace: int) -> None:
        """Forget a pane."""
        del self._panes[namespace]

    def temporary(self) -> ColumnTable:
        """A pane that no snapshot holds."""
        return ColumnTable(self._where, self._key_type)

    def load(self, header: ColumnsHeader, sections: Sequence[tuple[int, memoryview]]) -> None:
        """Take in sections of a snapshot, each with its key group; before anything is asked for."""
        schema = pa.ipc.read_schema(pa.py_buffer(header.schema))
        key_type = type_described(json.loads(schema.field(0).metadata[b"type"]))
        batches = [
            pa.ipc.read_record_batch(pa.py_buffer(section), schema) for _, section in sections
        ]
        groups = np.repeat([group for group, _ in sections], [len(batch) for batch in batches])
        defaults = {
            name: default_of(data, schema.field(name).type, self._where)
            for name, data in header.defaults.items()
        }
        if not header.panes:
            self._table.rows.declare(key_type)
            if batches:
                _load(self._table, pa.Table.from_batches(batches, schema), groups, defaults)
            return
        self._key_type = key_type
        if not batches:
            return
        table = pa.Table.from_batches(batches, schema)
        numbers = table.column(1).to_numpy()
        table = table.remove_column(1)
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        for number, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            _load(self.pane(number), table.take(pa.array(rows)), groups[rows], defaults)

    def snapshot(self) -> ColumnsSnapshot | None:
        """The quick part of a snapshot; None where there are no keys."""
        tables = {number: pane for number, pane in self._panes.items() if len(pane)}
        held = tables or ({0: self._table} if len(self._table) else {})
        if not held:
            return None
        copies = [table.copied(number) for number, table in held.items()]
        key_type = next(iter(held.values())).key_type
        return ColumnsSnapshot(
            json.dumps(describe(key_type)), copies, panes=bool(tables), where=self._where
        )

    def _other_shape(self, before: str, now: str) -> SerializerIncompatible:
        return SerializerIncompatible(
            f"The columnar state was of {before} and is now of {now}",
            where=self._where,
            remedy="Give the operator a new uid, so that it begins without state.",
        )


def _load(
    into: ColumnTable, table: pa.Table, key_groups: NDArray[Any], defaults: dict[str, object]
) -> None:
    columns = [(name, table.column(name), defaults[name]) for name in table.column_names[1:]]
    into.load(table.column(0).combine_chunks(), key_groups, columns)


@dataclass(frozen=True, slots=True)
class ColumnsSnapshot:
    """Keys and columns as at the barrier; written off the loop.

    key_type: the keys' type as JSON.
    """

    key_type: str
    tables: list[CopiedTable]
    panes: bool
    where: str

    @property
    def header(self) -> ColumnsHeader:
        """What a snapshot says of its columnar state."""
        defaults = {name: default_bytes(each.default) for name, each in self._columns().items()}
        return ColumnsHeader(self._schema().serialize().to_pybytes(), defaults, self.panes)

    def _columns(self) -> dict[str, CopiedColumn]:
        """Of each name some column: panes have the same but for those of a changed program."""
        return {column.name: column for table in self.tables for column in table.columns}

    def _schema(self) -> pa.Schema:
        key = pa.field(KEY, self.tables[0].keys.type, metadata={"type": self.key_type})
        pane = [pa.field(PANE, pa.int64())] if self.panes else []
        fields = [pa.field(name, each.arrow) for name, each in self._columns().items()]
        return pa.schema([key, *pane, *fields])

    def sections(self) -> Iterator[tuple[int, int, bytes]]:
        """Key group, rows and Arrow IPC record batch, for each key group that has keys."""
        key_groups = np.concatenate([table.key_groups for table in self.tables])
        order = np.argsort(key_groups, kind="stable")
        groups, starts = np.unique(key_groups[order], return_index=True)
        batch = pa.record_batch(self._arrays(), schema=self._schema()).take(pa.array(order))
        ends = [*starts[1:], len(order)]
        for group, start, end in zip(groups, starts, ends, strict=True):
            section = batch.slice(start, end - start)
            yield int(group), len(section), section.serialize().to_pybytes()

    def _arrays(self) -> list[pa.Array]:
        keys = pa.concat_arrays([table.keys for table in self.tables])
        numbers = [table.namespace for table in self.tables]
        lengths = [len(table.keys) for table in self.tables]
        panes = [pa.array(np.repeat(numbers, lengths))] if self.panes else []
        return [keys, *panes, *map(self._values, self._columns().values())]

    def _values(self, column: CopiedColumn) -> pa.Array:
        parts: list[NDArray[Any]] = []
        for table in self.tables:
            found = [each.values for each in table.columns if each.name == column.name]
            parts += found or [np.repeat(column.default, len(table.keys))]
        try:
            return array_of(np.concatenate(parts), column.arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"The column '{column.name}' of state holds values that are no {column.arrow}: "
                f"{error}",
                where=self.where,
                remedy="Put values of the descriptor's type, or change the descriptor.",
            ) from error

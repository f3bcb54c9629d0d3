"""Columns of files as rows of a declared type, as PyFlink's formats give them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from flinkformat.row import Row
from tidegate.errors import BadRecord
from tidegate.typeinfo.arrow import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.connectors.files.parquet import ParquetFormat
    from tidegate.connectors.files.splits import Block, FileSplit
    from tidegate.connectors.files.text import CsvFormat
    from tidegate.storage.stores import Stores
    from tidegate.typeinfo.types import RowTypeInfo


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A format of columns whose records are rows of a type. columns: reader of its columns."""

    columns: ParquetFormat | CsvFormat
    row_type: RowTypeInfo

    @property
    def name(self) -> str:
        return self.columns.name

    def check(self, stores: Stores, path: str) -> None:
        self.columns.check(stores, path)

    def schema_of(self, stores: Stores, path: str) -> pa.Schema | None:
        return self.columns.schema_of(stores, path)

    def cut(self, stores: Stores, path: str, size: int, target: int) -> list[tuple[int, int]]:
        return self.columns.cut(stores, path, size, target)

    def blocks(self, stores: Stores, split: FileSplit) -> Iterator[Block]:
        """Blocks of rows. Raises BadRecord for columns that can't have the declared type."""
        schema, names = schema_of(self.row_type), tuple(self.row_type.field_names)
        for block in self.columns.blocks(stores, split):
            assert isinstance(block.rows, pa.RecordBatch), "a format of columns gives columns"
            columns = _cast(block.rows, schema, split.path)
            rows = zip(*[column.to_pylist() for column in columns.columns], strict=True)
            yield replace(block, rows=[Row.named(names, list(row)) for row in rows])


def _cast(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    try:
        return batch.select(schema.names).cast(schema)
    except (pa.ArrowException, KeyError, ValueError) as error:
        found = ", ".join(map(str, batch.schema))
        raise BadRecord(
            f"The columns cannot be converted to the declared type: {error}",
            where=path,
            remedy=f"Declare them as they are: {found}.".replace("\n", " "),
        ) from error

"""A bounded source over an Arrow table that travels with the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from flinkformat.frozen import frozen
from tidegate.connectors.collection import PositionReader
from tidegate.connectors.shares import SplitListEnumerator
from tidegate.model.elements import ArrowBatch

if TYPE_CHECKING:
    from tidegate.api.source import EnumeratorContext, ReaderContext


@frozen
class TableSplit:
    """The rest of the table. next: index of the next row."""

    next: int = 0


class TableSource:
    """The rows of a table, in order, as Arrow batches; one split, so at parallelism 1."""

    bounded = True
    split_type = TableSplit
    produced_type = None

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __reduce__(self) -> tuple[object, ...]:
        # In Arrow's own format a slice takes along its rows only, not those around them.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        return _shipped, (sink.getvalue().to_pybytes(),)

    def enumerator(
        self, context: EnumeratorContext[TableSplit], restored: bytes | None
    ) -> SplitListEnumerator[TableSplit]:
        return SplitListEnumerator(context, [TableSplit()], restored)

    def reader(self, context: ReaderContext) -> PositionReader[TableSplit]:
        table = self._table

        def next_batch(start: int) -> ArrowBatch:
            rows = table.slice(start, context.arrow_rows).combine_chunks()
            return ArrowBatch(rows.to_batches()[0])

        return PositionReader(len(table), next_batch, TableSplit)


def _shipped(data: bytes) -> TableSource:
    with pa.ipc.open_stream(data) as reader:
        return TableSource(reader.read_all())

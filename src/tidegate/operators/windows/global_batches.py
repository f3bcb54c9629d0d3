"""Aggregates of Arrow batches by key over all of a bounded input: a row for each key at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tidegate.api.aggregates import Collect
from tidegate.api.operator import Operator
from tidegate.api.state import OperatorStateDescriptor, RedistributionMode
from tidegate.model.elements import MAX_WATERMARK_MS, ArrowBatch
from tidegate.operators.aggregates.aggregated_columns import AggregatedColumns
from tidegate.operators.arrow import BATCH_CALL_S, ArrowInput
from tidegate.operators.windows.slices import (
    NoCuts,
    SliceCombiner,
    SlicedAggregates,
    columns_over,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.api.aggregates import Aggregate
    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.model.elements import Batch, Watermark
    from tidegate.typeinfo.types import TypeInformation

_SCHEMA: Final = OperatorStateDescriptor("schema", mode=RedistributionMode.UNION)
"""Schema of the batches, serialized: a job may end before one comes."""


class GlobalAggregateBatchesOperator(Operator):
    """A row for each key once the input has ended: the key and its aggregates.

    key_column: the column that the edge before it is keyed by.
    """

    piece_s = BATCH_CALL_S

    def __init__(
        self,
        aggregates: Sequence[Aggregate],
        key_column: str,
        key_type: TypeInformation | None = None,
    ) -> None:
        self._aggregates = aggregates
        self._key_column = key_column
        self.key_type = key_type

    @property
    def takes_any_order(self) -> bool:
        return not any(isinstance(each, Collect) for each in self._aggregates)

    def combiner(self) -> SliceCombiner:
        return SliceCombiner(NoCuts(), self._aggregates, self._key_column, self.key_type)

    def open(self, context: OperatorContext) -> None:
        self._name = context.info.name
        self._rows_max = context.info.settings.arrow_rows
        self._panes = context.state.keyed_panes(self.key_type)
        self._sums = SlicedAggregates(NoCuts(), self._panes)
        self._schema = context.state.operator_state(_SCHEMA)
        self._columns: AggregatedColumns | None = None
        restored: pa.Schema | None = None
        for data in self._schema.get():
            restored = pa.ipc.read_schema(pa.py_buffer(data))
            self._columns = AggregatedColumns(self._aggregates, restored, self._name)
        self._input = ArrowInput(self._name, restored)

    def snapshot(self, context: SnapshotContext) -> None:
        columns = self._columns
        self._schema.update([] if columns is None else [columns.schema.serialize().to_pybytes()])

    def process(self, batch: Batch, port: int, out: Output) -> None:
        given = self._input.batch(batch)
        if not len(given):
            return
        self._columns = columns_over(
            self._columns, self._aggregates, self._key_column, given.batch.schema, self._name
        )
        assert given.key_groups is not None, "a keyed edge gives key groups"
        rows = self._panes.index(given.batch.column(self._key_column), given.key_groups)
        self._sums.take(self._columns, given.batch, rows, given.timestamps_ms)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        if watermark.ms == MAX_WATERMARK_MS and self._columns is not None:
            for result in self._results(self._columns):
                out.emit(ArrowBatch(result))
                if not out.has_room:
                    yield None
            # Or a job that goes on from its last checkpoint would tell them again.
            self._panes.drop(self._panes.namespaces())
        out.emit_watermark(watermark)

    def _results(self, columns: AggregatedColumns) -> Iterator[pa.RecordBatch]:
        key = pa.field(self._key_column, columns.key_type)
        schema = pa.schema([key, *columns.fields])
        for namespace in self._panes.namespaces():
            pane = self._panes.pane(namespace)
            rows = pane.rows()
            for at in range(0, len(rows), self._rows_max):
                own = np.ascontiguousarray(rows[at : at + self._rows_max])
                keys = self._panes.keys(own).cast(columns.key_type)
                results = [each.result(pane, own) for each in columns.accumulators]
                yield pa.RecordBatch.from_arrays([keys, *results], schema=schema)

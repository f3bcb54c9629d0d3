"""Running aggregates by key: each row again, with its key's aggregates so far behind it.

Arrow batches get a column for each aggregate. Rows of a declared type get a field for each, and
rows whose fields are columns stay columns. The state is the same: a column for each accumulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidegate.api.operator import Operator
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.errors import GraphError, UnsupportedKey, UserCodeFailed
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.operators.aggregates.accumulators import array_of
from tidegate.operators.aggregates.aggregated_columns import AggregatedColumns
from tidegate.operators.aggregates.aggregated_rows import MISFITS
from tidegate.operators.aggregates.groups import Groups
from tidegate.operators.arrow import BATCH_CALL_S, ArrowInput
from tidegate.typeinfo.arrow import column_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.aggregates import Aggregate
    from tidegate.api.operator import OperatorContext, Output
    from tidegate.api.state import KeyedColumns
    from tidegate.model.elements import Batch
    from tidegate.operators.aggregates.accumulators import Accumulator
    from tidegate.operators.aggregates.aggregated_columns import ColumnValues, Values
    from tidegate.operators.aggregates.aggregated_rows import AggregatedRows
    from tidegate.typeinfo.types import TypeInformation


class RunningOperator(Operator):
    """Each row with its key's aggregates so far.

    key_column: the column that the edge before it is keyed by; None if that is by a function.
    rows: how rows of a declared type are read and made; None makes Arrow batches of all rows.
    """

    piece_s = BATCH_CALL_S
    keeps_type = True  # results are made of the declared type

    def __init__(
        self,
        aggregates: Sequence[Aggregate],
        key_column: str | None,
        key_type: TypeInformation | None = None,
        rows: AggregatedRows | None = None,
    ) -> None:
        self._aggregates = aggregates
        self._key_column = key_column
        self.key_type = key_type
        self._rows = rows

    @property
    def reads_columns(self) -> bool:
        return self._rows is not None

    def open(self, context: OperatorContext) -> None:
        self._name = context.info.name
        self._pane = context.state.keyed_columns(self.key_type)
        self._input = ArrowInput(self._name)
        self._columns: AggregatedColumns | None = None
        if self._rows is not None:
            self._columns = self._aggregated(self._rows.schema)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        if isinstance(batch, RowBatch) and self._rows is not None and self._columns is not None:
            results = self._results(self._columns, batch, self._rows.reader(batch, self._name))
            try:
                made = self._rows.result(batch, results)
            except MISFITS as error:
                raise self._misfit(error) from error
            out.emit(made)
            return
        given = self._input.batch(batch)
        columns = self._aggregated(given.batch.schema)
        results = self._results(columns, batch, given.batch.column)
        try:
            arrays = [
                array_of(each, accumulator.type) if isinstance(each, np.ndarray) else each
                for each, accumulator in zip(results, columns.accumulators, strict=True)
            ]
        except MISFITS as error:
            raise self._misfit(error) from error
        schema = pa.schema([*given.batch.schema, *columns.fields])
        result = pa.RecordBatch.from_arrays([*given.batch.columns, *arrays], schema=schema)
        out.emit(ArrowBatch(result, given.timestamps_ms))

    def _results(
        self, columns: AggregatedColumns, batch: Batch, column: Callable[[str], Values]
    ) -> list[Values]:
        """Each aggregate after each row. column: gives a column of the batch by its name."""
        key_groups = batch.groups if isinstance(batch, ColumnRows) else batch.key_groups
        assert key_groups is not None, "a keyed edge gives key groups"
        index = self._pane.index(self._keys(batch), np.asarray(key_groups, np.int16))
        groups = Groups.of(index, len(self._pane))
        return [
            running(accumulator, self._pane, groups, values)
            for accumulator, values in zip(
                columns.accumulators, columns.values(column), strict=True
            )
        ]

    def _misfit(self, error: Exception) -> UserCodeFailed:
        given = ", ".join(map(str, self._aggregates))
        return UserCodeFailed(
            f"the running aggregates {given} have come to what a column can't hold: {error}",
            where=f"operator '{self._name}'",
            remedy="Aggregate smaller values, such as floating numbers in place of decimals.",
        )

    def _keys(self, batch: Batch) -> Values:
        if isinstance(batch, ArrowBatch):
            assert batch.key_column is not None, "a keyed edge names the key's column"
            return batch.batch.column(batch.key_column)
        if isinstance(batch, ColumnRows) and batch.key_column is not None:
            column = batch.key_values
            if column.dtype != np.object_:
                return column
        keys = batch.keys
        assert keys is not None, "a keyed edge gives keys"
        try:
            return pa.array(keys) if self.key_type is None else column_of(keys, self.key_type)
        except MISFITS as error:
            raise UnsupportedKey(
                f"running aggregates have no column for keys such as {keys[0]!r}: {error}",
                where=f"operator '{self._name}'",
                remedy="Key by a text, a number, bytes, a date or a time.",
            ) from error

    def _aggregated(self, schema: pa.Schema) -> AggregatedColumns:
        if self._columns is not None:
            self._columns.check(schema)
            return self._columns
        made = AggregatedColumns.of(self._aggregates, self._key_column, schema, self._name)
        if taken := [each.output for each in self._aggregates if each.output in schema.names]:
            raise GraphError(
                f"there is a column '{taken[0]}' already",
                where=f"operator '{self._name}'",
                remedy=f"Name the aggregate otherwise: .alias('running_{taken[0]}').",
            )
        self._columns = made
        return made


def running(
    accumulator: Accumulator, pane: KeyedColumns, groups: Groups, column: ColumnValues | None
) -> Values:
    """Results after each row, in the order of the batch; a null changes nothing.

    As an array of NumPy where none is null.
    """
    values = None if column is None else column.ordered(groups.order)
    if values is None or values.valid is None:
        added = groups.order if values is None else values.values
        made = accumulator.run(pane, groups, added)
        return made.take(groups.places)
    before = accumulator.result(pane, groups.keys)
    made = accumulator.run(pane, groups.only(values.valid), values.values[values.valid])
    after = array_of(made, accumulator.type).cast(before.type)
    # The groups' results before the batch come first, and stand for rows before a first value.
    seen = np.cumsum(values.valid)
    seen_before = (seen - values.valid)[groups.starts]
    begun = seen > np.repeat(seen_before, groups.lengths)
    own = np.repeat(np.arange(len(groups.keys)), groups.lengths)
    at = np.where(begun, len(before) + seen - 1, own)
    return pa.concat_arrays([before, after]).take(pa.array(at.take(groups.places)))

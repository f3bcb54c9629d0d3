"""Aggregates of Arrow batches by key, running: a result for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidegate.api.operator import Operator
from tidegate.errors import GraphError
from tidegate.model.elements import ArrowBatch
from tidegate.operators.aggregates.accumulators import accumulator_of, held_type
from tidegate.operators.aggregates.groups import Groups
from tidegate.operators.arrow import BATCH_CALL_S, arrow_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tidegate.api.aggregates import Aggregate
    from tidegate.api.operator import OperatorContext, Output
    from tidegate.api.state import KeyedColumns
    from tidegate.model.elements import Batch
    from tidegate.operators.aggregates.accumulators import Accumulator
    from tidegate.typeinfo.types import TypeInformation

    Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """Values of a column, one for each row. valid: which are not null; None for all."""

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None

    def ordered(self, order: Longs) -> ColumnValues:
        valid = None if self.valid is None else self.valid.take(order)
        return ColumnValues(self.values.take(order), valid)

    def piece(self, start: int, stop: int) -> ColumnValues:
        valid = None if self.valid is None else self.valid[start:stop]
        return ColumnValues(self.values[start:stop], valid)


class AggregatedColumns:
    """The aggregates over batches of one schema.

    schema: the key's column, then each that is aggregated, once. Raises GraphError if an
    aggregate has no meaning for its column.
    """

    def __init__(self, aggregates: Sequence[Aggregate], schema: pa.Schema, operator: str) -> None:
        self.schema = schema
        self._operator = operator
        self._aggregates = aggregates
        types = [None if each.column is None else _type(schema, each.column) for each in aggregates]
        try:
            self.accumulators: list[Accumulator] = [
                accumulator_of(each, arrow) for each, arrow in zip(aggregates, types, strict=True)
            ]
        except GraphError as error:
            place = f"operator '{operator}'"
            raise GraphError(error.what, where=place, remedy=error.remedy) from error

    @staticmethod
    def of(
        aggregates: Sequence[Aggregate], key_column: str, found: pa.Schema, operator: str
    ) -> AggregatedColumns:
        """Columns for batches like this one. Raises GraphError if a column is missing."""
        wanted = [key_column, *(each.column for each in aggregates if each.column is not None)]
        fields = [_field(found, name, operator) for name in dict.fromkeys(wanted)]
        return AggregatedColumns(aggregates, pa.schema(fields), operator)

    @property
    def key_type(self) -> pa.DataType:
        return _type(self.schema, self.schema.names[0])

    @property
    def fields(self) -> list[pa.Field]:
        pairs = zip(self._aggregates, self.accumulators, strict=True)
        return [pa.field(each.output, accumulator.type) for each, accumulator in pairs]

    def check(self, found: pa.Schema) -> None:
        """Raises GraphError for a batch unlike earlier ones."""
        for field in self.schema:
            now = _field(found, field.name, self._operator).type
            if now != field.type:
                raise GraphError(
                    f"the schema changed in the middle of the stream: column '{field.name}' is "
                    f"{now}, and was {field.type}",
                    where=f"operator '{self._operator}'",
                    remedy="Give all batches one schema: cast the column in a map_batches before.",
                )

    def values(self, batch: pa.RecordBatch) -> list[ColumnValues | None]:
        """Values of each aggregate's column; None for a count of rows."""
        made: dict[tuple[str, pa.DataType], ColumnValues] = {}
        result: list[ColumnValues | None] = []
        for each in self._aggregates:
            if each.column is None:
                result.append(None)
                continue
            held = held_type(each, _type(self.schema, each.column))
            if (each.column, held) not in made:
                made[each.column, held] = values_of(batch.column(each.column), held)
            result.append(made[each.column, held])
        return result


def values_of(column: pa.Array, held: pa.DataType) -> ColumnValues:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    valid = None
    known = column
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        known = column.drop_null()
    is_a = pa.types
    if is_a.is_integer(held) or is_a.is_floating(held) or is_a.is_boolean(held):
        values = known.to_numpy(zero_copy_only=False).astype(held.to_pandas_dtype(), copy=False)
    elif is_a.is_timestamp(held) or is_a.is_duration(held) or is_a.is_date32(held):
        values = known.to_numpy(zero_copy_only=False)
    else:
        values = np.fromiter(known.to_pylist(), object, len(known))
    if valid is None:
        return ColumnValues(values, None)
    spread = np.zeros(len(valid), values.dtype)
    spread[valid] = values
    return ColumnValues(spread, valid)


def _type(schema: pa.Schema, name: str) -> pa.DataType:
    found = schema.field(name).type
    return found.value_type if pa.types.is_dictionary(found) else found


def _field(schema: pa.Schema, name: str, operator: str) -> pa.Field:
    if schema.get_field_index(name) < 0:
        raise GraphError(
            f"there is no column '{name}'; there are {', '.join(schema.names)}",
            where=f"operator '{operator}'",
            remedy="Aggregate a column of the batches that reach the operator.",
        )
    return schema.field(name)


class AggregateBatchesOperator(Operator):
    """Each batch again with its key's aggregates so far behind each row.

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

    def open(self, context: OperatorContext) -> None:
        self._name = context.info.name
        self._pane = context.state.keyed_columns(self.key_type)
        self._columns: AggregatedColumns | None = None

    def process(self, batch: Batch, port: int, out: Output) -> None:
        given = arrow_batch(batch, self._name)
        assert given.key_groups is not None, "a keyed edge gives key groups"
        rows = given.batch
        columns = self._aggregated(rows.schema)
        index = self._pane.index(rows.column(self._key_column), given.key_groups)
        groups = Groups.of(index, len(self._pane))
        back = np.empty(len(index), np.int64)
        back[groups.order] = np.arange(len(index))
        made = [
            running(accumulator, self._pane, groups, values).take(pa.array(back))
            for accumulator, values in zip(columns.accumulators, columns.values(rows), strict=True)
        ]
        schema = pa.schema([*rows.schema, *columns.fields])
        result = pa.RecordBatch.from_arrays([*rows.columns, *made], schema=schema)
        out.emit(ArrowBatch(result, given.timestamps_ms))

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
) -> pa.Array:
    """Results after each row, in the groups' order; a null changes nothing."""
    if column is None:
        return accumulator.run(pane, groups, groups.order)
    values = column.ordered(groups.order)
    if values.valid is None:
        return accumulator.run(pane, groups, values.values)
    before = accumulator.result(pane, groups.keys)
    after = accumulator.run(pane, groups.only(values.valid), values.values[values.valid])
    seen = np.cumsum(values.valid)
    seen_before = (seen - values.valid)[groups.starts]
    begun = seen > np.repeat(seen_before, groups.lengths)
    own = np.repeat(np.arange(len(groups.keys)), groups.lengths)
    at = np.where(begun, len(before) + seen - 1, own)
    return pa.concat_arrays([before, after.cast(before.type)]).take(pa.array(at))

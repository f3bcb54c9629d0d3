"""Columns that are aggregated: their types, their accumulators, their values in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from flinkformat.frozen import frozen
from tidegate.errors import GraphError
from tidegate.operators.aggregates.accumulators import accumulator_of, held_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tidegate.api.aggregates import Aggregate
    from tidegate.operators.aggregates.accumulators import Accumulator

    Longs = NDArray[np.int64]
    Values = pa.Array | NDArray[Any]


@frozen
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

    schema: the key's column if there is one, then each that is aggregated, once. Raises GraphError
    if an aggregate has no meaning for its column.
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
        aggregates: Sequence[Aggregate], key_column: str | None, found: pa.Schema, operator: str
    ) -> AggregatedColumns:
        """Columns for batches like this one. Raises GraphError if a column is missing."""
        wanted = dict.fromkeys([key_column, *(each.column for each in aggregates)])
        fields = [_field(found, name, operator) for name in wanted if name is not None]
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

    def values(self, column: Callable[[str], Values]) -> list[ColumnValues | None]:
        """Values of each aggregate's column; None for a count of rows.

        column: gives the column of a name, as an Arrow array, or an array of NumPy without nulls.
        """
        made: dict[tuple[str, pa.DataType], ColumnValues] = {}
        result: list[ColumnValues | None] = []
        for each in self._aggregates:
            if each.column is None:
                result.append(None)
                continue
            held = held_type(each, _type(self.schema, each.column))
            if (each.column, held) not in made:
                made[each.column, held] = values_of(column(each.column), held)
            result.append(made[each.column, held])
        return result


def values_of(given: Values, held: pa.DataType) -> ColumnValues:
    if isinstance(given, np.ndarray):
        return ColumnValues(given.astype(held.to_pandas_dtype(), copy=False), None)
    column = cast("pa.Array", given)
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

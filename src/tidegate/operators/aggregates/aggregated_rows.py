"""Rows of a declared type whose fields are aggregated: read as columns, made anew with results."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from flinkformat.row import Row
from tidegate.api import aggregates
from tidegate.api.rows.batches import shown
from tidegate.api.rows.column_rows import TUPLE, ColumnRows, RowForm
from tidegate.errors import GraphError, UserCodeFailed
from tidegate.model.elements import RowBatch
from tidegate.operators.aggregates.accumulators import array_of
from tidegate.typeinfo.arrow import column_of, column_type, values_of
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTE,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    LONG,
    SHORT,
    ListTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    holds_pickled,
    names_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.api.aggregates import Aggregate
    from tidegate.model.nullable import FieldValues
    from tidegate.operators.aggregates.aggregated_columns import Values

MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Exceptions for a value that a column can't hold."""

VALUE = "value"
"""Name of the only column of rows that have no fields."""


class AggregatedRows:
    """How rows of one type are read, and made anew with a result for each aggregate.

    Fields of a tuple are named f0, f1 and so on. A tuple stays a tuple, a value without fields
    becomes one, all other rows become a Row. Raises GraphError for a field that is not there, or
    that can't be a column.
    """

    def __init__(self, row_type: TypeInformation, given: Sequence[Aggregate], call: str) -> None:
        self._type = row_type
        names = names_of(row_type) or (VALUE,)
        types = row_type.children if names_of(row_type) else (row_type,)
        self._fields = dict(zip(names, types, strict=True))
        for each in given:
            self._check(each, call)
        self._results = tuple(self._type_of(each) for each in given)
        self._names = (*names, *(each.output for each in given))

    @property
    def schema(self) -> pa.Schema:
        """The fields as columns; one that can't be aggregated as the bytes of its pickle."""
        return pa.schema([pa.field(name, column_type(of)) for name, of in self._fields.items()])

    @property
    def result_type(self) -> TypeInformation:
        types = (*self._fields.values(), *self._results)
        if isinstance(self._type, RowTypeInfo | RecordTypeInfo):
            return RowTypeInfo(types, self._names)
        return TupleTypeInfo(types)

    def reader(self, batch: RowBatch, operator: str) -> Callable[[str], Values]:
        """A function that gives a column of the batch by its name.

        It raises UserCodeFailed for a value that the column can't hold.
        """
        columns: dict[str, FieldValues] = {}
        if isinstance(batch, ColumnRows):
            names = batch.form.names or self._fields
            columns = dict(zip(names, batch.columns[: batch.width], strict=True))

        def column(name: str) -> Values:
            of, found = self._fields[name], columns.get(name)
            if isinstance(found, np.ndarray) and of in _PLAIN.get(found.dtype.kind, ()):
                return found
            values = list(map(self._get(name), batch.values))
            try:
                return column_of(values, of)
            except MISFITS as error:
                at = _first_misfit(values, of)
                raise UserCodeFailed(
                    f"field '{name}' is {shown(values[at])}, which a column of {of} can't hold: "
                    f"{error}",
                    where=f"operator '{operator}', at the row {shown(batch.values[at])}",
                    remedy="Bring it to what the column holds in a map before, or declare a type "
                    "that fits: columns have 64 bits for whole numbers, 38 digits for decimals (18 "
                    "of them behind the point), and microseconds for times.",
                ) from error

        return column

    def result(self, batch: RowBatch, results: Sequence[Values]) -> RowBatch:
        """The rows with their results, which stay columns where all can be.

        Raises what the results' columns raise for a value that they can't hold.
        """
        plain = all(map(_is_plain, results))
        form = self._form_of(batch) if plain else None
        if form is not None and isinstance(batch, ColumnRows):
            made = [each.astype(_WIDE[each.dtype.kind], copy=False) for each in results]
            fields = [*batch.columns[: batch.width], *made]
            return ColumnRows(fields, form=form, stamps=batch.stamps)
        values = [_values(each, of) for each, of in zip(results, self._results, strict=True)]
        added = zip(*values, strict=True)
        return RowBatch(list(map(self._joined, batch.values, added)), batch.timestamps_ms)

    def _form_of(self, batch: RowBatch) -> RowForm | None:
        """The form of the rows with results; None where they are made one by one."""
        if not isinstance(batch, ColumnRows):
            return None
        if not batch.form.names:
            return TUPLE
        is_record = isinstance(self._type, RowTypeInfo | RecordTypeInfo) and batch.form.record
        fits = batch.form.names == self._names[: batch.width]
        return RowForm(names=self._names, record=Row) if is_record and fits else None

    def _joined(self, row: Any, added: tuple[object, ...]) -> object:
        match self._type:
            case TupleTypeInfo():
                return row + added
            case RowTypeInfo():
                return Row.of_parts([*row, *added], self._names, row.get_row_kind())
            case RecordTypeInfo(field_names=names):
                return Row.named(self._names, [*(getattr(row, name) for name in names), *added])
            case _:
                return (row, *added)

    def _get(self, name: str) -> Callable[[Any], Any]:
        match self._type:
            case TupleTypeInfo() | RowTypeInfo():
                return operator.itemgetter(list(self._fields).index(name))
            case RecordTypeInfo():
                return operator.attrgetter(name)
            case _:
                return _same

    def _check(self, aggregate: Aggregate, call: str) -> None:
        name = aggregate.column
        if aggregate.output in self._fields:
            raise GraphError(
                f"there is a field '{aggregate.output}' already in {self._type}",
                where=call,
                remedy=f"Name the aggregate otherwise: {aggregate}.alias('name').",
            )
        if name is None:
            return
        if name not in self._fields:
            raise GraphError(
                f"there is no field '{name}' in {self._type}",
                where=call,
                remedy=f"Aggregate one of {', '.join(self._fields)}.",
            )
        if holds_pickled(self._fields[name]):
            raise GraphError(
                f"field '{name}' is of no declared type, so {aggregate} cannot be kept in columns",
                where=call,
                remedy="Declare the field's type in the call that makes the stream.",
            )

    def _type_of(self, aggregate: Aggregate) -> TypeInformation:
        if aggregate.column is None:
            return LONG
        of = self._fields[aggregate.column]
        match aggregate:
            case aggregates.Count() | aggregates.CountDistinct():
                return LONG
            case aggregates.Mean():
                return DOUBLE
            case aggregates.Collect():
                return ListTypeInfo(of)
            case aggregates.Sum():
                return _type_of_sum(of)
            case _:
                return of


def _type_of_sum(of: TypeInformation) -> TypeInformation:
    if of in (BIG_DEC, BIG_INT, DURATION):
        return of
    return DOUBLE if pa.types.is_floating(column_type(of)) else LONG


_PLAIN: Final[dict[str, tuple[TypeInformation, ...]]] = {
    "i": (BYTE, SHORT, INT, LONG),
    "f": (FLOAT, DOUBLE),
    "b": (BOOLEAN,),
}
"""Types whose values are numbers as NumPy has them, by its kinds of types."""

_WIDE: Final = {"i": np.int64, "f": np.float64, "b": np.bool_}
"""The types of columns of rows, by kind."""


def _is_plain(result: Values) -> bool:
    return isinstance(result, np.ndarray) and result.dtype.kind in _WIDE


def _values(result: Values, of: TypeInformation) -> list[Any]:
    if _is_plain(result):
        return result.tolist()
    return values_of(
        result if isinstance(result, pa.Array) else array_of(result, column_type(of)), of
    )


def _first_misfit(values: Sequence[Any], of: TypeInformation) -> int:
    """Position of the first value that is in no column of the type; 0 if each alone is in one."""
    for at, value in enumerate(values):
        try:
            column_of([value], of)
        except MISFITS:
            return at
    return 0


def _same(row: Any) -> Any:
    return row

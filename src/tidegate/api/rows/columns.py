"""Records of a stream as one table, with declared columns or ones found in the values.

Arrow batches stay as they are. A row with named fields is a row of columns, a tuple has the columns
``f0``, ``f1`` and so on, any other value the one column ``value``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from flinkformat.row import Row
from tidegate.api.rows.batches import as_arrow, mapping_names, named_columns
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.errors import BadRecord, GraphError
from tidegate.typeinfo.arrow import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidegate.model.elements import RowBatch
    from tidegate.typeinfo.types import TypeInformation

_FOUND: Final = {b"tidegate.found": b"values"}
"""Metadata of a field whose type nobody has given: it is what some values happened to need."""

_REMEDY: Final = "Make its values of one type in a step before, or declare the type."


class Columns:
    """Conversion of records to columns. schema: None to find it in the values."""

    def __init__(self, schema: pa.Schema | None) -> None:
        self.schema = schema
        self._nested = schema is not None and any(pa.types.is_nested(one.type) for one in schema)

    @staticmethod
    def of_type(declared: TypeInformation | None) -> Columns:
        """Columns of a stream's type; found in the values if it has no Arrow type."""
        try:
            return Columns(None if declared is None else schema_of(declared))
        except GraphError:
            return Columns(None)

    def batch(self, records: list[object] | pa.RecordBatch) -> pa.RecordBatch:
        if not isinstance(records, list):
            batch = records.replace_schema_metadata(None)
            return batch if self.schema is None else _cast(batch, self.schema)
        names = None if self.schema is None else self.schema.names
        rows = [_named(record, names) for record in records]
        if self._nested:
            rows = [{name: _plain(value) for name, value in row.items()} for row in rows]
        return as_arrow(rows, self.schema)

    def rows(self, batch: RowBatch) -> pa.RecordBatch:
        """The columns of a batch of rows; those that it has are taken as they are."""
        made = None
        if isinstance(batch, ColumnRows):
            made = named_columns(batch, self._names_of(batch), self.schema)
        return self.batch(batch.values) if made is None else made

    def _names_of(self, rows: ColumnRows) -> Sequence[str]:
        """Names of the fields of the rows; empty where rows have to tell."""
        if rows.form.names:
            return mapping_names(rows.form)
        if not rows.form.is_tuple:
            return ("value",)
        names = _names_of_tuple(rows.width, None if self.schema is None else self.schema.names)
        return names if len(names) == rows.width else ()

    def table(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """All batches as one table, even if there are none.

        Raises BadRecord that names the column which is of types that do not go together.
        """
        schema = one_schema([batch.schema for batch in batches]) or self.schema or pa.schema([])
        fitting = [_cast(batch, schema, missing=True) for batch in batches]
        return pa.Table.from_batches(fitting, schema)


def one_schema(schemas: Iterable[pa.Schema]) -> pa.Schema | None:
    """One schema for all these; None if there are none.

    A number becomes the wider one, a column that some lack is empty there. Raises BadRecord that
    names the column which is of types that do not go together.
    """
    merged: pa.Schema | None = None
    for schema in dict.fromkeys(schemas):
        try:
            both = [schema] if merged is None else [merged, schema]
            merged = pa.unify_schemas(both, promote_options="permissive")
        except pa.ArrowException:
            assert merged is not None, "one schema goes together with itself"
            raise _apart(merged, schema) from None
    return merged


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch under a schema of ``one_schema``. Raises BadRecord if a value would change."""
    return _cast(batch, schema, missing=True)


def as_found(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with a mark on each column, kept in files: its type was found in values."""
    fields = [field.with_metadata(_FOUND) for field in batch.schema]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


def is_found(field: pa.Field) -> bool:
    """True if a column has the mark of `as_found`, or only nulls."""
    return pa.types.is_null(field.type) or _FOUND.items() <= (field.metadata or {}).items()


def _apart(one: pa.Schema, other: pa.Schema) -> BadRecord:
    for field in other:
        if field.name in one.names:
            before = one.field(field.name)
            try:
                pa.unify_schemas(
                    [pa.schema([before]), pa.schema([field])], promote_options="permissive"
                )
            except pa.ArrowException:
                return BadRecord(
                    f"column '{field.name}' is {before.type} in some records and {field.type} in "
                    "others, which cannot be one type",
                    where=f"column '{field.name}'",
                    remedy=_REMEDY,
                )
    return BadRecord("the records have columns that do not go together", remedy=_REMEDY)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, *, missing: bool = False) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    if unknown := [name for name in batch.schema.names if name not in schema.names]:
        raise BadRecord(
            f"a batch has columns that the schema does not: {', '.join(unknown)}",
            remedy=f"The schema has {', '.join(schema.names)}.",
        )
    columns = [_column(batch, field, missing=missing) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, *, missing: bool) -> pa.Array:
    if field.name not in batch.schema.names:
        if missing or field.nullable:
            return pa.nulls(batch.num_rows, field.type)
        raise BadRecord(f"a batch lacks column '{field.name}'", remedy="Add it, or declare less.")
    column = batch.column(field.name)
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise BadRecord(
            f"column '{field.name}' is {column.type}, which does not fit {field.type}: {error}",
            where=f"column '{field.name}'",
            remedy=_REMEDY,
        ) from error


def _named(record: Any, names: Sequence[str] | None) -> Mapping[str, object]:
    """A record as a mapping. names: for fields without names."""
    if isinstance(record, Mapping):
        return record  # pyright: ignore[reportUnknownVariableType]  # whatever it holds
    if isinstance(record, Row):
        if record.names is not None:
            return record.as_dict()
    elif hasattr(record, "_asdict"):
        return record._asdict()
    elif dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {each.name: getattr(record, each.name) for each in dataclasses.fields(record)}
    elif not isinstance(record, tuple):
        return {"value": record}
    given = _names_of_tuple(len(record), names)
    if len(given) != len(record):
        raise BadRecord(f"a record has {len(record)} fields, and {len(given)} are declared")
    return dict(zip(given, record, strict=True))


def _names_of_tuple(width: int, names: Sequence[str] | None) -> Sequence[str]:
    return names or [f"f{index}" for index in range(width)]


def _plain(value: Any) -> object:
    """Rows and dataclasses within a column, in a form that Arrow accepts."""
    match value:
        case None | str() | bytes() | int() | float():
            return value
        case Mapping():
            return {key: _plain(one) for key, one in value.items()}
        case Row():
            return {name: _plain(one) for name, one in _named(value, None).items()}
        case tuple() if not hasattr(value, "_asdict"):
            return tuple(_plain(one) for one in value)
        case list():
            return [_plain(one) for one in value]
        case _ if dataclasses.is_dataclass(value) or hasattr(value, "_asdict"):
            return {name: _plain(one) for name, one in _named(value, None).items()}
        case _:
            return value

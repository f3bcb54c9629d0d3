"""Parquet files that Spark reads as one DataFrame: the types that it keeps, and a common schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.api.rows.columns import fitted, is_found, one_schema
from tidegate.connectors.files.encoders import ParquetEncoding
from tidegate.connectors.files.enumerator import files_at
from tidegate.connectors.files.parts import hidden
from tidegate.connectors.files.writers import abort_file
from tidegate.errors import GraphError
from tidegate.storage.store import open_stream
from tidegate.storage.stores import Stores
from tidegate.typeinfo.arrow import DECIMAL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_DIGITS_MAX: Final = 38
_SAME: Final = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_null,
)
_WIDER: Final = (
    (pa.types.is_uint8, pa.int16()),
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_uint64, pa.decimal128(20, 0)),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_date64, pa.date32()),
)


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The columns in Spark's types, wider if it lacks one.

    Raises GraphError that names all columns that Spark has no type for.
    """
    fields = [(field, _kept(field.type)) for field in schema]
    if lost := [field for field, kind in fields if kind is None]:
        named = ", ".join(f"'{field.name}' ({field.type})" for field in lost)
        raise GraphError(
            f"Spark keeps no columns of these types: {named}",
            where="to_spark",
            remedy="Make times and durations numbers or texts in a step before; decimals have at "
            f"most {_DIGITS_MAX} digits.",
        )
    return pa.schema([pa.field(field.name, kind) for field, kind in fields])


def settle(folder: str, declared: pa.Schema | None) -> pa.Schema:
    """Brings all Parquet files of a folder under one schema, which is returned. Blocking.

    declared: what they all have; None finds it, with the same width for all decimals that were
    found in values. Files of another schema are written anew, in the place of the old. Raises
    BadRecord that names the column which cannot be of one type.
    """
    stores = Stores()
    schemas = {file.path: _schema_of(stores, file.path) for file in files_at(stores, folder)}
    schema = spark_schema(declared or _found_schema(schemas.values()))
    for path, own in schemas.items():
        if not own.equals(schema):
            _rewrite(stores, path, schema)
    return schema


def rows_in(folder: str) -> int:
    stores = Stores()
    return sum(_rows_of(stores, file.path) for file in files_at(stores, folder))


def holds_files(folder: str) -> bool:
    return next(files_at(Stores(), folder), None) is not None


def _found_schema(schemas: Collection[pa.Schema]) -> pa.Schema:
    """Common schema of all files. Decimals found in values have one width in every run."""
    merged = one_schema(schemas) or pa.schema([])
    given = {field.name for schema in schemas for field in schema if not is_found(field)}
    return pa.schema(
        [
            field if field.name in given else pa.field(field.name, _widened(field.type))
            for field in merged
        ]
    )


def _widened(kind: pa.DataType) -> pa.DataType:
    """A type found in values, with decimals as wide as Flink and Spark have undeclared ones."""
    if pa.types.is_decimal(kind):
        whole_digits, whole_max = kind.precision - kind.scale, DECIMAL.precision - DECIMAL.scale
        return DECIMAL if whole_digits <= whole_max and kind.scale <= DECIMAL.scale else kind
    if pa.types.is_list(kind):
        return pa.list_(_widened(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _widened(field.type)) for field in kind])
    return kind


def _kept(kind: pa.DataType) -> pa.DataType | None:
    is_a = pa.types
    if any(same(kind) for same in _SAME):
        return kind
    if is_a.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if is_a.is_decimal(kind):
        fits = kind.precision <= _DIGITS_MAX and 0 <= kind.scale <= kind.precision
        return pa.decimal128(kind.precision, kind.scale) if fits else None
    if is_a.is_dictionary(kind):
        return _kept(kind.value_type)
    if is_a.is_map(kind):
        key, item = _kept(kind.key_type), _kept(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        value = _kept(kind.value_type)
        return None if value is None else pa.list_(value)
    if is_a.is_struct(kind):
        return _kept_struct(kind)
    return next((wider for is_one, wider in _WIDER if is_one(kind)), None)


def _kept_struct(kind: pa.StructType) -> pa.DataType | None:
    fields: list[pa.Field] = []
    for field in kind:
        kept = _kept(field.type)
        if kept is None:
            return None
        fields.append(pa.field(field.name, kept))
    return pa.struct(fields) if fields else None


def _schema_of(stores: Stores, path: str) -> pa.Schema:
    store, name = stores.locate(path)
    with open_stream(store, name) as stream, pq.ParquetFile(stream) as file:
        return file.schema_arrow.remove_metadata()


def _rows_of(stores: Stores, path: str) -> int:
    store, name = stores.locate(path)
    with open_stream(store, name) as stream, pq.ParquetFile(stream) as file:
        return file.metadata.num_rows


def _rewrite(stores: Stores, path: str, schema: pa.Schema) -> None:
    store, name = stores.locate(path)
    writer = store.open_new(hidden(name))
    encoder = ParquetEncoding().encoder(writer, schema)
    try:
        for batch in _batches(stores, path):
            encoder.write(pa.Table.from_batches([fitted(batch, schema)]))
        encoder.close()
    except Exception:
        encoder.abort()
        abort_file(writer)
        raise
    store.rename(hidden(name), name)


def _batches(stores: Stores, path: str) -> Iterator[pa.RecordBatch]:
    store, name = stores.locate(path)
    with open_stream(store, name) as stream, pq.ParquetFile(stream) as file:
        for batch in file.iter_batches():
            yield batch.replace_schema_metadata(None)

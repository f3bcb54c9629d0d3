"""Conversion of types to Arrow's and back."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidegate.errors import GraphError
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INSTANT,
    INT,
    LONG,
    PICKLED,
    SHORT,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    names_of,
)

DECIMAL: Final = pa.decimal128(38, 18)
"""Flink's own width for a decimal of unknown width."""

PLAIN_ARROW: Final[dict[TypeInformation, pa.DataType]] = {
    BYTE: pa.int8(),
    SHORT: pa.int16(),
    INT: pa.int32(),
    LONG: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    BOOLEAN: pa.bool_(),
    STRING: pa.string(),
    CHAR: pa.string(),
    BIG_DEC: DECIMAL,
    BYTES: pa.binary(),
    SQL_DATE: pa.date32(),
    SQL_TIME: pa.time64("us"),
    SQL_TIMESTAMP: pa.timestamp("us"),
    INSTANT: pa.timestamp("us", "UTC"),
}
_FROM_ARROW: Final = (
    (pa.types.is_boolean, BOOLEAN),
    (pa.types.is_int8, BYTE),
    (pa.types.is_int16, SHORT),
    (pa.types.is_int32, INT),
    (pa.types.is_int64, LONG),
    (pa.types.is_uint8, SHORT),
    (pa.types.is_uint16, INT),
    (pa.types.is_uint32, LONG),
    (pa.types.is_uint64, BIG_INT),
    (pa.types.is_float16, FLOAT),
    (pa.types.is_float32, FLOAT),
    (pa.types.is_float64, DOUBLE),
    (pa.types.is_string, STRING),
    (pa.types.is_large_string, STRING),
    (pa.types.is_string_view, STRING),
    (pa.types.is_binary, BYTES),
    (pa.types.is_large_binary, BYTES),
    (pa.types.is_fixed_size_binary, BYTES),
    (pa.types.is_decimal, BIG_DEC),
    (pa.types.is_date, SQL_DATE),
    (pa.types.is_time, SQL_TIME),
)


def arrow_type_of(type_info: TypeInformation) -> pa.DataType:
    """Arrow type of a column of such values.

    Raises GraphError, with the field, for a type that has none: pickled objects and integers
    without bounds.
    """
    return _arrow_type(type_info, "")


def schema_of(type_info: TypeInformation) -> pa.Schema:
    """Schema of a batch of such values: a column for each field, or one named `value`.

    Raises GraphError, with the field, for a type that has no Arrow type.
    """
    if names_of(type_info) or isinstance(type_info, TupleTypeInfo | RowTypeInfo):
        return pa.schema(_fields(type_info, ""))
    return pa.schema([pa.field("value", arrow_type_of(type_info))])


def _arrow_type(type_info: TypeInformation, path: str) -> pa.DataType:
    if type_info in PLAIN_ARROW:
        return PLAIN_ARROW[type_info]
    match type_info:
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of):
            return pa.list_(_arrow_type(of, f"{path}[]"))
        case MapTypeInfo(key, value):
            return pa.map_(_arrow_type(key, f"{path}[key]"), _arrow_type(value, f"{path}[value]"))
        case TupleTypeInfo() | RowTypeInfo() | RecordTypeInfo():
            return pa.struct(_fields(type_info, path))
        case _:
            field = f"field '{path}': " if path else ""
            raise GraphError(
                f"{field}{type_info} has no Arrow type",
                where=f"Arrow schema, field '{path}'" if path else "Arrow schema",
                remedy="Declare a type made of numbers, texts, dates, lists, maps and rows.",
            )


def _fields(type_info: TypeInformation, path: str) -> list[pa.Field]:
    return [
        pa.field(name, _arrow_type(of, f"{path}.{name}" if path else name))
        for name, of in zip(names_of(type_info), type_info.children, strict=True)
    ]


def type_of_arrow(arrow: pa.DataType) -> TypeInformation:
    """Type of a column's values; a pickled type if nothing better exists."""
    is_a = pa.types
    if is_a.is_timestamp(arrow):
        return SQL_TIMESTAMP if arrow.tz is None else INSTANT
    if is_a.is_dictionary(arrow):
        return type_of_arrow(arrow.value_type)
    if is_a.is_list(arrow) or is_a.is_large_list(arrow) or is_a.is_fixed_size_list(arrow):
        return ListTypeInfo(type_of_arrow(arrow.value_type))
    if is_a.is_map(arrow):
        return MapTypeInfo(type_of_arrow(arrow.key_type), type_of_arrow(arrow.item_type))
    if is_a.is_struct(arrow):
        return type_of_schema(pa.schema(list(arrow)))
    return next((found for predicate, found in _FROM_ARROW if predicate(arrow)), PICKLED)


def type_of_schema(schema: pa.Schema) -> RowTypeInfo:
    return RowTypeInfo([type_of_arrow(each.type) for each in schema], schema.names)

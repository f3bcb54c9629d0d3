"""Arrow's types of our types, and values of any type as Arrow columns and back.

A schema is refused where Arrow has no exact type. A column takes the nearest type that holds its
values exactly: integers without bounds are decimals of 38 digits, pickled objects the bytes of
their pickle. Old columns can be read as a new type with wider numbers, finer times, other layouts
of the same texts and bytes, and structs with added fields (null in old values), removed ones or
another order; all else is refused.
"""

from __future__ import annotations

import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from flinkformat.row import Row
from tidegate.errors import ConfigError, GraphError
from tidegate.model.duration import Instant
from tidegate.typeinfo.pickling import pickled_value, unpickled_value
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    DURATION,
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
    UUID,
    UUID_CLASS,
    EnumTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    NumberTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    names_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    _check(type_info, "")
    return column_type(type_info)


def schema_of(type_info: TypeInformation) -> pa.Schema:
    """Schema of a batch of such values: a column for each field, or one named `value`.

    Raises GraphError, with the field, for a type that has no Arrow type.
    """
    if names_of(type_info) or isinstance(type_info, TupleTypeInfo | RowTypeInfo):
        _check(type_info, "")
        return pa.schema(_column_fields(type_info))
    return pa.schema([pa.field("value", arrow_type_of(type_info))])


def schema_bytes(columns: Any, where: str) -> bytes:
    """A schema as Arrow serialises it, of columns that a user has given, or of a type of records.

    Raises ConfigError for what is neither, GraphError for a type that has no Arrow type.
    """
    if isinstance(columns, TypeInformation):
        columns = schema_of(columns)
    if isinstance(columns, pa.Schema):
        return columns.serialize().to_pybytes()
    raise ConfigError(
        f"The schema is {columns!r}",
        where=where,
        remedy="Give a pyarrow.Schema, or a type such as Types.ROW_NAMED(['id'], [Types.LONG()]).",
    )


def _check(type_info: TypeInformation, path: str) -> None:
    """Raises GraphError for the first part that Arrow has no exact type for. path: of the field."""
    match type_info:
        case _ if type_info in PLAIN_ARROW:
            return
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of):
            _check(of, f"{path}[]")
        case MapTypeInfo(key, value):
            _check(key, f"{path}[key]")
            _check(value, f"{path}[value]")
        case TupleTypeInfo() | RowTypeInfo() | RecordTypeInfo():
            for name, of in zip(names_of(type_info), type_info.children, strict=True):
                _check(of, f"{path}.{name}" if path else name)
        case _:
            field = f"field '{path}': " if path else ""
            raise GraphError(
                f"{field}{type_info} has no Arrow type",
                where=f"Arrow schema, field '{path}'" if path else "Arrow schema",
                remedy="Declare a type made of numbers, texts, dates, lists, maps and rows.",
            )


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


_NEAREST: Final[dict[TypeInformation, pa.DataType]] = {
    UUID: pa.string(),
    DURATION: pa.duration("us"),
    BIG_INT: pa.decimal128(38, 0),
}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def column_type(type_info: TypeInformation) -> pa.DataType:
    """Arrow type of a column of such values; every type has one."""
    match type_info:
        case _ if type_info in PLAIN_ARROW:
            return PLAIN_ARROW[type_info]
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of):
            return pa.list_(column_type(of))
        case MapTypeInfo(key, value):
            return pa.map_(column_type(key), column_type(value))
        case TupleTypeInfo() | RowTypeInfo() | RecordTypeInfo():
            return pa.struct(_column_fields(type_info))
        case NumberTypeInfo(of):
            return column_type(of)
        case EnumTypeInfo():
            return pa.string()
        case _:
            return _NEAREST.get(type_info, pa.binary())


def _column_fields(type_info: TypeInformation) -> list[pa.Field]:
    pairs = zip(names_of(type_info), type_info.children, strict=True)
    return [pa.field(name, column_type(of)) for name, of in pairs]


def column_of(values: Sequence[Any], type_info: TypeInformation) -> pa.Array:
    """The values as a column of `column_type`; any may be None.

    Raises pa.ArrowException, TypeError, ValueError or OverflowError if one is not of the type.
    """
    match type_info:
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if type_info != BYTES:
            offsets = _offsets(values)
            inner = column_of(list(chain.from_iterable(filter(None, values))), of)
            return pa.ListArray.from_arrays(offsets, inner, type=column_type(type_info))
        case MapTypeInfo(key, of):
            dicts = cast("list[dict[Any, Any]]", [each for each in values if each])
            keys = column_of(list(chain.from_iterable(dicts)), key)
            items = column_of([v for each in dicts for v in each.values()], of)
            return pa.MapArray.from_arrays(_offsets(values), keys, items).cast(
                column_type(type_info)
            )
        case TupleTypeInfo() | RowTypeInfo() | RecordTypeInfo():
            return _struct(values, type_info)
        case _ if type_info == PICKLED:
            pickles = [None if each is None else pickled_value(each) for each in values]
            return pa.array(pickles, pa.binary())
        case EnumTypeInfo(python_class=kind) if kind is not str:
            return pa.array([None if each is None else each.name for each in values], pa.string())
        case _ if type_info == UUID:
            return pa.array([None if each is None else str(each) for each in values], pa.string())
        case _ if type_info == INSTANT:
            return pa.array(list(map(_time_of, values)), column_type(type_info))
        case _:
            return pa.array(values, column_type(type_info))


def _offsets(values: Sequence[Any]) -> pa.Array:
    sizes = np.fromiter((0 if each is None else len(each) for each in values), np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    absent = np.array([each is None for each in values] + [False], np.bool_)
    return pa.array(offsets, pa.int32(), mask=absent)


def _struct(values: Sequence[Any], type_info: TypeInformation) -> pa.Array:
    names = names_of(type_info)
    count = len(names)
    nothing = (None,) * count
    parts = [nothing if each is None else _parts(each, names) for each in values]
    columns = list(zip(*parts, strict=True)) if parts else [()] * count
    arrays = [column_of(c, of) for c, of in zip(columns, type_info.children, strict=True)]
    absent = pa.array([each is None for each in values], pa.bool_())
    if not count:
        return pa.array([None if each is None else {} for each in values], pa.struct([]))
    return pa.StructArray.from_arrays(arrays, fields=_column_fields(type_info), mask=absent)


def _parts(value: Any, names: tuple[str, ...]) -> Sequence[Any]:
    if isinstance(value, tuple | list):
        return cast("Sequence[Any]", value)
    if isinstance(value, Row):
        return [value[name] for name in names] if value.names else list(value)
    if isinstance(value, dict):
        return [value[name] for name in names]
    try:
        return [getattr(value, name) for name in names]
    except AttributeError as error:
        raise TypeError(f"{value!r} has not the fields {', '.join(names)}") from error


def _time_of(value: object) -> object:
    if isinstance(value, Instant):
        if value.nanos % 1000:
            raise ValueError(f"{value} has nanoseconds, and columns hold microseconds")
        return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return value


def recast(value: Any, type_info: TypeInformation) -> Any:
    """A value with its records as objects of the type's classes, from objects with the same fields.

    Raises TypeError if a record has other fields.
    """
    match type_info:
        case _ if value is None or not has_records(type_info):
            return value
        case ListTypeInfo(of):
            return [recast(each, of) for each in value]
        case MapTypeInfo(key, of):
            return {recast(k, key): recast(v, of) for k, v in value.items()}
        case TupleTypeInfo(types):
            return tuple(map(recast, value, types))
        case RecordTypeInfo(python_class=type() as kind) if type(value) is not kind:
            names = type_info.field_names
            parts = map(recast, _parts(value, names), type_info.field_types)
            return kind(**dict(zip(names, parts, strict=True)))
        case _:
            return value


def has_records(type_info: TypeInformation) -> bool:
    """True if some part of a value of the type is an object of a class of the program."""
    return isinstance(type_info, RecordTypeInfo) or any(map(has_records, type_info.children))


def values_of(column: pa.Array | pa.ChunkedArray, type_info: TypeInformation) -> list[Any]:
    """Values of a column, as the type has them; inverse of `column_of`.

    Records need their classes. Raises TypeError or ValueError if a value can't be of the type.
    """
    return [_value(each, type_info) for each in column.to_pylist()]


def _value(raw: Any, type_info: TypeInformation) -> Any:
    if raw is None:
        return None
    match type_info:
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if type_info != BYTES:
            return [_value(each, of) for each in raw]
        case MapTypeInfo(key, of):
            pairs = cast("Any", raw.items() if isinstance(raw, dict) else raw)
            return {_value(k, key): _value(v, of) for k, v in pairs}
        case TupleTypeInfo() | RowTypeInfo() | RecordTypeInfo():
            return _whole([raw[n] for n in names_of(type_info)], type_info)
        case _ if type_info == PICKLED and isinstance(raw, bytes):
            return unpickled_value(raw)
        case _ if type_info == BIG_INT:
            return int(raw)
        case EnumTypeInfo(python_class=type() as kind) if kind is not str and isinstance(raw, str):
            return cast("Any", kind)[raw]
        case _ if type_info == UUID and isinstance(raw, str):
            return UUID_CLASS(raw)
        case _:
            return raw


def _whole(raw: list[Any], type_info: TypeInformation) -> Any:
    parts = list(map(_value, raw, type_info.children))
    match type_info:
        case RowTypeInfo():
            return Row.named(type_info.field_names, parts)
        case RecordTypeInfo(python_class=type() as kind):
            return kind(**dict(zip(type_info.field_names, parts, strict=True)))
        case _:
            return tuple(parts)


_is: Final = pa.types
_UNITS: Final = ("s", "ms", "us", "ns")


def arrow_faults(old: pa.DataType, new: pa.DataType) -> list[str]:
    """Reasons by field why values of the old type don't fit the new one; empty if they do."""
    faults: list[str] = []
    _compare(old, new, "", faults)
    return faults


def _compare(old: pa.DataType, new: pa.DataType, path: str, faults: list[str]) -> None:
    if old == new or _is_wider(old, new):
        return
    if _is.is_struct(old) and _is.is_struct(new):
        _compare_fields(old, new, path, faults)
    elif _is.is_map(old) and _is.is_map(new):
        _compare(old.key_type, new.key_type, f"{path}[key]", faults)
        _compare(old.item_type, new.item_type, f"{path}[value]", faults)
    elif _is_list(old) and _is_list(new):
        _compare(old.value_type, new.value_type, f"{path}[]", faults)
    else:
        faults.append(f"{path.lstrip('.') or 'the value'} was {old} and is {new}")


def _compare_fields(old: Any, new: Any, path: str, faults: list[str]) -> None:
    was = {field.name: field for field in old}
    for field in new:
        place = f"{path}.{field.name}"
        if field.name in was:
            _compare(was[field.name].type, field.type, place, faults)
        elif not field.nullable:
            faults.append(f"{place.lstrip('.')} is new and can't be null")


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    for kind in (_is.is_integer, _is.is_floating):
        if kind(old) and kind(new):
            return bool(np.can_cast(old.to_pandas_dtype(), new.to_pandas_dtype(), "safe"))
    for kind in (_is.is_timestamp, _is.is_duration):
        if kind(old) and kind(new):
            zones = getattr(old, "tz", None), getattr(new, "tz", None)
            finer = _UNITS.index(old.unit) <= _UNITS.index(new.unit)
            return finer and zones[0] == zones[1]
    return (_is_text(old) and _is_text(new)) or (_is_binary(old) and _is_binary(new))


def _is_list(arrow: pa.DataType) -> bool:
    return _is.is_list(arrow) or _is.is_large_list(arrow)


def _is_text(arrow: pa.DataType) -> bool:
    return _is.is_string(arrow) or _is.is_large_string(arrow) or _is.is_string_view(arrow)


def _is_binary(arrow: pa.DataType) -> bool:
    return _is.is_binary(arrow) or _is.is_large_binary(arrow)

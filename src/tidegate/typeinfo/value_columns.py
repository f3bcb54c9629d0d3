"""Values of any type as Arrow columns, and back.

Values for which Arrow has no type go into the nearest type that holds them exactly: integers
without bounds as decimals of 38 digits, pickled objects as the bytes of their pickle.
"""

from __future__ import annotations

import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from flinkformat.row import Row
from tidegate.model.duration import Instant
from tidegate.typeinfo.arrow import PLAIN_ARROW
from tidegate.typeinfo.pickling import pickled_value, unpickled_value
from tidegate.typeinfo.types import (
    BIG_INT,
    BYTES,
    DURATION,
    INSTANT,
    PICKLED,
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

_BIG_INTEGER: Final = pa.decimal128(38, 0)
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
            return pa.struct(_fields(type_info))
        case NumberTypeInfo(of):
            return column_type(of)
        case EnumTypeInfo():
            return pa.string()
        case _ if type_info == UUID:
            return pa.string()
        case _ if type_info == DURATION:
            return pa.duration("us")
        case _:
            return _BIG_INTEGER if type_info == BIG_INT else pa.binary()


def _fields(type_info: TypeInformation) -> list[pa.Field]:
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
    return pa.StructArray.from_arrays(arrays, fields=_fields(type_info), mask=absent)


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

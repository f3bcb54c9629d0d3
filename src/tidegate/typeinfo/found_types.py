"""Infers the type of undeclared values."""

from __future__ import annotations

import dataclasses
import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

from flinkformat.row import Row
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.types import (
    BIG_INT,
    DOUBLE,
    INSTANT,
    LONG,
    PICKLED,
    STRING,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOTHING: Final = BasicTypeInfo("Nothing")
"""The type of None, and of the elements of an empty list: values of any other type fit it."""

_LONG_BOUND: Final = 1 << 63


def type_of_values(values: Iterable[object]) -> TypeInformation:
    """Common type of all these values; a pickled type if they have none.

    Parts that are None are of every type. A dict of texts whose values differ in type is a record.
    """
    return _settled(_common_type(map(_type_of, values)))


def _common_type(types: Iterable[TypeInformation]) -> TypeInformation:
    return reduce(_common, types, _NOTHING)


def _type_of(value: Any) -> TypeInformation:
    kind = type(value)
    match value:
        case None:
            return _NOTHING
        case int() if kind is int:
            return LONG if -_LONG_BOUND <= value < _LONG_BOUND else BIG_INT
        case tuple() if kind is tuple:
            return TupleTypeInfo(list(map(_type_of, cast("tuple[object, ...]", value))))
        case list() if kind is list:
            return ListTypeInfo(_common_type(map(_type_of, cast("list[object]", value))))
        case dict() if kind is dict:
            return _type_of_dict(cast("dict[object, object]", value))
        case Row():
            return RowTypeInfo(list(map(_type_of, value)), value.names)
        case datetime.datetime() if value.tzinfo is not None:
            return INSTANT
        case _:
            return _type_of_object(value, kind)


def _type_of_dict(value: dict[object, object]) -> TypeInformation:
    """A record of texts, which becomes a map if all values have one type."""
    items = tuple(map(_type_of, value.values()))
    if value and all(type(key) is str for key in value):
        names = tuple(str(key) for key in value)
        return RecordTypeInfo("dict", "dataclass", names, items, python_class=dict)
    return MapTypeInfo(_common_type(map(_type_of, value)), _common_type(items))


def _as_map(found: TypeInformation) -> TypeInformation:
    if isinstance(found, RecordTypeInfo) and found.python_class is dict:
        return MapTypeInfo(STRING, _common_type(found.field_types))
    return found


def _type_of_object(value: Any, kind: type) -> TypeInformation:
    if dataclasses.is_dataclass(kind):
        names = tuple(each.name for each in dataclasses.fields(kind))
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = tuple(value._fields)
    else:
        return type_of_hint(kind)
    parts = tuple(_type_of(getattr(value, name)) for name in names)
    form = "namedtuple" if issubclass(kind, tuple) else "dataclass"
    return RecordTypeInfo(kind.__qualname__, form, names, parts, python_class=kind)


def _common(one: TypeInformation, other: TypeInformation) -> TypeInformation:
    if one == other or other == _NOTHING:
        return one
    if one == _NOTHING:
        return other
    if isinstance(one, MapTypeInfo) or isinstance(other, MapTypeInfo):
        one, other = _as_map(one), _as_map(other)
    match one, other:
        case TupleTypeInfo(), TupleTypeInfo() if len(one.children) == len(other.children):
            return TupleTypeInfo(_pairwise(one, other))
        case ListTypeInfo(), ListTypeInfo():
            return ListTypeInfo(_pairwise(one, other)[0])
        case MapTypeInfo(), MapTypeInfo():
            return MapTypeInfo(*_pairwise(one, other))
        case RowTypeInfo(), RowTypeInfo() if one.field_names == other.field_names:
            return RowTypeInfo(_pairwise(one, other), one.field_names)
        case RecordTypeInfo(), RecordTypeInfo() if (
            one.python_class is other.python_class and one.field_names == other.field_names
        ):
            return _of_types(one, _pairwise(one, other))
        case RecordTypeInfo(), RecordTypeInfo() if one.python_class is other.python_class is dict:
            return MapTypeInfo(*_pairwise(_as_map(one), _as_map(other)))
        case _:
            return BIG_INT if {one, other} == {LONG, BIG_INT} else _float(one, other)


def _float(one: TypeInformation, other: TypeInformation) -> TypeInformation:
    return DOUBLE if {one, other} == {LONG, DOUBLE} else PICKLED


def _pairwise(one: TypeInformation, other: TypeInformation) -> list[TypeInformation]:
    return list(map(_common, one.children, other.children))


def _settled(found: TypeInformation) -> TypeInformation:
    match found:
        case BasicTypeInfo("Nothing"):
            return PICKLED
        case TupleTypeInfo(types):
            return TupleTypeInfo(list(map(_settled, types)))
        case ListTypeInfo(of):
            return ListTypeInfo(_settled(of))
        case MapTypeInfo(key, of):
            return MapTypeInfo(_settled(key), _settled(of))
        case RowTypeInfo(types, names):
            return RowTypeInfo(list(map(_settled, types)), names)
        case RecordTypeInfo(python_class=kind):
            common = _common_type(found.field_types)
            if kind is dict and common != PICKLED:
                return MapTypeInfo(STRING, _settled(common))
            return _of_types(found, list(map(_settled, found.field_types)))
        case _:
            return found


def _of_types(record: RecordTypeInfo, types: list[TypeInformation]) -> RecordTypeInfo:
    return dataclasses.replace(record, field_types=tuple(types))

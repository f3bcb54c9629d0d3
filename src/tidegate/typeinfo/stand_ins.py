"""Stand-ins for classes of a program, to read its state without the program.

A snapshot knows of a record its fields, not its class. The stand-in has the same fields, each None
if the bytes have none, so that the serializers read such state like any other.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from dataclasses import replace
from typing import Any

from tidegate.errors import FormatError
from tidegate.typeinfo.serializers import (
    PickleSerializer,
    Serializer,
    SerializerSnapshot,
    TypedSerializer,
    shape_of,
)
from tidegate.typeinfo.types import (
    EnumTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)


def serializer_standing_in(snapshot: SerializerSnapshot) -> Serializer:
    """Serializer that reads and writes values as the one of a snapshot did.

    Raises FormatError if its type can't be that of any values.
    """
    type_info = with_classes(snapshot.type_info)
    if snapshot.name == "pickle":
        return PickleSerializer(type_info)
    try:
        return TypedSerializer(type_info)
    except (KeyError, AssertionError) as error:
        raise FormatError(
            f"A state of the type {snapshot.type_info} can't have been written as MessagePack"
        ) from error


def with_classes(type_info: TypeInformation) -> TypeInformation:
    """The type with a stand-in class for each record, and names for members of enumerations.

    Raises FormatError for odd fields.
    """
    match type_info:
        case RecordTypeInfo(python_class=None):
            return _with_class(type_info)
        case EnumTypeInfo(python_class=None):
            return replace(type_info, python_class=str)
        case ListTypeInfo(of):
            return replace(type_info, element_type=with_classes(of))
        case PrimitiveArrayTypeInfo(of):
            return PrimitiveArrayTypeInfo(with_classes(of))
        case MapTypeInfo(key, value):
            return MapTypeInfo(with_classes(key), with_classes(value))
        case TupleTypeInfo(types):
            return TupleTypeInfo(list(map(with_classes, types)))
        case RowTypeInfo(types, names):
            return RowTypeInfo(list(map(with_classes, types)), names)
        case _:
            return type_info


def _with_class(record: RecordTypeInfo) -> RecordTypeInfo:
    types = tuple(map(with_classes, record.field_types))
    name = record.name.rpartition(".")[2]
    shapes = dict(zip(record.field_names, map(shape_of, types), strict=True))
    try:
        made = _named_tuple(name, shapes) if record.kind == "namedtuple" else _data(name, shapes)
    except (TypeError, ValueError) as error:
        raise FormatError(f"A record in a snapshot can't be of a class: {error}") from error
    return replace(
        record, field_types=types, defaulted=frozenset(record.field_names), python_class=made
    )


def _named_tuple(name: str, shapes: dict[str, Any]) -> type:
    made: Any = namedtuple(name, list(shapes), defaults=[None] * len(shapes))  # type: ignore[misc]  # fields are known only now
    made.__annotations__ = shapes
    return made


def _data(name: str, shapes: dict[str, Any]) -> type:
    fields = [(each, shape, dataclasses.field(default=None)) for each, shape in shapes.items()]
    return dataclasses.make_dataclass(name, fields, frozen=True)

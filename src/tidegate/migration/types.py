"""Translates Flink's serializers to types, and Java's values to Python's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flinkformat.state import serializers as java
from flinkformat.state.composites import (
    ListSerializer,
    MapSerializer,
    NullableSerializer,
    RowSerializer,
    TtlSerializer,
    TupleSerializer,
    type_name,
)
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
    SHORT,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    ListTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flinkformat.state.serializers import FlinkSerializer
    from tidegate.typeinfo.types import TypeInformation

_SIMPLE: Final[Mapping[FlinkSerializer, TypeInformation]] = {
    java.STRING: STRING,
    java.LONG: LONG,
    java.INT: INT,
    java.SHORT: SHORT,
    java.BYTE: BYTE,
    java.BOOLEAN: BOOLEAN,
    java.DOUBLE: DOUBLE,
    java.FLOAT: FLOAT,
    java.CHAR: CHAR,
    java.BIG_INT: BIG_INT,
    java.BIG_DEC: BIG_DEC,
    java.LOCAL_DATE: SQL_DATE,
    java.LOCAL_TIME: SQL_TIME,
    java.LOCAL_DATE_TIME: SQL_TIMESTAMP,
    java.SQL_TIMESTAMP: SQL_TIMESTAMP,
    java.INSTANT: INSTANT,
    java.BYTES: BYTES,
}


def type_of(serializer: FlinkSerializer) -> TypeInformation:
    """Type of the values of a serializer. Raises ValueError if there is none.

    Of values with the times of their last access it is that of a pair of both.
    """
    if serializer in _SIMPLE:
        return _SIMPLE[serializer]
    match serializer:
        case ListSerializer(element):
            return ListTypeInfo(type_of(element))
        case MapSerializer(key, value):
            return MapTypeInfo(type_of(key), type_of(value))
        case TupleSerializer() | TtlSerializer():
            return TupleTypeInfo(list(map(type_of, serializer.nested)))
        case RowSerializer():
            return RowTypeInfo(list(map(type_of, serializer.fields)))
        case NullableSerializer():
            return type_of(serializer.value)
        case _:
            raise ValueError(f"there is no type here for {type_name(serializer)}")

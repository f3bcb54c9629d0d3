"""Types of Flink's serializers here, and the keys of an operator with their key groups.

PyFlink's keys are rows of one field, whose hash is another than the field's own. Here the user's
key is the key, so it may lie in another key group; that it had lain where Flink's rule says is
checked first, for a key that was read wrongly would be lost there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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
from flinkformat.state.serializers import BYTES as JAVA_BYTES
from flinkformat.state.values import python_value
from tidegate.migration.pyflink import key_of
from tidegate.typeinfo import types as ours
from tidegate.typeinfo.key_hash import KeyHasher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flinkformat.state.serializers import FlinkSerializer
    from tidegate.typeinfo.types import TypeInformation

_SIMPLE: Final[Mapping[FlinkSerializer, TypeInformation]] = {
    java.STRING: ours.STRING,
    java.LONG: ours.LONG,
    java.INT: ours.INT,
    java.SHORT: ours.SHORT,
    java.BYTE: ours.BYTE,
    java.BOOLEAN: ours.BOOLEAN,
    java.DOUBLE: ours.DOUBLE,
    java.FLOAT: ours.FLOAT,
    java.CHAR: ours.CHAR,
    java.BIG_INT: ours.BIG_INT,
    java.BIG_DEC: ours.BIG_DEC,
    java.LOCAL_DATE: ours.SQL_DATE,
    java.LOCAL_TIME: ours.SQL_TIME,
    java.LOCAL_DATE_TIME: ours.SQL_TIMESTAMP,
    java.SQL_TIMESTAMP: ours.SQL_TIMESTAMP,
    java.INSTANT: ours.INSTANT,
    java.BYTES: ours.BYTES,
}


def type_of(serializer: FlinkSerializer) -> TypeInformation:
    """Type of the values of a serializer. Raises ValueError if there is none.

    Of values with the times of their last access it is that of a pair of both.
    """
    if serializer in _SIMPLE:
        return _SIMPLE[serializer]
    match serializer:
        case ListSerializer(element):
            return ours.ListTypeInfo(type_of(element))
        case MapSerializer(key, value):
            return ours.MapTypeInfo(type_of(key), type_of(value))
        case TupleSerializer() | TtlSerializer():
            return ours.TupleTypeInfo(list(map(type_of, serializer.nested)))
        case RowSerializer():
            return ours.RowTypeInfo(list(map(type_of, serializer.fields)))
        case NullableSerializer():
            return type_of(serializer.value)
        case _:
            raise ValueError(f"there is no type here for {type_name(serializer)}")


class MisplacedKey(ValueError):
    """A key outside the key group that Flink's rule gives."""


class Keys:
    """The keys of one operator. where: names it in errors.

    Raises UnsupportedKey for keys of a type without a stable hash, ValueError for one that is not
    known here.
    """

    def __init__(self, serializer: FlinkSerializer, max_parallelism: int, where: str) -> None:
        self._is_python = isinstance(serializer, RowSerializer) and len(serializer.fields) == 1
        self._of_flink = KeyHasher(type_of(serializer), max_parallelism, where=where)
        declared: TypeInformation | None = None
        if not self._is_python:
            declared = type_of(serializer)
        elif serializer.nested[0] is not JAVA_BYTES:  # bytes are keys of no declared type, pickled
            declared = type_of(serializer.nested[0])
        self._own = KeyHasher(declared, max_parallelism, where=where)

    @property
    def type_info(self) -> TypeInformation | None:
        return self._own.key_type

    def convert(self, flink_key: Any) -> Any:
        return key_of(flink_key) if self._is_python else python_value(flink_key)

    def key_groups(
        self, flink_keys: Sequence[Any], groups: Sequence[int], keys: Sequence[Any]
    ) -> list[int]:
        """Key group of each converted key. groups: their key groups in Flink.

        Raises MisplacedKey for one that lay elsewhere than Flink's rule says, UnsupportedKey for
        one without a stable hash.
        """
        right = self._of_flink.key_groups([python_value(key) for key in flink_keys]).tolist()
        for key, group, expected in zip(keys, groups, right, strict=True):
            # A key that was read wrongly would go to another key group, and be lost without a word.
            if group != expected:
                raise MisplacedKey(
                    f"the key {key!r} lies in key group {group}, and its hash says {expected}"
                )
        return self._own.key_groups(keys).tolist()

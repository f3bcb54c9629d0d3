"""Values as bytes and back, many at a time, as state is written and read.

A declared type is written as MessagePack: scalars say themselves what they are, the type only tells
tuples from lists and which class a record is. So a value that is not quite what was declared (a
float in a LONG) comes back as it was; what MessagePack can't hold (a number beyond 64 bits, an
object) sends its whole piece to pickle. Undeclared values are pickled, which is exact, works for
almost everything and is slower: 40 ns for a small tuple against 30, 1,000 ns for an object of a
class against 80; measured in benchmarks/serializers.py. Bytes: docs/formats/state-values.md.
"""

from __future__ import annotations

import datetime
import decimal
import json
import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from tidegate.errors import FormatError
from tidegate.typeinfo.descriptions import describe, type_described
from tidegate.typeinfo.pickling import pickled, unpickled
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
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
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1
_MSGPACK: Final = b"\x01"
_PICKLE: Final = b"\x02"
_SCALARS: Final[dict[TypeInformation, type]] = {
    STRING: str,
    CHAR: str,
    BYTE: int,
    SHORT: int,
    INT: int,
    LONG: int,
    BIG_INT: int,
    FLOAT: float,
    DOUBLE: float,
    BOOLEAN: bool,
    BYTES: bytes,
}
_WRITTEN_AS_TEXT: Final[dict[TypeInformation, type]] = {
    SQL_DATE: datetime.date,
    SQL_TIME: datetime.time,
    SQL_TIMESTAMP: datetime.datetime,
    BIG_DEC: decimal.Decimal,
}


@dataclass(frozen=True, slots=True)
class SerializerSnapshot:
    """What has to be remembered of a serializer to read its bytes later, by another program.

    name: `msgpack` or `pickle`. version: of the bytes. python: the version that pickled, such as
    `3.11`; empty for MessagePack.
    """

    name: str
    version: int
    type_info: TypeInformation
    python: str = ""

    def to_json(self) -> dict[str, object]:
        """Itself as a JSON object."""
        described = describe(self.type_info)
        plain = {"name": self.name, "version": self.version, "type": described}
        return plain | ({"python": self.python} if self.python else {})

    @staticmethod
    def from_json(plain: dict[str, object]) -> SerializerSnapshot:
        """The way back; raises FormatError for what is no snapshot."""
        name, version, python = plain.get("name"), plain.get("version"), plain.get("python", "")
        if not (isinstance(name, str) and isinstance(version, int) and isinstance(python, str)):
            raise FormatError(
                "A serializer's snapshot can't be read",
                expected="name, version, type",
                found=repr(plain)[:200],
            )
        return SerializerSnapshot(name, version, type_described(plain.get("type")), python)

    def to_bytes(self) -> bytes:
        """Itself as the bytes of its JSON object."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> SerializerSnapshot:
        """The way back; raises FormatError for what is no snapshot."""
        try:
            return SerializerSnapshot.from_json(json.loads(data))
        except (ValueError, AttributeError) as error:
            raise FormatError("A serializer's snapshot is no JSON", offset=0) from error


class Reader(Protocol):
    """Reads the values of one piece."""

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """The values, in order. Raises FormatError for bytes that `encode_many` didn't make."""
        ...


class Serializer(Reader, Protocol):
    """Writes and reads the values of one state; holds nothing between two calls."""

    @property
    def type_info(self) -> TypeInformation:
        """The type of the values."""
        ...

    def encode_many(self, values: Sequence[object]) -> bytes:
        """The values as one piece; no value is kept or changed.

        Raises UserError for a value that can't even be pickled.
        """
        ...

    def snapshot(self) -> SerializerSnapshot:
        """What has to be remembered to read the pieces."""
        ...


def serializer_of(type_info: TypeInformation | None) -> Serializer:
    """The serializer for a type; for None, for whatever comes."""
    if type_info is None or not _is_packable(type_info):
        return PickleSerializer(type_info or PICKLED)
    return TypedSerializer(type_info)


class PickleSerializer:
    """Any values, by pickle: exact, never refused, and the slow path for objects of classes."""

    def __init__(self, type_info: TypeInformation = PICKLED) -> None:
        self.type_info = type_info

    def encode_many(self, values: Sequence[object]) -> bytes:
        """The values as one piece."""
        return _PICKLE + pickled(values)

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """The values, in order."""
        return unpickled(_opened(data, _PICKLE)[1])

    def snapshot(self) -> SerializerSnapshot:
        """What has to be remembered to read the pieces."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return SerializerSnapshot("pickle", VERSION, self.type_info, python)


class TypedSerializer:
    """Values of a declared type, by MessagePack."""

    def __init__(self, type_info: TypeInformation) -> None:
        self.type_info = type_info
        self._python_type = _python_type(type_info)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = _decoder(type_info)

    def encode_many(self, values: Sequence[object]) -> bytes:
        """The values as one piece."""
        plain = values if isinstance(values, list) else list(values)
        if self._are_as_declared(plain):
            try:
                return _MSGPACK + self._encode(plain)
            except (TypeError, ValueError, OverflowError, RecursionError):
                pass
        return _PICKLE + pickled(plain)

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """The values, in order."""
        tag, body = _opened(data, _MSGPACK, _PICKLE)
        if tag == _PICKLE:
            return unpickled(body)
        if self._decode is not None:
            try:
                return self._decode(body)
            except msgspec.DecodeError:
                pass
        return [rebuilt(each, self.type_info) for each in unpacked(body)]

    def snapshot(self) -> SerializerSnapshot:
        """What has to be remembered to read the pieces."""
        return SerializerSnapshot("msgpack", VERSION, self.type_info)

    def _are_as_declared(self, values: list[object]) -> bool:
        """Whether each value has the Python type, and the first one is right down to its leaves.

        Looking into every value would cost three times as much as writing it.
        """
        kinds = list(map(type, values))
        missing = len(values) - kinds.count(self._python_type)
        if missing and kinds.count(type(None)) != missing:
            return False
        if self.type_info in _WRITTEN_AS_TEXT:
            return all(_fits(value, self.type_info) for value in values)
        first = next((value for value in values if value is not None), None)
        return _fits(first, self.type_info)


def decode_piece(data: bytes | memoryview, old: TypeInformation, new: TypeInformation) -> list[Any]:
    """The values of a piece that was written under another type, as values of the new one."""
    tag, body = _opened(data, _MSGPACK, _PICKLE)
    if tag == _PICKLE:
        return unpickled(body)
    return [rebuilt(each, new, old) for each in unpacked(body)]


def unpacked(body: memoryview) -> list[Any]:
    """What MessagePack makes of a piece by itself: lists for tuples, dicts for records."""
    try:
        return msgspec.msgpack.decode(body, type=list[Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError("State can't be read as MessagePack", found=str(error)) from error


def rebuilt(raw: Any, new: TypeInformation, old: TypeInformation | None = None) -> Any:
    """A value as its type has it, from what MessagePack makes of it by itself.

    old: the type under which it was written, where that is another one that `evolution` lets
    through. What doesn't fit is left as it is.
    """
    old = old or new
    match new, raw:
        case ListTypeInfo() | PrimitiveArrayTypeInfo(), list():
            elements = cast("list[Any]", raw)
            return [rebuilt(each, new.children[0], old.children[0]) for each in elements]
        case TupleTypeInfo(), list() | tuple() if len(raw) == len(new.field_types):
            return tuple(map(rebuilt, raw, new.children, old.children))
        case MapTypeInfo(key, value), dict():
            entries = cast("dict[Any, Any]", raw)
            keys, values = old.children
            return {rebuilt(k, key, keys): rebuilt(v, value, values) for k, v in entries.items()}
        case RecordTypeInfo(), list() | dict() if len(raw) == len(old.children):
            assert isinstance(old, RecordTypeInfo), "a record is not made of anything else"
            return _record(raw, new, old)
        case _, str() if new in _WRITTEN_AS_TEXT:
            return msgspec.convert(raw, _WRITTEN_AS_TEXT[new])
        case _:
            return raw


def _record(raw: Any, new: RecordTypeInfo, old: RecordTypeInfo) -> object:
    assert new.python_class is not None, "a type of the program has its class"
    named = raw if isinstance(raw, dict) else dict(zip(old.field_names, raw, strict=True))
    was = dict(zip(old.field_names, old.field_types, strict=True))
    pairs = zip(new.field_names, new.field_types, strict=True)
    fields = {name: rebuilt(named[name], of, was[name]) for name, of in pairs if name in named}
    return new.python_class(**fields)


def _opened(data: bytes | memoryview, *expected: bytes) -> tuple[bytes, memoryview]:
    view = memoryview(data)
    tag = bytes(view[:1])
    if tag not in expected:
        known = " or ".join(each.hex() for each in expected)
        raise FormatError(
            "State is in no known encoding", offset=0, expected=known, found=tag.hex()
        )
    return tag, view[1:]


def _is_packable(type_info: TypeInformation) -> bool:
    match type_info:
        case MapTypeInfo(key, value):
            return _is_map_key(key) and _is_packable(value)
        case TupleTypeInfo() | ListTypeInfo() | PrimitiveArrayTypeInfo():
            return all(map(_is_packable, type_info.children))
        case RecordTypeInfo():
            known = type_info.python_class is not None
            return known and all(map(_is_packable, type_info.children))
        case _:
            return type_info in _SCALARS or type_info in _WRITTEN_AS_TEXT


def _is_map_key(type_info: TypeInformation) -> bool:
    if isinstance(type_info, TupleTypeInfo):
        return all(map(_is_map_key, type_info.children))
    return type_info in _SCALARS or type_info in _WRITTEN_AS_TEXT


def _python_type(type_info: TypeInformation) -> type:
    match type_info:
        case TupleTypeInfo():
            return tuple
        case MapTypeInfo():
            return dict
        case RecordTypeInfo():
            assert type_info.python_class is not None, "a type of the program has its class"
            return type_info.python_class
        case _ if type_info in _SCALARS:
            return _SCALARS[type_info]
        case ListTypeInfo() | PrimitiveArrayTypeInfo():
            return list
        case _:
            return _WRITTEN_AS_TEXT[type_info]


def _fits(value: Any, type_info: TypeInformation) -> bool:
    """Whether a value is of a type; of a list or a map, only the first entry is looked at."""
    if value is None:
        return True
    if type(value) is not _python_type(type_info):
        return False
    match type_info:
        case TupleTypeInfo(types):
            return len(value) == len(types) and all(map(_fits, value, types))
        case MapTypeInfo(key, of):
            return all(_fits(k, key) and _fits(v, of) for k, v in islice(value.items(), 1))
        case RecordTypeInfo():
            pairs = zip(type_info.field_names, type_info.field_types, strict=True)
            return all(_fits(getattr(value, name, None), of) for name, of in pairs)
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if type_info != BYTES:
            return all(_fits(each, of) for each in islice(value, 1))
        case _:
            return getattr(value, "tzinfo", None) is None


def _decoder(type_info: TypeInformation) -> Any:
    try:
        return msgspec.msgpack.Decoder(list[_shape(type_info)]).decode
    except (TypeError, NameError, AttributeError):
        # A class whose hints are known only where it was written: values are rebuilt one by one.
        return None


def _shape(type_info: TypeInformation) -> Any:
    """What the decoder has to know: containers and classes; scalars say what they are."""
    match type_info:
        case TupleTypeInfo(types):
            inner = tuple(map(_shape, types))
            return tuple[inner] | None if inner else tuple[()] | None
        case MapTypeInfo(key, value):
            return dict[_shape(key), _shape(value)] | None
        case RecordTypeInfo():
            assert type_info.python_class is not None, "a type of the program has its class"
            return type_info.python_class | None
        case _ if type_info in _WRITTEN_AS_TEXT:
            return _WRITTEN_AS_TEXT[type_info] | None
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if type_info != BYTES:
            return list[_shape(of)] | None
        case _:
            return Any

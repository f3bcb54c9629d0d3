"""Values as bytes and back, many at a time, as state is written and read.

A declared type is written as MessagePack: scalars say themselves what they are, the type only tells
tuples from lists and which class a record is. So a value that is not quite what was declared (a
float in a LONG) comes back as it was; what MessagePack can't hold (a number beyond 64 bits, an
object) sends its whole piece to pickle. Undeclared values are pickled, which is exact, works for
almost everything and is slower: 40 ns for a small tuple against 30, 1,000 ns for an object of a
class against 80; measured in benchmarks/serializers.py. Bytes: docs/formats/state-values.md.
"""

from __future__ import annotations

import json
import pickle
import struct
import sys
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from flinkformat.frozen import frozen
from tidegate.errors import FormatError
from tidegate.typeinfo.decoders import msgpack_decoder
from tidegate.typeinfo.descriptions import describe, type_described
from tidegate.typeinfo.pickling import pickled, unpickled, unpickled_parts
from tidegate.typeinfo.rebuilding import WRITTEN_AS_TEXT, all_rebuilt
from tidegate.typeinfo.types import (
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
    STRING,
    EnumTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    NumberTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERSION: Final = 1
_MSGPACK: Final = b"\x01"
_PICKLE: Final = b"\x02"
PICKLED_BEGIN: Final = _PICKLE
"""What pieces begin with that are pickled; what is packed begins with less."""
_MSGPACK_OF_ONE: Final = _MSGPACK + b"\x91"
_ARRAY_OF: Final = struct.Struct(">BI")
_NO_MSGPACK: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no MessagePack, or none of the type."""
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
_NUMBERS: Final = (int, float, bool)


@frozen
class SerializerSnapshot:
    """Everything needed to read a serializer's bytes later, in another program.

    name: `msgpack` or `pickle`. version: of the bytes. python: the version that pickled, such as
    `3.11`; empty for MessagePack.
    """

    name: str
    version: int
    type_info: TypeInformation
    python: str = ""

    def to_json(self) -> dict[str, object]:
        described = describe(self.type_info)
        plain = {"name": self.name, "version": self.version, "type": described}
        return plain | ({"python": self.python} if self.python else {})

    @staticmethod
    def from_json(plain: dict[str, object]) -> SerializerSnapshot:
        """Parses a JSON object. Raises FormatError for anything else."""
        name, version, python = plain.get("name"), plain.get("version"), plain.get("python", "")
        if not (isinstance(name, str) and isinstance(version, int) and isinstance(python, str)):
            raise FormatError(
                "A serializer's snapshot can't be read",
                expected="name, version, type",
                found=repr(plain)[:200],
            )
        return SerializerSnapshot(name, version, type_described(plain.get("type")), python)

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> SerializerSnapshot:
        """Parses the bytes of a JSON object. Raises FormatError for anything else."""
        try:
            return SerializerSnapshot.from_json(json.loads(data))
        except (ValueError, AttributeError, RecursionError) as error:
            raise FormatError("A serializer's snapshot is not JSON", offset=0) from error


class Reader(Protocol):
    """Reads the values of one piece."""

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        """Values in order. Raises FormatError for bytes that `encode_many` didn't make."""
        ...

    def decode_each(self, pieces: Iterable[bytes]) -> list[Any]:
        """Value of each piece. Raises FormatError for bytes that `encode_each` didn't make."""
        ...


class Serializer(Reader, Protocol):
    """Writes and reads the values of one state; holds nothing between two calls."""

    @property
    def type_info(self) -> TypeInformation: ...

    def encode_many(self, values: Sequence[object]) -> bytes:
        """Encodes the values as one piece; does not keep or change them.

        Raises UserError for a value that can't even be pickled.
        """
        ...

    def encode_each(self, values: Sequence[object]) -> list[bytes]:
        """Encodes each value as a piece of its own. Raises UserError as `encode_many`."""
        ...

    def snapshot(self) -> SerializerSnapshot:
        """Everything needed to read the pieces later."""
        ...


def serializer_of(type_info: TypeInformation | None) -> Serializer:
    """Serializer for a type; for None, one that takes any value."""
    if type_info is None or not _is_packable(type_info):
        return PickleSerializer(type_info or PICKLED)
    return TypedSerializer(type_info)


class PickleSerializer:
    """Any values, by pickle: exact, never refused, and the slow path for objects of classes."""

    def __init__(self, type_info: TypeInformation = PICKLED) -> None:
        self.type_info = type_info

    def encode_many(self, values: Sequence[object]) -> bytes:
        return _PICKLE + pickled(values)

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        return unpickled(_opened(data, _PICKLE)[1])

    def encode_each(self, values: Sequence[object]) -> list[bytes]:
        return [self.encode_many([value]) for value in values]

    def decode_each(self, pieces: Iterable[bytes]) -> list[Any]:
        return [_only(self.decode_many(piece)) for piece in pieces]

    def snapshot(self) -> SerializerSnapshot:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return SerializerSnapshot("pickle", VERSION, self.type_info, python)


class TypedSerializer:
    """Values of a declared type, by MessagePack."""

    def __init__(self, type_info: TypeInformation) -> None:
        self.type_info = type_info
        self._python_types = _python_types(type_info)
        self._has_members = _has_members(type_info)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = _decoder(type_info)

    def encode_many(self, values: Sequence[object]) -> bytes:
        plain = values if isinstance(values, list) else list(values)
        if self._are_as_declared(plain):
            try:
                return _MSGPACK + self._encode(self._by_name(plain))
            except (TypeError, ValueError, OverflowError, RecursionError):
                pass
        return _PICKLE + pickled(plain)

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        tag, body = _opened(data, _MSGPACK, _PICKLE)
        if tag == _PICKLE:
            return unpickled(body)
        if self._decode is not None:
            try:
                return self._decode(body)
            except _NO_MSGPACK:
                pass
        return all_rebuilt(unpacked(body), self.type_info)

    def encode_each(self, values: Sequence[object]) -> list[bytes]:
        plain = values if isinstance(values, list) else list(values)
        if self._are_as_declared(plain):
            encode = self._encode
            try:
                # A list of one, for a piece that `decode_many` can read.
                return [_MSGPACK_OF_ONE + encode(value) for value in self._by_name(plain)]
            except (TypeError, ValueError, OverflowError, RecursionError):
                pass
        return [self.encode_many([value]) for value in plain]

    def decode_each(self, pieces: Iterable[bytes]) -> list[Any]:
        decode = self._decode
        if decode is None:
            return [_only(self.decode_many(piece)) for piece in pieces]
        try:
            return [
                decode(piece[1:])[0] if piece[0] == _MSGPACK[0] else _only(self.decode_many(piece))
                for piece in pieces
            ]
        except (*_NO_MSGPACK, IndexError):
            return [_only(self.decode_many(piece)) for piece in pieces]

    def snapshot(self) -> SerializerSnapshot:
        return SerializerSnapshot("msgpack", VERSION, self.type_info)

    def _are_as_declared(self, values: list[object]) -> bool:
        """True if all values have the Python type, and the first one is right in every part.

        Looking into every value would cost three times as much as writing it.
        """
        kinds = list(map(type, values))
        missing = len(values) - sum(map(kinds.count, self._python_types))
        if missing and kinds.count(type(None)) != missing:
            return False
        if self.type_info in WRITTEN_AS_TEXT:
            return all(_fits(value, self.type_info) for value in values)
        first = next((value for value in values if value is not None), None)
        return _fits(first, self.type_info)

    def _by_name(self, values: list[object]) -> list[object]:
        """Replaces members of enumerations, which MessagePack can't hold, by their names."""
        return [_named(each, self.type_info) for each in values] if self._has_members else values


class MigratingReader:
    """Reads values of an old type as values of a new one that `evolution` allows.

    by_name: fields are found by name alone, as MessagePack has them: no NamedTuple has changed.
    """

    def __init__(self, old: TypeInformation, new: TypeInformation, *, by_name: bool) -> None:
        self._old = old
        self._new = new
        self._classes = _classes_of(new)
        self._decode = _decoder(new) if by_name and _is_packable(new) else None

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        tag, body = _opened(data, _MSGPACK, _PICKLE)
        if tag == _PICKLE:
            values = unpickled_parts(body, self._classes)
        elif self._decode is None:
            values = unpacked(body)
        else:
            try:
                return self._decode(body)
            except _NO_MSGPACK:
                values = unpacked(body)
        return all_rebuilt(values, self._new, self._old)

    def decode_each(self, pieces: Iterable[bytes]) -> list[Any]:
        return [_only(self.decode_many(piece)) for piece in pieces]


def _classes_of(type_info: TypeInformation) -> frozenset[type]:
    inner = frozenset[type]().union(*map(_classes_of, type_info.children))
    if isinstance(type_info, RecordTypeInfo) and type_info.python_class is not None:
        return inner | {type_info.python_class}
    return inner


def _only(values: list[Any]) -> Any:
    if len(values) != 1:
        raise FormatError("A piece of one value has another number", found=str(len(values)))
    return values[0]


def split_piece(data: bytes | memoryview, before: bytes = b"") -> list[bytes]:
    """Splits a piece of many values into pieces of one, without decoding values if possible.

    before: bytes to put in front of each.
    """
    tag, body = _opened(data, _MSGPACK, _PICKLE)
    if tag == _PICKLE:
        return [before + _PICKLE + pickled([value]) for value in unpickled(body)]
    opening = before + _MSGPACK_OF_ONE
    return [opening + value for value in _unpacked_raw(body)]


def values_in(data: bytes | memoryview) -> int | None:
    """Number of values in a piece, without decoding; None if only unpickling would tell.

    Raises FormatError for what is no whole piece.
    """
    tag, body = _opened(data, _MSGPACK, _PICKLE)
    if tag == _MSGPACK:
        return len(_unpacked_raw(body))
    if bytes(body[:1]) != pickle.PROTO or bytes(body[-1:]) != pickle.STOP:
        raise FormatError("A pickled piece of state is not whole", found=bytes(body[:8]).hex())
    return None


def _unpacked_raw(body: memoryview) -> list[msgspec.Raw]:
    try:
        return msgspec.msgpack.decode(body, type=list[msgspec.Raw])
    except _NO_MSGPACK as error:
        raise FormatError("State can't be read as MessagePack", found=str(error)) from error


def is_packed(data: bytes) -> bool:
    """True if a piece is MessagePack, so that its values had the declared type."""
    return data[:1] == _MSGPACK


def join_pieces(pieces: Sequence[bytes], before: int = 0) -> bytes:
    """Joins pieces of one value each, all of one encoding.

    before: number of bytes in front of each.
    """
    if pieces[0].startswith(_PICKLE, before):
        opening = before + len(_PICKLE)
        return _PICKLE + pickled([unpickled(memoryview(piece)[opening:])[0] for piece in pieces])
    values = itemgetter(slice(before + len(_MSGPACK_OF_ONE), None))
    opening = _MSGPACK + _ARRAY_OF.pack(0xDD, len(pieces))
    return b"".join(chain((opening,), map(values, pieces)))


def split_maps(data: bytes | memoryview, keys: Serializer) -> list[list[tuple[bytes, bytes]]]:
    """Splits a piece of many maps into keys and values of each, as pieces of one.

    keys: writes the maps' keys, where those of the piece are not bytes that can be cut out.
    """
    tag, body = _opened(data, _MSGPACK, _PICKLE)
    if tag == _PICKLE:
        maps = cast("list[dict[object, object]]", unpickled(body))
        values = [[_PICKLE + pickled([value]) for value in each.values()] for each in maps]
        names = [keys.encode_each(list(each)) for each in maps]
        return [list(zip(*each, strict=True)) for each in zip(names, values, strict=True)]
    encode = msgspec.msgpack.encode
    try:
        raw = msgspec.msgpack.decode(body, type=list[dict[Any, msgspec.Raw]])
    except _NO_MSGPACK as error:
        raise FormatError("A map can't be read as MessagePack", found=str(error)) from error
    return [
        [
            (_MSGPACK_OF_ONE + encode(key), _MSGPACK_OF_ONE + bytes(value))
            for key, value in each.items()
        ]
        for each in raw
    ]


def join_map(entries: Sequence[tuple[bytes, bytes]], keys: Reader) -> bytes:
    """Joins the entries of one map, at least one: keys in MessagePack, values of one encoding."""
    if entries[0][1].startswith(_PICKLE):
        names = keys.decode_each([key for key, _ in entries])
        values = [unpickled(memoryview(piece)[1:])[0] for _, piece in entries]
        return _PICKLE + pickled([dict(zip(names, values, strict=True))])
    skipped = len(_MSGPACK_OF_ONE)
    header = _ARRAY_OF.pack(0xDF, len(entries))
    parts = (piece[skipped:] for entry in entries for piece in entry)
    return b"".join((_MSGPACK_OF_ONE, header, *parts))


def join_lists(pieces: Sequence[bytes]) -> bytes:
    """Joins pieces of one list each, all of one encoding, to a piece of one list.

    Raises FormatError for what is no list.
    """
    if pieces[0].startswith(_PICKLE):
        lists = cast("list[list[object]]", [unpickled(memoryview(p)[1:])[0] for p in pieces])
        return _PICKLE + pickled([[element for each in lists for element in each]])
    bodies = [_elements(piece, len(_MSGPACK_OF_ONE)) for piece in pieces]
    header = _ARRAY_OF.pack(0xDD, sum(count for count, _ in bodies))
    return b"".join((_MSGPACK_OF_ONE, header, *(body for _, body in bodies)))


def _elements(piece: bytes, at: int) -> tuple[int, memoryview]:
    """Length of the list that begins there in MessagePack, and the bytes of its elements."""
    view = memoryview(piece)[at:]
    mark = view[0] if view else 0
    size = 0 if mark & 0xF0 == 0x90 else {0xDC: 2, 0xDD: 4}.get(mark)
    count = int.from_bytes(view[1 : 1 + size]) if size else mark & 0x0F
    # Each has a byte at least.
    if size is None or count > len(view) - 1 - size:
        raise FormatError("A list can't be read as MessagePack", found=bytes(view[:8]).hex())
    return count, view[1 + size :]


def unpacked(body: memoryview) -> list[Any]:
    """Decodes a piece without its type: lists for tuples, dicts for records."""
    try:
        return msgspec.msgpack.decode(body, type=list[Any])
    except _NO_MSGPACK as error:
        raise FormatError("State can't be read as MessagePack", found=str(error)) from error


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
        case EnumTypeInfo(python_class=found):
            return found is not None
        case NumberTypeInfo():
            return True
        case _:
            return type_info in _SCALARS or type_info in WRITTEN_AS_TEXT


def _is_map_key(type_info: TypeInformation) -> bool:
    if isinstance(type_info, TupleTypeInfo):
        return all(map(_is_map_key, type_info.children))
    return type_info in _SCALARS or type_info in WRITTEN_AS_TEXT


def _has_members(type_info: TypeInformation) -> bool:
    return isinstance(type_info, EnumTypeInfo) or any(map(_has_members, type_info.children))


def _named(value: Any, type_info: TypeInformation) -> Any:
    """A value with names for members of enumerations, and tuples for records."""
    match type_info:
        case EnumTypeInfo(python_class=found):
            return value if value is None or found is str else value.name
        case TupleTypeInfo(types) if value is not None:
            return tuple(map(_named, value, types))
        case RecordTypeInfo(field_names=names, field_types=types) if value is not None:
            parts = [
                _named(getattr(value, name), of) for name, of in zip(names, types, strict=True)
            ]
            is_tuple = type_info.kind == "namedtuple"
            return parts if is_tuple else dict(zip(names, parts, strict=True))
        case _:
            return value


def _python_types(type_info: TypeInformation) -> tuple[type, ...]:
    # Decimals among numbers of no declared type are pickled, which keeps them apart from texts.
    return _NUMBERS if isinstance(type_info, NumberTypeInfo) else (_python_type(type_info),)


def _python_type(type_info: TypeInformation) -> type:
    match type_info:
        case TupleTypeInfo():
            return tuple
        case MapTypeInfo():
            return dict
        case RecordTypeInfo():
            assert type_info.python_class is not None, "a type of the program has its class"
            return type_info.python_class
        case EnumTypeInfo(python_class=type() as found):
            return found
        case _ if type_info in _SCALARS:
            return _SCALARS[type_info]
        case ListTypeInfo() | PrimitiveArrayTypeInfo():
            return list
        case _:
            return WRITTEN_AS_TEXT[type_info]


def _fits(value: Any, type_info: TypeInformation) -> bool:
    """True if a value is of a type; checks only the first entry of a list or map."""
    if value is None:
        return True
    if type(value) not in _python_types(type_info):
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


def holds(serializer: Serializer, values: Sequence[object]) -> bool:
    """True if a serializer packs values, each checked in every part."""
    return isinstance(serializer, TypedSerializer) and _all_fit(values, serializer.type_info)


def _all_fit(values: Sequence[Any], type_info: TypeInformation) -> bool:
    found = set(map(type, values))
    if type(None) in found:
        values = [value for value in values if value is not None]
    if not found <= {*_python_types(type_info), type(None)}:
        return False
    if not values:
        return True
    match type_info:
        case TupleTypeInfo(types):
            if any(len(value) != len(types) for value in values):
                return False
            return all(map(_all_fit, zip(*values, strict=True), types))
        case RecordTypeInfo(field_names=names, field_types=types):
            columns = ([getattr(value, name, None) for value in values] for name in names)
            return all(map(_all_fit, columns, types))
        case _ if type_info in _SCALARS or isinstance(type_info, NumberTypeInfo):
            return True
        case _:
            return all(_fits(value, type_info) for value in values)


def _decoder(type_info: TypeInformation) -> Any:
    if _has_members(type_info) or _is_undeclared(type_info):
        return None
    try:
        return msgpack_decoder(list[shape_of(type_info)]).decode
    except (TypeError, NameError, AttributeError):
        # A class whose hints are known only where it was written: values are rebuilt one by one.
        return None


def _is_undeclared(type_info: TypeInformation) -> bool:
    """True for types with undeclared classes of keys, whose hints may be incomplete."""
    undeclared = isinstance(type_info, RecordTypeInfo) and bool(type_info.module)
    return undeclared or any(map(_is_undeclared, type_info.children))


def shape_of(type_info: TypeInformation) -> Any:
    """Containers and classes as the decoder needs them; scalars describe themselves."""
    match type_info:
        case TupleTypeInfo(types):
            inner = tuple(map(shape_of, types))
            return tuple[inner] | None if inner else tuple[()] | None
        case MapTypeInfo(key, value):
            return dict[shape_of(key), shape_of(value)] | None
        case RecordTypeInfo():
            assert type_info.python_class is not None, "a type of the program has its class"
            return type_info.python_class | None
        case _ if type_info in WRITTEN_AS_TEXT:
            return WRITTEN_AS_TEXT[type_info] | None
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if type_info != BYTES:
            return list[shape_of(of)] | None
        case _:
            return Any

"""How PyFlink lays out state: keys in rows of one field, values as bytes of its own coders.

A savepoint does not say of what type such bytes are, nor which lists are values; a job's
descriptors do. Layout: docs/formats/flink-state.md, section 9.
"""

from __future__ import annotations

import datetime
import struct
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from flinkformat.metadata.wire import Reader
from flinkformat.row import Row, RowKind
from flinkformat.state import serializers as java
from flinkformat.state.composites import ListSerializer, MapSerializer, TtlSerializer
from flinkformat.state.headers import BackendStateType
from flinkformat.state.values import Instant, python_value
from tidegate.errors import UnpicklingRefused
from tidegate.typeinfo import types as ours
from tidegate.typeinfo.pickling import unpickled_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from flinkformat.state.headers import FlinkState
    from flinkformat.state.serializers import FlinkSerializer
    from tidegate.typeinfo.types import TypeInformation

PREFIX: Final = "python-state-"
"""What stands before the name of a state."""

_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps have no zone
_ROW_KIND_BITS: Final = 2
_GUESSES: Final[tuple[TypeInformation, ...]] = (
    ours.PICKLED,
    ours.STRING,
    ours.LONG,
    ours.DOUBLE,
    ours.INT,
    ours.BOOLEAN,
    ours.TupleTypeInfo([ours.LONG, ours.LONG]),
)


def is_python_state(state: FlinkState) -> bool:
    """True if a Python program declared the state, so that its values are bytes."""
    if not state.name.startswith(PREFIX):
        return False
    match state.value:
        case ListSerializer(element):
            return _without_ttl(element) is java.BYTES
        case MapSerializer(key, value):
            return key is java.WRAPPED_BYTES and _without_ttl(value) is java.BYTES
        case _:
            return state.type is BackendStateType.BROADCAST and state.value is java.BYTES


def _without_ttl(serializer: FlinkSerializer) -> FlinkSerializer:
    return serializer.value if isinstance(serializer, TtlSerializer) else serializer


def key_of(row: Row) -> Any:
    """Key of the user. Raises ValueError if it can't be unpickled."""
    [key] = row
    return unpickled(key) if isinstance(key, bytes) else python_value(key)


def unpickled(data: bytes) -> Any:
    """Unpickles an object. Raises ValueError, whatever its class raises."""
    try:
        return unpickled_value(data)
    except UnpicklingRefused:
        raise
    except Exception as error:
        raise ValueError(f"it can't be unpickled: {type(error).__name__}: {error}") from error


def decode_coder(type_info: TypeInformation | None, data: bytes) -> Any:
    """Decodes a state's element; None for the type and PICKLED if it was pickled.

    Raises FormatError for bytes that are none of that type, ValueError for what Python can't hold.
    """
    reader = Reader(data)
    value = _read(type_info or ours.PICKLED, reader)
    reader.end("a value is followed by more bytes", expected=f"the end of {type_info}")
    return value


def decode_coders(type_info: TypeInformation | None, data: bytes) -> list[Any]:
    """Decodes an element of a list, into which PyFlink writes all additions of one bundle.

    Raises what `decode_coder` raises.
    """
    reader = Reader(data)
    found: list[Any] = []
    while left := reader.remaining:
        found.append(_read(type_info or ours.PICKLED, reader))
        if reader.remaining == left:
            reader.end("values of no bytes are followed by some", expected=f"{type_info}")
    return found


def likely_types(samples: Iterable[bytes], *, several: bool = False) -> list[TypeInformation]:
    """Types as which all these elements can be read. several: elements may hold several values."""
    found = list(samples)
    return [each for each in _GUESSES if all(_can_be(each, data, several) for data in found)]


def _can_be(type_info: TypeInformation, data: bytes, several: bool) -> bool:
    if type_info == ours.PICKLED:  # nothing is unpickled before somebody has said so
        return all(each[:1] == b"\x80" and each[-1:] == b"." for each in _blobs(data, several))
    if type_info == ours.BOOLEAN:
        return set(data) <= {0, 1} and (several or len(data) == 1)
    try:
        (decode_coders if several else decode_coder)(type_info, data)
    except Exception:
        return False
    return True


def _blobs(data: bytes, several: bool) -> list[bytes]:
    """Pieces that follow their lengths; one empty piece if the lengths do not fit."""
    try:
        found = decode_coders(ours.BYTES, data)
    except Exception:
        return [b""]
    return found if several or len(found) == 1 else [b""]


def _number(shape: str) -> Callable[[Reader], Any]:
    packed = struct.Struct(shape)
    return lambda reader: packed.unpack(reader.raw(packed.size, "a number"))[0]


def _read_text(reader: Reader) -> str:
    try:
        return reader.blob("a text").decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"a text is not UTF-8: {error}") from error


def _read_decimal(reader: Reader) -> Decimal:
    text = _read_text(reader)
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text[:60]!r} is not a decimal number") from error


def _since_epoch(ms: int) -> datetime.datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def _read_instant(reader: Reader) -> Any:
    instant: Instant | None = java.INSTANT.read(reader)
    return python_value(instant)


_READS: Final[Mapping[TypeInformation, Callable[[Reader], Any]]] = {
    ours.BYTE: _number(">b"),
    ours.SHORT: _number(">h"),
    ours.INT: _number(">i"),
    ours.LONG: _number(">q"),
    ours.BIG_INT: _number(">q"),
    ours.FLOAT: _number(">f"),
    ours.DOUBLE: _number(">d"),
    ours.BOOLEAN: lambda reader: reader.boolean("a truth value"),
    ours.STRING: _read_text,
    ours.CHAR: _read_text,
    ours.BIG_DEC: _read_decimal,
    ours.BYTES: lambda reader: reader.blob("bytes"),
    ours.SQL_DATE: lambda reader: (_EPOCH + timedelta(days=reader.i32("a day"))).date(),
    ours.SQL_TIME: lambda reader: _since_epoch(reader.i32("a time of day")).time(),
    ours.SQL_TIMESTAMP: lambda reader: _since_epoch(reader.i64("a time")),
    ours.INSTANT: _read_instant,
    ours.PICKLED: lambda reader: unpickled(reader.blob("a pickle")),
}


def _read(type_info: TypeInformation, reader: Reader) -> Any:
    if type_info in _READS:
        try:
            return _READS[type_info](reader)
        except OverflowError as error:
            raise ValueError(f"a time is beyond Python's years: {error}") from error
    match type_info:
        case ours.TupleTypeInfo(fields):
            return tuple([_read(field, reader) for field in fields])
        case ours.RowTypeInfo():
            return _read_row(type_info, reader)
        case ours.PrimitiveArrayTypeInfo(element):
            return [_read(element, reader) for _ in range(reader.count("elements"))]
        case ours.ListTypeInfo(element):
            return [
                _read(element, reader) if reader.boolean("whether there is an element") else None
                for _ in range(reader.count("elements"))
            ]
        case ours.MapTypeInfo():
            return _read_map(type_info, reader)
        case _:
            raise ValueError(f"PyFlink has no values of type {type_info}")


def _read_map(type_info: ours.MapTypeInfo, reader: Reader) -> dict[Any, Any]:
    entries: dict[Any, Any] = {}
    for _ in range(reader.count("entries")):
        key = _read(type_info.key_type, reader)
        is_null = reader.boolean("whether a value is null")
        entries[key] = None if is_null else _read(type_info.value_type, reader)
    return entries


def _read_row(type_info: ours.RowTypeInfo, reader: Reader) -> Row:
    bits = len(type_info.field_types) + _ROW_KIND_BITS
    size = (bits + 7) // 8
    mask = int.from_bytes(reader.raw(size, "the mask of a row"), "big")
    flags = [bool(mask >> (8 * size - 1 - bit) & 1) for bit in range(bits)]
    pairs = zip(type_info.field_types, flags[_ROW_KIND_BITS:], strict=True)
    values = [None if null else _read(field, reader) for field, null in pairs]
    return Row.of_parts(values, type_info.field_names, RowKind(flags[0] + 2 * flags[1]))

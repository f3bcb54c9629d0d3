"""Flink's serializers of single values: keys, values and elements.

A serializer is known by the class name of its snapshot. Those of one kind of value are plain
values here; `composites` has those that are made of others, and reads snapshots. Layout:
docs/formats/flink-state.md, sections 1 and 2.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

from flinkformat.frozen import frozen
from flinkformat.state.values import (
    GlobalWindow,
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    SqlTimestamp,
    TimeWindow,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.metadata.wire import Reader, Writer

VARIABLE: Final = -1
"""The declared length of values that have no fixed one."""

_NULL_DATE: Final = LocalDate(-(2**31), 0x80, 0)
_NULL_TIME: Final = LocalTime(0x80, 0x80, 0, -(2**31))
_NULL_INSTANT: Final = Instant(-(2**63), -(2**31))
_SHORT_FORMS: Final = {1: 0, 2: 1, 3: 10}
_BIG_BYTES_MAX: Final = 1 << 20
_SCALE_MAX: Final = 1 << 20


class FlinkSerializer(Protocol):
    """Encoding of values of one type."""

    @property
    def snapshot_class(self) -> str:
        """Java's name of the class of its snapshot."""
        ...

    @property
    def length(self) -> int:
        """Bytes of each value as Flink declares them, which is not always true; or VARIABLE."""
        ...

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]: ...

    def read(self, reader: Reader) -> Any: ...

    def write(self, writer: Writer, value: Any) -> None:
        """Writes a value. Raises whatever Python raises for one of another type."""
        ...


@frozen
class SimpleSerializer:
    """A serializer without parts. name: of the type, as in Flink's documentation."""

    name: str
    snapshot_class: str
    length: int
    reads: Callable[[Reader], Any]
    writes: Callable[[Writer, Any], None]

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return ()

    def read(self, reader: Reader) -> Any:
        return self.reads(reader)

    def write(self, writer: Writer, value: Any) -> None:
        self.writes(writer, value)


_Pair = tuple["Callable[[Reader], Any]", "Callable[[Writer, Any], None]"]


def _number(shape: str, what: str) -> _Pair:
    packed = struct.Struct(shape)

    def read(reader: Reader) -> Any:
        return packed.unpack(reader.raw(packed.size, what))[0]

    def write(writer: Writer, value: Any) -> None:
        writer.raw(packed.pack(value))

    return read, write


def _read_units(reader: Reader) -> int:
    """A number of seven bits a byte, low ones first."""
    start, value, shift = reader.offset, 0, 0
    while shift <= 28:
        byte = reader.u8("a text")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise reader.fail(
        "a number of a text does not end",
        expected="at most 5 bytes",
        found="more",
        offset=start,
    )


def _write_units(writer: Writer, value: int) -> None:
    while value >= 0x80:
        writer.u8(value & 0x7F | 0x80)
        value >>= 7
    writer.u8(value)


def _read_string(reader: Reader) -> str | None:
    start = reader.offset
    length = _read_units(reader) - 1
    if length < 0:
        return None
    piece = reader.raw(length, "a text")
    if piece.isascii():
        return piece.decode("ascii")
    reader.offset -= length  # some characters have more bytes than one
    units = [_read_units(reader) for _ in range(length)]
    if any(unit > 0xFFFF for unit in units):
        raise reader.fail(
            "a text has an invalid character",
            expected="units of 16 bits",
            found=str(max(units)),
            offset=start,
        )
    return struct.pack(f">{length}H", *units).decode("utf-16-be", "surrogatepass")


def _write_string(writer: Writer, value: str | None) -> None:
    if value is None:
        writer.u8(0)
        return
    if value.isascii():
        _write_units(writer, len(value) + 1)
        writer.raw(value.encode("ascii"))
        return
    data = value.encode("utf-16-be", "surrogatepass")
    _write_units(writer, len(data) // 2 + 1)
    for (unit,) in struct.iter_unpack(">H", data):
        _write_units(writer, unit)


def _read_big_int(reader: Reader) -> int | None:
    start = reader.offset
    word = reader.i32("a number")
    if word == 0:
        return None
    if word in _SHORT_FORMS:
        return _SHORT_FORMS[word]
    if not 5 <= word <= _BIG_BYTES_MAX:
        raise reader.fail(
            "the size of a number is out of bounds",
            expected=f"0 to 3, or 5 to {_BIG_BYTES_MAX}",
            found=str(word),
            offset=start,
        )
    return int.from_bytes(reader.raw(word - 4, "a number"), "big", signed=True)


def _write_big_int(writer: Writer, value: int | None) -> None:
    if value is None:
        writer.i32(0)
        return
    magnitude = value if value >= 0 else ~value
    size = magnitude.bit_length() // 8 + 1
    writer.i32(size + 4)
    writer.raw(value.to_bytes(size, "big", signed=True))


def _read_big_dec(reader: Reader) -> Decimal | None:
    unscaled = _read_big_int(reader)
    if unscaled is None:
        return None
    start = reader.offset
    scale = reader.i32("the scale of a number")
    digits = tuple(map(int, str(abs(unscaled)))) if abs(unscaled) < 10**4000 else None
    if digits is None or abs(scale) > _SCALE_MAX:
        raise reader.fail(
            "a decimal is larger than can be read",
            expected="at most 4,000 digits, and a scale of at most a million",
            found=f"scale {scale}",
            offset=start,
        )
    return Decimal((int(unscaled < 0), digits, -scale))


def _write_big_dec(writer: Writer, value: Decimal | None) -> None:
    if value is None:
        writer.i32(0)
        return
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a number")
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    words = {number: word for word, number in _SHORT_FORMS.items()}
    # Java keeps the small numbers of a BigDecimal as shared ones, which have a word each.
    if unscaled in words:
        writer.i32(words[unscaled])
    else:
        _write_big_int(writer, unscaled)
    writer.i32(-exponent)


def _read_date(reader: Reader) -> LocalDate | None:
    date = LocalDate(reader.i32("a year"), reader.u8("a month"), reader.u8("a day"))
    return None if date == _NULL_DATE else date


def _write_date(writer: Writer, value: LocalDate | None) -> None:
    date = value or _NULL_DATE
    writer.i32(date.year)
    writer.u8(date.month)
    writer.u8(date.day)


def _read_time(reader: Reader) -> LocalTime | None:
    hour, minute, second = (reader.u8("a time of day") for _ in range(3))
    nano = reader.i32("nanoseconds")
    return None if hour == _NULL_TIME.hour else LocalTime(hour, minute, second, nano)


def _write_time(writer: Writer, value: LocalTime | None) -> None:
    time = value or _NULL_TIME
    writer.u8(time.hour)
    writer.u8(time.minute)
    writer.u8(time.second)
    writer.i32(time.nano)


def _read_date_time(reader: Reader) -> LocalDateTime | None:
    date, time = _read_date(reader), _read_time(reader)
    return None if date is None or time is None else LocalDateTime(date, time)


def _write_date_time(writer: Writer, value: LocalDateTime | None) -> None:
    _write_date(writer, None if value is None else value.date)
    _write_time(writer, None if value is None else value.time)


def _read_instant(reader: Reader) -> Instant | None:
    instant = Instant(reader.i64("seconds"), reader.i32("nanoseconds"))
    return None if instant == _NULL_INSTANT else instant


def _write_instant(writer: Writer, value: Instant | None) -> None:
    instant = value or _NULL_INSTANT
    writer.i64(instant.seconds)
    writer.i32(instant.nano)


def _read_sql_timestamp(reader: Reader) -> SqlTimestamp | None:
    millis = reader.i64("milliseconds")
    nano = reader.i32("nanoseconds")
    return None if millis == -(2**63) else SqlTimestamp(millis, nano)


def _write_sql_timestamp(writer: Writer, value: SqlTimestamp | None) -> None:
    writer.i64(-(2**63) if value is None else value.millis)
    writer.i32(0 if value is None else value.nano)


def _read_void(reader: Reader) -> None:
    reader.u8("a namespace")


def _read_global_window(reader: Reader) -> GlobalWindow:
    reader.u8("a window")
    return GlobalWindow()


def _write_nothing(writer: Writer, value: object) -> None:
    writer.u8(0)


def _read_time_window(reader: Reader) -> TimeWindow:
    return TimeWindow(reader.i64("the start of a window"), reader.i64("the end of a window"))


def _write_time_window(writer: Writer, value: TimeWindow) -> None:
    writer.i64(value.start)
    writer.i64(value.end)


_BASE: Final = "org.apache.flink.api.common.typeutils.base."


def _base(name: str) -> str:
    return f"{_BASE}{name}Serializer${name}SerializerSnapshot"


_DOUBLE: Final = _number(">d", "a number")
_BOOLEAN: Final[_Pair] = (lambda r: r.boolean("a truth value"), lambda w, value: w.boolean(value))
_CHAR: Final[_Pair] = (lambda r: chr(r.u16("a character")), lambda w, value: w.u16(ord(value)))
_BYTES: Final[_Pair] = (lambda r: r.blob("bytes"), lambda w, value: w.blob(value))

STRING: Final = SimpleSerializer("String", _base("String"), -1, _read_string, _write_string)
LONG: Final = SimpleSerializer("Long", _base("Long"), 8, *_number(">q", "a number"))
INT: Final = SimpleSerializer("Int", _base("Int"), 4, *_number(">i", "a number"))
SHORT: Final = SimpleSerializer("Short", _base("Short"), 2, *_number(">h", "a number"))
BYTE: Final = SimpleSerializer("Byte", _base("Byte"), 1, *_number(">b", "a number"))
BOOLEAN: Final = SimpleSerializer("Boolean", _base("Boolean"), 1, *_BOOLEAN)
DOUBLE: Final = SimpleSerializer("Double", _base("Double"), 8, *_DOUBLE)
FLOAT: Final = SimpleSerializer("Float", _base("Float"), 4, *_number(">f", "a number"))
CHAR: Final = SimpleSerializer("Char", _base("Char"), 2, *_CHAR)
BIG_INT: Final = SimpleSerializer("BigInt", _base("BigInt"), -1, _read_big_int, _write_big_int)
BIG_DEC: Final = SimpleSerializer("BigDec", _base("BigDec"), -1, _read_big_dec, _write_big_dec)
LOCAL_DATE: Final = SimpleSerializer("LocalDate", _base("LocalDate"), 6, _read_date, _write_date)
LOCAL_TIME: Final = SimpleSerializer("LocalTime", _base("LocalTime"), 7, _read_time, _write_time)
LOCAL_DATE_TIME: Final = SimpleSerializer(
    "LocalDateTime", _base("LocalDateTime"), 13, _read_date_time, _write_date_time
)
INSTANT: Final = SimpleSerializer("Instant", _base("Instant"), 12, _read_instant, _write_instant)
SQL_TIMESTAMP: Final = SimpleSerializer(
    "SqlTimestamp", _base("SqlTimestamp"), 12, _read_sql_timestamp, _write_sql_timestamp
)
BYTES: Final = SimpleSerializer(
    "byte[]",
    _BASE + "array.BytePrimitiveArraySerializer$BytePrimitiveArraySerializerSnapshot",
    -1,
    *_BYTES,
)
WRAPPED_BYTES: Final = SimpleSerializer(
    "ByteArrayWrapper",
    "org.apache.flink.streaming.api.utils."
    "ByteArrayWrapperSerializer$ByteArrayWrapperSerializerSnapshot",
    -1,
    *_BYTES,
)
VOID_NAMESPACE: Final = SimpleSerializer(
    "VoidNamespace",
    "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot",
    # What Flink declares, though a byte is written; only the making of keys on disk looks at it.
    0,
    _read_void,
    _write_nothing,
)
TIME_WINDOW: Final = SimpleSerializer(
    "TimeWindow",
    "org.apache.flink.streaming.api.windowing.windows."
    "TimeWindow$Serializer$TimeWindowSerializerSnapshot",
    16,
    _read_time_window,
    _write_time_window,
)
GLOBAL_WINDOW: Final = SimpleSerializer(
    "GlobalWindow",
    "org.apache.flink.streaming.api.windowing.windows."
    "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot",
    1,
    _read_global_window,
    _write_nothing,
)

SIMPLE: Final[dict[str, SimpleSerializer]] = {
    each.snapshot_class: each
    for each in (
        STRING,
        LONG,
        INT,
        SHORT,
        BYTE,
        BOOLEAN,
        DOUBLE,
        FLOAT,
        CHAR,
        BIG_INT,
        BIG_DEC,
        LOCAL_DATE,
        LOCAL_TIME,
        LOCAL_DATE_TIME,
        INSTANT,
        SQL_TIMESTAMP,
        BYTES,
        WRAPPED_BYTES,
        VOID_NAMESPACE,
        TIME_WINDOW,
        GLOBAL_WINDOW,
    )
}
"""By the class name of the snapshot."""

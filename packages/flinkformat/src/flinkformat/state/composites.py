"""Flink's serializers that are made of others, and the snapshots that say of which.

A snapshot of a serializer has no length, so behind one of an unknown class nothing can be read: it
is refused by its name. Layout: docs/formats/flink-state.md, section 1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from flinkformat.errors import FormatError
from flinkformat.frozen import frozen
from flinkformat.metadata.wire import Reader, Writer
from flinkformat.row import Row, RowKind
from flinkformat.state.serializers import LONG, SIMPLE, VARIABLE, SimpleSerializer
from flinkformat.state.values import Either, Timer, TtlValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flinkformat.state.serializers import FlinkSerializer

ENVELOPE_VERSION: Final = 2
SNAPSHOT_VERSION: Final = 3
_OLD_SNAPSHOT_VERSION: Final = 2
_COMPOSITE_MAGIC: Final = 911_108
_NESTED_MAGIC: Final = 1_333_245
_NESTED_VERSION: Final = 1
_SIGN: Final = 1 << 63
_ROW_KIND_BITS: Final = 2

_TYPEUTILS: Final = "org.apache.flink.api.common.typeutils.base."
_RUNTIME: Final = "org.apache.flink.api.java.typeutils.runtime."


@frozen
class ListSerializer:
    """``java.util.List`` as a Python list."""

    element: FlinkSerializer
    snapshot_class = _TYPEUTILS + "ListSerializerSnapshot"
    outer_version = 1
    length = VARIABLE

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return (self.element,)

    def read(self, reader: Reader) -> list[Any]:
        return [self.element.read(reader) for _ in range(reader.count("elements"))]

    def write(self, writer: Writer, value: list[Any]) -> None:
        writer.i32(len(value))
        for each in value:
            self.element.write(writer, each)


@frozen
class MapSerializer:
    """``java.util.Map`` as a Python dict."""

    key: FlinkSerializer
    value: FlinkSerializer
    snapshot_class = _TYPEUTILS + "MapSerializerSnapshot"
    outer_version = 1
    length = VARIABLE

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return self.key, self.value

    def read(self, reader: Reader) -> dict[Any, Any]:
        number = reader.count("entries")
        return dict((self.read_key(reader), self.read_value(reader)) for _ in range(number))

    def write(self, writer: Writer, value: dict[Any, Any]) -> None:
        writer.i32(len(value))
        for key, each in value.items():
            self.key.write(writer, key)
            writer.boolean(each is None)
            if each is not None:
                self.value.write(writer, each)

    def read_key(self, reader: Reader) -> Any:
        """Reads the next key. Raises FormatError for a value that is not hashable in Python."""
        return read_hashable(self.key, reader)

    def read_value(self, reader: Reader) -> Any:
        return None if reader.boolean("whether a value is null") else self.value.read(reader)


@frozen
class TupleSerializer:
    """``Tuple0`` to ``Tuple25`` as a tuple. java_class: one of these."""

    java_class: str
    fields: tuple[FlinkSerializer, ...]
    snapshot_class = _RUNTIME + "TupleSerializerSnapshot"
    outer_version = 2
    length = VARIABLE

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return self.fields

    def read(self, reader: Reader) -> tuple[Any, ...]:
        return tuple([field.read(reader) for field in self.fields])

    def write(self, writer: Writer, value: tuple[Any, ...]) -> None:
        for field, each in zip(self.fields, value, strict=True):
            field.write(writer, each)


@frozen
class RowSerializer:
    """``Row``, without field names. kinds: True if each row has its kind of change."""

    kinds: bool
    fields: tuple[FlinkSerializer, ...]
    snapshot_class = _RUNTIME + "RowSerializer$RowSerializerSnapshot"
    outer_version = 4
    length = VARIABLE

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return self.fields

    def read(self, reader: Reader) -> Row:
        bits = len(self.fields) + (_ROW_KIND_BITS if self.kinds else 0)
        size = (bits + 7) // 8
        mask = int.from_bytes(reader.raw(size, "the mask of a row"), "big")
        if not mask:
            return Row(*[field.read(reader) for field in self.fields])
        flags = [bool(mask >> (8 * size - 1 - bit) & 1) for bit in range(bits)]
        kind = RowKind.INSERT
        if self.kinds:
            kind = RowKind(flags[0] + 2 * flags[1])
            flags = flags[_ROW_KIND_BITS:]
        pairs = zip(self.fields, flags, strict=True)
        return Row.of_kind(kind, *(None if null else field.read(reader) for field, null in pairs))

    def write(self, writer: Writer, value: Row) -> None:
        kind = value.get_row_kind().value
        flags = [bool(kind & 1), bool(kind & 2)] if self.kinds else []
        flags += [each is None for each in value]
        size = (len(flags) + 7) // 8
        mask = sum(1 << (8 * size - 1 - bit) for bit, flag in enumerate(flags) if flag)
        writer.raw(mask.to_bytes(size, "big"))
        for field, each in zip(self.fields, value, strict=True):
            if each is not None:
                field.write(writer, each)


@frozen
class EitherSerializer:
    """``Either``: a value of one of two types."""

    left: FlinkSerializer
    right: FlinkSerializer
    snapshot_class = _RUNTIME + "JavaEitherSerializerSnapshot"
    outer_version = 1
    length = VARIABLE

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return self.left, self.right

    def read(self, reader: Reader) -> Either:
        is_left = reader.boolean("which of two types a value is of")
        return Either(is_left, (self.left if is_left else self.right).read(reader))

    def write(self, writer: Writer, value: Either) -> None:
        writer.boolean(value.is_left)
        (self.left if value.is_left else self.right).write(writer, value.value)


@frozen
class NullableSerializer:
    """Any value, or None. padding: bytes that stand for a null, for values of a fixed length."""

    padding: int
    value: FlinkSerializer
    snapshot_class = _RUNTIME + "NullableSerializer$NullableSerializerSnapshot"
    outer_version = 2
    length = VARIABLE

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return (self.value,)

    def read(self, reader: Reader) -> Any:
        if not reader.boolean("whether a value is null"):
            return self.value.read(reader)
        reader.raw(self.padding, "the place of a null")
        return None

    def write(self, writer: Writer, value: Any) -> None:
        writer.boolean(value is None)
        if value is None:
            writer.raw(bytes(self.padding))
        else:
            self.value.write(writer, value)


@frozen
class TtlSerializer:
    """A value with the time of its last access. time: serializer of the times, always LONG."""

    time: FlinkSerializer
    value: FlinkSerializer
    snapshot_class = "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot"
    outer_version = 2

    @property
    def length(self) -> int:
        return _sum((self.time, self.value))

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return self.time, self.value

    def read(self, reader: Reader) -> TtlValue:
        return TtlValue(self.time.read(reader), self.value.read(reader))

    def write(self, writer: Writer, value: TtlValue) -> None:
        self.time.write(writer, value.last_access_ms)
        self.value.write(writer, value.value)


@frozen
class TimerSerializer:
    """A timer. The encoding of its time sorts as numbers do."""

    key: FlinkSerializer
    namespace: FlinkSerializer
    snapshot_class = "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot"
    outer_version = 2

    @property
    def length(self) -> int:
        return _sum((LONG, self.key, self.namespace))

    @property
    def nested(self) -> tuple[FlinkSerializer, ...]:
        return self.key, self.namespace

    def read(self, reader: Reader) -> Timer:
        time = reader.i64("the time of a timer") + _SIGN
        signed = time if time < _SIGN else time - 2 * _SIGN
        return Timer(signed, self.key.read(reader), self.namespace.read(reader))

    def write(self, writer: Writer, value: Timer) -> None:
        flipped = value.timestamp_ms + _SIGN
        writer.raw(flipped.to_bytes(8, "big"))
        self.key.write(writer, value.key)
        self.namespace.write(writer, value.namespace)


def _sum(parts: Iterable[FlinkSerializer]) -> int:
    lengths = [part.length for part in parts]
    return VARIABLE if VARIABLE in lengths else sum(lengths)


Composite = (
    ListSerializer
    | MapSerializer
    | TupleSerializer
    | RowSerializer
    | EitherSerializer
    | NullableSerializer
    | TtlSerializer
    | TimerSerializer
)
_COMPOSITES: Final[dict[str, type[Composite]]] = {
    each.snapshot_class: each
    for each in (
        ListSerializer,
        MapSerializer,
        TupleSerializer,
        RowSerializer,
        EitherSerializer,
        NullableSerializer,
        TtlSerializer,
        TimerSerializer,
    )
}


def encode(serializer: FlinkSerializer, value: object) -> bytes:
    """Encodes a value. Raises FormatError if it is not of the serializer's type."""
    writer = Writer()
    try:
        serializer.write(writer, value)
    except (struct.error, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise FormatError(
            f"A value has no form in {type_name(serializer)}",
            expected=type_name(serializer),
            found=f"{type(value).__name__} {str(value)[:60]!r}: {error}",
        ) from error
    return writer.finished()


def decode(serializer: FlinkSerializer, data: bytes, where: str = "") -> Any:
    reader = Reader(data, where)
    value = serializer.read(reader)
    expected = f"the end of {type_name(serializer)}"
    reader.end("a value is followed by more bytes", expected=expected)
    return value


def read_hashable(serializer: FlinkSerializer, reader: Reader) -> Any:
    """Reads the next value, to be the key of a dict. Raises FormatError if it can't be one."""
    start = reader.offset
    value = serializer.read(reader)
    try:
        _ = {value: None}
    except TypeError as error:
        raise reader.fail(
            "a key is of a type that can be no key in Python",
            expected="texts, numbers, bytes, times, tuples or rows of these",
            found=str(value)[:60],
            offset=start,
        ) from error
    return value


def type_name(serializer: FlinkSerializer) -> str:
    """Name of a serializer's type for people: ``Tuple<String, Long>``."""
    if isinstance(serializer, SimpleSerializer):
        return serializer.name
    name = type(serializer).__name__.removesuffix("Serializer")
    return f"{name}<{', '.join(map(type_name, serializer.nested))}>"


def read_snapshot(reader: Reader) -> FlinkSerializer:
    """Serializer of a snapshot in its envelope.

    Raises FormatError for a serializer that is not known, by the name of its snapshot's class.
    """
    reader.bounded("the version of a serializer's snapshot", ENVELOPE_VERSION, ENVELOPE_VERSION)
    return _read_versioned(reader)


def write_snapshot(writer: Writer, serializer: FlinkSerializer) -> None:
    writer.i32(ENVELOPE_VERSION)
    _write_versioned(writer, serializer)


def _read_versioned(reader: Reader) -> FlinkSerializer:
    start = reader.offset
    name = reader.utf("the class of a serializer's snapshot")
    if name in SIMPLE:
        version = reader.bounded(f"the version of {name}", _OLD_SNAPSHOT_VERSION, SNAPSHOT_VERSION)
        if version == _OLD_SNAPSHOT_VERSION:
            reader.utf("the class of a serializer")
        return SIMPLE[name]
    if name not in _COMPOSITES:
        raise FormatError(
            f"A serializer is not known: {name or 'one without a name'}",
            where=reader.where,
            remedy="Only Flink's serializers of basic types, strings, times, byte arrays, tuples, "
            "rows, lists and maps are, and those of PyFlink; take this state by a job of Flink "
            "that writes it as one of these.",
            offset=start,
            expected="the snapshot of a known serializer",
            found=repr(name[:200]),
        )
    reader.bounded(f"the version of {name}", SNAPSHOT_VERSION, SNAPSHOT_VERSION)
    kind = _COMPOSITES[name]
    reader.bounded("the mark of a composite snapshot", _COMPOSITE_MAGIC, _COMPOSITE_MAGIC)
    reader.bounded(f"the outer version of {name}", kind.outer_version, kind.outer_version)
    make = _read_outer(reader, kind)
    reader.bounded("the mark of nested snapshots", _NESTED_MAGIC, _NESTED_MAGIC)
    reader.bounded("the version of nested snapshots", _NESTED_VERSION, _NESTED_VERSION)
    place = reader.offset
    with reader.nested("serializers"):
        nested = reader.many("nested snapshots", lambda: _read_versioned(reader))
    made = make(nested)
    if made is None:
        raise reader.fail(
            f"{name} has another number of parts than its values",
            expected="as many as its kind of value",
            found=str(len(nested)),
            offset=place,
        )
    return made


_Nested = tuple["FlinkSerializer", ...]


def _read_outer(reader: Reader, kind: type[Composite]) -> Callable[[_Nested], Composite | None]:
    """Makes a serializer of its parts; None for a wrong number of parts."""
    if kind is TupleSerializer:
        java_class = reader.utf("the class of a tuple")
        return lambda parts: TupleSerializer(java_class, parts)
    if kind is RowSerializer:
        kinds = reader.boolean("whether rows have kinds")
        return lambda parts: RowSerializer(kinds, parts)
    if kind is NullableSerializer:
        padding = reader.bounded("the length of a null", 0, reader.remaining)
        return lambda parts: NullableSerializer(padding, *parts) if len(parts) == 1 else None
    if kind is ListSerializer:
        return lambda parts: ListSerializer(*parts) if len(parts) == 1 else None
    plain: Any = kind
    return lambda parts: plain(*parts) if len(parts) == 2 else None


def _write_versioned(writer: Writer, serializer: FlinkSerializer) -> None:
    writer.utf(serializer.snapshot_class)
    writer.i32(SNAPSHOT_VERSION)
    if isinstance(serializer, SimpleSerializer):
        return
    kind = _COMPOSITES[serializer.snapshot_class]
    writer.i32(_COMPOSITE_MAGIC)
    writer.i32(kind.outer_version)
    match serializer:
        case TupleSerializer():
            writer.utf(serializer.java_class)
        case RowSerializer():
            writer.boolean(serializer.kinds)
        case NullableSerializer():
            writer.i32(serializer.padding)
        case _:
            pass
    writer.i32(_NESTED_MAGIC)
    writer.i32(_NESTED_VERSION)
    writer.many(serializer.nested, lambda each: _write_versioned(writer, each))

"""Checkpoint properties: one Java-serialised object at the end of a ``_metadata`` file.

Written: the very bytes that Flink 2.3's classes make, or Java's null. Read: any serial numbers of
those classes and any order of their fields, since both follow from the classes' source and change
with it. Nothing but data is ever made of what is read.
Source: Java Object Serialization Specification, chapter 6; docs/formats/metadata.md, section 3.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from flinkformat.frozen import frozen
from flinkformat.snapshots import (
    CheckpointProperties,
    CheckpointType,
    PostCheckpointAction,
    SavepointFormatType,
    SavepointType,
    SharingFilesStrategy,
    SnapshotType,
)

if TYPE_CHECKING:
    from flinkformat.errors import FormatError
    from flinkformat.metadata.wire import Reader, Writer

_E = TypeVar("_E", bound=Enum)

STREAM_HEADER: Final = 0xACED0005
TC_NULL: Final = 0x70
TC_REFERENCE: Final = 0x71
TC_CLASS: Final = 0x72
TC_OBJECT: Final = 0x73
TC_STRING: Final = 0x74
TC_END_OF_BLOCK: Final = 0x78
TC_ENUM: Final = 0x7E
FIRST_REFERENCE: Final = 0x7E0000
PLAIN_FIELDS: Final = 0x02
ENUM_CONSTANT: Final = 0x12

CHECKPOINT_PACKAGE: Final = "org.apache.flink.runtime.checkpoint."
PROPERTIES: Final = CHECKPOINT_PACKAGE + "CheckpointProperties"
CHECKPOINT_TYPE: Final = CHECKPOINT_PACKAGE + "CheckpointType"
SAVEPOINT_TYPE: Final = CHECKPOINT_PACKAGE + "SavepointType"
SNAPSHOT_TYPE: Final = CHECKPOINT_PACKAGE + "SnapshotType"
SHARING_STRATEGY: Final = SNAPSHOT_TYPE + "$SharingFilesStrategy"
POST_ACTION: Final = SAVEPOINT_TYPE + "$PostCheckpointAction"
SAVEPOINT_FORMAT: Final = "org.apache.flink.core.execution.SavepointFormatType"
STRING: Final = "java.lang.String"
ENUM: Final = "java.lang.Enum"

PROPERTIES_SERIAL: Final = 2
CHECKPOINT_TYPE_SERIAL: Final = 0xD6DE4F0305AE1D3A - 2**64
SAVEPOINT_TYPE_SERIAL: Final = 0xA087D308A45814B8 - 2**64

FLAGS: Final = {
    "discardCancelled": "discard_cancelled",
    "discardFailed": "discard_failed",
    "discardFinished": "discard_finished",
    "discardSubsumed": "discard_subsumed",
    "discardSuspended": "discard_suspended",
    "forced": "forced",
    "unclaimed": "unclaimed",
}
"""Fields by the names that they have in Java, in the order in which Java writes them."""


@frozen
class _Class:
    """A class in the stream. fields: name, and True for a boolean."""

    name: str
    flags: int
    fields: tuple[tuple[str, bool], ...]
    parent: _Class | None


@frozen
class _Constant:
    kind: _Class
    name: str


@frozen
class _Instance:
    kind: _Class
    fields: dict[str, object]


def read_properties(reader: Reader) -> CheckpointProperties | None:
    """Reads an object; None for Java's null."""
    reader.where = "checkpoint properties"
    start = reader.offset
    header = reader.i32("the header of a Java object stream") & 0xFFFFFFFF
    if header != STREAM_HEADER:
        raise reader.fail(
            "the checkpoint properties are not a Java object stream",
            expected=f"{STREAM_HEADER:08x}",
            found=f"{header:08x}",
            offset=start,
        )
    found = _ObjectReader(reader).content()
    if found is None:
        return None
    fields = _fields_of(reader, found, PROPERTIES)
    flags = {own: _flag(reader, fields, name) for name, own in FLAGS.items()}
    kind = _snapshot_type(reader, fields.get("checkpointType"))
    return CheckpointProperties(snapshot_type=kind, **flags)


def _snapshot_type(reader: Reader, found: object) -> SnapshotType:
    if isinstance(found, _Instance) and found.kind.name == SAVEPOINT_TYPE:
        fields = found.fields
        name = _text(reader, fields)
        save_format = _constant(
            reader, fields.get("formatType"), SAVEPOINT_FORMAT, SavepointFormatType
        )
        action = fields.get("postCheckpointAction")
        return SavepointType(
            name, save_format, _constant(reader, action, POST_ACTION, PostCheckpointAction)
        )
    fields = _fields_of(reader, found, CHECKPOINT_TYPE)
    strategy = fields.get("sharingFilesStrategy")
    return CheckpointType(
        _text(reader, fields), _constant(reader, strategy, SHARING_STRATEGY, SharingFilesStrategy)
    )


def _fields_of(reader: Reader, found: object, class_name: str) -> dict[str, object]:
    if isinstance(found, _Instance) and found.kind.name == class_name:
        return found.fields
    raise _unexpected(reader, f"an object of {class_name}", found)


def _flag(reader: Reader, fields: dict[str, object], name: str) -> bool:
    value = fields.get(name)
    if isinstance(value, bool):
        return value
    raise _unexpected(reader, f"a boolean field {name}", value)


def _text(reader: Reader, fields: dict[str, object]) -> str:
    value = fields.get("name")
    if isinstance(value, str):
        return value
    raise _unexpected(reader, "a text field name", value)


def _constant(reader: Reader, found: object, class_name: str, kind: type[_E]) -> _E:
    if isinstance(found, _Constant) and found.kind.name == class_name:
        for constant in kind:
            if constant.value == found.name:
                return constant
    raise _unexpected(reader, f"a constant of {class_name}", found)


def _unexpected(reader: Reader, expected: str, found: object) -> FormatError:
    match found:
        case _Instance():
            shown = f"an object of {found.kind.name}"
        case _Constant():
            shown = f"{found.name} of {found.kind.name}"
        case _Class():
            shown = f"the class {found.name}"
        case _:
            shown = repr(found)
    return reader.fail(
        "Couldn't deserialize checkpoint properties",
        expected=expected,
        found=shown,
        offset=reader.offset,
    )


class _ObjectReader:
    """Reads the part of Java's object streams that properties need."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._read: list[object] = []  # what a reference can name, in the order of the stream

    def content(self) -> object:
        """Reads one object: an instance, a constant, a class, a text or None."""
        start = self._reader.offset
        with self._reader.nested():
            match self._reader.u8("the kind of a Java object"):
                case 0x70:
                    return None
                case 0x71:
                    return self._reference()
                case 0x72:
                    return self._class()
                case 0x73:
                    return self._instance()
                case 0x74:
                    text = self._reader.utf("a text")
                    self._read.append(text)
                    return text
                case 0x7E:
                    return self._enum_constant()
                case kind:
                    raise self._reader.fail(
                        "the checkpoint properties hold an unknown kind of Java object",
                        expected="70 to 74 or 7e",
                        found=f"{kind:02x}",
                        offset=start,
                    )

    def _reference(self) -> object:
        start = self._reader.offset
        index = self._reader.i32("a reference") - FIRST_REFERENCE
        if not 0 <= index < len(self._read):
            raise self._reader.fail(
                "a reference names nothing that came before it",
                expected=f"{len(self._read)} objects",
                found=f"number {index}",
                offset=start,
            )
        return self._read[index]

    def _class(self) -> _Class:
        name = self._reader.utf("the name of a class")
        self._reader.i64("the serial number of a class")
        place = len(self._read)
        self._read.append(None)
        flags = self._reader.u8("the flags of a class")
        fields = tuple([self._field() for _ in range(self._reader.u16("the number of fields"))])
        self._expect(TC_END_OF_BLOCK, "the end of a class")
        parent = self.content()
        if parent is not None and not isinstance(parent, _Class):
            raise _unexpected(self._reader, "a class", parent)
        described = _Class(name, flags, fields, parent)
        self._read[place] = described
        return described

    def _field(self) -> tuple[str, bool]:
        kind = self._reader.u8("the type of a field")
        name = self._reader.utf("the name of a field")
        if kind not in (ord("Z"), ord("L")):
            raise _unexpected(self._reader, "a boolean or an object as field", f"type {kind:02x}")
        if kind == ord("L"):
            self.content()
        return name, kind == ord("Z")

    def _instance(self) -> _Instance:
        kind = self._class_of()
        if kind.flags != PLAIN_FIELDS or kind.parent is not None:
            raise _unexpected(self._reader, "a class with plain fields and no parent", kind)
        made = _Instance(kind, {})
        self._read.append(made)
        for name, is_boolean in kind.fields:
            value = self._reader.boolean(name) if is_boolean else self.content()
            made.fields[name] = value
        return made

    def _enum_constant(self) -> _Constant:
        kind = self._class_of()
        place = len(self._read)
        self._read.append(None)
        name = self.content()
        if not isinstance(name, str):
            raise _unexpected(self._reader, "the name of a constant", name)
        constant = _Constant(kind, name)
        self._read[place] = constant
        return constant

    def _class_of(self) -> _Class:
        kind = self.content()
        if isinstance(kind, _Class):
            return kind
        raise _unexpected(self._reader, "a class", kind)

    def _expect(self, byte: int, what: str) -> None:
        start = self._reader.offset
        found = self._reader.u8(what)
        if found != byte:
            raise self._reader.fail(
                f"{what} is not there",
                expected=f"{byte:02x}",
                found=f"{found:02x}",
                offset=start,
            )


def write_properties(writer: Writer, properties: CheckpointProperties | None) -> None:
    """Writes the object as Flink 2.3 does; None becomes Java's null."""
    writer.i32(STREAM_HEADER - 2**32)
    if properties is None:
        writer.u8(TC_NULL)
        return
    writer.u8(TC_OBJECT)
    fields = [("Z", name, "") for name in FLAGS]
    _write_class(
        writer, PROPERTIES, PROPERTIES_SERIAL, [*fields, ("L", "checkpointType", SNAPSHOT_TYPE)]
    )
    for own in FLAGS.values():
        writer.boolean(getattr(properties, own))
    match properties.snapshot_type:
        case CheckpointType() as checkpoint:
            _write_checkpoint_type(writer, checkpoint)
        case SavepointType() as savepoint:
            _write_savepoint_type(writer, savepoint)


def _write_checkpoint_type(writer: Writer, checkpoint: CheckpointType) -> None:
    writer.u8(TC_OBJECT)
    _write_class(
        writer,
        CHECKPOINT_TYPE,
        CHECKPOINT_TYPE_SERIAL,
        [("L", "name", STRING), ("L", "sharingFilesStrategy", SHARING_STRATEGY)],
    )
    _write_text(writer, checkpoint.name)
    _write_constant(writer, SHARING_STRATEGY, checkpoint.sharing)


def _write_savepoint_type(writer: Writer, savepoint: SavepointType) -> None:
    writer.u8(TC_OBJECT)
    _write_class(
        writer,
        SAVEPOINT_TYPE,
        SAVEPOINT_TYPE_SERIAL,
        [
            ("L", "formatType", SAVEPOINT_FORMAT),
            ("L", "name", STRING),
            ("L", "postCheckpointAction", POST_ACTION),
        ],
    )
    _write_constant(writer, SAVEPOINT_FORMAT, savepoint.format)
    _write_text(writer, savepoint.name)
    # java.lang.Enum is the tenth thing in such a stream that a reference can name.
    _write_constant(writer, POST_ACTION, savepoint.action, enum_reference=FIRST_REFERENCE + 9)


def _write_class(
    writer: Writer, name: str, serial: int, fields: list[tuple[str, str, str]]
) -> None:
    writer.u8(TC_CLASS)
    writer.utf(name)
    writer.i64(serial)
    writer.u8(PLAIN_FIELDS)
    writer.u16(len(fields))
    for kind, field, field_class in fields:
        writer.u8(ord(kind))
        writer.utf(field)
        if field_class:
            _write_text(writer, f"L{field_class.replace('.', '/')};")
    writer.u8(TC_END_OF_BLOCK)
    writer.u8(TC_NULL)


def _write_constant(
    writer: Writer, class_name: str, constant: Enum, *, enum_reference: int | None = None
) -> None:
    writer.u8(TC_ENUM)
    _write_enum_class(writer, class_name)
    if enum_reference is None:
        _write_enum_class(writer, ENUM)
        writer.u8(TC_NULL)
    else:
        writer.u8(TC_REFERENCE)
        writer.i32(enum_reference)
    _write_text(writer, constant.name)


def _write_enum_class(writer: Writer, name: str) -> None:
    writer.u8(TC_CLASS)
    writer.utf(name)
    writer.i64(0)
    writer.u8(ENUM_CONSTANT)
    writer.u16(0)
    writer.u8(TC_END_OF_BLOCK)


def _write_text(writer: Writer, text: str) -> None:
    writer.u8(TC_STRING)
    writer.utf(text)

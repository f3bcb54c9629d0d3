"""Compatibility of state: can bytes of one serializer be read for another?

The same type reads as it is. Added fields of a record that have a default, removed fields, another
order of fields, and wider numbers migrate: old bytes are read as values of the new type, and the
next snapshot is written in it. All else is refused, with both shapes. Rows have fields like
records, and an added one is None.

To read state without the program, stand-ins take the place of its classes: a snapshot knows of a
record its fields, not its class. A stand-in has the same fields, each None if the bytes have none,
so that the serializers read such state like any other.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flinkformat.frozen import frozen
from tidegate.errors import FormatError, SerializerIncompatible
from tidegate.typeinfo.plain_keys import are_alike
from tidegate.typeinfo.serializers import (
    VERSION,
    MigratingReader,
    PickleSerializer,
    Reader,
    Serializer,
    SerializerSnapshot,
    TypedSerializer,
    shape_of,
)
from tidegate.typeinfo.types import (
    BIG_INT,
    BYTE,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    PICKLED,
    SHORT,
    EnumTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    with_children,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


_NAMES: Final = frozenset({"msgpack", "pickle"})
_WIDTHS: Final = ((BYTE, SHORT, INT, LONG, BIG_INT), (FLOAT, DOUBLE))


_REMEDY: Final = (
    "Go back to the old type, or give the state a new name and leave the old one behind."
)
_KEY_REMEDY: Final = (
    "Go back to the old type, or give the operator a new uid, so that it begins without state: "
    "where a key lies depends on its type."
)


@frozen
class AsIs:
    """The new serializer reads the old bytes."""


@frozen
class Migrate:
    """The old bytes can be read for the new type, by `reader`."""

    reader: Reader


@frozen
class Refuse:
    """The old bytes don't fit; `reason` shows both shapes and where they differ."""

    reason: str


Verdict = AsIs | Migrate | Refuse


def judge(old: SerializerSnapshot, new: Serializer) -> Verdict:
    """Judges whether values written under an old snapshot can be read for a serializer."""
    fault = _fault_of_format(old, new)
    if fault is not None:
        return Refuse(fault)
    change = _Change()
    same = change.same(old.type_info, new.type_info, "")
    if change.faults:
        return Refuse(_both_shapes(old, new, "; ".join(change.faults)))
    if same and old.name == new.snapshot().name:
        return AsIs()
    return Migrate(MigratingReader(old.type_info, new.type_info, by_name=change.by_name))


def judge_key(old: SerializerSnapshot, new: Serializer) -> AsIs | Refuse:
    """Judges keys, which may not change at all, since their hashes place them.

    Types of keys that are equal are no change: a named tuple and a tuple, undeclared numbers.
    """
    fault = _fault_of_format(old, new)
    if fault is not None:
        return Refuse(fault)
    if not are_alike(old.type_info, new.type_info):
        return Refuse(_both_shapes(old, new, "the type of keys can't change"))
    return AsIs()


def reader_for(
    old: SerializerSnapshot, new: Serializer, *, where: str, key: bool = False
) -> Reader:
    """Reader of values that were written under an old snapshot.

    where: names the state and its operator. key: the values are keys.
    Raises SerializerIncompatible if they don't fit.
    """
    match judge_key(old, new) if key else judge(old, new):
        case AsIs():
            return new
        case Migrate(reader):
            return reader
        case Refuse(reason):
            raise SerializerIncompatible(
                reason, where=where, remedy=_KEY_REMEDY if key else _REMEDY
            )


def _fault_of_format(old: SerializerSnapshot, new: Serializer) -> str | None:
    if old.version > VERSION:
        return f"the state was written in version {old.version} of the format, by a newer release"
    name = new.snapshot().name
    declared = old.type_info != PICKLED, new.type_info != PICKLED
    if old.name not in _NAMES or declared in ((True, False), (False, True)):
        return _both_shapes(old, new, f"it was written by {old.name} and is read by {name}")
    return None


def _both_shapes(old: SerializerSnapshot, new: Serializer, fault: str) -> str:
    return f"The state was {old.type_info} and is now {new.type_info}: {fault}"


class _Change:
    """A change of type. by_name: False once a record that is written by position differs."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.by_name = True

    def same(self, old: TypeInformation, new: TypeInformation, path: str) -> bool:
        """True if both are the same; else False, with a fault unless the change can migrate."""
        match old, new:
            case RecordTypeInfo(), RecordTypeInfo() if old.kind == new.kind:
                return self._same_fields(old, new, path, new.defaulted)
            case RowTypeInfo(), RowTypeInfo():
                return self._same_fields(old, new, path, frozenset(new.field_names))
            case TupleTypeInfo(), TupleTypeInfo() if len(old.children) == len(new.children):
                names = [f"[{i}]" for i in range(len(old.children))]
                return self._same_parts(old.children, new.children, names, path)
            case MapTypeInfo(), MapTypeInfo():
                return self._same_parts(old.children, new.children, ("key", "value"), path)
            case (ListTypeInfo(), ListTypeInfo()) | (
                PrimitiveArrayTypeInfo(),
                PrimitiveArrayTypeInfo(),
            ) if BYTES not in (old, new):
                return self._same_parts(old.children, new.children, ("element",), path)
            case _:
                if old != new and not _is_wider(old, new):
                    self.faults.append(f"{path or 'the value'} was {old} and is {new}")
                return old == new

    def _same_parts(
        self,
        old: Sequence[TypeInformation],
        new: Sequence[TypeInformation],
        names: Sequence[str],
        path: str,
    ) -> bool:
        parts = zip(old, new, names, strict=True)
        return all([self.same(was, now, f"{path}.{name}".lstrip(".")) for was, now, name in parts])

    def _same_fields(
        self,
        old: RecordTypeInfo | RowTypeInfo,
        new: RecordTypeInfo | RowTypeInfo,
        path: str,
        defaulted: Collection[str],
    ) -> bool:
        was = dict(zip(old.field_names, old.field_types, strict=True))
        now = dict(zip(new.field_names, new.field_types, strict=True))
        prefix = f"{path}." if path else ""
        self.faults += [
            f"{prefix}{name} is new and has no default"
            for name in now
            if name not in was and name not in defaulted
        ]
        common = [name for name in was if name in now]
        alike = self._same_parts([was[n] for n in common], [now[n] for n in common], common, path)
        unmoved = old.field_names == new.field_names
        if not unmoved and isinstance(old, RecordTypeInfo) and old.kind == "namedtuple":
            self.by_name = False
        return alike and unmoved


def _is_wider(old: TypeInformation, new: TypeInformation) -> bool:
    return any(
        old in widths and new in widths and widths.index(old) < widths.index(new)
        for widths in _WIDTHS
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
        case RecordTypeInfo(python_class=found):
            return type_info if found is not None else _with_class(type_info)
        case EnumTypeInfo(python_class=None):
            return replace(type_info, python_class=str)
        case _:
            return with_children(type_info, with_classes)


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

"""Whether bytes that one serializer has written can be read for another.

The same type reads as it is. Added fields of a record that have a default, and wider numbers,
migrate: old bytes are read as values of the new type, and the next snapshot is written in it. All
else is refused, with both shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import SerializerIncompatible
from tidegate.typeinfo.serializers import (
    VERSION,
    Reader,
    Serializer,
    SerializerSnapshot,
    decode_piece,
)
from tidegate.typeinfo.types import (
    BIG_INT,
    BYTE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTHS: Final = ((BYTE, SHORT, INT, LONG, BIG_INT), (FLOAT, DOUBLE))


@dataclass(frozen=True, slots=True)
class AsIs:
    """The new serializer reads the old bytes."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """The old bytes can be read for the new type, by `reader`."""

    reader: Reader


@dataclass(frozen=True, slots=True)
class Refuse:
    """The old bytes don't fit; `reason` shows both shapes and where they part."""

    reason: str


Verdict = AsIs | Migrate | Refuse


def judge(old: SerializerSnapshot, new: Serializer) -> Verdict:
    """Whether values that were written under an old snapshot can be read for a serializer."""
    fault = _fault_of_format(old, new)
    if fault is not None:
        return Refuse(fault)
    faults: list[str] = []
    if _same(old.type_info, new.type_info, "", faults) and not faults:
        return AsIs()
    if faults:
        return Refuse(_both_shapes(old, new, "; ".join(faults)))
    return Migrate(_MigratingReader(old.type_info, new.type_info))


def judge_key(old: SerializerSnapshot, new: Serializer) -> AsIs | Refuse:
    """The same for keys, which may not change at all, since their hashes place them."""
    fault = _fault_of_format(old, new)
    if fault is not None:
        return Refuse(fault)
    if old.type_info != new.type_info:
        return Refuse(_both_shapes(old, new, "the type of keys can't change"))
    return AsIs()


def reader_for(
    old: SerializerSnapshot, new: Serializer, *, where: str, key: bool = False
) -> Reader:
    """What reads values that were written under an old snapshot.

    where: names the state and its operator. key: the values are keys.
    Raises SerializerIncompatible where they don't fit.
    """
    match judge_key(old, new) if key else judge(old, new):
        case AsIs():
            return new
        case Migrate(reader):
            return reader
        case Refuse(reason):
            raise SerializerIncompatible(
                reason,
                where=where,
                remedy="Go back to the old type, or give the state a new name and leave the old"
                " one behind.",
            )


class _MigratingReader:
    def __init__(self, old: TypeInformation, new: TypeInformation) -> None:
        self._old = old
        self._new = new

    def decode_many(self, data: bytes | memoryview) -> list[Any]:
        return decode_piece(data, self._old, self._new)


def _fault_of_format(old: SerializerSnapshot, new: Serializer) -> str | None:
    if old.version > VERSION:
        return f"the state was written in version {old.version} of the format, by a newer release"
    name = new.snapshot().name
    if old.name != name:
        return _both_shapes(old, new, f"it was written by {old.name} and is read by {name}")
    return None


def _both_shapes(old: SerializerSnapshot, new: Serializer, fault: str) -> str:
    return f"The state was {old.type_info} and is now {new.type_info}: {fault}"


def _same(old: TypeInformation, new: TypeInformation, path: str, faults: list[str]) -> bool:
    """Whether the types are the same; False where they differ, with a fault unless it migrates."""
    match old, new:
        case RecordTypeInfo(), RecordTypeInfo() if old.kind == new.kind:
            return _same_record(old, new, path, faults)
        case RowTypeInfo(), RowTypeInfo() if old.field_names == new.field_names:
            return _same_parts(old.children, new.children, old.field_names, path, faults)
        case TupleTypeInfo(), TupleTypeInfo() if len(old.children) == len(new.children):
            names = [f"[{i}]" for i in range(len(old.children))]
            return _same_parts(old.children, new.children, names, path, faults)
        case MapTypeInfo(), MapTypeInfo():
            return _same_parts(old.children, new.children, ("key", "value"), path, faults)
        case (ListTypeInfo(), ListTypeInfo()) | (
            PrimitiveArrayTypeInfo(),
            PrimitiveArrayTypeInfo(),
        ):
            return _same_parts(old.children, new.children, ("element",), path, faults)
        case _:
            if old != new and not _is_wider(old, new):
                faults.append(f"{path or 'the value'} was {old} and is {new}")
            return old == new


def _same_parts(
    old: Sequence[TypeInformation],
    new: Sequence[TypeInformation],
    names: Sequence[str],
    path: str,
    faults: list[str],
) -> bool:
    parts = zip(old, new, names, strict=True)
    return all([_same(was, now, f"{path}.{name}".lstrip("."), faults) for was, now, name in parts])


def _same_record(old: RecordTypeInfo, new: RecordTypeInfo, path: str, faults: list[str]) -> bool:
    was = dict(zip(old.field_names, old.field_types, strict=True))
    now = dict(zip(new.field_names, new.field_types, strict=True))
    prefix = f"{path}." if path else ""
    faults += [f"{prefix}{name} is gone" for name in was if name not in now]
    added = [name for name in now if name not in was]
    faults += [
        f"{prefix}{name} is new and has no default" for name in added if name not in new.defaulted
    ]
    common = [name for name in was if name in now]
    alike = _same_parts([was[n] for n in common], [now[n] for n in common], common, path, faults)
    # A NamedTuple is written by position, so another order has to be read under the old names.
    moved = old.kind == "namedtuple" and old.field_names != new.field_names
    return alike and not added and not moved


def _is_wider(old: TypeInformation, new: TypeInformation) -> bool:
    return any(
        old in widths and new in widths and widths.index(old) < widths.index(new)
        for widths in _WIDTHS
    )

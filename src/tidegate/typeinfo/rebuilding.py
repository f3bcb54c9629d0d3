"""Rebuilds values of their types from what MessagePack or a pickle makes by default."""

from __future__ import annotations

import datetime
import decimal
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from flinkformat.row import Row
from tidegate.errors import FormatError, TidegateError
from tidegate.typeinfo.pickling import Parts
from tidegate.typeinfo.types import (
    BIG_DEC,
    DURATION,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    UUID,
    UUID_CLASS,
    EnumTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    NumberTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.typeinfo.types import TypeInformation

WRITTEN_AS_TEXT: Final[dict[TypeInformation, type]] = {
    SQL_DATE: datetime.date,
    SQL_TIME: datetime.time,
    SQL_TIMESTAMP: datetime.datetime,
    BIG_DEC: decimal.Decimal,
    DURATION: datetime.timedelta,
    UUID: UUID_CLASS,
}


def all_rebuilt(
    values: Iterable[Any], new: TypeInformation, old: TypeInformation | None = None
) -> list[Any]:
    """Each value as `rebuilt`. Raises FormatError if a class does not accept its fields."""
    try:
        return [rebuilt(each, new, old) for each in values]
    except TidegateError:
        raise
    except Exception as error:  # whatever a class raises that is made of its fields
        raise FormatError(
            f"A value in state does not fit its type: {type(error).__name__}: {error}",
            remedy="Restore from another checkpoint; this is damaged, or the class has changed.",
            expected=str(new),
        ) from error


def rebuilt(raw: Any, new: TypeInformation, old: TypeInformation | None = None) -> Any:
    """Value of its type, made from MessagePack's default types.

    old: the type under which it was written, where that is another one that `evolution` lets
    through. A value that doesn't fit is left unchanged.
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
        case RecordTypeInfo(), list() | tuple() | dict() if len(raw) == len(old.children):
            return _record(raw, new, old)
        case RecordTypeInfo(), Parts():
            return _record(raw, new, old)
        case RowTypeInfo(), Row() if len(raw) == len(old.children):
            return _row(raw, new, old)
        case EnumTypeInfo(python_class=type() as kind), str() if kind is not str:
            return kind[raw]  # type: ignore[index]  # an enumeration
        case NumberTypeInfo(of), _:
            return rebuilt(raw, of)
        case _, str() if new in WRITTEN_AS_TEXT:
            return msgspec.convert(raw, WRITTEN_AS_TEXT[new])
        case _:
            return raw


def _record(raw: Any, new: RecordTypeInfo, old: TypeInformation) -> object:
    assert isinstance(old, RecordTypeInfo), "a record is not made of anything else"
    assert new.python_class is not None, "a type of the program has its class"
    match raw:
        case dict():
            named = cast("dict[str, Any]", raw)
        case Parts():
            named = raw.fields(old.field_names)
        case _:
            named = dict(zip(old.field_names, raw, strict=True))
    return new.python_class(**_common_fields(named, new, old))


def _row(raw: Row, new: RowTypeInfo, old: TypeInformation) -> Row:
    assert isinstance(old, RowTypeInfo), "a row is not made of anything else"
    named = dict(zip(raw.names or old.field_names, raw, strict=True))
    fields = _common_fields(named, new, old)
    values = [fields.get(name) for name in new.field_names]
    names = None if raw.names is None else new.field_names
    return Row.of_parts(values, names, raw.get_row_kind())


def _common_fields(
    named: dict[str, Any],
    new: RecordTypeInfo | RowTypeInfo,
    old: RecordTypeInfo | RowTypeInfo,
) -> dict[str, Any]:
    was = dict(zip(old.field_names, old.field_types, strict=True))
    pairs = zip(new.field_names, new.field_types, strict=True)
    return {
        name: rebuilt(named[name], of, was[name])
        for name, of in pairs
        if name in named and name in was
    }

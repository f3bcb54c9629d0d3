"""Types from Python's own hints: `int` is LONG, `list[str]` a LIST, a dataclass a record.

Hints without a type of ours (`Any`, unions, classes of all sorts) give a pickled type, which always
works.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tidegate.errors import GraphError
from tidegate.typeinfo.types import (
    BIG_DEC,
    BOOLEAN,
    BYTES,
    DOUBLE,
    DURATION,
    LONG,
    PICKLED,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    UUID,
    UUID_CLASS,
    EnumTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    RecordTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

_PLAIN: Final[dict[object, TypeInformation]] = {
    int: LONG,
    str: STRING,
    float: DOUBLE,
    bool: BOOLEAN,
    bytes: BYTES,
    datetime.date: SQL_DATE,
    datetime.time: SQL_TIME,
    datetime.datetime: SQL_TIMESTAMP,
    decimal.Decimal: BIG_DEC,
}
TypeHint: TypeAlias = TypeInformation | type[Any] | types.UnionType | types.GenericAlias
"""What stands for a type in a call: one of ``Types``, or what Python's own hints are made of."""

_KEYS: Final[dict[object, TypeInformation]] = {UUID_CLASS: UUID, datetime.timedelta: DURATION}
_ITERABLES: Final = (Iterable, Iterator, Generator, Sequence, list)
_INHERITED: Final = ("__reduce__", "__reduce_ex__", "__getstate__")


def type_of_hint(hint: object) -> TypeInformation:
    """Type for a type hint; a pickled type for unknown hints. Never raises."""
    if isinstance(hint, TypeInformation):
        return hint
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and not typing.get_args(hint):
        return _type_of_class(hint)
    return _type_of_alias(hint)


def declared_type(given: TypeHint | None, *, where: str) -> TypeInformation | None:
    """Type passed to a call; None if none was.

    Raises GraphError for what is neither a type nor a hint, such as a value or a text.
    """
    if given is None or isinstance(given, TypeInformation):
        return given
    if isinstance(given, type | typing.NewType) or typing.get_origin(given) or given is Any:
        return type_of_hint(given)
    raise GraphError(
        f"{given!r} is not a type",
        where=where,
        remedy="Give one of Types, such as Types.LONG(), or a Python type such as "
        "tuple[str, int], a dataclass or a NamedTuple.",
    )


def declared_key_type(given: TypeHint | None, *, where: str) -> TypeInformation | None:
    """Declared type of keys, which may also be enumerations, UUIDs and timedeltas.

    Values of these types are pickled.
    """
    found = declared_type(given, where=where)
    return found if found is None or isinstance(given, TypeInformation) else _key_type(given)


def _key_type(hint: object) -> TypeInformation:
    if hint in _KEYS:
        return _KEYS[hint]
    if typing.get_origin(hint) is tuple and Ellipsis not in typing.get_args(hint):
        return TupleTypeInfo(list(map(_key_type, typing.get_args(hint))))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return EnumTypeInfo(hint.__qualname__, hint)
    if isinstance(hint, type) and _is_record(hint):
        return _record(hint, _key_type)
    return type_of_hint(hint)


def type_of_return(
    function: Callable[..., object], *, iterable: bool = False
) -> TypeInformation | None:
    """Type that a function's hint promises; None without a hint.

    iterable: the function returns an iterable, as flat_map's does, and its elements are meant.
    """
    hint = _hints(function).get("return")
    if hint is None:
        return None
    if iterable:
        arguments = typing.get_args(hint)
        if typing.get_origin(hint) not in _ITERABLES or not arguments:
            return None
        hint = arguments[0]
    found = type_of_hint(hint)
    return None if found == PICKLED else found


def _hints(of: object) -> dict[str, Any]:
    try:
        return typing.get_type_hints(of)
    except (NameError, TypeError, AttributeError, SyntaxError):
        # A name that is known only where it was written, such as a class inside a function.
        return {}


def _type_of_alias(hint: object) -> TypeInformation:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return type_of_hint(arguments[0])
    if origin in (typing.Union, types.UnionType):
        others = [each for each in arguments if each is not type(None)]
        # Any part of a value may be None, so that an optional type is the type.
        return type_of_hint(others[0]) if len(others) == 1 else PICKLED
    if origin is list:
        return _unless_pickled(ListTypeInfo(type_of_hint(arguments[0])))
    if origin in (dict, Mapping):
        return _unless_pickled(MapTypeInfo(*map(type_of_hint, arguments)))
    if origin is tuple and Ellipsis not in arguments:
        return _unless_pickled(TupleTypeInfo([type_of_hint(each) for each in arguments]))
    if isinstance(hint, typing.NewType):
        return type_of_hint(hint.__supertype__)
    return PICKLED


def _unless_pickled(found: TypeInformation) -> TypeInformation:
    return PICKLED if PICKLED in found.children else found


def _type_of_class(kind: type) -> TypeInformation:
    return _record(kind, type_of_hint) if _is_record(kind) else PICKLED


def _is_record(kind: type) -> bool:
    """True for a dataclass or NamedTuple that consists of its fields alone."""
    if any(_is_own(getattr(kind, name), getattr(object, name)) for name in _INHERITED):
        return False
    return _is_named_tuple(kind) or (
        dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__")
    )


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and tuple in kind.__bases__


def _is_own(method: object, inherited: object) -> bool:
    """True if a class defines its own pickling; methods that @dataclass adds don't count."""
    return method is not inherited and getattr(method, "__module__", "") != "dataclasses"


def _record(kind: Any, type_of: Callable[[object], TypeInformation]) -> TypeInformation:
    """Record type of a class, or a pickled type if a field is one.

    type_of: type of a field's hint.
    """
    form: typing.Literal["dataclass", "namedtuple"]
    if _is_named_tuple(kind):
        form, names, defaulted = "namedtuple", kind._fields, frozenset[str](kind._field_defaults)
    else:
        form, fields = "dataclass", dataclasses.fields(kind)
        if not all(each.init for each in fields):
            return PICKLED
        names, defaulted = tuple(each.name for each in fields), _defaulted(fields)
    hints = _hints(kind)
    types_of_fields = tuple(type_of(hints.get(name, object)) for name in names)
    if PICKLED in types_of_fields:
        return PICKLED
    return RecordTypeInfo(kind.__qualname__, form, names, types_of_fields, defaulted, kind)


def _defaulted(fields: Iterable[dataclasses.Field[Any]]) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(
        each.name
        for each in fields
        if each.default is not missing or each.default_factory is not missing
    )

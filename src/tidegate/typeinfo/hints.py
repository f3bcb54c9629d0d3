"""Types of undeclared values: found in the type hints of a program, or in the values themselves."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias, cast

from flinkformat.row import Row
from tidegate.errors import GraphError
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    DURATION,
    INSTANT,
    LONG,
    PICKLED,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    UUID,
    UUID_CLASS,
    BasicTypeInfo,
    EnumTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    with_children,
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
    """Record type of a class, or a pickled type if a field is one, or holds another such record.

    type_of: type of a field's hint.
    """
    if _holds_itself(kind):
        return PICKLED
    form: typing.Literal["dataclass", "namedtuple"]
    if _is_named_tuple(kind):
        form, names, defaulted = "namedtuple", kind._fields, frozenset[str](kind._field_defaults)
    else:
        form, fields = "dataclass", dataclasses.fields(kind)
        if not all(each.init for each in fields):
            return PICKLED
        names, defaulted = tuple(each.name for each in fields), _defaulted(fields)
    types_of_fields = tuple(map(type_of, _field_hints(kind)))
    if PICKLED in types_of_fields:
        return PICKLED
    return RecordTypeInfo(kind.__qualname__, form, names, types_of_fields, defaulted, kind)


def _field_hints(kind: Any) -> list[object]:
    named = _is_named_tuple(kind)
    names = kind._fields if named else [each.name for each in dataclasses.fields(kind)]
    hints = _hints(kind)
    return [hints.get(name, object) for name in names]


def _holds_itself(kind: type) -> bool:
    """True if a field of a record may hold such a record, itself or in its parts."""
    seen: set[object] = set()
    left = _field_hints(kind)
    while left:
        hint = left.pop()
        if hint is kind:
            return True
        left += typing.get_args(hint)
        if isinstance(hint, typing.NewType):
            left.append(hint.__supertype__)
        if isinstance(hint, type) and hint not in seen and _is_record(hint):
            seen.add(hint)
            left += _field_hints(hint)
    return False


def _defaulted(fields: Iterable[dataclasses.Field[Any]]) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(
        each.name
        for each in fields
        if each.default is not missing or each.default_factory is not missing
    )


_NOTHING: Final = BasicTypeInfo("Nothing")
"""The type of None, and of the elements of an empty list: values of any other type fit it."""

_LONG_BOUND: Final = 1 << 63
_WIDER: Final[Mapping[frozenset[TypeInformation], TypeInformation]] = {
    frozenset((LONG, BIG_INT)): BIG_INT,
    frozenset((LONG, DOUBLE)): DOUBLE,
}


def type_of_values(values: Iterable[object]) -> TypeInformation:
    """Common type of all these values; a pickled type if they have none.

    Parts that are None are of every type. A dict of texts whose values differ in type is a record.
    """
    return _settled(_common_type(map(_type_of, values)))


def _common_type(types: Iterable[TypeInformation]) -> TypeInformation:
    return reduce(_common, types, _NOTHING)


def _type_of(value: Any) -> TypeInformation:
    kind = type(value)
    match value:
        case None:
            return _NOTHING
        case int() if kind is int:
            return LONG if -_LONG_BOUND <= value < _LONG_BOUND else BIG_INT
        case tuple() if kind is tuple:
            return TupleTypeInfo(list(map(_type_of, cast("tuple[object, ...]", value))))
        case list() if kind is list:
            return ListTypeInfo(_common_type(map(_type_of, cast("list[object]", value))))
        case dict() if kind is dict:
            return _type_of_dict(cast("dict[object, object]", value))
        case Row():
            return RowTypeInfo(list(map(_type_of, value)), value.names)
        case datetime.datetime() if value.tzinfo is not None:
            return INSTANT
        case _:
            return _type_of_object(value, kind)


def _type_of_dict(value: dict[object, object]) -> TypeInformation:
    """A record of texts, which becomes a map if all values have one type."""
    items = tuple(map(_type_of, value.values()))
    if value and all(type(key) is str for key in value):
        names = tuple(str(key) for key in value)
        return RecordTypeInfo("dict", "dataclass", names, items, python_class=dict)
    return MapTypeInfo(_common_type(map(_type_of, value)), _common_type(items))


def _as_map(found: TypeInformation) -> TypeInformation:
    if isinstance(found, RecordTypeInfo) and found.python_class is dict:
        return MapTypeInfo(STRING, _common_type(found.field_types))
    return found


def _type_of_object(value: Any, kind: type) -> TypeInformation:
    if dataclasses.is_dataclass(kind):
        names = tuple(each.name for each in dataclasses.fields(kind))
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = tuple(value._fields)
    else:
        return type_of_hint(kind)
    parts = tuple(_type_of(getattr(value, name)) for name in names)
    form = "namedtuple" if issubclass(kind, tuple) else "dataclass"
    return RecordTypeInfo(kind.__qualname__, form, names, parts, python_class=kind)


def _common(one: TypeInformation, other: TypeInformation) -> TypeInformation:
    if one == other or other == _NOTHING:
        return one
    if one == _NOTHING:
        return other
    if isinstance(one, MapTypeInfo) or isinstance(other, MapTypeInfo):
        one, other = _as_map(one), _as_map(other)
    match one, other:
        case TupleTypeInfo(), TupleTypeInfo() if len(one.children) == len(other.children):
            return TupleTypeInfo(_pairwise(one, other))
        case ListTypeInfo(), ListTypeInfo():
            return ListTypeInfo(_pairwise(one, other)[0])
        case MapTypeInfo(), MapTypeInfo():
            return MapTypeInfo(*_pairwise(one, other))
        case RowTypeInfo(), RowTypeInfo() if one.field_names == other.field_names:
            return RowTypeInfo(_pairwise(one, other), one.field_names)
        case RecordTypeInfo(), RecordTypeInfo() if (
            one.python_class is other.python_class and one.field_names == other.field_names
        ):
            return dataclasses.replace(one, field_types=tuple(_pairwise(one, other)))
        case RecordTypeInfo(), RecordTypeInfo() if one.python_class is other.python_class is dict:
            return MapTypeInfo(*_pairwise(_as_map(one), _as_map(other)))
        case _:
            return _WIDER.get(frozenset((one, other)), PICKLED)


def _pairwise(one: TypeInformation, other: TypeInformation) -> list[TypeInformation]:
    return list(map(_common, one.children, other.children))


def _settled(found: TypeInformation) -> TypeInformation:
    match found:
        case BasicTypeInfo("Nothing"):
            return PICKLED
        case RecordTypeInfo(python_class=kind):
            common = _common_type(found.field_types)
            if kind is dict and common != PICKLED:
                return MapTypeInfo(STRING, _settled(common))
            return with_children(found, _settled)
        case _:
            return with_children(found, _settled)

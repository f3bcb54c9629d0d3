"""Types from Python's own hints: `int` is LONG, `list[str]` a LIST, a dataclass a record.

What a hint doesn't settle (`Any`, unions, classes of all sorts) is a pickled type, which always
works.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from tidegate.errors import GraphError
from tidegate.typeinfo.types import (
    BIG_DEC,
    BOOLEAN,
    BYTES,
    DOUBLE,
    LONG,
    PICKLED,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
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

_ITERABLES: Final = (Iterable, Iterator, Generator, Sequence, list)
_INHERITED: Final = ("__reduce__", "__reduce_ex__", "__getstate__")


def type_of_hint(hint: object) -> TypeInformation:
    """The type that a hint stands for; a pickled one where it stands for none. Never raises."""
    if isinstance(hint, TypeInformation):
        return hint
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and not typing.get_args(hint):
        return _type_of_class(hint)
    return _type_of_alias(hint)


def declared_type(given: TypeHint | None, *, where: str) -> TypeInformation | None:
    """The type that a call was given; None for none.

    Raises GraphError for what is neither a type nor a hint, such as a value or a text.
    """
    if given is None or isinstance(given, TypeInformation):
        return given
    if isinstance(given, type | typing.NewType) or typing.get_origin(given) or given is Any:
        return type_of_hint(given)
    raise GraphError(
        f"{given!r} is no type",
        where=where,
        remedy="Give one of Types, such as Types.LONG(), or a Python type such as "
        "tuple[str, int], a dataclass or a NamedTuple.",
    )


def type_of_return(
    function: Callable[..., object], *, iterable: bool = False
) -> TypeInformation | None:
    """The type that a function says it returns; None where it says nothing.

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
    """A record for a dataclass or NamedTuple that is its fields and nothing else."""
    if any(_is_own(getattr(kind, name), getattr(object, name)) for name in _INHERITED):
        return PICKLED
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and tuple in kind.__bases__:
        return _record_of_named_tuple(cast("Any", kind))
    if dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__"):
        return _record_of_dataclass(kind)
    return PICKLED


def _is_own(method: object, inherited: object) -> bool:
    """Whether a class pickles in a way of its own; what @dataclass itself adds is none."""
    return method is not inherited and getattr(method, "__module__", "") != "dataclasses"


def _record_of_named_tuple(kind: Any) -> TypeInformation:
    hints = _hints(kind)
    types_of_fields = tuple(type_of_hint(hints.get(name, object)) for name in kind._fields)
    if PICKLED in types_of_fields:
        return PICKLED
    defaulted = frozenset[str](kind._field_defaults)
    return RecordTypeInfo(
        kind.__qualname__, "namedtuple", kind._fields, types_of_fields, defaulted, kind
    )


def _record_of_dataclass(kind: Any) -> TypeInformation:
    fields = dataclasses.fields(kind)
    hints = _hints(kind)
    types_of_fields = tuple(type_of_hint(hints.get(each.name, object)) for each in fields)
    if PICKLED in types_of_fields or not all(each.init for each in fields):
        return PICKLED
    defaulted = frozenset(
        each.name
        for each in fields
        if each.default is not dataclasses.MISSING
        or each.default_factory is not dataclasses.MISSING
    )
    names = tuple(each.name for each in fields)
    return RecordTypeInfo(kind.__qualname__, "dataclass", names, types_of_fields, defaulted, kind)

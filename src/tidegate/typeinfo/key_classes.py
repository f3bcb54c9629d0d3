"""Classes of keys, and equality between types of keys."""

from __future__ import annotations

import importlib
import sys
from dataclasses import fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, cast

from tidegate.typeinfo.plain_keys import number_in_one_form
from tidegate.typeinfo.types import (
    DOUBLE,
    LONG,
    PICKLED,
    EnumTypeInfo,
    NumberTypeInfo,
    RecordTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    holds_pickled,
)


def is_importable(kind: type) -> bool:
    """True if another process finds a class by its name."""
    return kind.__module__ != "__main__" and class_named(kind.__module__, kind.__qualname__) is kind


def class_named(module: str, name: str) -> object:
    """A class of a module, by name; None if there is none."""
    try:
        return attrgetter(name)(sys.modules.get(module) or importlib.import_module(module))
    except (ImportError, AttributeError):
        return None


def is_number(type_info: TypeInformation) -> bool:
    """True if keys of the type hash by value, so that they equal keys of other number types."""
    return type_info == LONG or isinstance(type_info, NumberTypeInfo)


def may_be_alike(one: TypeInformation, other: TypeInformation) -> bool:
    """True if two types of keys may be equal; the type of a field that was None is unknown."""
    if _has_fields(one) and _has_fields(other):
        tuples = _is_tuple(one) and _is_tuple(other)
        same = tuples or (type(one) is type(other) and _name(one) == _name(other))
        count = len(one.children) == len(other.children)
        return same and count and all(map(may_be_alike, one.children, other.children))
    return one == other or PICKLED in (one, other) or (is_number(one) and is_number(other))


def are_alike(one: TypeInformation, other: TypeInformation) -> bool:
    """True if keys of one type are found where keys of the other were written."""
    unknown = holds_pickled(one) or holds_pickled(other)
    return one == other or (not unknown and may_be_alike(one, other))


def _has_fields(type_info: TypeInformation) -> bool:
    return isinstance(type_info, TupleTypeInfo | RecordTypeInfo)


def _is_tuple(type_info: TypeInformation) -> bool:
    """True if keys of the type equal tuples of their fields."""
    return not (isinstance(type_info, RecordTypeInfo) and type_info.kind == "dataclass")


def _name(type_info: TypeInformation) -> object:
    return (type_info.name, type_info.field_names) if isinstance(type_info, RecordTypeInfo) else ()


def with_key_classes(type_info: TypeInformation) -> TypeInformation:
    """Type of a snapshot with the classes of undeclared keys; None for classes not found."""
    match type_info:
        case TupleTypeInfo(types):
            return TupleTypeInfo(list(map(with_key_classes, types)))
        case EnumTypeInfo(name, module=module) if module:
            return replace(type_info, python_class=_class(module, name))
        case RecordTypeInfo(name, field_types=types, module=module) if module:
            inner = tuple(map(with_key_classes, types))
            return replace(type_info, field_types=inner, python_class=_class(module, name))
        case _:
            return type_info


def _class(module: str, name: str) -> type | None:
    found = class_named(module, name)
    return found if isinstance(found, type) else None


def lacks_class(type_info: TypeInformation) -> bool:
    """True if the class of some part of the keys is unknown."""
    unknown = isinstance(type_info, RecordTypeInfo | EnumTypeInfo) and not type_info.python_class
    return unknown or any(map(lacks_class, type_info.children))


def with_numbers(type_info: TypeInformation) -> TypeInformation:
    """One type for undeclared keys that are equal: all whole numbers become plain numbers."""
    match type_info:
        case TupleTypeInfo(types):
            return TupleTypeInfo(list(map(with_numbers, types)))
        case RecordTypeInfo(field_types=types):
            return replace(type_info, field_types=tuple(map(with_numbers, types)))
        case _:
            return NumberTypeInfo(DOUBLE) if is_number(type_info) else type_info


def has_numbers(type_info: TypeInformation) -> bool:
    """True if some part of the keys hashes by value."""
    return is_number(type_info) or any(map(has_numbers, type_info.children))


def in_one_form(key: Any, type_info: TypeInformation) -> Any:
    """A key in the form in which all equal keys are written.

    Tuples with and without names may be mixed; each becomes what the type has.
    """
    match type_info:
        case NumberTypeInfo():
            return number_in_one_form(key)
        case TupleTypeInfo(types) if key is not None:
            return tuple(map(in_one_form, key, types))
        case RecordTypeInfo(kind="namedtuple", python_class=type() as named) if key is not None:
            return named(*map(in_one_form, key, type_info.field_types))
        case RecordTypeInfo(field_names=names, field_types=types) if key is not None:
            pairs = zip(names, types, strict=True)
            return type(key)(**{name: in_one_form(getattr(key, name), of) for name, of in pairs})
        case _:
            return key


def with_shared_parts(key: Any, seen: dict[object, Any]) -> Any:
    """A key whose equal parts are one object. seen: parts of earlier keys."""
    if isinstance(key, tuple):
        parts = (with_shared_parts(part, seen) for part in cast("tuple[Any, ...]", key))
        key = type(key)(*parts) if hasattr(key, "_fields") else tuple(parts)
    elif is_dataclass(key) and not isinstance(key, type):
        parts = {each.name: getattr(key, each.name) for each in fields(key)}
        key = type(key)(**{name: with_shared_parts(part, seen) for name, part in parts.items()})
    return seen.setdefault((type(key), key), key)

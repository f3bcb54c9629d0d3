"""Keys as plain Python objects, in one form for equal keys, and which types of keys are equal.

Numbers of NumPy become Python's, a text that is also a member of an enumeration becomes the text
that it equals, a list becomes a tuple, an instant moves to UTC, and a decimal loses zeros behind
its point. Impossible keys are refused here, with a remedy.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import importlib
import reprlib
import sys
from dataclasses import fields, is_dataclass, replace
from enum import Enum, Flag
from operator import attrgetter
from typing import Any, Final, cast

import numpy as np

from flinkformat import java_hash
from tidegate.errors import UnsupportedKey
from tidegate.typeinfo.types import (
    DOUBLE,
    LONG,
    PICKLED,
    UUID_CLASS,
    EnumTypeInfo,
    NumberTypeInfo,
    RecordTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    holds_pickled,
    with_children,
)

_DIGITS_MAX: Final = 4096
_LONG_BOUND: Final = 1 << 63
_AS_THEY_ARE: Final = frozenset(
    (str, bool, int, float, bytes, datetime.date, datetime.time, datetime.timedelta, UUID_CLASS)
)
_REMEDY: Final = (
    "Key by a text, a number, bytes, a date or time, a UUID, a member of an enumeration, a frozen "
    "dataclass, or a tuple of these; for example str(key)."
)


def plain_key(key: Any, where: str) -> Any:
    """The key that an object stands for. Raises UnsupportedKey for an impossible key.

    Tuples and objects of classes are given back as they are; their fields are keys of their own.
    """
    kind = type(key)
    if kind in _AS_THEY_ARE or kind is tuple:
        return key
    if kind is datetime.datetime:
        return key if key.tzinfo is None else _in_utc(key, where)
    if isinstance(key, decimal.Decimal):
        return plain_decimal(key, where)
    if isinstance(key, list):
        return tuple(cast("list[Any]", key))
    # NumPy's texts and bytes are Python's too, and `item` would drop NULs at their ends.
    if isinstance(key, np.generic) and not isinstance(key, str | bytes):
        return _of_numpy(key, where)
    if isinstance(key, tuple):
        return key if hasattr(key, "_fields") else tuple(cast("tuple[Any, ...]", key))
    base = _of_base(key)
    if base is not None:
        # A subclass may hold more than its base, such as nanoseconds of a time.
        if base != key:
            raise refusal(key, where, f"it does not equal {base!r}, which is all that a key keeps")
        return plain_key(base, where)
    if isinstance(key, Enum):
        _check_member(key, where)
        return key
    if is_dataclass(key):
        check_dataclass(kind, where)
        return key
    raise refusal(key, where, _reason(key))


def _of_numpy(key: Any, where: str) -> Any:
    plain = key.item()
    if isinstance(plain, np.generic):  # a long double, which Python has no type for
        plain = float(cast("Any", plain))
    if plain is None or (isinstance(key, np.datetime64 | np.timedelta64) and type(plain) is int):
        raise refusal(key, where, "it is not a time or duration in whole microseconds")
    if plain == plain and plain != key:
        raise refusal(key, where, "Python has no number that is equal to it")
    return plain_key(plain, where)


def _of_base(key: Any) -> Any:
    """Plain value that an IntEnum, StrEnum, Timestamp or the like equals; or None."""
    match key:
        case str():
            return str.__str__(key)
        case int():
            return int.__int__(key)
        case float():
            return float.__float__(key)
        case bytes():
            return bytes.join(b"", [key])
        case datetime.datetime():
            day = datetime.date(key.year, key.month, key.day)
            time = datetime.time(key.hour, key.minute, key.second, key.microsecond, key.tzinfo)
            return datetime.datetime.combine(day, time.replace(fold=key.fold))
        case datetime.date():
            return datetime.date(key.year, key.month, key.day)
        case datetime.timedelta():
            return datetime.timedelta(key.days, key.seconds, key.microseconds)
        case _:
            return None


def _in_utc(key: datetime.datetime, where: str) -> datetime.datetime:
    if key.tzinfo is datetime.UTC:
        return key
    try:
        return key.astimezone(datetime.UTC)
    except OverflowError:
        raise refusal(key, where, "it is out of the bounds of UTC") from None


def plain_decimal(key: decimal.Decimal, where: str) -> decimal.Decimal:
    """A decimal without trailing zeros, whole ones without an exponent: 1.10 becomes 1.1.

    Raises UnsupportedKey for a NaN, and for one of too many digits.
    """
    sign, digits, exponent = key.as_tuple()
    if key.is_nan():
        raise refusal_of_nan(key, where)
    if not isinstance(exponent, int):
        return key  # infinite
    if abs(key.adjusted()) > _DIGITS_MAX or len(digits) > _DIGITS_MAX:
        raise refusal(key, where, f"it has more than {_DIGITS_MAX} digits")
    if not any(digits):
        return decimal.Decimal(0)
    if exponent > 0:
        return decimal.Decimal((sign, digits + (0,) * exponent, 0))
    # Not by normalize(), which rounds to the precision of the context.
    while exponent < 0 and digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    return decimal.Decimal((sign, digits, exponent))


def check_dataclass(kind: Any, where: str) -> None:
    """Raises UnsupportedKey for a dataclass whose objects can't be keys."""
    parameters = kind.__dataclass_params__
    if not (parameters.frozen and parameters.eq):
        raise UnsupportedKey(
            f"A {kind.__name__} can't be a key: it can be changed",
            where=where,
            remedy=f"Declare {kind.__name__} with @dataclass(frozen=True).",
        )
    whole = all(each.init and each.compare for each in fields(kind))
    if not whole or hasattr(kind, "__post_init__"):
        raise UnsupportedKey(
            f"A {kind.__name__} can't be a key: it is more than its fields",
            where=where,
            remedy="Key by a tuple of the fields that tell two of them apart.",
        )


def _check_member(key: Enum, where: str) -> None:
    if isinstance(key, Flag) and key.name not in type(key).__members__:
        raise refusal(key, where, "it is several flags at once", "Key by its number: .value.")


def _reason(key: object) -> str:
    match key:
        case None:
            return "it stands for no value"
        case bytearray() | dict() | set() | np.ndarray():
            return "it can be changed"
        case complex() | fractions.Fraction():
            return "there is no encoding for numbers of this kind"
        case _:
            return "keys of this class are not supported"


def refusal(key: object, where: str, reason: str, remedy: str = _REMEDY) -> UnsupportedKey:
    """Error for an object that can't be a key."""
    kind = type(key)
    return UnsupportedKey(
        f"{reprlib.repr(key)} ({kind.__module__}.{kind.__qualname__}) can't be a key: {reason}",
        where=where,
        remedy=remedy,
    )


def refusal_of_nan(key: object, where: str) -> UnsupportedKey:
    """Error for a NaN, which does not equal itself, so that its state would never be found."""
    return refusal(
        key,
        where,
        "it equals no key, not even itself",
        "Filter such records out, or give them a key of their own, such as a text.",
    )


def code_of_number(key: float | decimal.Decimal) -> int:
    """Hash code of a number by value: that of the Java Long that it equals.

    Else that of the Double that it equals, and last of the BigDecimal. No NaN.
    """
    if isinstance(key, int):
        return java_hash.hash_long(key)
    if isinstance(key, float):
        if key.is_integer() and -_LONG_BOUND <= key < _LONG_BOUND:
            return java_hash.hash_long(int(key))
        return java_hash.hash_double(key)
    if key.is_finite() and key == key.to_integral_value() and -_LONG_BOUND <= key < _LONG_BOUND:
        return java_hash.hash_long(int(key))
    double = float(key)
    return java_hash.hash_double(double) if double == key else code_of_decimal(key)


def code_of_decimal(key: decimal.Decimal) -> int:
    """Hash code of a finite plain decimal, equal to that of a Java BigDecimal."""
    sign, digits, exponent = key.as_tuple()
    unscaled = int("".join(map(str, digits)))
    return java_hash.hash_big_decimal(-unscaled if sign else unscaled, -cast("int", exponent))


def number_in_one_form(key: Any) -> Any:
    """A number as the int or float that it equals, if any; so equal ones are written alike."""
    if isinstance(key, bool):
        return int(key)
    if isinstance(key, float):
        return int(key) if key.is_integer() and -_LONG_BOUND <= key < _LONG_BOUND else key
    if isinstance(key, decimal.Decimal):
        whole = key.is_finite() and key == key.to_integral_value()
        if whole and -_LONG_BOUND <= key < _LONG_BOUND:
            return int(key)
        return float(key) if float(key) == key else key
    return key


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
        case TupleTypeInfo():
            return with_children(type_info, with_key_classes)
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
        case TupleTypeInfo() | RecordTypeInfo():
            return with_children(type_info, with_numbers)
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

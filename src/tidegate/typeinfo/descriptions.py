"""Types as plain JSON values, the form in which a snapshot of state remembers them.

A basic type is its name, `"Long"`; others are an object with one key that says what they are:
`{"tuple": [...]}`, `{"list": ...}`, `{"map": [key, value]}`, `{"array": ...}`,
`{"row": [[name, type], ...]}`, `{"dataclass": name, "fields": [[name, type], ...]}` and the same
for a `namedtuple`, `{"enum": name}`, `{"number": type}`. The classes of undeclared keys also have
their `module`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.errors import FormatError, GraphError
from tidegate.typeinfo.types import (
    DURATION,
    INSTANT,
    INTEGER_BITS,
    PICKLED,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    UUID,
    BasicTypeInfo,
    EnumTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    NumberTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_DESCRIPTION: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    GraphError,
)
_BASIC: Final = frozenset(
    (*INTEGER_BITS, "String", "Boolean", "Float", "Double", "Char", "BigInteger", "BigDecimal")
)
_NAMED: Final[Mapping[str, TypeInformation]] = {
    "Pickled": PICKLED,
    "Date": SQL_DATE,
    "Time": SQL_TIME,
    "Timestamp": SQL_TIMESTAMP,
    "Instant": INSTANT,
    "Duration": DURATION,
    "UUID": UUID,
} | {name: BasicTypeInfo(name) for name in _BASIC}


def describe(type_info: TypeInformation) -> object:
    """Type as a JSON value; `type_described` is the inverse."""
    match type_info:
        case BasicTypeInfo(name) | SqlTimeTypeInfo(name):
            return name
        case PickledBytesTypeInfo():
            return "Pickled"
        case TupleTypeInfo():
            return {"tuple": [describe(each) for each in type_info.field_types]}
        case ListTypeInfo():
            return {"list": describe(type_info.element_type)}
        case PrimitiveArrayTypeInfo():
            return {"array": describe(type_info.element_type)}
        case MapTypeInfo():
            return {"map": [describe(type_info.key_type), describe(type_info.value_type)]}
        case RowTypeInfo():
            return {"row": _fields(type_info)}
        case RecordTypeInfo():
            described = {type_info.kind: type_info.name, "fields": _fields(type_info)}
            return described | _module(type_info)
        case EnumTypeInfo():
            return {"enum": type_info.name, **_module(type_info)}
        case NumberTypeInfo():
            return {"number": describe(type_info.of)}
        case _:
            raise AssertionError(f"no description of {type(type_info)}")


def type_described(description: object) -> TypeInformation:
    """Type of a description; records come without their class.

    Raises FormatError for what is no description.
    """
    try:
        return _type_described(description)
    except _NO_DESCRIPTION as error:
        raise FormatError(
            "A type in a snapshot can't be read",
            remedy="The snapshot may come from a newer release, or be damaged.",
            expected="the description of a type",
            found=repr(description)[:200],
        ) from error


def _fields(type_info: RowTypeInfo | RecordTypeInfo) -> list[list[object]]:
    pairs = zip(type_info.field_names, type_info.field_types, strict=True)
    return [[name, describe(each)] for name, each in pairs]


def _module(type_info: RecordTypeInfo | EnumTypeInfo) -> dict[str, object]:
    return {"module": type_info.module} if type_info.module else {}


def _type_described(description: Any) -> TypeInformation:
    if isinstance(description, str):
        return _NAMED[description]
    parts = cast("dict[str, Any]", description)
    if "fields" in parts:
        kind = "dataclass" if "dataclass" in parts else "namedtuple"
        names, types = _fields_described(parts["fields"])
        return RecordTypeInfo(
            str(parts[kind]), kind, tuple(names), tuple(types), module=str(parts.get("module", ""))
        )
    if "enum" in parts:
        return EnumTypeInfo(str(parts["enum"]), module=str(parts.get("module", "")))
    ((kind, inner),) = parts.items()
    match kind:
        case "tuple":
            return TupleTypeInfo([_type_described(each) for each in inner])
        case "list":
            return ListTypeInfo(_type_described(inner))
        case "array":
            return PrimitiveArrayTypeInfo(_type_described(inner))
        case "map":
            return MapTypeInfo(_type_described(inner[0]), _type_described(inner[1]))
        case "number":
            return NumberTypeInfo(_type_described(inner))
        case "row":
            names, types = _fields_described(inner)
            return RowTypeInfo(types, names)
        case _:
            raise KeyError(kind)


def _fields_described(fields: Any) -> tuple[list[str], list[TypeInformation]]:
    return [str(name) for name, _ in fields], [_type_described(each) for _, each in fields]

"""Types of values, under PyFlink's names: `Types.TUPLE([Types.STRING(), Types.LONG()])`.

A type is a frozen tree that compares by structure and prints as Flink prints it. It says how values
are encoded in state, what their Arrow column is and how keys are hashed; it never converts a value
by itself. Values without a declared type are pickled.
"""

from __future__ import annotations

import uuid  # noqa: TID251  # the class alone: ids are made by Chance
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal

from flinkformat.frozen import frozen
from tidegate.errors import GraphError

if TYPE_CHECKING:
    import datetime
    import decimal
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import TypeVar

    from flinkformat.row import Row  # noqa: F401  # stands in the base of RowTypeInfo

    # Only type checkers use the argument.
    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

E = TypeVar("E")
K = TypeVar("K")
V = TypeVar("V")


class TypeInformation(Generic[T_co]):
    """Type of the values of a stream or a state; the base of all types."""

    __slots__ = ()

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        """Types of the parts, in order."""
        return ()


@frozen(repr=False)
class BasicTypeInfo(TypeInformation):
    """A number, a text, a truth value; `name` is Flink's, such as `Integer` for INT."""

    name: str

    def __repr__(self) -> str:
        return self.name


@frozen(repr=False)
class SqlTimeTypeInfo(TypeInformation):
    """A date, a time of day or a date with time, all without zone."""

    name: Literal["Date", "Time", "Timestamp"]

    def __repr__(self) -> str:
        return f"SqlTimeTypeInfo({self.name})"


@frozen(repr=False)
class PickledBytesTypeInfo(TypeInformation):
    """Any picklable object, kept as its pickle."""

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


@frozen(repr=False)
class PrimitiveArrayTypeInfo(TypeInformation):
    """A list of numbers or truth values; of bytes, it is `bytes`."""

    element_type: TypeInformation

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return (self.element_type,)

    def __repr__(self) -> str:
        return f"PrimitiveArrayTypeInfo<{self.element_type}>"


@frozen(repr=False)
class ListTypeInfo(TypeInformation["list[Any]"]):
    """A `list`; Flink's basic and object arrays are lists too."""

    element_type: TypeInformation
    name: str = "ListTypeInfo"

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return (self.element_type,)

    def __repr__(self) -> str:
        return f"{self.name}<{self.element_type}>"


@frozen(repr=False)
class MapTypeInfo(TypeInformation["dict[Any, Any]"]):
    """A `dict` with keys of one type and values of another."""

    key_type: TypeInformation
    value_type: TypeInformation

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return (self.key_type, self.value_type)

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self.key_type}, {self.value_type}>"


@frozen(repr=False)
class TupleTypeInfo(TypeInformation["tuple[Any, ...]"]):
    """A `tuple` of a fixed length."""

    field_types: tuple[TypeInformation, ...]

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        object.__setattr__(self, "field_types", tuple(field_types))

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return self.field_types

    def get_field_types(self) -> list[TypeInformation]:
        """Types of the fields, as a list."""
        return list(self.field_types)

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self.field_types))})"


@frozen(repr=False)
class RowTypeInfo(TypeInformation["Row"]):
    """A `Row` with named fields; f0, f1, ... where no names are given."""

    field_types: tuple[TypeInformation, ...]
    field_names: tuple[str, ...]

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        names = tuple(field_names or (f"f{i}" for i in range(len(field_types))))
        _check_names(names, len(field_types))
        object.__setattr__(self, "field_types", tuple(field_types))
        object.__setattr__(self, "field_names", names)

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return self.field_types

    def get_field_types(self) -> list[TypeInformation]:
        """Types of the fields, as a list."""
        return list(self.field_types)

    def get_field_names(self) -> list[str]:
        """Names of the fields, as a list."""
        return list(self.field_names)

    def get_field_index(self, field_name: str) -> int:
        """Position of a field. Raises ValueError for an unknown name."""
        return self.field_names.index(field_name)

    def __repr__(self) -> str:
        return f"RowTypeInfo({_fields(self.field_names, self.field_types)})"


@frozen(repr=False)
class RecordTypeInfo(TypeInformation):
    """A dataclass or a NamedTuple of the user's, the counterpart of Flink's POJO.

    name: the class's name, for display. python_class: None in a type that was read from a snapshot.
    defaulted: names of the fields that have a default. module: where the class is imported from, of
    keys that nobody declared; else empty.
    """

    name: str
    kind: Literal["dataclass", "namedtuple"]
    field_names: tuple[str, ...]
    field_types: tuple[TypeInformation, ...]
    defaulted: frozenset[str] = field(default=frozenset(), compare=False)
    python_class: type | None = field(default=None, compare=False)
    module: str = field(default="", compare=False)

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return self.field_types

    def __repr__(self) -> str:
        return f"{self.name}({_fields(self.field_names, self.field_types)})"


@frozen(repr=False)
class EnumTypeInfo(TypeInformation):
    """Members of an enumeration of the user's, as keys; written by their names.

    name: the class's name, for display. python_class: None in a type that was read from a snapshot,
    `str` where names stand for members. module: as in RecordTypeInfo.
    """

    name: str
    python_class: type | None = field(default=None, compare=False)
    module: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"Enum({self.name})"


@frozen(repr=False)
class NumberTypeInfo(TypeInformation):
    """Numbers as keys of no declared type, compared by value alone.

    So 1.0, True and Decimal(1) are the key 1. of: the type of the first one, in which they are
    written; whole numbers are LONG, whose keys lie in the same places.
    """

    of: TypeInformation

    def __repr__(self) -> str:
        return f"Number({self.of})"


def _fields(names: Sequence[str], types: Sequence[TypeInformation]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True))


def _check_names(names: Sequence[str], count: int) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if len(names) != count or twice:
        fault = f"the names {twice} come twice" if twice else f"{len(names)} names"
        raise GraphError(
            f"A row of {count} fields can't be named {list(names)}: {fault}",
            where="Types.ROW_NAMED",
            remedy="Give each field one name of its own.",
        )


STRING: Final = BasicTypeInfo("String")
BYTE: Final = BasicTypeInfo("Byte")
BOOLEAN: Final = BasicTypeInfo("Boolean")
SHORT: Final = BasicTypeInfo("Short")
INT: Final = BasicTypeInfo("Integer")
LONG: Final = BasicTypeInfo("Long")
FLOAT: Final = BasicTypeInfo("Float")
DOUBLE: Final = BasicTypeInfo("Double")
CHAR: Final = BasicTypeInfo("Char")
BIG_INT: Final = BasicTypeInfo("BigInteger")
BIG_DEC: Final = BasicTypeInfo("BigDecimal")
INSTANT: Final = BasicTypeInfo("Instant")
DURATION: Final = BasicTypeInfo("Duration")
UUID: Final = BasicTypeInfo("UUID")
SQL_DATE: Final = SqlTimeTypeInfo("Date")
SQL_TIME: Final = SqlTimeTypeInfo("Time")
SQL_TIMESTAMP: Final = SqlTimeTypeInfo("Timestamp")
PICKLED: Final = PickledBytesTypeInfo()
BYTES: Final = PrimitiveArrayTypeInfo(BYTE)

UUID_CLASS: Final = uuid.UUID
INTEGER_BITS: Final = {"Byte": 8, "Short": 16, "Integer": 32, "Long": 64}
"""Width of the integer types, by name."""


class Types:
    """Makes types, under PyFlink's names; arguments by position as there."""

    @staticmethod
    def STRING() -> TypeInformation[str]:
        """Type of a Python `str`."""
        return STRING

    @staticmethod
    def BYTE() -> TypeInformation[int]:
        """Type of an `int` of 8 bits."""
        return BYTE

    @staticmethod
    def BOOLEAN() -> TypeInformation[bool]:
        """Type of a Python `bool`."""
        return BOOLEAN

    @staticmethod
    def SHORT() -> TypeInformation[int]:
        """Type of an `int` of 16 bits."""
        return SHORT

    @staticmethod
    def INT() -> TypeInformation[int]:
        """Type of an `int` of 32 bits."""
        return INT

    @staticmethod
    def LONG() -> TypeInformation[int]:
        """Type of an `int` of 64 bits."""
        return LONG

    @staticmethod
    def FLOAT() -> TypeInformation[float]:
        """Type of a `float` of single precision."""
        return FLOAT

    @staticmethod
    def DOUBLE() -> TypeInformation[float]:
        """Type of a `float` of double precision."""
        return DOUBLE

    @staticmethod
    def CHAR() -> TypeInformation[str]:
        """Type of a `str` of one character."""
        return CHAR

    @staticmethod
    def BIG_INT() -> TypeInformation[int]:
        """Type of an `int` without bounds."""
        return BIG_INT

    @staticmethod
    def BIG_DEC() -> TypeInformation[decimal.Decimal]:
        """Type of a `decimal.Decimal`."""
        return BIG_DEC

    @staticmethod
    def INSTANT() -> TypeInformation[Any]:
        """Type of a `datetime.datetime` with a zone."""
        return INSTANT

    @staticmethod
    def SQL_DATE() -> TypeInformation[datetime.date]:
        """Type of a `datetime.date`."""
        return SQL_DATE

    @staticmethod
    def SQL_TIME() -> TypeInformation[datetime.time]:
        """Type of a `datetime.time`."""
        return SQL_TIME

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation[datetime.datetime]:
        """Type of a `datetime.datetime` without a zone."""
        return SQL_TIMESTAMP

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation[Any]:
        """Type of any picklable object."""
        return PICKLED

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Type of a `Row` with the fields f0, f1, ..."""
        return RowTypeInfo(_parts(field_types, "Types.ROW"))

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str], field_types: Sequence[TypeInformation]
    ) -> RowTypeInfo:
        """Type of a `Row` with named fields."""
        return RowTypeInfo(_parts(field_types, "Types.ROW_NAMED"), field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """Type of a `tuple` of this length."""
        return TupleTypeInfo(_parts(field_types, "Types.TUPLE"))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation[Any]:
        """Type of a `list` of numbers or truth values; of BYTE, `bytes`."""
        element = _part(element_type, "Types.PRIMITIVE_ARRAY")
        if element not in _PRIMITIVE:
            raise _not_for("Types.PRIMITIVE_ARRAY", "numbers and truth values", element)
        return PrimitiveArrayTypeInfo(element)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation[E]) -> TypeInformation[list[E]]:
        """Type of a `list` whose elements have a basic type."""
        element = _part(element_type, "Types.BASIC_ARRAY")
        if not isinstance(element, BasicTypeInfo):
            raise _not_for("Types.BASIC_ARRAY", "basic types", element)
        return ListTypeInfo(element, "BasicArrayTypeInfo")

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation[E]) -> TypeInformation[list[E]]:
        """Type of a `list` of any type."""
        return ListTypeInfo(_part(element_type, "Types.OBJECT_ARRAY"), "ObjectArrayTypeInfo")

    @staticmethod
    def MAP(
        key_type_info: TypeInformation[K], value_type_info: TypeInformation[V]
    ) -> TypeInformation[dict[K, V]]:
        """Type of a `dict` with these keys and values."""
        return MapTypeInfo(_part(key_type_info, "Types.MAP"), _part(value_type_info, "Types.MAP"))

    @staticmethod
    def LIST(element_type_info: TypeInformation[E]) -> TypeInformation[list[E]]:
        """Type of a `list` with these elements."""
        return ListTypeInfo(_part(element_type_info, "Types.LIST"))


_PRIMITIVE: Final = frozenset({BOOLEAN, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, CHAR})


def _parts(given: Iterable[object], where: str) -> list[TypeInformation]:
    """Types of parts as a program gives them. Raises GraphError for what is no type."""
    try:
        parts = list(given)
    except TypeError:
        raise GraphError(
            f"{where} takes a list of types, not {_shown(given)}",
            where=where,
            remedy="Give one for each field, such as [Types.STRING(), Types.LONG()].",
        ) from None
    return [_part(each, where) for each in parts]


def _part(given: object, where: str) -> TypeInformation:
    if not isinstance(given, TypeInformation):
        raise GraphError(
            f"{where} takes types, not {_shown(given)}",
            where=where,
            remedy="Give one of Types, with its parentheses, such as Types.LONG().",
        )
    return given


def _shown(given: object) -> str:
    return str(getattr(given, "__qualname__", None) or repr(given))


def _not_for(where: str, parts: str, element: TypeInformation) -> GraphError:
    return GraphError(
        f"{where} is for {parts}, not {element}",
        where=where,
        remedy="Take Types.OBJECT_ARRAY or Types.LIST for elements of any type.",
    )


def written_as(type_info: TypeInformation) -> TypeInformation:
    """Type in which values are written; for undeclared numbers, the type of the first one."""
    return type_info.of if isinstance(type_info, NumberTypeInfo) else type_info


def with_children(
    type_info: TypeInformation, change: Callable[[TypeInformation], TypeInformation]
) -> TypeInformation:
    """The type with other types of its parts; types without parts stay as they are."""
    match type_info:
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of):
            return replace(type_info, element_type=change(of))
        case MapTypeInfo(key, value):
            return MapTypeInfo(change(key), change(value))
        case TupleTypeInfo(types) | RowTypeInfo(types) | RecordTypeInfo(field_types=types):
            return replace(type_info, field_types=tuple(map(change, types)))
        case _:
            return type_info


def holds_pickled(type_info: TypeInformation) -> bool:
    """True if some part of a value of this type can only be pickled."""
    return type_info == PICKLED or any(map(holds_pickled, type_info.children))


def names_of(type_info: TypeInformation) -> tuple[str, ...]:
    """Names of a type's fields; f0, f1, ... of a tuple, empty for types without fields."""
    match type_info:
        case RowTypeInfo() | RecordTypeInfo():
            return type_info.field_names
        case TupleTypeInfo(types):
            return tuple(f"f{i}" for i in range(len(types)))
        case _:
            return ()


def is_any(type_info: TypeInformation | None) -> bool:
    """True if a type says nothing about its values."""
    return type_info is None or type_info == PICKLED

"""Converts values to a declared type, a batch at a time.

A tuple becomes a `Row` where a row is declared, a `Row` a tuple where a tuple is; FLOAT narrows to
single precision, times lose what is below a millisecond; numbers of NumPy become Python's. None is
legal anywhere. A value that can't be converted is refused, with its field.

Values that are of the type as they are stay the objects that they are, which is seen from the types
of whole columns; what is left of plain types, and of tuples and rows of them, goes through msgspec
as a whole batch (benchmarks/convert.py); other batches, and those with a value that has to change
in another way, value by value.
"""

from __future__ import annotations

import datetime
import decimal
import operator
import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec

from flinkformat.row import Row, RowKind, kind_of_row, names_of_row, values_of_row
from tidegate.errors import with_article
from tidegate.loops.forms import INTERPRETED
from tidegate.model.duration import Instant
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INSTANT,
    INTEGER_BITS,
    LONG,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    names_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.loops.forms import Loops

    Convert = Callable[[Any], Any]


class Misfit(Exception):
    """A value that is not of the type and cannot be converted.

    index: of the value in its batch. path: of the field in the value, outermost first.
    """

    def __init__(self, expected: TypeInformation, value: object, reason: str = "") -> None:
        super().__init__(expected, value, reason)
        self.expected = expected
        self.value = value
        self.reason = reason
        self.index = 0
        self.path: tuple[str, ...] = ()

    def __str__(self) -> str:
        field = f"field '{'.'.join(self.path)}': " if self.path else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{field}{self.value!r} is not of type {self.expected}{reason}"


class Converter:
    """Brings batches of values to a type."""

    def __init__(self, type_info: TypeInformation, loops: Loops = INTERPRETED) -> None:
        self._loops = loops
        self._type = type_info
        self._convert = _converter(type_info)
        self._columns = _columns(type_info)
        self._is_unbounded = all(bound is None for _, bound in self._columns)
        self._shape = _shape(type_info)

    def batch(self, values: list[object]) -> list[object]:
        """Values of the type; the same list if all are so already. Raises Misfit."""
        if self._columns and self._fit(values, self._columns):
            return values
        if self._shape is not None and (parts := self._plain_parts(values)) is not None:
            try:
                plain = msgspec.convert(parts, self._shape)
            except msgspec.ValidationError:
                pass
            else:
                return plain if self._row_names is None else self._rows(plain, values)
        return values if self._convert is None else self._one_by_one(values, self._convert)

    def _fit(self, values: list[object], columns: Sequence[_Fitting]) -> bool:
        if isinstance(self._type, RecordTypeInfo):
            return self._records_fit(values, columns)
        is_tuple, loops = isinstance(self._type, TupleTypeInfo), self._loops
        if loops.tuples_fit is not None and loops.scalars_fit is not None and self._is_unbounded:
            kinds = [kind for kind, _ in columns]
            return (
                loops.tuples_fit(values, kinds) if is_tuple else loops.scalars_fit(values, kinds[0])
            )
        if not is_tuple:
            return _all_fit(columns[0], values)
        if set(map(type, values)) != {tuple}:
            return False
        try:
            parts = list(zip(*cast("list[tuple[object, ...]]", values), strict=True))
        except ValueError:
            return False  # they differ in length
        return len(parts) == len(columns) and all(map(_all_fit, columns, parts))

    def _records_fit(self, values: list[object], columns: Sequence[_Fitting]) -> bool:
        assert isinstance(self._type, RecordTypeInfo), "the type says so"
        if set(map(type, values)) != {self._type.python_class}:
            return False
        try:
            parts = [list(map(attrgetter(name), values)) for name in self._type.field_names]
        except AttributeError:
            return False
        return all(map(_all_fit, columns, parts))

    @property
    def _row_names(self) -> tuple[str, ...] | None:
        return self._type.field_names if isinstance(self._type, RowTypeInfo) else None

    def _plain_parts(self, values: list[object]) -> Sequence[object] | None:
        """Parts for msgspec to check: values, tuples, or fields of rows; None for a mixture."""
        if not isinstance(self._type, TupleTypeInfo | RowTypeInfo):
            return values
        kinds = set(map(type, values))
        if kinds == {tuple}:
            return values
        if self._row_names is None or kinds != {Row}:
            return None
        if set(map(names_of_row, values)) <= {None, self._row_names}:
            return list(map(values_of_row, values))
        return None

    def _rows(self, parts: list[tuple[object, ...]], given: list[object]) -> list[object]:
        names = cast("tuple[str, ...]", self._row_names)
        rows: list[object] = [Row.named(names, list(each)) for each in parts]
        if type(given[0]) is Row:
            for row, kind in zip(rows, map(kind_of_row, given), strict=True):
                if kind is not RowKind.INSERT:
                    cast("Row", row).set_row_kind(kind)
        return rows

    def _one_by_one(self, values: list[object], convert: Convert) -> list[object]:
        if isinstance(self._type, TupleTypeInfo):
            self._check_each_is_itself(values)
        converted: list[object] = []
        try:
            converted.extend(map(convert, values))
        except Misfit as misfit:
            misfit.index = len(converted)
            raise
        return converted

    def _check_each_is_itself(self, values: list[object]) -> None:
        """Refuses a list or Row that occurs twice, since it has the content of its last use.

        Values of types that can change are copied as they are emitted; tuples are not.
        """
        changeable = [id(value) for value in values if isinstance(value, list | Row)]
        if len(set(changeable)) == len(changeable):
            return
        again = next(
            index
            for index, value in enumerate(values)
            if isinstance(value, list | Row) and changeable.count(id(value)) > 1
        )
        misfit = Misfit(self._type, values[again], "the same object was given for several records")
        misfit.index = again
        raise misfit


_Fitting = tuple[type, int | None]
"""The Python type whose values fit a column, and what numbers have to be below, if anything."""


def _columns(type_info: TypeInformation) -> tuple[_Fitting, ...]:
    """Python types that fit each column; empty if types alone can't tell."""
    has_fields = isinstance(type_info, TupleTypeInfo | RecordTypeInfo)
    fields = type_info.children if has_fields else (type_info,)
    columns = tuple(_fitting(field) for field in fields)
    return tuple(each for each in columns if each is not None) if None not in columns else ()


def _fitting(type_info: TypeInformation) -> _Fitting | None:
    if isinstance(type_info, BasicTypeInfo) and type_info.name in _NARROW:
        return int, _NARROW[type_info.name]
    fits = _FITTING.get(type_info)
    return None if fits is None else (fits, None)


def _all_fit(column: _Fitting, values: Sequence[Any]) -> bool:
    fits, bound = column
    kinds = set(map(type, values))
    nulls = type(None) in kinds
    if not kinds <= {fits, type(None)}:
        return False
    if bound is None:
        return True
    numbers = [value for value in values if value is not None] if nulls else values
    return not numbers or (-bound <= min(numbers) and max(numbers) < bound)


def _shape(type_info: TypeInformation) -> Any:
    """Shape of the batch for msgspec; None if it can't check it, or if values may change."""
    if isinstance(type_info, TupleTypeInfo | RowTypeInfo):
        leaves = [_leaf(each) for each in type_info.field_types]
        if not leaves or None in leaves:
            return None
        return list[tuple[tuple(each | None for each in leaves)]]  # type: ignore[misc]
    leaf = _leaf(type_info)
    return None if leaf is None else list[leaf | None]


def _leaf(type_info: TypeInformation) -> Any:
    if isinstance(type_info, BasicTypeInfo) and type_info.name in _NARROW:
        bound = _NARROW[type_info.name]
        return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
    return _LEAVES.get(type_info)


_LEAVES: Final[dict[TypeInformation, type]] = {
    LONG: int,
    STRING: str,
    DOUBLE: float,
    BOOLEAN: bool,
}
_FITTING: Final[dict[TypeInformation, type]] = {
    **_LEAVES,
    BYTES: bytes,
    BIG_INT: int,
    BIG_DEC: decimal.Decimal,
    SQL_DATE: datetime.date,
}
_NARROW: Final = {name: 2 ** (bits - 1) for name, bits in INTEGER_BITS.items() if bits < 64}
"""What an integer has to be below. A LONG is not looked at: that would cost as much again as the
rest of the check, and a greater number is refused by name where it becomes a column or a key."""


def _converter(type_info: TypeInformation) -> Convert | None:
    """Function that converts one value; None if any value fits."""
    match type_info:
        case TupleTypeInfo():
            return _Fields(type_info).as_tuple
        case RowTypeInfo():
            return _Fields(type_info).as_row
        case RecordTypeInfo(python_class=type()):
            return _Fields(type_info).as_record
        case MapTypeInfo():
            return _map_converter(type_info)
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if type_info != BYTES:
            return _list_converter(type_info, of)
        case BasicTypeInfo(name) if name in _NARROW:
            return _integer_converter(type_info, _NARROW[name])
        case _ if type_info in _SCALARS:
            return _scalar_converter(type_info, _SCALARS[type_info])
        case _:
            return None


def _scalar_converter(type_info: TypeInformation, bring: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return bring(value)
        except _Refused as refused:
            raise Misfit(type_info, value, str(refused)) from None

    return convert


class _Refused(Exception):
    """Reason why a value is not of a scalar type."""


def _integer_converter(type_info: TypeInformation, bound: int) -> Convert:
    def bring(value: Any) -> int:
        number = _integer(value)
        if not -bound <= number < bound:
            raise _Refused(f"it is not in [{-bound}, {bound - 1}]")
        return number

    return _scalar_converter(type_info, bring)


def _integer(value: Any) -> int:
    # Accepts all kinds of whole numbers, including NumPy's and bool.
    try:
        return int(operator.index(value))
    except TypeError:
        raise _Refused from None


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str | bytes | decimal.Decimal) or not hasattr(value, "__float__"):
        raise _Refused
    try:
        return float(value)
    except (TypeError, OverflowError) as error:
        raise _Refused(str(error)) from None


def single(value: float) -> float:
    """Rounds to single precision; infinity beyond its range."""
    try:
        return cast("float", _SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


_SINGLE: Final = struct.Struct("f")


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value).__name__ in ("bool", "bool_") and hasattr(value, "dtype"):
        return bool(value)
    raise _Refused


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _Refused


def _char(value: Any) -> str:
    if isinstance(value, str) and len(value) == 1:
        return value
    raise _Refused("a CHAR is a text of one character")


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _Refused


def _decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, decimal.Decimal):
        return value
    if type(value) is int:
        return decimal.Decimal(value)
    raise _Refused


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        raise _Refused("it has a time of day; use .date()")
    if isinstance(value, datetime.date):
        return value
    raise _Refused


def _time(value: Any) -> datetime.time:
    if not isinstance(value, datetime.time):
        raise _Refused
    return _of_millis(value)


def _timestamp(value: Any) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        raise _Refused
    return _of_millis(value)


def _of_millis(value: Any) -> Any:
    if value.tzinfo is not None:
        raise _Refused("it has a zone; only INSTANT has one")
    below = value.microsecond % 1000
    return value.replace(microsecond=value.microsecond - below) if below else value


def _instant(value: Any) -> object:
    if isinstance(value, Instant):
        return value
    if isinstance(value, datetime.datetime) and value.utcoffset() is not None:
        return value
    raise _Refused("an INSTANT is an Instant, or a datetime with a zone")


_SCALARS: Final[dict[TypeInformation, Convert]] = {
    STRING: _text,
    CHAR: _char,
    BOOLEAN: _boolean,
    DOUBLE: _float,
    FLOAT: lambda value: single(_float(value)),
    LONG: _integer,
    BIG_INT: _integer,
    BIG_DEC: _decimal,
    BYTES: _bytes,
    SQL_DATE: _date,
    SQL_TIME: _time,
    SQL_TIMESTAMP: _timestamp,
    INSTANT: _instant,
}


def _list_converter(type_info: TypeInformation, of: TypeInformation) -> Convert:
    element = _converter(of)

    def convert(value: Any) -> list[Any] | None:
        if value is None:
            return None
        if isinstance(value, list | tuple):
            elements = list(cast("Sequence[Any]", value))
        elif hasattr(value, "tolist"):
            # Arrays of NumPy and of `array`.
            elements = cast("list[Any]", value.tolist())
        else:
            raise Misfit(type_info, value)
        if element is None:
            return elements
        converted: list[Any] = []
        try:
            converted.extend(map(element, elements))
        except Misfit as misfit:
            misfit.path = (f"[{len(converted)}]", *misfit.path)
            raise
        return converted

    return convert


def _map_converter(type_info: MapTypeInfo) -> Convert:
    key, of = _converter(type_info.key_type), _converter(type_info.value_type)

    def convert(value: Any) -> dict[Any, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Misfit(type_info, value)
        converted: dict[Any, Any] = {}
        name: object = None
        try:
            for name, entry in cast("dict[Any, Any]", value).items():
                converted[name if key is None else key(name)] = entry if of is None else of(entry)
        except Misfit as misfit:
            misfit.path = (f"[{name!r}]", *misfit.path)
            raise
        return converted

    return convert


class _Fields:
    """Base of tuples, rows and records: values in order, each of its own type."""

    def __init__(self, type_info: TupleTypeInfo | RowTypeInfo | RecordTypeInfo) -> None:
        self._type = type_info
        self._names = names_of(type_info)
        self._converters = tuple(map(_converter, type_info.children))

    def as_tuple(self, value: Any) -> tuple[Any, ...] | None:
        return None if value is None else tuple(self._converted(self._parts(value)))

    def as_row(self, value: Any) -> Row | None:
        if value is None:
            return None
        row = Row.named(self._names, self._converted(self._parts(value)))
        if isinstance(value, Row):
            row.set_row_kind(value.get_row_kind())
        return row

    def as_record(self, value: Any) -> object:
        if value is None:
            return None
        fields = dict(zip(self._names, self._converted(self._parts(value)), strict=True))
        return cast("RecordTypeInfo", self._type).python_class(**fields)  # type: ignore[misc]

    def _converted(self, parts: Sequence[Any]) -> list[Any]:
        converted: list[Any] = []
        try:
            for convert, part in zip(self._converters, parts, strict=True):
                converted.append(part if convert is None else convert(part))
        except Misfit as misfit:
            misfit.path = (self._names[len(converted)], *misfit.path)
            raise
        return converted

    def _parts(self, value: Any) -> Sequence[Any]:
        kind = type(value)
        if isinstance(self._type, RecordTypeInfo):
            if kind is self._type.python_class:
                return [getattr(value, name) for name in self._names]
            if hasattr(value, "__dataclass_fields__") or hasattr(value, "_fields"):
                raise Misfit(self._type, value, f"it is {with_article(kind)}")
        if kind is Row:
            return self._parts_of_row(value)
        if isinstance(value, tuple | list):
            parts = cast("Sequence[Any]", value)
            if len(parts) != len(self._names):
                raise Misfit(self._type, value, self._other_length(len(parts)))
            return parts
        if isinstance(value, dict) and not isinstance(self._type, TupleTypeInfo):
            return self._parts_by_name(cast("dict[str, Any]", value), value)
        raise Misfit(self._type, value)

    def _parts_of_row(self, row: Row) -> Sequence[Any]:
        names = row.names
        if names is not None and names != self._names and not isinstance(self._type, TupleTypeInfo):
            common = set(names) & set(self._names)
            if common:
                return self._parts_by_name(row.as_dict(), row)
        if len(row) != len(self._names):
            raise Misfit(self._type, row, self._other_length(len(row)))
        return list(row)

    def _parts_by_name(self, parts: dict[str, Any], value: object) -> Sequence[Any]:
        missing = [name for name in self._names if name not in parts]
        beyond = [name for name in parts if name not in self._names]
        if missing or beyond:
            faults = [f"the field {name!r} is missing" for name in missing]
            faults += [f"there is no field {name!r}" for name in beyond]
            raise Misfit(self._type, value, ", ".join(faults))
        return [parts[name] for name in self._names]

    def _other_length(self, found: int) -> str:
        return f"it has {found} fields, not {len(self._names)}"

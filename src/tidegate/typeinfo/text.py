"""Values of a declared type as text, in the form in which a program for PyFlink prints them.

There Java prints them, numbers in its own form; a stream of rows is printed by Python, field by
field, while Java prints a row within another value.
"""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.model.duration import Instant
from tidegate.typeinfo.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INSTANT,
    SQL_TIME,
    SQL_TIMESTAMP,
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RecordTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    is_any,
    names_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Text = Callable[[Any], str]


def text_of(type_info: TypeInformation | None) -> Callable[[object], str]:
    """Function that prints a value of a type: ``(a,1)``, ``+I[a,True]``, ``[1, 2]``, ``null``.

    A value without a declared type is what ``str`` makes of it.
    """
    if isinstance(type_info, RowTypeInfo):
        return _row_text
    return _java_text(type_info)


def _row_text(row: Any) -> str:
    return "null" if row is None else f"{row.get_row_kind()}[{','.join(map(str, row))}]"


def _java_text(type_info: TypeInformation | None) -> Callable[[object], str]:
    if type_info is None or is_any(type_info):
        return str
    text = _text(type_info)
    return lambda value: "null" if value is None else text(value)


def _text(type_info: TypeInformation) -> Text:
    match type_info:
        case TupleTypeInfo(types):
            parts = [_java_text(each) for each in types]
            return lambda value: f"({','.join(_texts(parts, value))})"
        case RowTypeInfo(types):
            parts = [_java_text(each) for each in types]
            return lambda row: f"{row.get_row_kind()}[{', '.join(_texts(parts, row))}]"
        case RecordTypeInfo():
            return _record_text(type_info)
        case MapTypeInfo(key, of):
            of_key, of_value = _java_text(key), _java_text(of)
            return lambda entries: (
                f"{{{', '.join(f'{of_key(k)}={of_value(v)}' for k, v in entries.items())}}}"
            )
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if type_info != BYTES:
            element = _java_text(of)
            return lambda values: f"[{', '.join(map(element, values))}]"
        case _:
            return _PLAIN.get(type_info, str)


def _texts(parts: list[Callable[[object], str]], values: Any) -> Iterable[str]:
    return (text(value) for text, value in zip(parts, values, strict=True))


def _record_text(type_info: RecordTypeInfo) -> Text:
    parts = [_java_text(each) for each in type_info.field_types]
    named = list(zip(names_of(type_info), parts, strict=True))
    return lambda record: (
        f"{type_info.name}({','.join(f'{n}={text(getattr(record, n))}' for n, text in named)})"
    )


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _double_text(value: float) -> str:
    shortest = repr(float(value))
    if 1e-3 <= abs(value) < 1e7:
        return shortest  # in which range Python writes as Java does
    return _java_number(value, shortest)


def _single_text(value: float) -> str:
    single = struct.pack("f", value)
    shortened = (f"{value:.{digits}e}" for digits in range(8))
    same = (text for text in shortened if struct.pack("f", float(text)) == single)
    return _java_number(value, next(same, f"{value:.8e}"))


def _java_number(value: float, shortest: str) -> str:
    """A number as ``Double.toString`` prints it. shortest: with the fewest digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return str(value)
    number = Decimal(shortest).normalize()
    sign, digits, _ = number.as_tuple()
    if len(digits) == 1:
        # Of the numbers with two digits Java takes the nearest: 4.9E-324.
        sign, digits, _ = Decimal(f"{value:.1e}").normalize().as_tuple()
    exponent = number.adjusted()
    if -3 <= exponent < 7:
        text = f"{number:f}"
        return text if "." in text else f"{text}.0"
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{exponent}"


def _bytes_text(value: bytes) -> str:
    # Java's bytes have a sign.
    return f"[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in value)}]"


def _time_text(value: datetime.time) -> str:
    return value.strftime("%H:%M:%S")


def _timestamp_text(value: datetime.datetime) -> str:
    fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
    return f"{value.replace(microsecond=0, tzinfo=None).isoformat(' ')}.{fraction}"


def _instant_text(value: Instant | datetime.datetime) -> str:
    if isinstance(value, Instant):
        moment = _EPOCH + datetime.timedelta(seconds=value.seconds)
        nanos = value.nanos
    else:
        moment = value.astimezone(datetime.UTC)
        nanos = 1_000 * moment.microsecond
    # Three digits at a time, as java.time prints them.
    fraction = f".{nanos:09d}" if nanos else ""
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}Z"


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PLAIN: Final = cast(
    "dict[TypeInformation, Text]",
    {
        BOOLEAN: _boolean_text,
        DOUBLE: _double_text,
        FLOAT: _single_text,
        BYTES: _bytes_text,
        SQL_TIME: _time_text,
        SQL_TIMESTAMP: _timestamp_text,
        INSTANT: _instant_text,
    },
)

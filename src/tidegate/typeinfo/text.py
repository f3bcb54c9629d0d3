"""Values of a declared type as text, in the form in which Flink prints them."""

from __future__ import annotations

import datetime
import struct
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.model.duration import Instant
from tidegate.typeinfo.types import (
    BOOLEAN,
    BYTES,
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
    from collections.abc import Callable

    Text = Callable[[Any], str]


def text_of(type_info: TypeInformation | None) -> Callable[[object], str]:
    """What makes a text of each value of a type: ``(a,1)``, ``+I[a,true]``, ``[1, 2]``, ``null``.

    A value without a declared type is what ``str`` makes of it.
    """
    if type_info is None or is_any(type_info):
        return str
    text = _text(type_info)
    return lambda value: "null" if value is None else text(value)


def _text(type_info: TypeInformation) -> Text:
    match type_info:
        case TupleTypeInfo(types):
            parts = [text_of(each) for each in types]
            return lambda value: f"({_joined(parts, value)})"
        case RowTypeInfo(types):
            parts = [text_of(each) for each in types]
            return lambda row: f"{row.get_row_kind()}[{_joined(parts, row)}]"
        case RecordTypeInfo():
            return _record_text(type_info)
        case MapTypeInfo(key, of):
            of_key, of_value = text_of(key), text_of(of)
            return lambda entries: (
                f"{{{', '.join(f'{of_key(k)}={of_value(v)}' for k, v in entries.items())}}}"
            )
        case ListTypeInfo(of) | PrimitiveArrayTypeInfo(of) if type_info != BYTES:
            element = text_of(of)
            return lambda values: f"[{', '.join(map(element, values))}]"
        case _:
            return _PLAIN.get(type_info, str)


def _joined(parts: list[Callable[[object], str]], values: Any) -> str:
    return ",".join(text(value) for text, value in zip(parts, values, strict=True))


def _record_text(type_info: RecordTypeInfo) -> Text:
    parts = [text_of(each) for each in type_info.field_types]
    named = list(zip(names_of(type_info), parts, strict=True))
    return lambda record: (
        f"{type_info.name}({','.join(f'{n}={text(getattr(record, n))}' for n, text in named)})"
    )


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _single_text(value: float) -> str:
    """The shortest text that stands for the same single."""
    for digits in range(6, 10):
        text = repr(float(f"{value:.{digits}g}"))
        if struct.pack("f", float(text)) == struct.pack("f", value):
            return text
    return repr(value)


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
        FLOAT: _single_text,
        BYTES: _bytes_text,
        SQL_TIME: _time_text,
        SQL_TIMESTAMP: _timestamp_text,
        INSTANT: _instant_text,
    },
)

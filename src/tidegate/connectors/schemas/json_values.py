"""Values of declared types in JSON: how they are read from decoded JSON, and how written."""

from __future__ import annotations

import base64
import datetime
import decimal
import re
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from flinkformat.row import Row
from tidegate.model.duration import Instant
from tidegate.typeinfo.convert import Converter, Misfit
from tidegate.typeinfo.types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    BYTE,
    BYTES,
    DOUBLE,
    FLOAT,
    INSTANT,
    INT,
    LONG,
    SHORT,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    ListTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.typeinfo.types import TypeInformation

    Bring = Callable[[Any], Any]

_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001
_NO_OFFSET: Final = datetime.timedelta(0)
_NANOS: Final = re.compile(r"[.,](\d{7,9})")
_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
_WHOLE: Final = (BYTE, SHORT, INT, LONG, BIG_INT)


def decoder_of(type_info: TypeInformation) -> Callable[[bytes], Any]:
    """Decodes JSON. Numbers with a fraction are decimals where the type has some, else floats."""
    if _holds_decimals(type_info):
        return msgspec.json.Decoder(float_hook=_exact).decode
    return msgspec.json.decode


def _holds_decimals(type_info: TypeInformation) -> bool:
    return type_info == BIG_DEC or any(map(_holds_decimals, type_info.children))


def _exact(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:
        raise ValueError(f"the number {text} is out of range") from None


def reader_of(type_info: TypeInformation, *, fail_on_missing: bool) -> Bring:
    """Function that brings a decoded JSON value close enough to the type for its converter.

    It raises ValueError for a text that is no such value.
    """
    if isinstance(type_info, RowTypeInfo):
        return _row_reader(type_info, fail_on_missing)
    if isinstance(type_info, ListTypeInfo):
        element = reader_of(type_info.element_type, fail_on_missing=fail_on_missing)
        return lambda value: list(map(element, value)) if isinstance(value, list) else value
    if isinstance(type_info, MapTypeInfo):
        key = _whole if type_info.key_type in _WHOLE else _as_it_is
        of = reader_of(type_info.value_type, fail_on_missing=fail_on_missing)
        return lambda value: (
            {key(name): of(entry) for name, entry in cast("dict[Any, Any]", value).items()}
            if isinstance(value, dict)
            else value
        )
    return _READS.get(type_info, _with_floats)


def _row_reader(type_info: RowTypeInfo, fail_on_missing: bool) -> Bring:
    names = tuple(type_info.get_field_names())
    readers = [
        reader_of(field, fail_on_missing=fail_on_missing) for field in type_info.get_field_types()
    ]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, Any]", value)
        if fail_on_missing and (missing := [name for name in names if name not in fields]):
            raise ValueError(f"the fields {missing} are missing")
        values: list[object] = [
            None if fields.get(name) is None else reader(fields[name])
            for name, reader in zip(names, readers, strict=True)
        ]
        return Row.named(names, values)

    return read


def _with_floats(value: Any) -> Any:
    """A value of a type without decimals, in a document that is decoded with some."""
    if isinstance(value, decimal.Decimal):
        number = float(value)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"the number {value} is out of range")
        return number
    if isinstance(value, list):
        return list(map(_with_floats, cast("list[Any]", value)))
    if isinstance(value, dict):
        return {k: _with_floats(each) for k, each in cast("dict[str, Any]", value).items()}
    return value


def _as_it_is(value: Any) -> Any:
    return value


def _whole(text: str) -> int:
    if re.fullmatch(r"-?[0-9]+", text) is None:
        raise ValueError(f"the key {text!r} is not a whole number")
    return int(text)


def _decimal(value: Any) -> Any:
    # A truth value is an int to Python, and no number to anybody else.
    if type(value) is int:
        return decimal.Decimal(value)
    if isinstance(value, str) and (number := _exact(value)).is_finite():
        return number
    return value


def _of_text(parse: Callable[[str], object]) -> Bring:
    def read(value: Any) -> Any:
        return parse(value) if isinstance(value, str) else value

    return read


def _without_zone(parse: Callable[[str], Any]) -> Bring:
    """Times have no zone; UTC is what Flink writes behind each."""

    def read(text: str) -> Any:
        value = parse(text)
        return value.replace(tzinfo=None) if value.utcoffset() == _NO_OFFSET else value

    return _of_text(read)


def _instant(text: str) -> object:
    at = datetime.datetime.fromisoformat(text)
    finer = _NANOS.search(text)
    if finer is None or at.tzinfo is None:
        return at
    seconds = int(at.replace(microsecond=0).timestamp())
    return Instant(seconds, int(finer[1].ljust(9, "0")))


_READS: Final[dict[TypeInformation, Bring]] = {
    BYTES: _of_text(lambda text: base64.b64decode(text, validate=True)),
    BIG_DEC: _decimal,
    SQL_DATE: _of_text(datetime.date.fromisoformat),
    SQL_TIME: _without_zone(datetime.time.fromisoformat),
    SQL_TIMESTAMP: _without_zone(datetime.datetime.fromisoformat),
    INSTANT: _of_text(_instant),
}


def writer_of(type_info: TypeInformation) -> Bring:
    """Function that makes a value of a type what the encoder takes. It raises Misfit."""
    if isinstance(type_info, RowTypeInfo):
        return _row_writer(type_info)
    if isinstance(type_info, ListTypeInfo):
        return _list_writer(type_info)
    if isinstance(type_info, MapTypeInfo):
        return _map_writer(type_info)
    convert = Converter(type_info)
    kind, write = _PLAIN.get(type_info), _WRITES.get(type_info, _as_it_is)

    def of_type(value: Any) -> Any:
        if value is None or type(value) is kind:
            return value
        return write(convert.batch([value])[0])

    if type_info == LONG:
        return lambda value: (
            value if type(value) is int and _LONG_MIN <= value <= _LONG_MAX else of_type(value)
        )
    if (timed := _TIMED.get(type_info)) is not None:
        return lambda value: (
            value if type(value) is timed and value.tzinfo is None else of_type(value)
        )
    return of_type


def _row_writer(type_info: RowTypeInfo) -> Bring:
    names = tuple(type_info.get_field_names())
    writers = list(map(writer_of, type_info.get_field_types()))

    def write(value: Any) -> Any:
        if value is None:
            return None
        parts = _parts(type_info, value)
        written: dict[str, Any] = {}
        try:
            for name, of, part in zip(names, writers, parts, strict=True):
                written[name] = of(part)
        except Misfit as misfit:
            misfit.path = (names[len(written)], *misfit.path)
            raise
        return written

    return write


def _parts(type_info: RowTypeInfo, value: Any) -> Sequence[Any]:
    """The fields of a row, a dict or a sequence; a dict may have more. Raises Misfit."""
    names = type_info.get_field_names()
    fields: Any = value.as_dict() if isinstance(value, Row) and value.names else value
    if isinstance(fields, dict):
        if missing := [name for name in names if name not in fields]:
            raise Misfit(type_info, value, f"the fields {missing} are missing")
        return [fields[name] for name in names]
    if not isinstance(fields, Row | tuple | list):
        raise Misfit(type_info, value)
    parts = list(cast("Sequence[Any]", fields))
    if len(parts) != len(names):
        raise Misfit(type_info, value, f"it has {len(parts)} fields, not {len(names)}")
    return parts


def _list_writer(type_info: ListTypeInfo) -> Bring:
    element = writer_of(type_info.element_type)

    def write(value: Any) -> Any:
        if value is None:
            return None
        elements = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(elements, list | tuple):
            raise Misfit(type_info, value)
        written: list[Any] = []
        try:
            written.extend(map(element, cast("Sequence[Any]", elements)))
        except Misfit as misfit:
            misfit.path = (f"[{len(written)}]", *misfit.path)
            raise
        return written

    return write


def _map_writer(type_info: MapTypeInfo) -> Bring:
    key, of = writer_of(type_info.key_type), writer_of(type_info.value_type)

    def write(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise Misfit(type_info, value)
        written: dict[Any, Any] = {}
        name: object = None
        try:
            for name, entry in cast("dict[Any, Any]", value).items():
                written[key(name)] = of(entry)
        except Misfit as misfit:
            misfit.path = (f"[{name!r}]", *misfit.path)
            raise
        return written

    return write


def _finite(value: decimal.Decimal) -> decimal.Decimal:
    if not value.is_finite():
        raise Misfit(BIG_DEC, value, "JSON has no such number")
    return value


def _long(value: int) -> int:
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise Misfit(LONG, value, f"it is not in [{_LONG_MIN}, {_LONG_MAX}]")
    return value


def _instant_text(value: Any) -> Any:
    if not isinstance(value, Instant):
        return value
    try:
        at = (_EPOCH + datetime.timedelta(seconds=value.seconds)).isoformat()
    except OverflowError:
        raise Misfit(INSTANT, value, "its year is not in [1, 9999]") from None
    return f"{at}.{value.nanos:09}Z" if value.nanos else f"{at}Z"


_PLAIN: Final[dict[TypeInformation, type]] = {
    STRING: str,
    BOOLEAN: bool,
    BIG_INT: int,
    DOUBLE: float,
    FLOAT: float,  # not narrowed: 0.1 would be written with 17 digits
    BYTES: bytes,
    SQL_DATE: datetime.date,
}
"""Python types whose values need no further look."""
_TIMED: Final[dict[TypeInformation, type]] = {
    SQL_TIME: datetime.time,
    SQL_TIMESTAMP: datetime.datetime,
}
"""Python types whose values need no further look where they have no zone."""
_WRITES: Final[dict[TypeInformation, Bring]] = {
    LONG: _long,
    BIG_DEC: _finite,
    INSTANT: _instant_text,
}

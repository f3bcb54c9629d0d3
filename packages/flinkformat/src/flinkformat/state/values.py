"""Values of Java without an equal in Python.

Java counts nanoseconds and any year of 32 bits; Python's times end at microseconds and its years at
9999. What is read stays exact, so that it can be written again; `python_value` gives the twin, or
says why there is none.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any, Final, cast

from flinkformat.frozen import frozen
from flinkformat.row import Row

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - a time without zone


@frozen
class LocalDate:
    """A day of the calendar."""

    year: int
    month: int
    day: int


@frozen
class LocalTime:
    """A time of the day, without a zone."""

    hour: int
    minute: int
    second: int
    nano: int


@frozen
class LocalDateTime:
    """A day and a time of day, without zone."""

    date: LocalDate
    time: LocalTime


@frozen
class Instant:
    """A point in time. nano: 0 to 999,999,999, beside the seconds since 1970 in UTC."""

    seconds: int
    nano: int


@frozen
class SqlTimestamp:
    """``java.sql.Timestamp``. millis: since 1970 in UTC. nano: of the second, those included."""

    millis: int
    nano: int


@frozen
class TimeWindow:
    """The event times from start (inclusive) to end (exclusive), milliseconds."""

    start: int
    end: int


@frozen
class GlobalWindow:
    """The one window that holds all of a key."""


@frozen
class Either:
    """One of two types of values."""

    is_left: bool
    value: object


@frozen
class TtlValue:
    """A value with the processing time of its last access, milliseconds since 1970."""

    last_access_ms: int
    value: object


@frozen
class Timer:
    """A timer that belongs to a key."""

    timestamp_ms: int
    key: object
    namespace: object


def python_value(value: object) -> object:
    """The equal value of Python, converted down to its leaves.

    A value with its time is a pair of both. Raises ValueError for what Python can't hold without
    loss, or has no twin for.
    """
    match value:
        case LocalDate():
            return datetime.date(value.year, value.month, value.day)
        case LocalTime():
            return datetime.time(value.hour, value.minute, value.second, _micros(value.nano))
        case LocalDateTime():
            date, time = python_value(value.date), python_value(value.time)
            return datetime.datetime.combine(
                cast("datetime.date", date), cast("datetime.time", time)
            )
        case Instant():
            return _since(_EPOCH, value.seconds, value.nano)
        case SqlTimestamp():
            return _since(_LOCAL_EPOCH, value.millis // 1000, value.nano)
        case Either():
            raise ValueError("an Either has no twin in Python")
        case TtlValue():
            return value.last_access_ms, python_value(value.value)
        case Timer():
            return Timer(value.timestamp_ms, python_value(value.key), python_value(value.namespace))
        case _:
            return _python_container(value)


def _python_container(value: object) -> object:
    match value:
        case Row():
            return value.copy(python_value)
        case tuple():
            return tuple(map(python_value, cast("tuple[Any, ...]", value)))
        case list():
            return list(map(python_value, cast("list[Any]", value)))
        case dict():
            entries = cast("dict[Any, Any]", value)
            return {python_value(k): python_value(v) for k, v in entries.items()}
        case None | bool() | int() | float() | str() | bytes() | Decimal():
            return value
        case _:
            raise ValueError(f"{type(value).__name__} has no twin in Python")


def _micros(nano: int) -> int:
    micros, rest = divmod(nano, 1000)
    if rest:
        raise ValueError(f"{nano} ns are not a whole number of microseconds, Python's unit")
    return micros


def _since(epoch: datetime.datetime, seconds: int, nano: int) -> datetime.datetime:
    try:
        return epoch + datetime.timedelta(seconds=seconds, microseconds=_micros(nano))
    except OverflowError as error:
        raise ValueError(f"{seconds} s since 1970 are beyond Python's years") from error

"""Flink's values as `state.json` and `golden-serializers.jsonl` write them."""

from __future__ import annotations

import json
from typing import Any

from flinkformat.state.composites import (
    ListSerializer,
    MapSerializer,
    NullableSerializer,
    RowSerializer,
    TimerSerializer,
    TtlSerializer,
    TupleSerializer,
)
from flinkformat.state.values import LocalDate, LocalTime, python_value
from tidegate.api.windows import TimeWindow


def shown(serializer: Any, value: Any) -> Any:
    """A value in the form of the fixtures."""
    match serializer:
        case ListSerializer():
            return [shown(serializer.element, each) for each in value]
        case MapSerializer():
            pairs = [
                [shown(serializer.key, key), shown(serializer.value, each)]
                for key, each in value.items()
            ]
            return sorted(pairs, key=text)
        case TupleSerializer():
            return {"tuple": list(map(shown, serializer.fields, value))}
        case RowSerializer():
            return {"row": list(map(shown, serializer.fields, value))}
        case NullableSerializer():
            return None if value is None else shown(serializer.value, value)
        case TtlSerializer():
            return {
                "ttlValue": shown(serializer.value, value.value),
                "lastAccess": value.last_access_ms,
            }
        case TimerSerializer():
            key, space = java(value.key), java(shown(serializer.namespace, value.namespace))
            return f"Timer{{timestamp={value.timestamp_ms}, key={key}, namespace={space}}}"
        case _:
            return _shown_simple(serializer, value)


def _shown_simple(serializer: Any, value: Any) -> Any:
    if serializer.name == "VoidNamespace":
        return "VoidNamespace"
    if value is None:
        return None
    match serializer.name:
        case "byte[]":
            return {"bytes": value.hex()}
        case "ByteArrayWrapper":
            return {"wrappedBytes": value.hex()}
        case "TimeWindow":
            return f"TimeWindow{{start={value.start}, end={value.end}}}"
        case "GlobalWindow":
            return "GlobalWindow"
        case "BigInt" | "BigDec":
            return str(value)
        case "LocalDate":
            return _date(value)
        case "LocalTime":
            return _time(value)
        case "LocalDateTime":
            return f"{_date(value.date)}T{_time(value.time)}"
        case "Instant":
            whole = python_value(type(value)(value.seconds, 0))
            return f"{whole:%Y-%m-%dT%H:%M:%S}.{value.nano:09}Z"
        case "SqlTimestamp":
            return str(python_value(value)).rstrip("0")
        case "Double" if value != value:
            return "NaN"
        case _:
            return value


def java(value: Any) -> str:
    """What Java's `toString` makes of a key."""
    match value:
        case {"row": fields}:
            return f"+I[{', '.join(map(java, fields))}]"
        case _ if type(value).__name__ == "Row":
            return f"+I[{', '.join(map(java, value))}]"
        case TimeWindow():
            return f"TimeWindow{{start={value.start}, end={value.end}}}"
        case _:
            return str(value)


def text(value: Any) -> str:
    """The JSON text by which entries are sorted."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _date(value: LocalDate) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def _time(value: LocalTime) -> str:
    return f"{value.hour:02}:{value.minute:02}:{value.second:02}.{value.nano:09}"

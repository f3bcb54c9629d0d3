"""Keys in Arrow columns: their types, and their hash codes without making Python objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tidegate.errors import UnsupportedKey
from tidegate.typeinfo import hash_columns
from tidegate.typeinfo.types import (
    BOOLEAN,
    BYTE,
    BYTES,
    CHAR,
    DOUBLE,
    FLOAT,
    INSTANT,
    INT,
    INTEGER_BITS,
    LONG,
    SHORT,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    BasicTypeInfo,
    NumberTypeInfo,
    TypeInformation,
    written_as,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tidegate.typeinfo.hash_columns import Codes

_NUMBERS: Final[Mapping[TypeInformation, pa.DataType]] = {
    BYTE: pa.int64(),
    SHORT: pa.int64(),
    INT: pa.int64(),
    LONG: pa.int64(),
    BOOLEAN: pa.bool_(),
    FLOAT: pa.float64(),
    DOUBLE: pa.float64(),
    SQL_DATE: pa.date32(),
    SQL_TIME: pa.time64("ns"),
    SQL_TIMESTAMP: pa.timestamp("ns"),
    INSTANT: pa.timestamp("ns", "UTC"),
}
_TEXTS: Final[Mapping[TypeInformation, pa.DataType]] = {
    STRING: pa.large_string(),
    CHAR: pa.large_string(),
    BYTES: pa.large_binary(),
}

_NANOS_A_SECOND = 1_000_000_000
_NANOS_A_DAY = 86_400 * _NANOS_A_SECOND
_NANOS = {"s": _NANOS_A_SECOND, "ms": 1_000_000, "us": 1_000, "ns": 1}


def arrow_key_type(key_type: TypeInformation) -> pa.DataType:
    """Arrow type in which all keys of a type are stored. Raises UnsupportedKey."""
    written = written_as(key_type)
    found = _NUMBERS.get(written) or _TEXTS.get(written)
    if found is None:
        raise UnsupportedKey(
            f"{key_type} is not a type of keys for columns",
            where="keyed columns",
            remedy="Key Arrow batches by a text, a number, bytes, a date or a time.",
        )
    return found


def key_type_of_column(column: pa.Array | pa.ChunkedArray, where: str) -> TypeInformation:
    """Type of the keys in a column.

    Raises UnsupportedKey for a type without a stable hash and for nulls.
    """
    found = _key_type(column.type)
    if found is None:
        raise UnsupportedKey(
            f"A column of type {column.type} can't be a key: it has no stable hash",
            where=where,
            remedy="Key by a column of integers, texts, booleans, floats, bytes, dates or times.",
        )
    if column.null_count:
        raise UnsupportedKey(
            f"{column.null_count} of {len(column)} keys are null. Assigned key must not be null!",
            where=where,
            remedy="Filter out rows without a key, or give them one.",
        )
    return found


def codes_of_column(
    column: pa.Array | pa.ChunkedArray, key_type: TypeInformation, where: str
) -> Codes:
    """Hash code of each key. key_type: the column's own, or a narrower declared one."""
    array: pa.Array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        of_dictionary = codes_of_column(array.dictionary, key_type, where)
        return of_dictionary[array.indices.to_numpy()]
    if isinstance(key_type, BasicTypeInfo) and key_type.name in INTEGER_BITS:
        return _codes_of_integers(array, INTEGER_BITS[key_type.name], where)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _codes_of_strings(array)
    if pa.types.is_string_view(array.type):
        return _codes_of_strings(array.cast(pa.large_string()))
    if key_type == BYTES:
        return _codes_of_bytes(array.cast(pa.large_binary()))
    if pa.types.is_boolean(array.type):
        truths = array.to_numpy(zero_copy_only=False)
        if key_type == BOOLEAN:
            return hash_columns.codes_of_booleans(truths)
        return hash_columns.codes_of_longs(truths.astype(np.int64))
    if pa.types.is_floating(array.type):
        return _codes_of_floats(array.to_numpy() + 0.0, key_type)  # -0.0 becomes 0.0
    return _codes_of_times(array, key_type)


def _codes_of_floats(numbers: NDArray[Any], key_type: TypeInformation) -> Codes:
    if key_type == FLOAT:
        return hash_columns.codes_of_floats(numbers.astype(np.float32))
    doubles = numbers.astype(np.float64)
    if key_type == DOUBLE:
        return hash_columns.codes_of_doubles(doubles)
    return hash_columns.codes_of_numbers(doubles)


def _key_type(arrow: pa.DataType) -> TypeInformation | None:
    is_a = pa.types
    if is_a.is_dictionary(arrow):
        return _key_type(arrow.value_type)
    if is_a.is_timestamp(arrow):
        return SQL_TIMESTAMP if arrow.tz is None else INSTANT
    for predicate, found in (
        (is_a.is_integer, LONG),
        (is_a.is_string, STRING),
        (is_a.is_large_string, STRING),
        (is_a.is_string_view, STRING),
        (is_a.is_boolean, NumberTypeInfo(BOOLEAN)),
        (is_a.is_floating, NumberTypeInfo(DOUBLE)),
        (is_a.is_binary, BYTES),
        (is_a.is_large_binary, BYTES),
        (is_a.is_fixed_size_binary, BYTES),
        (is_a.is_date, SQL_DATE),
        (is_a.is_time, SQL_TIME),
    ):
        if predicate(arrow):
            return found
    return None


def _codes_of_integers(array: pa.Array, bits: int, where: str) -> Codes:
    numbers: NDArray[Any] = array.to_numpy()
    if numbers.dtype == np.int64 and bits == 64:
        return hash_columns.codes_of_longs(numbers)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if len(numbers) and (int(numbers.min()) < low or int(numbers.max()) > high):
        beyond = numbers.min() if int(numbers.min()) < low else numbers.max()
        raise UnsupportedKey(
            f"The key {beyond} does not fit {bits} bits",
            where=where,
            remedy="Use smaller numbers, or cast the column to text.",
        )
    longs = numbers.astype(np.int64)
    return hash_columns.codes_of_longs(longs) if bits == 64 else hash_columns.codes_of_ints(longs)


def _codes_of_strings(array: pa.Array) -> Codes:
    starts, ends, units = _stretches(array, np.uint8)
    if len(ends) and units[starts[0] : ends[-1]].max(initial=0) > 127:
        return hash_columns.codes_of_strings(array.to_pylist())
    return hash_columns.codes_of_units(units, starts, ends)


def _codes_of_bytes(array: pa.Array) -> Codes:
    starts, ends, units = _stretches(array, np.int8)
    return hash_columns.codes_of_signed_bytes(units, starts, ends)


def _stretches(
    array: pa.Array, unit: type[np.uint8] | type[np.int8]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    width = np.int64 if large else np.int32
    if len(array) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, unit)
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    bounds = bounds.astype(np.int64)
    units = np.empty(0, unit) if data is None else np.frombuffer(data, unit)
    return bounds[:-1], bounds[1:], units


def _codes_of_times(array: pa.Array, key_type: TypeInformation) -> Codes:
    if pa.types.is_date32(array.type):
        return hash_columns.codes_of_days(array.cast(pa.int32()).to_numpy().astype(np.int64))
    ticks: NDArray[np.int64] = array.cast(_ticks(array.type)).to_numpy().astype(np.int64)
    if key_type == SQL_DATE:
        return hash_columns.codes_of_days(ticks // 86_400_000)
    nanos = _NANOS[array.type.unit]
    if key_type == SQL_TIME:
        return hash_columns.codes_of_longs(ticks * nanos)
    if key_type == INSTANT:
        a_second = _NANOS_A_SECOND // nanos
        return hash_columns.codes_of_instants(ticks // a_second, ticks % a_second * nanos)
    a_day = _NANOS_A_DAY // nanos
    return hash_columns.codes_of_local_instants(ticks // a_day, ticks % a_day * nanos)


def _ticks(arrow: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_time32(arrow) else pa.int64()

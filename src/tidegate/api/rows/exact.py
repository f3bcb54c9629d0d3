"""Finding values that a column of Arrow does not hold as they are: PyArrow rounds in silence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, time, timedelta
from itertools import chain
from numbers import Integral
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COARSE_MICROS: Final = {"s": 1_000_000, "ms": 1_000}
"""Microseconds in a unit of time that is coarser than Python's."""


def first_changed(values: Sequence[Any], column: pa.Array) -> int | None:
    """Position of the first value that is not in the column as it is; None if all are.

    column: made of the values, shape (values,). Numbers are compared by value; a time without a
    zone is that time in UTC; a float of 32 bits may have fewer digits.
    """
    if not _may_change(values, column):
        return None
    changed = (index for index, value in enumerate(values) if _changes(value, column.type))
    return next(changed, None)


def mixes_zones(values: Iterable[Any]) -> bool:
    """True if some times have a zone and others have none."""
    return len({each.tzinfo is None for each in values if isinstance(each, datetime)}) > 1


def _may_change(values: Iterable[Any], column: pa.Array) -> bool:
    """False for most columns, by the types of their values; else each value has to be looked at."""
    kind = column.type
    if pa.types.is_integer(kind):
        return not all(issubclass(of, (Integral, NoneType)) for of in set(map(type, values)))
    if pa.types.is_date(kind):
        return any(issubclass(of, datetime) for of in set(map(type, values)))
    if (micros := _coarse_micros(kind)) is not None:
        return any(beyond % micros for beyond in set(map(_micros_of, values)))
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return bool(np.isinf(column.to_numpy(zero_copy_only=False)).any())
    present = [value for value in values if value is not None] if pa.types.is_nested(kind) else []
    if not present:
        return False
    if _is_list(kind):
        return _may_change(chain.from_iterable(present), cast("Any", column).flatten())
    if isinstance(kind, pa.MapType):
        maps = cast("pa.MapArray", column)
        pairs = list(chain.from_iterable(map(_pairs, present)))
        return _may_change([key for key, _ in pairs], maps.keys) or _may_change(
            [value for _, value in pairs], maps.items
        )
    if isinstance(kind, pa.StructType):
        return _fields_may_change(list(map(_fields, present)), cast("Any", column.drop_null()))
    return False


def _fields_may_change(rows: list[Mapping[Any, Any]], column: pa.StructArray) -> bool:
    kind = column.type
    names = {field.name for field in kind.fields}
    return any(not row.keys() <= names for row in rows) or any(
        _may_change([row.get(field.name) for row in rows], column.field(index))
        for index, field in enumerate(kind.fields)
    )


def _changes(value: Any, kind: pa.DataType) -> bool:
    if value is None:
        return False
    if pa.types.is_integer(kind):
        return value != int(value)
    if pa.types.is_date(kind):
        return isinstance(value, datetime) and value.time() != time()
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        limit = float(np.finfo(cast("Any", kind.to_pandas_dtype())).max)
        return math.isfinite(value) and abs(value) > limit
    if (micros := _coarse_micros(kind)) is not None:
        return _micros_of(value) % micros != 0
    if _is_list(kind):
        return any(_changes(each, kind.value_type) for each in value)
    if isinstance(kind, pa.MapType):
        return any(
            _changes(key, kind.key_type) or _changes(each, kind.item_type)
            for key, each in _pairs(value)
        )
    if isinstance(kind, pa.StructType):
        kinds = {field.name: field.type for field in kind.fields}
        return any(name not in kinds or _changes(each, kinds[name]) for name, each in _pairs(value))
    return False


def _coarse_micros(kind: pa.DataType) -> int | None:
    if pa.types.is_timestamp(kind) or pa.types.is_time32(kind) or pa.types.is_duration(kind):
        return _COARSE_MICROS.get(kind.unit)
    return None


def _micros_of(value: object) -> int:
    """Microseconds beyond the second; 0 for numbers, which count the column's unit."""
    if isinstance(value, (datetime, time)):
        return value.microsecond
    return value.microseconds if isinstance(value, timedelta) else 0


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, Mapping) else value


def _fields(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else dict(value)

"""Finding values that a column of Arrow does not hold as they are: PyArrow rounds in silence."""

from __future__ import annotations

import math
from bisect import bisect_right
from datetime import datetime, time, timedelta
from itertools import accumulate, chain, compress, count
from numbers import Integral
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in the units of time that are coarser than those of pandas."""


def first_changed(values: Sequence[Any], column: pa.Array) -> int | None:
    """Position of the first value that is not in the column as it is; None if all are.

    column: made of the values, shape (values,). Numbers are compared by value; a time without a
    zone is that time in UTC; a float of 32 bits may have fewer digits.
    """
    kind = column.type
    if isinstance(kind, pa.StructType):
        return _first_in_structs(values, cast("pa.StructArray", column))
    if _is_list(kind):
        return _first_in_lists(values, cast("Any", column))
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        infinite = np.flatnonzero(np.isinf(column.to_numpy(zero_copy_only=False))).tolist()
        return next((index for index in infinite if math.isfinite(values[index])), None)
    changes = _change(kind, values)
    return None if changes is None else next(compress(count(), map(changes, values)), None)


def mixes_zones(values: Iterable[Any]) -> bool:
    """True if some times have a zone and others have none."""
    return len({each.tzinfo is None for each in values if isinstance(each, datetime)}) > 1


def _change(kind: pa.DataType, values: Sequence[Any]) -> Callable[[Any], bool] | None:
    """Tells of a value if a flat column changes it; None where the types of all say no."""
    if pa.types.is_integer(kind):
        whole = all(issubclass(of, (Integral, NoneType)) for of in set(map(type, values)))
        return None if whole else _is_broken
    if pa.types.is_date(kind):
        timed = any(issubclass(of, datetime) for of in set(map(type, values)))
        return _has_time if timed else None
    if pa.types.is_timestamp(kind) or pa.types.is_time32(kind) or pa.types.is_duration(kind):
        return _cut_of(kind.unit, values)
    return None


def _cut_of(unit: str, values: Sequence[Any]) -> Callable[[Any], bool] | None:
    micros = _MICROS.get(unit)
    if micros is None:
        return None
    if any(map(_has_nanos, set(map(type, values)))):
        return lambda value: _micros_of(value) % micros != 0 or _nanos_of(value) != 0
    if micros > 1 and any(beyond % micros for beyond in set(map(_micros_of, values))):
        return lambda value: _micros_of(value) % micros != 0
    return None


def _is_broken(value: Any) -> bool:
    return value is not None and value != int(value)


def _has_time(value: object) -> bool:
    # The hour of pandas' NaT, which is a datetime, is NaN.
    return isinstance(value, datetime) and bool(
        value.hour or value.minute or value.second or value.microsecond or _nanos_of(value)
    )


def _micros_of(value: object) -> int:
    """Microseconds beyond the second; 0 for numbers, which count the column's unit."""
    if isinstance(value, (datetime, time)):
        return value.microsecond
    return value.microseconds if isinstance(value, timedelta) else 0


def _has_nanos(kind: type) -> bool:
    """True for the times of pandas, which have nanoseconds."""
    return hasattr(kind, "nanosecond") or hasattr(kind, "nanoseconds")


def _nanos_of(value: object) -> int:
    """Nanoseconds beyond the microsecond."""
    return getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)


def _first_in_structs(values: Sequence[Any], column: pa.StructArray) -> int | None:
    """Looks as PyArrow does: into tuples by position, into dicts and lists of pairs by name.

    PyArrow refuses a column with several of these forms.
    """
    names = [field.name for field in column.type]
    firsts: list[int | None] = []
    if all(issubclass(of, (tuple, NoneType)) for of in set(map(type, values))):
        nothing = (None,) * len(names)
        tuples = [nothing if row is None else row for row in values]
        fields = [[row[index] for row in tuples] for index in range(len(names))]
    else:
        rows = [row if type(row) is dict else dict(row or ()) for row in values]
        known = set(names)
        firsts.append(next((i for i, row in enumerate(rows) if not known.issuperset(row)), None))
        fields = [[row.get(name) for row in rows] for name in names]
    firsts += [first_changed(each, column.field(index)) for index, each in enumerate(fields)]
    return min((first for first in firsts if first is not None), default=None)


def _first_in_lists(values: Sequence[Any], column: Any) -> int | None:
    """Looks into lists, and into maps as lists of their entries."""
    lists = [
        () if each is None else each.items() if isinstance(each, dict) else each for each in values
    ]
    if isinstance(column, pa.MapArray):
        names = [column.type.key_field.name, column.type.item_field.name]
        elements = pa.StructArray.from_arrays([column.keys, column.items], names)
    else:
        elements = column.flatten()
    first = first_changed(list(chain.from_iterable(lists)), elements)
    return None if first is None else bisect_right(list(accumulate(map(len, lists))), first)


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or pa.types.is_map(kind)
    )

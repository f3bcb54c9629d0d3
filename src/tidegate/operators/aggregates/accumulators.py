"""How aggregates are kept in columns of state: added to, run over, merged and read, all by batch.

Each accumulator has a column named as its results, and beside it what tells rows with a value from
those that have seen nulls only. Values reach it without nulls.
"""

from __future__ import annotations

import math
from decimal import Context
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from tidegate.api import aggregates
from tidegate.api.state import ColumnStateDescriptor
from tidegate.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tidegate.api.aggregates import Aggregate
    from tidegate.api.state import ColumnState
    from tidegate.operators.aggregates.groups import Groups

    Longs = NDArray[np.int64]
    Values = NDArray[Any]

_LONG: Final = pa.int64()
_DOUBLE: Final = pa.float64()


class _Holder(Protocol):
    """Anything with columns: a pane, or the state of all keys."""

    def column(self, descriptor: ColumnStateDescriptor) -> ColumnState: ...


class Accumulator(Protocol):
    """One aggregate of all keys of a pane; says only how, and keeps everything in its columns.

    type: Arrow's, of the results. columns: that it keeps. combines: merging parts of the values in
    their order gives to the bit what adding the values one after another gives.
    """

    type: pa.DataType
    combines: bool

    @property
    def columns(self) -> Sequence[ColumnStateDescriptor]: ...

    def add(self, pane: _Holder, rows: Longs, values: Values, stamps: Longs) -> None:
        """Adds a value to each of the rows. stamps: their event times."""
        ...

    def merge(self, pane: _Holder, rows: Longs, part: _Holder) -> None:
        """Adds the values of another pane, for these rows of both."""
        ...

    def run(self, pane: _Holder, groups: Groups, values: Values) -> Values:
        """Adds values in the groups' order; returns the result after each, in that order."""
        ...

    def result(self, pane: _Holder, rows: Longs) -> pa.Array: ...


class CountAccumulator:
    """Accumulates a count of values."""

    type = _LONG
    combines = True

    def __init__(self, name: str) -> None:
        self._count = ColumnStateDescriptor(name, _LONG)
        self.columns = (self._count,)

    def add(self, pane: _Holder, rows: Longs, values: Values, stamps: Longs) -> None:
        pane.column(self._count).at(np.add, rows, 1)

    def merge(self, pane: _Holder, rows: Longs, part: _Holder) -> None:
        pane.column(self._count).at(np.add, rows, part.column(self._count).get(rows))

    def run(self, pane: _Holder, groups: Groups, values: Values) -> Values:
        before = _added(pane.column(self._count), groups.keys, groups.lengths)
        return groups.running_count(before)

    def counts(self, pane: _Holder, rows: Longs) -> Longs:
        return pane.column(self._count).get(rows)

    def result(self, pane: _Holder, rows: Longs) -> pa.Array:
        return pa.array(self.counts(pane, rows))


class FoldAccumulator:
    """Folds values with a ufunc, from its neutral value."""

    def __init__(self, name: str, arrow: pa.DataType, ufunc: np.ufunc, neutral: object) -> None:
        self.type = arrow
        self._ufunc = ufunc
        self._value = ColumnStateDescriptor(name, arrow, neutral)
        self._seen = ColumnStateDescriptor(f"{name}.seen", pa.bool_())
        self.columns = (self._value, self._seen)
        # The order of additions shows in floating sums; of decimal ones each is a call of Python's.
        kinds = pa.types.is_integer(arrow) or pa.types.is_duration(arrow)
        self.combines = kinds or ufunc not in (np.add, _ADD_OBJECTS)

    def add(self, pane: _Holder, rows: Longs, values: Values, stamps: Longs) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            pane.column(self._value).at(self._ufunc, rows, values)
        pane.column(self._seen).put(rows, _TRUE)

    def merge(self, pane: _Holder, rows: Longs, part: _Holder) -> None:
        """Folds the other values in; neutral ones change nothing."""
        seen = part.column(self._seen).get(rows)
        with np.errstate(invalid="ignore", over="ignore"):
            pane.column(self._value).at(self._ufunc, rows, part.column(self._value).get(rows))
        pane.column(self._seen).put(rows[seen], _TRUE)

    def run(self, pane: _Holder, groups: Groups, values: Values) -> Values:
        column = pane.column(self._value)
        if self._ufunc is np.add and values.dtype.kind in "iu":
            totals = values.cumsum()
            starts = groups.starts
            others = totals.take(starts) - values.take(starts)
            before = _added(column, groups.keys, totals.take(groups.lasts) - others)
            # A sum that is not 0 has seen a value.
            new = groups.keys[before == 0]
            made = groups.spread(totals, before - others)
        else:
            new = groups.keys
            made = groups.running(self._ufunc, values, column.get(new))
            column.put(new, made[groups.lasts])
        pane.column(self._seen).put(new, _TRUE)
        return made

    def values(self, pane: _Holder, rows: Longs) -> Values:
        return pane.column(self._value).get(rows)

    def result(self, pane: _Holder, rows: Longs) -> pa.Array:
        missing = ~pane.column(self._seen).get(rows)
        return array_of(self.values(pane, rows), self.type, missing)


class HalvedSum:
    """Sums whole numbers of 64 bits by their halves, which do not wrap around for 2^31 of them."""

    combines = True

    def __init__(self, low: FoldAccumulator, high: FoldAccumulator) -> None:
        self._low = low
        self._high = high
        self.columns = (*low.columns, *high.columns)

    def add(self, pane: _Holder, rows: Longs, values: Values, stamps: Longs) -> None:
        self._low.add(pane, rows, values & _LOW_HALF, stamps)
        self._high.add(pane, rows, values >> 32, stamps)

    def merge(self, pane: _Holder, rows: Longs, part: _Holder) -> None:
        self._low.merge(pane, rows, part)
        self._high.merge(pane, rows, part)

    def run(self, pane: _Holder, groups: Groups, values: Values) -> NDArray[np.float64]:
        low = self._low.run(pane, groups, values & _LOW_HALF)
        return _joined(low, self._high.run(pane, groups, values >> 32))

    def doubles(self, pane: _Holder, rows: Longs) -> NDArray[np.float64]:
        return _joined(self._low.values(pane, rows), self._high.values(pane, rows))


class PlainSum:
    """Sums floating numbers or decimals."""

    def __init__(self, total: FoldAccumulator) -> None:
        self._total = total
        self.columns, self.combines = total.columns, total.combines
        self.add, self.merge = total.add, total.merge

    def run(self, pane: _Holder, groups: Groups, values: Values) -> NDArray[np.float64]:
        return _doubles(array_of(self._total.run(pane, groups, values), self._total.type))

    def doubles(self, pane: _Holder, rows: Longs) -> NDArray[np.float64]:
        return _doubles(array_of(self._total.values(pane, rows), self._total.type))


class MeanAccumulator:
    """Accumulates a sum and a count."""

    type = _DOUBLE

    def __init__(self, total: HalvedSum | PlainSum, count: CountAccumulator) -> None:
        self._total = total
        self._count = count
        self.columns = (*total.columns, *count.columns)
        self.combines = total.combines

    def add(self, pane: _Holder, rows: Longs, values: Values, stamps: Longs) -> None:
        self._total.add(pane, rows, values, stamps)
        self._count.add(pane, rows, values, stamps)

    def merge(self, pane: _Holder, rows: Longs, part: _Holder) -> None:
        self._total.merge(pane, rows, part)
        self._count.merge(pane, rows, part)

    def run(self, pane: _Holder, groups: Groups, values: Values) -> Values:
        totals = self._total.run(pane, groups, values)
        return totals / self._count.run(pane, groups, values)

    def result(self, pane: _Holder, rows: Longs) -> pa.Array:
        counts = self._count.counts(pane, rows)
        none = counts == 0
        totals = self._total.doubles(pane, rows)
        return pa.array(totals / np.where(none, 1, counts), mask=none)


class EndAccumulator:
    """Keeps the first or last value: by event time in windows, else by arrival."""

    combines = False
    columns = ()

    def __init__(self, name: str, arrow: pa.DataType, *, last: bool) -> None:
        self.type = arrow
        self._last = last
        self._value = ColumnStateDescriptor(name, arrow)
        self._seen = ColumnStateDescriptor(f"{name}.seen", pa.bool_())
        worst = np.iinfo(np.int64).min if last else np.iinfo(np.int64).max
        self._stamp = ColumnStateDescriptor(f"{name}.time", _LONG, int(worst))

    def add(self, pane: _Holder, rows: Longs, values: Values, stamps: Longs) -> None:
        """Keeps values that are nearer to the end; among those of one time, the end by arrival."""
        times = pane.column(self._stamp)
        if self._last:
            times.at(np.maximum, rows, stamps)
            kept = np.flatnonzero(stamps == times.get(rows))
        else:
            before = times.get(rows)
            times.at(np.minimum, rows, stamps)
            kept = np.flatnonzero((stamps == times.get(rows)) & (stamps < before))[::-1]
        pane.column(self._value).put(rows.take(kept), values.take(kept))
        pane.column(self._seen).put(rows, _TRUE)

    def merge(self, pane: _Holder, rows: Longs, part: _Holder) -> None:
        own = rows[part.column(self._seen).get(rows)]
        values, stamps = part.column(self._value).get(own), part.column(self._stamp).get(own)
        self.add(pane, own, values, stamps)

    def run(self, pane: _Holder, groups: Groups, values: Values) -> Values:
        column, seen = pane.column(self._value), pane.column(self._seen)
        if self._last:
            column.put(groups.keys, values[groups.lasts])
            made = values
        else:
            known = seen.get(groups.keys)
            firsts = values[groups.starts]
            column.put(groups.keys[~known], firsts[~known])
            made = np.repeat(column.get(groups.keys), groups.lengths)
        seen.put(groups.keys, _TRUE)
        return made

    def result(self, pane: _Holder, rows: Longs) -> pa.Array:
        missing = ~pane.column(self._seen).get(rows)
        return array_of(pane.column(self._value).get(rows), self.type, missing)


class CollectAccumulator:
    """All values, in Python lists."""

    combines = False
    columns = ()

    def __init__(self, name: str, arrow: pa.DataType) -> None:
        self.type = pa.list_(arrow)
        self._lists = ColumnStateDescriptor(name, self.type)

    def add(self, pane: _Holder, rows: Longs, values: Values, stamps: Longs) -> None:
        self._extend(pane, rows.tolist(), ((each,) for each in values.tolist()))

    def merge(self, pane: _Holder, rows: Longs, part: _Holder) -> None:
        lists = part.column(self._lists).get(rows)
        self._extend(pane, rows.tolist(), (each or () for each in lists))

    def _extend(self, pane: _Holder, rows: list[int], values: Iterable[Iterable[object]]) -> None:
        lists = _gathered(pane, self._lists, rows, list)
        for row, each in zip(rows, values, strict=True):
            lists[row].extend(each)

    def run(self, pane: _Holder, groups: Groups, values: Values) -> Values:
        made = np.empty(len(values), object)
        rows = np.repeat(groups.keys, groups.lengths).tolist()
        lists = _gathered(pane, self._lists, groups.keys.tolist(), list)
        for at, (row, value) in enumerate(zip(rows, values.tolist(), strict=True)):
            lists[row].append(value)
            made[at] = tuple(lists[row])
        return made

    def result(self, pane: _Holder, rows: Longs) -> pa.Array:
        lists = pane.column(self._lists).get(rows)
        return pa.array([() if each is None else each for each in lists], self.type)


class DistinctAccumulator:
    """The different values, in Python sets."""

    combines = False
    columns = ()
    type = _LONG

    def __init__(self, name: str, arrow: pa.DataType) -> None:
        self._arrow = arrow
        self._is_time = pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow)
        self._sets = ColumnStateDescriptor(name, pa.list_(arrow))

    def add(self, pane: _Holder, rows: Longs, values: Values, stamps: Longs) -> None:
        listed = rows.tolist()
        sets = _gathered(pane, self._sets, listed, self._distinct)
        for row, value in zip(listed, values.tolist(), strict=True):
            sets[row].add(value if value == value else math.nan)

    def _distinct(self, values: Iterable[object]) -> set[object]:
        """The set of them, in the form in which they come; in state times have another one."""
        if self._is_time:
            values = pa.array(list(values), self._arrow).to_numpy(zero_copy_only=False).tolist()
        return {value if value == value else math.nan for value in values}

    def merge(self, pane: _Holder, rows: Longs, part: _Holder) -> None:
        listed = rows.tolist()
        sets = _gathered(pane, self._sets, listed, self._distinct)
        for row, values in zip(listed, part.column(self._sets).get(rows), strict=True):
            sets[row] |= self._distinct(values or ())

    def run(self, pane: _Holder, groups: Groups, values: Values) -> Values:
        made: list[int] = []
        rows = np.repeat(groups.keys, groups.lengths).tolist()
        sets = _gathered(pane, self._sets, groups.keys.tolist(), self._distinct)
        for row, value in zip(rows, values.tolist(), strict=True):
            sets[row].add(value if value == value else math.nan)
            made.append(len(sets[row]))
        return np.array(made, np.int64)

    def result(self, pane: _Holder, rows: Longs) -> pa.Array:
        return pa.array([len(each or ()) for each in pane.column(self._sets).get(rows)], _LONG)


def accumulator_of(aggregate: Aggregate, arrow: pa.DataType | None) -> Accumulator:
    """The accumulator of an aggregate; arrow: type of its column, None of a count of rows.

    Raises GraphError if the aggregate has no meaning for values of that type.
    """
    name = aggregate.output
    if isinstance(aggregate, aggregates.Count) or arrow is None:
        return CountAccumulator(name)
    match aggregate:
        case aggregates.Sum():
            return _sum(aggregate, arrow, name)
        case aggregates.Mean() if not pa.types.is_duration(arrow):
            total = _sum(aggregate, arrow, f"{name}.sum")
            whole = pa.types.is_integer(total.type)
            high = FoldAccumulator(f"{name}.high", total.type, np.add, 0)
            of_halves = HalvedSum(total, high) if whole else PlainSum(total)
            return MeanAccumulator(of_halves, CountAccumulator(f"{name}.count"))
        case aggregates.Min():
            return _extreme(aggregate, arrow, greatest=False)
        case aggregates.Max():
            return _extreme(aggregate, arrow, greatest=True)
        case aggregates.First() | aggregates.Last():
            return EndAccumulator(name, arrow, last=isinstance(aggregate, aggregates.Last))
        case aggregates.Collect():
            return CollectAccumulator(name, arrow)
        case aggregates.CountDistinct() if not pa.types.is_nested(arrow):
            return DistinctAccumulator(name, arrow)
        case _:
            raise _meaningless(aggregate, arrow)


def held_type(aggregate: Aggregate, arrow: pa.DataType) -> pa.DataType:
    """Type to which a column's values are converted before they are added."""
    if not isinstance(aggregate, aggregates.Sum | aggregates.Mean):
        return arrow
    return _sum(aggregate, arrow, "").type


def _sum(aggregate: Aggregate, arrow: pa.DataType, name: str) -> FoldAccumulator:
    is_a = pa.types
    if is_a.is_unsigned_integer(arrow):
        return FoldAccumulator(name, pa.uint64(), np.add, 0)
    if is_a.is_integer(arrow) or is_a.is_boolean(arrow):
        return FoldAccumulator(name, _LONG, np.add, 0)
    if is_a.is_floating(arrow):
        return FoldAccumulator(name, _DOUBLE, np.add, 0.0)
    if is_a.is_decimal(arrow):
        return FoldAccumulator(name, pa.decimal128(38, arrow.scale), _ADD_OBJECTS, None)
    if is_a.is_duration(arrow):
        return FoldAccumulator(name, arrow, np.add, 0)
    raise _meaningless(aggregate, arrow)


def _extreme(aggregate: Aggregate, arrow: pa.DataType, *, greatest: bool) -> FoldAccumulator:
    is_a, name = pa.types, aggregate.output
    if is_a.is_boolean(arrow):
        ufunc = np.logical_or if greatest else np.logical_and
        return FoldAccumulator(name, arrow, ufunc, not greatest)
    if is_a.is_integer(arrow):
        bounds = np.iinfo(arrow.to_pandas_dtype())
        if greatest:
            return FoldAccumulator(name, arrow, np.maximum, int(bounds.min))
        return FoldAccumulator(name, arrow, np.minimum, int(bounds.max))
    if is_a.is_floating(arrow):
        if greatest:
            return FoldAccumulator(name, arrow, np.maximum, -math.inf)
        return FoldAccumulator(name, arrow, np.fmin, math.nan)
    if is_a.is_timestamp(arrow) or is_a.is_duration(arrow) or is_a.is_date32(arrow):
        return FoldAccumulator(name, arrow, np.fmax if greatest else np.fmin, "NaT")
    if is_a.is_nested(arrow) or is_a.is_null(arrow):
        raise _meaningless(aggregate, arrow)
    return FoldAccumulator(name, arrow, _MAX_OBJECTS if greatest else _MIN_OBJECTS, None)


def _meaningless(aggregate: Aggregate, arrow: pa.DataType) -> GraphError:
    return GraphError(
        f"{aggregate} has no meaning for a column of type {arrow}",
        where=f"{aggregate}",
        remedy="Cast the column in a map_batches before, or leave the aggregate out.",
    )


def _added(column: ColumnState, rows: Longs, values: Values) -> Values:
    """Adds a value to each of these different rows; returns what they had before.

    Piece by piece: of many keys a row is in the processor's caches only just after it was read.
    """
    before = np.empty_like(values)
    for start in range(0, len(rows), _CACHED):
        piece = slice(start, start + _CACHED)
        before[piece] = column.get(rows[piece])
        column.put(rows[piece], before[piece] + values[piece])
    return before


def _gathered(
    pane: _Holder,
    descriptor: ColumnStateDescriptor,
    rows: list[int],
    make: Callable[[Iterable[object]], Any],
) -> dict[int, Any]:
    column = pane.column(descriptor)
    index = np.unique(np.asarray(rows, np.int64))
    kind = list if make is list else set
    held = [each if type(each) is kind else make(each or ()) for each in column.get(index).tolist()]
    column.put(index, np.fromiter(held, object, len(held)))
    return dict(zip(index.tolist(), held, strict=True))


def _joined(low: Values, high: Values) -> NDArray[np.float64]:
    return high.astype(np.float64) * 2.0**32 + low.astype(np.float64)


def _doubles(array: pa.Array) -> NDArray[np.float64]:
    return array.cast(_DOUBLE, safe=False).fill_null(0.0).to_numpy()


def array_of(values: Values, arrow: pa.DataType, missing: Values | None = None) -> pa.Array:
    """Results as an Arrow array. missing: mask of those that are null; None for none."""
    if values.dtype.kind == "O":
        return pa.array(values.tolist(), arrow)
    return pa.array(values, arrow, mask=missing if missing is not None and missing.any() else None)


def _add(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else _plus(one, other)


def _least(one: Any, other: Any) -> Any:
    return other if one is None or (other is not None and other < one) else one


def _greatest(one: Any, other: Any) -> Any:
    return other if one is None or (other is not None and other > one) else one


_TRUE: Final = np.array(True)
_LOW_HALF: Final = (1 << 32) - 1
_plus: Final = Context(prec=76).add
"""Adds decimals, and rounds no sum of Arrow's 38 digits."""
_CACHED: Final = 8_192
"""Rows of a column, each in 64 bytes of its own, that are a fraction of a core's cache."""
_ADD_OBJECTS: Final = np.frompyfunc(_add, 2, 1)
_MIN_OBJECTS: Final = np.frompyfunc(_least, 2, 1)
_MAX_OBJECTS: Final = np.frompyfunc(_greatest, 2, 1)

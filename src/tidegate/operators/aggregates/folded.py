"""Reduced values of rows that are columns: a batch at a time, in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from tidegate.operators.aggregates.groups import Groups
from tidegate.traced.folds import Fold, FoldKind, Folds
from tidegate.typeinfo.long_index import LongIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import ColumnRows
    from tidegate.api.state import ReducingState
    from tidegate.loops.cells import KeyCell

    Longs = NDArray[np.int64]

_INT: Final = np.dtype(np.int64)
_BOOL: Final = np.dtype(np.bool_)
_TYPES: Final = {_INT: int, np.dtype(np.float64): float, _BOOL: bool}
_LONG_MAX: Final = 2**63 - 1

KEYS_MAX: Final = 1 << 14
"""Keys whose values are held as columns; writing them back takes a few milliseconds."""


class FoldedKeys:
    """Values of the keys seen last, as columns; what has changed is written back by ``flush``.

    ``add`` gives None where a value might come out otherwise than in Python: the caller flushes,
    and has the function reduce that batch.
    """

    def __init__(self, folds: Folds, state: ReducingState[object], cell: KeyCell) -> None:
        self._folds = folds
        self._state = state
        self._cell = cell
        self._fields: tuple[object, ...] = ()
        self._forget()

    def _forget(self) -> None:
        self._index = LongIndex()
        self._keys: list[object] = []
        self._groups: list[int] = []
        self._table: list[NDArray[Any]] = []
        self._has = np.zeros(0, np.bool_)
        self._changed = np.zeros(0, np.bool_)

    def add(self, rows: ColumnRows) -> list[NDArray[Any]] | None:
        """The fields of the results, in the order of the rows; None if it has changed nothing."""
        width, folds = rows.width, self._folds
        if rows.is_tuple != folds.is_tuple or width != len(folds.fields) or not len(rows):
            return None
        assert rows.key_column is not None and rows.groups is not None, "a keyed edge gives keys"
        keys, fields = rows.columns[rows.key_column], rows.columns[:width]
        if keys.dtype != _INT or not all(_fits(each, fields, at) for at, each in self._each_fold()):
            return None
        if rows.fields != self._fields or len(self._keys) + len(keys) > KEYS_MAX:
            self.flush()
            self._forget()
            self._fields = rows.fields
            self._table = [np.zeros(0, each.dtype) for each in fields]
        places, new = self._index.place(keys, len(self._keys))
        if len(new) and not self._load(keys.take(new), rows.groups.take(new)):
            self.flush()
            self._forget()
            self._fields = ()
            return None
        return self._folded(Groups.of(places, len(self._keys)), fields)

    def flush(self) -> None:
        """Writes back what has changed."""
        changed = np.flatnonzero(self._changed[: len(self._keys)])
        if not len(changed):
            return
        columns = [each.take(changed).tolist() for each in self._table]
        values = list(zip(*columns, strict=True)) if self._folds.is_tuple else columns[0]
        at = changed.tolist()
        keys, groups = [self._keys[each] for each in at], [self._groups[each] for each in at]
        self._state.put_rows(keys, groups, values)
        self._changed[:] = False

    def forget(self) -> None:
        """Writes back what has changed, and reads all anew: others are about to change it."""
        self.flush()
        self._forget()
        self._fields = ()

    def _each_fold(self) -> enumerate[Fold]:
        return enumerate(self._folds.fields)

    def _load(self, keys: Longs, groups: NDArray[np.int16]) -> bool:
        """Reads the values of new keys; False if one does not fit the columns."""
        first, cell, get = len(self._keys), self._cell, self._state.get
        own_keys, own_groups = keys.tolist(), groups.tolist()
        self._state.read_ahead(own_keys, own_groups)
        found: list[object] = []
        for cell.key, cell.group in zip(own_keys, own_groups, strict=True):
            found.append(get())
        self._make_room(first + len(keys))
        self._keys += own_keys
        self._groups += own_groups
        held = [at for at, value in enumerate(found) if value is not None]
        if not held:
            return True
        values = [found[at] for at in held]
        if self._folds.is_tuple:
            if not all(type(v) is tuple and len(v) == len(self._table) for v in values):
                return False
            columns = list(zip(*cast("list[tuple[object, ...]]", values), strict=True))
        else:
            columns = [tuple(values)]
        places = np.array(held) + first
        for column, table in zip(columns, self._table, strict=True):
            if set(map(type, column)) != {_TYPES[table.dtype]}:
                return False
            try:
                table[places] = column
            except OverflowError:
                return False
        self._has[places] = True
        return True

    def _make_room(self, count: int) -> None:
        held = len(self._has)
        if held < count:
            size = max(2 * held, count, 256)
            self._has = _with_room(self._has, size)
            self._changed = _with_room(self._changed, size)
            self._table = [_with_room(each, size) for each in self._table]

    def _folded(
        self, groups: Groups, fields: tuple[NDArray[Any], ...]
    ) -> list[NDArray[Any]] | None:
        has = self._has.take(groups.keys)
        made = [
            _made(each, fields, at, self._table[at].take(groups.keys), has, groups)
            for at, each in self._each_fold()
        ]
        if any(each is None for each in made):
            return None
        results: list[NDArray[Any]] = []
        for at, column in enumerate(cast("list[NDArray[Any]]", made)):
            self._table[at][groups.keys] = column.take(groups.lasts)
            result = np.empty_like(column)
            result[groups.order] = column
            results.append(result)
        self._has[groups.keys] = self._changed[groups.keys] = True
        return results


def _fits(fold: Fold, fields: tuple[NDArray[Any], ...], at: int) -> bool:
    """True if the fold gives what Python gives, for fields of these types."""
    if fold.field >= len(fields):
        return False
    kind = fields[fold.field].dtype
    if kind != fields[at].dtype:
        return False
    match fold.kind:
        case FoldKind.KEEP | FoldKind.LAST:
            return True
        case FoldKind.SUM | FoldKind.TOTAL:
            return kind != _BOOL
        case FoldKind.MIN | FoldKind.MAX:
            return kind == _INT


def _made(
    fold: Fold,
    fields: tuple[NDArray[Any], ...],
    at: int,
    before: NDArray[Any],
    has: NDArray[np.bool_],
    groups: Groups,
) -> NDArray[Any] | None:
    """One field of the results in the order of the groups; None if whole numbers overflow.

    at: which. before: its value in each group's key, where it ``has`` one, shape (groups,).
    """
    firsts = fields[at].take(groups.order.take(groups.starts))
    if fold.kind is FoldKind.KEEP:
        return np.repeat(np.where(has, before, firsts), groups.lengths)
    values = fields[fold.field].take(groups.order)
    if fold.field != at:
        # The first row of a key is its value as it is.
        values[groups.starts] = np.where(has, values.take(groups.starts), firsts)
    match fold.kind:
        case FoldKind.LAST:
            return values
        case FoldKind.MIN:
            return groups.running(np.minimum, values, np.where(has, before, _LONG_MAX))
        case FoldKind.MAX:
            return groups.running(np.maximum, values, np.where(has, before, ~_LONG_MAX))
        case _ if values.dtype == _INT:
            before = np.where(has, before, 0)
            most = _greatest(values) * len(values) + _greatest(before)
            return None if most > _LONG_MAX else groups.running_sum(values, before)
        case _:
            # Only -0.0 leaves each number as it is, zeros too.
            with np.errstate(all="ignore"):
                sums = groups.running(np.add, values, np.where(has, before, -0.0))
            if fold.kind is FoldKind.TOTAL:
                untouched = sums.take(groups.starts)
                sums += 0.0
                sums[groups.starts] = np.where(has, sums.take(groups.starts), untouched)
            return sums


def _greatest(values: NDArray[np.int64]) -> int:
    return max(int(values.max()), -int(values.min()))


def _with_room(held: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.zeros(size, held.dtype)
    grown[: len(held)] = held
    return grown

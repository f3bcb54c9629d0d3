"""Gathered values of rows that are columns: a batch at a time, in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np

from tidegate.operators.aggregates.groups import Groups
from tidegate.traced.folds import FoldKind
from tidegate.typeinfo.long_index import LongIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import ColumnRows
    from tidegate.traced.folds import Folds

    Longs = NDArray[np.int64]

_INT: Final = np.dtype(np.int64)
_FLOAT: Final = np.dtype(np.float64)
_BOOL: Final = np.dtype(np.bool_)
_TYPES: Final = {_INT: int, _FLOAT: float, _BOOL: bool}
_KINDS: Final[dict[type, np.dtype[Any]]] = {kind: dtype for dtype, kind in _TYPES.items()}
_LONG_MAX: Final = 2**63 - 1

KEYS_MAX: Final = 1 << 14
"""Keys whose values are held as columns; writing them back takes a few milliseconds."""


class Gathered(Protocol):
    """Values of keys in state, which are read at once and written at once."""

    def read(self, keys: Sequence[object], key_groups: Sequence[int]) -> list[object]:
        """The value of each key; None for a new one."""
        ...

    def write(
        self, keys: Sequence[object], key_groups: Sequence[int], values: Iterable[object]
    ) -> None: ...


class FoldedKeys:
    """Values of the keys seen last, as columns; what has changed is written back by ``flush``.

    initial: what a new key begins with; None if its first row is its value.
    """

    def __init__(self, folds: Folds, state: Gathered, initial: object = None) -> None:
        self._folds = folds
        self._state = state
        self._initial = initial if folds.is_tuple or initial is None else (initial,)
        self._fields: tuple[np.dtype[Any], ...] = ()
        self._begin()

    def _begin(self) -> None:
        self._index = LongIndex()
        self._keys: list[object] = []
        self._groups: list[int] = []
        self._table = [np.zeros(0, kind) for kind in self._fields]
        self._has = np.zeros(0, np.bool_)
        self._changed = np.zeros(0, np.bool_)

    def add(self, rows: ColumnRows) -> list[NDArray[Any]] | None:
        """The fields of the values, one for each row; of int keys.

        None where a value might come out otherwise than in Python: nothing has been added then, all
        before is written back, and the function has to gather these rows.
        """
        made = self._added(rows) if len(rows) else None
        if made is None:
            self.forget()
        return made

    def _added(self, rows: ColumnRows) -> list[NDArray[Any]] | None:
        assert rows.key_column is not None and rows.groups is not None, "a keyed edge gives keys"
        keys, terms = rows.columns[rows.key_column], self._folds.terms(rows)
        if keys.dtype != _INT or terms is None:
            return None
        fields = self._fields_of(rows, terms)
        if fields is None:
            return None
        if fields != self._fields or len(self._keys) > KEYS_MAX:
            self.flush()
            self._fields = fields
            self._begin()
        places, new = self._index.place(keys)
        if len(new) and not self._load(keys.take(new).tolist(), rows.groups.take(new).tolist()):
            return None
        return self._folded(Groups.of(places, len(self._keys)), rows, terms)

    def flush(self) -> None:
        """Writes back what has changed."""
        changed = np.flatnonzero(self._changed)
        if not len(changed):
            return
        columns = [each.take(changed).tolist() for each in self._table]
        values = list(zip(*columns, strict=True)) if self._folds.is_tuple else columns[0]
        at = changed.tolist()
        keys, groups = [self._keys[each] for each in at], [self._groups[each] for each in at]
        self._state.write(keys, groups, values)
        self._changed[:] = False

    def forget(self) -> None:
        """Writes back what has changed, and reads all anew: others are about to change it."""
        self.flush()
        self._begin()

    def _fields_of(
        self, rows: ColumnRows, terms: list[NDArray[Any] | None]
    ) -> tuple[np.dtype[Any], ...] | None:
        """Types of the fields; None if they are not of one type from the first row on."""
        if self._initial is None:
            own = [each.dtype for each in rows.columns[: rows.width]]
            if rows.is_tuple != self._folds.is_tuple or len(own) != len(terms):
                return None
        else:
            initial = cast("tuple[object, ...]", self._initial)
            if len(initial) != len(terms):
                return None
            own = [_kind_of(each, term) for each, term in zip(initial, terms, strict=True)]
        folds = zip(self._folds.folds, own, terms, strict=True)
        found = [_field(fold.kind, kind, term) for fold, kind, term in folds]
        # A NumPy type equals None where that stands for float64, so `in` would not do.
        whole = [each for each in found if each is not None]
        return tuple(whole) if len(whole) == len(found) else None

    def _load(self, keys: list[object], groups: list[int]) -> bool:
        """Reads the values of new keys; False if one does not fit the columns."""
        first = len(self._keys)
        found = self._state.read(keys, groups)
        self._make_room(first + len(keys))
        self._keys += keys
        self._groups += groups
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
        self, groups: Groups, rows: ColumnRows, terms: list[NDArray[Any] | None]
    ) -> list[NDArray[Any]] | None:
        has = self._has.take(groups.keys)
        made: list[NDArray[Any]] = []
        for at, (fold, term) in enumerate(zip(self._folds.folds, terms, strict=True)):
            before, own = self._table[at].take(groups.keys), None
            if self._initial is None:
                own = rows.columns[at].take(groups.order.take(groups.starts))
            else:
                before[~has] = cast("tuple[Any, ...]", self._initial)[at]
            values = None if term is None else term.take(groups.order)
            column = _Column(fold.kind, before, has, own).folded(values, groups)
            if column is None:
                return None
            made.append(column)
        results: list[NDArray[Any]] = []
        for table, column in zip(self._table, made, strict=True):
            table[groups.keys] = column.take(groups.lasts)
            results.append(column.take(groups.places))
        self._has[groups.keys] = self._changed[groups.keys] = True
        return results


def _kind_of(initial: object, term: NDArray[Any] | None) -> np.dtype[Any] | None:
    """Type of a field that begins with this value."""
    if type(initial) is int and term is not None and term.dtype == _FLOAT and not initial:
        return _FLOAT  # the sum of 0 and a floating number is one
    return _KINDS.get(type(initial))


def _field(
    fold: FoldKind, own: np.dtype[Any] | None, term: NDArray[Any] | None
) -> np.dtype[Any] | None:
    """The type of a field that has it throughout; None if it has none."""
    if own is None or term is None:
        return own
    match fold:
        case FoldKind.LAST:
            return own if own == term.dtype else None
        case FoldKind.MIN | FoldKind.MAX:
            return own if own == term.dtype == _INT else None
        case _:
            return own if own == term.dtype != _BOOL else None


@dataclass(frozen=True, slots=True)
class _Column:
    """One field of the values of a batch's keys, shape (groups,), before the batch.

    has: whether a key had a value. own: the field in the key's first row, which is the value of a
    new key; None where new keys have an initial one.
    """

    kind: FoldKind
    before: NDArray[Any]
    has: NDArray[np.bool_]
    own: NDArray[Any] | None

    def folded(self, values: NDArray[Any] | None, groups: Groups) -> NDArray[Any] | None:
        """The field after each row, in the order of the groups; None if whole numbers overflow.

        values: the terms, in the same order.
        """
        has, before, starts = self.has, self.before, groups.starts
        if values is None:
            kept = before if self.own is None else np.where(has, before, self.own)
            return np.repeat(kept, groups.lengths)
        if self.own is not None:
            # Such a value is as it stands in the row, whatever the term is.
            values[starts] = np.where(has, values.take(starts), self.own)
            before = np.where(has, before, _nothing(self.kind, values.dtype))
        match self.kind:
            case FoldKind.LAST:
                return values
            case FoldKind.MIN:
                return groups.running(np.minimum, values, before)
            case FoldKind.MAX:
                return groups.running(np.maximum, values, before)
            case _ if values.dtype == _INT:
                most = _greatest(values) * len(values) + _greatest(before)
                return None if most > _LONG_MAX else groups.running_sum(values, before)
            case _:
                return self._sums(values, before, groups)

    def _sums(
        self, values: NDArray[np.float64], before: NDArray[np.float64], groups: Groups
    ) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            sums = groups.running(np.add, values, before)
        if self.kind is FoldKind.TOTAL:
            new = groups.starts[~self.has]
            untouched = sums.take(new)
            sums += 0.0
            sums[new] = untouched
        return sums


def _nothing(kind: FoldKind, dtype: np.dtype[Any]) -> Any:
    """The value that a fold leaves as the other one is."""
    match kind:
        case FoldKind.MIN:
            return _LONG_MAX
        case FoldKind.MAX:
            return ~_LONG_MAX
        case _:
            # 0.0 would make 0.0 of -0.0.
            return -0.0 if dtype == _FLOAT else 0


def _greatest(values: NDArray[np.int64]) -> int:
    return max(int(values.max()), -int(values.min()))


def _with_room(held: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.zeros(size, held.dtype)
    grown[: len(held)] = held
    return grown

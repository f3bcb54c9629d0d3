"""Gathered values of rows that are columns: a batch at a time, in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np

from flinkformat.frozen import frozen
from tidegate.loops.forms import loaded_loops
from tidegate.model.nullable import kind_of, values_of
from tidegate.operators.aggregates.groups import Groups
from tidegate.traced.evaluation import BOOL, FLOAT, INT, LONG_MAX, TEXT
from tidegate.traced.folds import FoldKind
from tidegate.typeinfo.long_index import LongIndex
from tidegate.typeinfo.text_index import TextIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import ColumnRows
    from tidegate.traced.folds import Folds

    Longs = NDArray[np.int64]

_TYPES: Final = {INT: int, FLOAT: float, BOOL: bool, TEXT: str}
_KINDS: Final[dict[type, np.dtype[Any]]] = {kind: dtype for dtype, kind in _TYPES.items()}
_INDEXES: Final = {INT: LongIndex, TEXT: TextIndex}
_GATHERED: Final = frozenset({FoldKind.KEEP, FoldKind.LAST, FoldKind.SUM})
"""Folds that need no order of the rows by key."""

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

    initial: what a new key begins with; None if its first row is its value. is_whole: the state has
    nothing of these keys but what is written back here; stays true while the columns hold all.
    form: of the values.
    """

    def __init__(
        self, folds: Folds, state: Gathered, initial: object = None, *, is_whole: bool = False
    ) -> None:
        self._folds = folds
        self._state = state
        self._initial = initial if folds.form.is_tuple or initial is None else (initial,)
        self._fields: tuple[np.dtype[Any], ...] = ()
        self.form = folds.form
        self.is_whole = is_whole
        self._key_kind = INT
        self._begin()

    def _begin(self) -> None:
        self._index: LongIndex | TextIndex = _INDEXES[self._key_kind]()
        self._groups = np.zeros(0, np.int16)
        self._table = [np.zeros(0, kind) for kind in self._fields]
        self._has = np.zeros(0, np.bool_)
        self._changed = np.zeros(0, np.bool_)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def keys(self) -> NDArray[Any]:
        """The keys, in the order in which they came: numbers or texts."""
        return self._index.keys

    @property
    def groups(self) -> NDArray[np.int16]:
        """Key groups of the keys."""
        return self._groups[: len(self)]

    @property
    def values(self) -> list[NDArray[Any]]:
        """The fields of their values."""
        return [each[: len(self)] for each in self._table]

    def add(self, rows: ColumnRows) -> list[NDArray[Any]] | None:
        """The fields of the values, one for each row; of keys that are numbers or texts.

        None where a value might come out otherwise than in Python: nothing has been added then, all
        before is written back, and the function has to gather these rows.
        """
        placed = self._placed(rows) if len(rows) else None
        made = None if placed is None else self._folded(rows, *placed)
        if made is None:
            self.forget()
        return made

    def gather(self, rows: ColumnRows) -> bool:
        """Adds rows, of which there is one at least; False where ``add`` gives None."""
        placed = self._placed(rows)
        if placed is not None and self._gathered(rows, *placed):
            return True
        self.forget()
        return False

    def _placed(self, rows: ColumnRows) -> tuple[Longs, list[NDArray[Any] | None]] | None:
        """The place of each row's key, and the terms; None where one might be another in Python."""
        assert rows.groups is not None, "a keyed edge gives keys"
        keys, terms = rows.key_values, self._folds.terms(rows)
        if keys.dtype not in _INDEXES or terms is None:
            return None
        fields = self._fields_of(rows, terms)
        if fields is None:
            return None
        shape = (keys.dtype, self._folds.form, fields)
        if shape != (self._key_kind, self.form, self._fields) or len(self) > KEYS_MAX:
            self.flush()
            self.is_whole = self.is_whole and not len(self)
            self._key_kind, self.form, self._fields = shape
            self._begin()
        places, new = self._index.place(keys)
        if len(new) and not self._load(keys.take(new), rows.groups.take(new)):
            return None
        return places, terms

    def flush(self) -> None:
        """Writes back what has changed."""
        changed = np.flatnonzero(self._changed)
        if not len(changed):
            return
        columns = [each.take(changed).tolist() for each in self._table]
        values = self.form.rows(columns)
        keys, groups = self.keys.take(changed).tolist(), self._groups.take(changed).tolist()
        self._state.write(keys, groups, values)
        self._changed[:] = False

    def forget(self) -> None:
        """Writes back what has changed, and reads all anew: others are about to change it."""
        self.flush()
        self.is_whole = False
        self._begin()

    def _fields_of(
        self, rows: ColumnRows, terms: list[NDArray[Any] | None]
    ) -> tuple[np.dtype[Any], ...] | None:
        """Types of the fields; None if they are not of one type from the first row on."""
        if self._initial is None:
            if rows.form != self._folds.form or rows.width != len(terms) or rows.has_nulls:
                return None
            own = list(map(kind_of, rows.columns[: rows.width]))
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

    def _load(self, keys: NDArray[Any], groups: NDArray[np.int16]) -> bool:
        """Reads the values of new keys; False if one does not fit the columns."""
        end = len(self)
        first = end - len(keys)
        self._make_room(end)
        self._groups[first:end] = groups
        if self._initial is not None:
            initial = cast("tuple[Any, ...]", self._initial)
            for table, value in zip(self._table, initial, strict=True):
                table[first:end] = value
        if self.is_whole:
            return True
        found = self._state.read(keys.tolist(), groups.tolist())
        held = [at for at, value in enumerate(found) if value is not None]
        if not held:
            return True
        kinds = [_TYPES[each.dtype] for each in self._table]
        columns = self.form.fields([found[at] for at in held], kinds, loaded_loops())
        if columns is None:
            return False
        places = np.array(held) + first
        for (column, nulls), table in zip(columns, self._table, strict=True):
            if nulls:
                return False
            try:
                table[places] = np.array(column, table.dtype)
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
            self._groups = _with_room(self._groups, size)
            self._table = [_with_room(each, size) for each in self._table]

    def _gathered(self, rows: ColumnRows, places: Longs, terms: list[NDArray[Any] | None]) -> bool:
        """Adds each row to what its key has, in the order of the rows."""
        folds = [*zip(self._folds.folds, self._table, terms, strict=True)]
        begins = self._initial is None and not self._has.take(places).all()
        if begins or any(fold.kind not in _GATHERED for fold, _, _ in folds):
            return self._folded(rows, places, terms) is not None
        for fold, table, term in folds:
            if fold.kind is FoldKind.SUM and term is not None and term.dtype == INT:
                most = _greatest(term) * len(term) + _greatest(table.take(places))
                if most > LONG_MAX:
                    return False
        with np.errstate(all="ignore"):
            for fold, table, term in folds:
                if term is None:
                    continue
                if fold.kind is FoldKind.SUM:
                    np.add.at(table, places, term)
                else:
                    lasts = np.full(len(self), -1)
                    np.maximum.at(lasts, places, np.arange(len(places)))
                    seen = lasts >= 0
                    table[: len(self)][seen] = term.take(lasts[seen])
        self._has[places] = self._changed[places] = True
        return True

    def _folded(
        self, rows: ColumnRows, places: Longs, terms: list[NDArray[Any] | None]
    ) -> list[NDArray[Any]] | None:
        groups = Groups.of(places, len(self))
        has = self._has.take(groups.keys)
        made: list[NDArray[Any]] = []
        for at, (fold, term) in enumerate(zip(self._folds.folds, terms, strict=True)):
            before, own = self._table[at].take(groups.keys), None
            if self._initial is None:
                own = values_of(rows.columns[at]).take(groups.order.take(groups.starts))
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
    if type(initial) is int and term is not None and term.dtype == FLOAT and not initial:
        return FLOAT  # the sum of 0 and a floating number is one
    if type(initial) is int and not -LONG_MAX <= initial <= LONG_MAX:
        return None
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
            return own if own == term.dtype == INT else None
        case _:
            return own if own == term.dtype and own in (INT, FLOAT) else None


@frozen
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
            case _ if values.dtype == INT:
                most = _greatest(values) * len(values) + _greatest(before)
                return None if most > LONG_MAX else groups.running_sum(values, before)
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
            return LONG_MAX
        case FoldKind.MAX:
            return ~LONG_MAX
        case _:
            # 0.0 would make 0.0 of -0.0.
            return -0.0 if dtype == FLOAT else 0


def _greatest(values: NDArray[np.int64]) -> int:
    return max(int(values.max()), -int(values.min()))


def _with_room(held: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.zeros(size, held.dtype)
    grown[: len(held)] = held
    return grown

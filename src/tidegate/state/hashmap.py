"""The HashMap backend's table: a dict for each key group, snapshots by copy-on-write at the entry.

`freeze` is the quick part of a snapshot: it only marks the key groups that hold anything. From then
on the first write to an entry of a frozen group keeps the old value beside, its *pre-image*, and a
value that can be changed is copied when it is read or edited. `pieces` gives a group's entries as
they are now (some older, some newer than the barrier) and then the pre-images, which restore lays
over them: together they are the group at the barrier. A group thaws when its last entry is out of
reach of writes. While nothing is frozen, a write pays for one look into a list.

Measured against copying whole dicts, merging pre-images, a thread, and fork:
docs/design/entry-copy-on-write.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import UserError
from tidegate.typeinfo.copies import private_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.api.operator import KeyCell
    from tidegate.api.state import ValueState
    from tidegate.model.key_groups import KeyGroupRange

Entries = dict[object, object]


class _Absent:
    """The pre-image of an entry that was not there."""


_ABSENT: Final = _Absent()


class _Refusing(dict[object, object]):
    """Stands in the place of entries that nobody may ask for."""

    def __init__(self, refusal: Callable[[], Exception]) -> None:
        super().__init__()
        self._refusal = refusal

    def get(self, key: object, default: object = None, /) -> object:
        raise self._refusal()

    def __setitem__(self, key: object, value: object) -> None:
        raise self._refusal()

    def pop(self, key: object, default: object = None, /) -> object:
        raise self._refusal()


def _no_key() -> Exception:
    return UserError(
        "Keyed state was used where there is no current key",
        where="outside of the processing of a keyed record, such as in open or close, or for a "
        "broadcast record",
        remedy="Read and write keyed state only while a keyed record or a timer is processed.",
    )


def _foreign_key() -> Exception:
    return AssertionError("the current key belongs to another subtask's key groups")


class _FirstWrite(dict[object, object]):
    """Stands in the place of pre-images until the first write, whose key it checks.

    To a write it looks as if the old value were kept already, so nobody else has to know of it.
    """

    def __init__(self, check: Callable[[object], None], saved: list[Entries | None]) -> None:
        super().__init__()
        self._check = check
        self._saved = saved

    def __contains__(self, key: object) -> bool:
        self._check(key)
        self._saved[:] = [None if each is self else each for each in self._saved]
        return True


@dataclass(frozen=True, slots=True)
class Present:
    """Entries: these keys have these values."""

    keys: Sequence[object]
    values: Sequence[object]


@dataclass(frozen=True, slots=True)
class Missing:
    """These keys have no entry."""

    keys: Sequence[object]


class HashMapTable:
    """One named keyed state in dicts.

    copy: copies an entry, or None where entries can't be changed.
    """

    def __init__(
        self,
        cell: KeyCell,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        *,
        copy: Callable[[object], object] | None,
    ) -> None:
        self._key_groups = key_groups
        # One more than there are key groups, since the group of a key not yet set is -1.
        self._maps: list[Entries] = [_Refusing(_foreign_key)] * max_parallelism
        self._maps.append(_Refusing(_no_key))
        for group in key_groups:
            self._maps[group] = {}
        self._saved: list[Entries | None] = [None] * (max_parallelism + 1)
        self._frozen: list[int] = []
        self._round = self._all_around()
        self._copy = copy
        self.cell = cell
        self.peek = _peek(cell, self._maps)
        self.read = self.peek if copy is None else _read(cell, self._maps, self._saved, copy)
        self.is_shared = _is_shared(cell, self._saved)
        self.edit = self.peek if copy is None else _edit(cell, self._maps, self._saved, copy)
        self.write = _write(cell, self._maps, self._saved)

    def fold(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Iterable[object],
        merge: Callable[[object, object], object],
        emit: Callable[[object], None],
    ) -> None:
        """Merge each value into its key's entry, and emit each new entry."""
        maps, saved = self._maps, self._saved
        for value, key, group in zip(values, keys, groups, strict=True):
            entries, preimages = maps[group], saved[group]
            old = entries.get(key)
            if preimages is not None and key not in preimages:
                preimages[key] = _ABSENT if old is None else old
                if old is not None and self._copy is not None:
                    old = self._copy(old)
            new = value if old is None else merge(old, value)
            if new is None:
                entries.pop(key, None)
            else:
                entries[key] = new
            emit(new)

    def accumulate(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Iterable[object],
        add: Callable[[object, object], object],
        create: Callable[[], object],
    ) -> None:
        """Set each key's entry to ``add(value, entry)``; ``create`` makes a first entry."""
        maps, saved = self._maps, self._saved
        for value, key, group in zip(values, keys, groups, strict=True):
            entries, preimages = maps[group], saved[group]
            old = entries.get(key)
            if preimages is not None and key not in preimages:
                preimages[key] = _ABSENT if old is None else old
                if old is not None and self._copy is not None:
                    old = entries[key] = self._copy(old)
            new = add(value, create() if old is None else old)
            if new is None:
                entries.pop(key, None)
            else:
                entries[key] = new

    def value_state(self) -> ValueState[object]:
        """The entries as value state."""
        return _value_state(self, self._maps, self._saved, self._copy)

    def scan(self) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of all there is."""
        for group in self._key_groups:
            for key, value in self._maps[group].items():
                yield group, key, value

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        """Look at that many entries, or empty key groups, and leave of each what is kept."""
        for group, (key, before) in islice(self._round, steps):
            if before is None or kept(before) is before:
                continue  # without a look into the dict, which would cost more than all else
            entries, preimages = self._maps[group], self._saved[group]
            entry = entries.get(key)
            left = None if entry is None else kept(entry)
            if left is entry:
                continue
            # A first write is awaited only where nothing is frozen, and this is none.
            if not isinstance(preimages, _FirstWrite | None):
                preimages.setdefault(key, entry)
            if left is None:
                del entries[key]
            else:
                entries[key] = left

    def _all_around(self) -> Iterator[tuple[int, tuple[object, object]]]:
        """Key group, key and entry, as it was a while ago, of all there is, over and over."""
        while True:
            for group in self._key_groups:
                yield from zip(repeat(group), list(self._maps[group].items()) or ((None, None),))

    def load(self, group: int, loaded: Present | Missing) -> None:
        """Take in what `pieces` gave, in its order; only while nothing is frozen."""
        entries = self._maps[group]
        if isinstance(loaded, Present):
            entries.update(zip(loaded.keys, loaded.values, strict=True))
            return
        for key in loaded.keys:
            entries.pop(key, None)

    def check_first_key(self, check: Callable[[object], None]) -> None:
        """Have the key of the first write checked; before anything is frozen."""
        self._saved[:] = [_FirstWrite(check, self._saved)] * len(self._saved)

    def freeze(self) -> list[int]:
        """Mark every key group that holds anything, and name them; from now on writes save."""
        assert all(self._saved[group] is None for group in self._frozen), "frozen before"
        self._frozen = [group for group in self._key_groups if self._maps[group]]
        for group in self._frozen:
            self._saved[group] = {}
        return self._frozen

    def pieces(
        self,
        group: int,
        rows: Callable[[], int],
        kept: Callable[[object], object] | None = None,
    ) -> Iterator[Present | Missing]:
        """What a frozen key group held when it was frozen; to be loaded in this order.

        rows: asked for each piece how many entries it may have. kept: as in `prune`, for what is
        given; None for all. A piece is to be encoded before the next write, for its values are
        live.
        """
        entries = self._maps[group]
        keys, values = list(entries), list(entries.values())
        # Values that can't be changed are safe in the list, so writes need save nothing more.
        saved = self._thaw(group) if self._copy is None else None
        present = _present(keys, values, rows)
        yield from present if kept is None else (_left(piece, kept) for piece in present)
        saved = self._thaw(group) if saved is None else saved
        if kept is not None:
            for key, value in saved.items():
                left = value if value is _ABSENT else kept(value)
                saved[key] = _ABSENT if left is None else left
        yield from _preimages(saved, rows)

    def thaw(self) -> None:
        """Give up what is still frozen."""
        for group in self._frozen:
            self._saved[group] = None

    def _thaw(self, group: int) -> Entries:
        saved = self._saved[group]
        assert saved is not None, f"key group {group} is not frozen"
        self._saved[group] = None
        return saved


def _present(
    keys: list[object], values: list[object], rows: Callable[[], int]
) -> Iterator[Present]:
    start, count = 0, len(keys)
    while start < count:
        end = start + rows()
        if start == 0 and end >= count:
            yield Present(keys, values)  # a slice would touch each object once more
        else:
            yield Present(keys[start:end], values[start:end])
        start = end


def _left(piece: Present, kept: Callable[[object], object]) -> Present:
    pairs = zip(piece.keys, map(kept, piece.values), strict=True)
    left = [(key, value) for key, value in pairs if value is not None]
    return Present([key for key, _ in left], [value for _, value in left])


def _preimages(saved: Entries, rows: Callable[[], int]) -> Iterator[Present | Missing]:
    missing = [key for key, value in saved.items() if value is _ABSENT]
    for key in missing:
        del saved[key]
    yield from _present(list(saved), list(saved.values()), rows)
    start = 0
    while start < len(missing):
        end = start + rows()
        yield Missing(missing[start:end])
        start = end


def _value_state(
    table: HashMapTable,
    maps: list[Entries],
    saved: list[Entries | None],
    copy: Callable[[object], object] | None,
) -> ValueState[object]:
    """Value state in a class of its own for each table: the hottest calls that there are.

    A method is called quicker than a function that is an attribute, and an argument with a default
    is read quicker than a free variable; nobody passes these. 15 and 25 ns of some 130 a call under
    load (benchmarks/state_bench.py).
    """
    cell, write = table.cell, table.write

    class Values:
        __slots__ = ()

        def value(
            self,
            cell: KeyCell = cell,
            maps: list[Entries] = maps,
            saved: list[Entries | None] = saved,
            copy: Callable[[object], object] = private_copy if copy is None else copy,
        ) -> object:
            group = cell.group
            preimages = saved[group]
            if preimages is None:
                return maps[group].get(cell.key)
            value = maps[group].get(cell.key)
            return value if cell.key in preimages else copy(value)

        def update(
            self,
            value: object,
            cell: KeyCell = cell,
            maps: list[Entries] = maps,
            saved: list[Entries | None] = saved,
            absent: object = _ABSENT,
        ) -> None:
            group = cell.group
            preimages = saved[group]
            if preimages is not None and cell.key not in preimages:
                preimages[cell.key] = maps[group].get(cell.key, absent)
            if value is None:
                maps[group].pop(cell.key, None)
            else:
                maps[group][cell.key] = value

        def clear(self) -> None:
            write(None)

    return Values() if copy is not None else _immutable(Values, cell, maps)


def _immutable(values: type[Any], cell: KeyCell, maps: list[Entries]) -> ValueState[object]:
    """The same for values that nobody can change, so that none has to be copied."""

    class ImmutableValues(values):
        __slots__ = ()

        def value(self, cell: KeyCell = cell, maps: list[Entries] = maps) -> object:
            return maps[cell.group].get(cell.key)

    return ImmutableValues()


# The functions of a table: closures, for one call a record and no look-up of attributes but the
# cell's.


def _peek(cell: KeyCell, maps: list[Entries]) -> Callable[[], object]:
    def peek() -> object:
        return maps[cell.group].get(cell.key)

    return peek


def _read(
    cell: KeyCell,
    maps: list[Entries],
    saved: list[Entries | None],
    copy: Callable[[object], object],
) -> Callable[[], object]:
    def read() -> object:
        group = cell.group
        preimages = saved[group]
        if preimages is None:
            return maps[group].get(cell.key)
        key = cell.key
        value = maps[group].get(key)
        # What was written since the barrier is in no snapshot.
        return value if key in preimages else copy(value)

    return read


def _is_shared(cell: KeyCell, saved: list[Entries | None]) -> Callable[[], bool]:
    def is_shared() -> bool:
        preimages = saved[cell.group]
        return preimages is not None and cell.key not in preimages

    return is_shared


def _edit(
    cell: KeyCell,
    maps: list[Entries],
    saved: list[Entries | None],
    copy: Callable[[object], object],
) -> Callable[[], object]:
    def edit() -> object:
        group = cell.group
        preimages = saved[group]
        if preimages is None:
            return maps[group].get(cell.key)
        key = cell.key
        entries = maps[group]
        value = entries.get(key)
        if value is not None and key not in preimages:
            preimages[key] = value
            value = entries[key] = copy(value)
        return value

    return edit


def _write(
    cell: KeyCell, maps: list[Entries], saved: list[Entries | None]
) -> Callable[[object], None]:
    def write(value: object) -> None:
        key, entries, preimages = cell.key, maps[cell.group], saved[cell.group]
        if preimages is not None and key not in preimages:
            preimages[key] = entries.get(key, _ABSENT)
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value

    return write

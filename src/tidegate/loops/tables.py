"""Reads and writes of a table in memory: `state.heap.hashmap` says what they have to keep.

maps: entries by key group. saved: by key group where writes look for pre-images, or note their
keys, or None. shared: pre-images of key groups that a snapshot still needs, or None.

Compiled code passes over what a subclass of dict makes of ``in`` and ``get``. So ``saved`` and
``shared``, where ``in`` may do more, are typed as anything; and where entries are none of a plain
dict, which may be one that refuses to be read, they are asked again as anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.loops.cells import KeyCell

Entries = dict[Any, Any]

REDUCED_TO_NONE: Final = (
    "the reduce function has returned None; it must return the accumulated value"
)


class ImmutableValues:
    """Value state over entries that nobody can change. absent: kept for a key without a value."""

    def __init__(
        self, cell: KeyCell, maps: list[Entries], saved: list[Any], absent: object
    ) -> None:
        self._cell: Final = cell
        self._maps: Final = maps
        self._saved: Final = saved
        self._absent: Final = absent

    def value(self) -> Any:
        cell = self._cell
        entries = self._maps[cell.group]
        value = entries.get(cell.key)
        return _asked_again(entries, cell.key) if value is None else value

    def update(self, value: Any) -> None:
        cell = self._cell
        key, group = cell.key, cell.group
        entries, preimages = self._maps[group], self._saved[group]
        if preimages is not None and key not in preimages:
            preimages[key] = entries.get(key, self._absent)
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value

    def clear(self) -> None:
        self.update(None)


class CopiedValues(ImmutableValues):
    """Value state over entries that can be changed. copy: copies one that a snapshot needs."""

    def __init__(
        self,
        cell: KeyCell,
        maps: list[Entries],
        saved: list[Any],
        absent: object,
        shared: list[Any],
        copy: Callable[[object], object],
    ) -> None:
        super().__init__(cell, maps, saved, absent)
        self._shared: Final = shared
        self._copy: Final = copy

    def value(self) -> Any:
        cell = self._cell
        key, group = cell.key, cell.group
        entries, preimages = self._maps[group], self._shared[group]
        value = entries.get(key)
        if value is None:
            return _asked_again(entries, key)
        # What was written since the barrier is in no snapshot.
        return value if preimages is None or key in preimages else self._copy(value)


def _asked_again(entries: Entries, key: object) -> Any:
    refusing: Any = entries
    return None if type(entries) is dict else refusing.get(key)


def fold(
    maps: list[Entries],
    saved: list[Any],
    shared: list[Any],
    absent: object,
    copy: Callable[[object], object] | None,
    keys: list[object],
    groups: list[int],
    values: list[object],
    merge: Callable[[object, object], object],
    emit: Callable[[object], None],
) -> None:
    for value, key, group in zip(values, keys, groups):  # noqa: B905
        entries, preimages = maps[group], saved[group]
        old = entries.get(key)
        if old is None:
            _asked_again(entries, key)
        if preimages is not None and key not in preimages:
            preimages[key] = absent if old is None else old
            if old is not None and copy is not None and shared[group] is not None:
                old = copy(old)
        new = value if old is None else merge(old, value)
        if new is not None:
            entries[key] = new
        elif old is not None:
            raise TypeError(REDUCED_TO_NONE)
        emit(new)


def accumulate(
    maps: list[Entries],
    saved: list[Any],
    shared: list[Any],
    absent: object,
    copy: Callable[[object], object] | None,
    keys: Iterable[object],
    groups: list[int],
    values: Iterable[object],
    add: Callable[[object, object], object],
    create: Callable[[], object],
) -> None:
    for value, key, group in zip(values, keys, groups):  # noqa: B905
        entries, preimages = maps[group], saved[group]
        old = entries.get(key)
        if old is None:
            _asked_again(entries, key)
        if preimages is not None and key not in preimages:
            preimages[key] = absent if old is None else old
            if old is not None and copy is not None and shared[group] is not None:
                old = entries[key] = copy(old)
        new = add(value, create() if old is None else old)
        if new is None:
            entries.pop(key, None)
        else:
            entries[key] = new


def read_all(
    maps: list[Entries],
    shared: list[Any],
    copy: Callable[[object], object] | None,
    keys: list[object],
    groups: list[int],
) -> list[object]:
    found: list[object] = []
    for key, group in zip(keys, groups):  # noqa: B905
        entries = maps[group]
        value = entries.get(key)
        if value is None:
            value = _asked_again(entries, key)
        elif copy is not None:
            preimages = shared[group]
            if preimages is not None and key not in preimages:
                value = copy(value)
        found.append(value)
    return found


def remove_all(
    maps: list[Entries],
    saved: list[Any],
    absent: object,
    keys: list[object],
    groups: list[int],
) -> None:
    for key, group in zip(keys, groups):  # noqa: B905
        entries, preimages = maps[group], saved[group]
        if preimages is not None and key not in preimages:
            preimages[key] = entries.get(key, absent)
        entries.pop(key, None)


class PartedValues:
    """Base of lists and maps of keys, which are changed in place; for compiled code alone.

    Interpreted, the kinds of state on closures of the table are faster.

    copy: copies a whole entry. copy_part: copies an element or a map's value; None for what nobody
    can change.
    """

    def __init__(
        self,
        cell: KeyCell,
        maps: list[Entries],
        saved: list[Any],
        shared: list[Any],
        absent: object,
        copy: Callable[[object], object],
        copy_part: Callable[[object], object] | None,
    ) -> None:
        self._cell: Final = cell
        self._maps: Final = maps
        self._saved: Final = saved
        self._shared: Final = shared
        self._absent: Final = absent
        self._copy: Final = copy
        self._copy_part: Final = copy_part

    def _peek(self) -> Any:
        cell = self._cell
        entries = self._maps[cell.group]
        entry = entries.get(cell.key)
        return _asked_again(entries, cell.key) if entry is None else entry

    def _is_shared(self) -> bool:
        cell = self._cell
        preimages = self._shared[cell.group]
        return preimages is not None and cell.key not in preimages

    def _edit(self) -> Any:
        cell = self._cell
        key, group = cell.key, cell.group
        entries, preimages = self._maps[group], self._saved[group]
        entry = entries.get(key)
        if entry is None:
            return _asked_again(entries, key)
        if preimages is not None and key not in preimages:
            preimages[key] = entry
            if self._shared[group] is not None:
                entry = entries[key] = self._copy(entry)
        return entry

    def _write(self, entry: Any) -> None:
        cell, absent = self._cell, self._absent
        key, group = cell.key, cell.group
        entries, preimages = self._maps[group], self._saved[group]
        if preimages is not None and key not in preimages:
            preimages[key] = entries.get(key, absent)
        if entry is None:
            entries.pop(key, None)
        else:
            entries[key] = entry

    def clear(self) -> None:
        self._write(None)


class ListValues(PartedValues):
    """Lists of keys, as ``TableListState`` has them."""

    def get(self) -> Any:
        elements = self._peek()
        if elements is None:
            return []
        if self._copy_part is not None and self._is_shared():
            return list(map(self._copy_part, elements))
        return elements.copy()

    def add(self, value: Any) -> None:
        elements = self._edit()
        if elements is None:
            self._write([value])
        else:
            elements.append(value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add_all(self, values: Any) -> None:
        added = list(values)
        elements = self._edit()
        if elements is not None:
            elements.extend(added)
        elif added:
            self._write(added)

    def update(self, values: Any) -> None:
        self._write(list(values) or None)


class MapValues(PartedValues):
    """Maps of keys, as ``TableMapState`` has them."""

    def get(self, key: Any) -> Any:
        entries = self._peek()
        if entries is None:
            return None
        value = entries.get(key)
        return (
            self._copy_part(value) if self._copy_part is not None and self._is_shared() else value
        )

    def put(self, key: Any, value: Any) -> None:
        entries = self._edit()
        if entries is None:
            self._write({key: value})
        else:
            entries[key] = value

    def put_all(self, dict_value: Any) -> None:
        added = dict(dict_value)
        held = self._edit()
        if held is not None:
            held.update(added)
        elif added:
            self._write(added)

    def remove(self, key: Any) -> None:
        held = self._peek()
        if held is None or key not in held:
            return
        entries = self._edit()
        del entries[key]
        if not entries:
            self._write(None)

    def contains(self, key: Any) -> bool:
        entries = self._peek()
        return entries is not None and key in entries

    def items(self) -> Iterator[Any]:
        entries = self._peek() or {}
        if self._copy_part is not None and self._is_shared():
            return zip(list(entries), list(map(self._copy_part, entries.values())))  # noqa: B905
        return iter(list(entries.items()))

    def keys(self) -> Iterator[Any]:
        return iter(list(self._peek() or ()))

    def values(self) -> Iterator[Any]:
        return iter([value for _, value in self.items()])

    def is_empty(self) -> bool:
        return self._peek() is None

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return self.keys()

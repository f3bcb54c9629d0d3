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
    from collections.abc import Callable, Iterable

    from tidegate.loops.cells import KeyCell

Entries = dict[Any, Any]


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
        if new is None:
            entries.pop(key, None)
        else:
            entries[key] = new
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

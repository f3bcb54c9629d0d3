"""State with one row an entry: values, what is reduced or aggregated, and maps of loose keys.

As long as it fits into the cache it is read and written like a dict. What a record calls stands on
locals, not on attributes (benchmarks/state_bench.py).
"""

from __future__ import annotations

from functools import partial
from itertools import compress
from typing import TYPE_CHECKING

from tidegate.loops.tables import REDUCED_TO_NONE
from tidegate.state.disk.layered import UNKNOWN
from tidegate.state.disk.store import PREFIX_BYTES
from tidegate.state.user.kinds import TableListState, TableMapState, at_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.api.state import State, ValueState
    from tidegate.loops.cells import KeyCell
    from tidegate.state.disk.layered import LayeredTable, ReadCache, Written
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.format.encoding import StoredValues

Entries = dict[object, object]


class EntryCodec:
    """Entries of one row each, as a `Codec`: a part is the entry; None if there is none."""

    in_parts = False

    def __init__(self, values: StoredValues, copy: Callable[[object], object] | None) -> None:
        self.values = self.wholes = values
        self.copy = copy

    def size(self, parts: Entries) -> int:
        return len(parts)

    def is_whole(self, part: object) -> bool:
        return True

    def joined(self, parts: Sequence[object]) -> object:
        return parts[-1]

    def lay_under(self, part: object, since: Sequence[object]) -> None:
        """The newer value replaces the older one."""

    def looked_at(self, parts: Entries) -> Iterable[tuple[object, object]]:
        return list(parts.items())

    def changes(self, parts: Entries) -> Iterator[tuple[object, object]]:
        return iter(parts.items())

    def written(self, names: list[bytes], changes: list[tuple[object, object]]) -> Written:
        gone = [name for name, (_, value) in zip(names, changes, strict=True) if value is None]
        if gone:
            held = [change[1] is not None for change in changes]
            names, changes = list(compress(names, held)), list(compress(changes, held))
        return names, changes, gone, ()

    def settled(self, parts: Entries, cache: ReadCache[object]) -> None:
        cache.keep_all(parts, len(parts))

    def beginning(self, name: bytes) -> bytes:
        return name

    def split(self, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        return [name[PREFIX_BYTES:] for name in names], []

    def rows(self, rests: list[bytes], pieces: list[bytes]) -> list[object]:
        return self.values.decode_each(pieces)

    def row_entries(
        self, keys: list[object], rows: list[object]
    ) -> Iterable[tuple[object, object]]:
        return zip(keys, rows, strict=True)

    def whole(self, rows: Sequence[object], newer: Sequence[object]) -> object:
        return rows[0]

    def fetched(self, store: RocksDBStore, beginnings: list[bytes]) -> Iterable[object]:
        found = store.get_many(beginnings)
        values = iter(self.values.decode_each([piece for piece in found if piece is not None]))
        return [None if piece is None else next(values) for piece in found]


class EntryTable:
    """Entries of one row each, as a `KeyedTable`."""

    def __init__(
        self,
        cell: KeyCell,
        table: LayeredTable[object],
        copy: Callable[[object], object] | None,
        *,
        paired: bool,
    ) -> None:
        self.cell = cell
        self._table = table
        self._dirty, self._layers, self._cache = table.dirty, table.layers, table.cache
        self._copy = copy
        self._paired = paired
        self.prefetch = table.prefetch
        self.scan = table.scan
        self.read, self.peek, self.write = self._accessors()

    def is_shared(self) -> bool:
        cell = self.cell
        if cell.key in self._dirty[cell.group]:
            return False
        return any(
            cell.key in layer.entries[cell.group]
            for layer in self._layers
            if cell.group in layer.pending
        )

    def edit(self) -> object:
        value = self.read()
        if value is not None:
            self._dirty[self.cell.group][self.cell.key] = value
        return value

    def read_all(self, keys: Sequence[object], groups: Sequence[int]) -> list[object]:
        return at_each(self.cell, self.read, keys, groups)

    def remove_all(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        at_each(self.cell, partial(self.write, None), keys, groups)

    def fold(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Iterable[object],
        merge: Callable[[object, object], object],
        emit: Callable[[object], None],
    ) -> None:
        dirty, load = self._dirty, self._load
        for value, key, group in zip(values, keys, groups, strict=True):
            entries = dirty[group]
            old = entries.get(key, UNKNOWN)
            if old is UNKNOWN:
                old = load(key, group)
            new = value if old is None else merge(old, value)
            if new is None and old is not None:
                raise TypeError(REDUCED_TO_NONE)
            entries[key] = new
            emit(new)

    def accumulate(
        self,
        keys: Iterable[object],
        groups: Sequence[int],
        values: Iterable[object],
        add: Callable[[object, object], object],
        create: Callable[[], object],
    ) -> None:
        dirty, load = self._dirty, self._load
        if self._paired:
            # Which namespaces a batch asks for is known only here.
            keys = list(keys)
            self.prefetch(keys, groups)
        for value, key, group in zip(values, keys, groups, strict=True):
            entries = dirty[group]
            old = entries.get(key, UNKNOWN)
            if old is UNKNOWN:
                old = load(key, group)
            entries[key] = add(value, create() if old is None else old)

    def list_state(self, copy: Callable[[object], object] | None) -> State:
        return TableListState(self, copy)

    def map_state(self, copy: Callable[[object], object] | None) -> State:
        return TableMapState(self, copy)

    def value_state(self) -> ValueState[object]:
        return _value_state(self.cell, self._dirty, self._load)

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        for group, key, _ in self._table.expired(steps, kept):
            entry = self._dirty[group].get(key, UNKNOWN)
            if entry is UNKNOWN:
                entry = self._load(key, group)
            left = None if entry is None else kept(entry)
            if left is not entry:
                self._dirty[group][key] = left

    def _load(self, key: object, group: int) -> object:
        """Entry for its user to change, not yet written since the last snapshot."""
        if self._layers:
            for layer in reversed(self._layers):
                value = layer.entries[group].get(key, UNKNOWN)
                if value is not UNKNOWN:
                    # Until its bytes are made, the layer has to stay as it is.
                    return value if self._copy is None or value is None else self._copy(value)
        cache = self._cache
        value = cache.young.get(key, UNKNOWN)
        if value is not UNKNOWN:
            return value
        value = cache.old.pop(key, UNKNOWN)
        if value is UNKNOWN:
            value = self._table.value(self._table.name(key, group))
            if value is UNKNOWN:
                value = None
        cache.young[key] = value
        return value

    def _accessors(
        self,
    ) -> tuple[Callable[[], object], Callable[[], object], Callable[[object], None]]:
        cell, dirty, layers, load = self.cell, self._dirty, self._layers, self._load

        def read() -> object:
            value = dirty[cell.group].get(cell.key, UNKNOWN)
            return load(cell.key, cell.group) if value is UNKNOWN else value

        def peek() -> object:
            value = dirty[cell.group].get(cell.key, UNKNOWN)
            if value is not UNKNOWN:
                return value
            for layer in reversed(layers):
                value = layer.entries[cell.group].get(cell.key, UNKNOWN)
                if value is not UNKNOWN:
                    return value
            return load(cell.key, cell.group)

        def write(value: object) -> None:
            dirty[cell.group][cell.key] = value

        return read, peek, write


def _value_state(
    cell: KeyCell, dirty: list[Entries], load: Callable[[object, int], object]
) -> ValueState[object]:
    """Value state in a class of its own for each table, as in `heap.hashmap`, which says why."""

    class Values:
        __slots__ = ()

        def value(
            self,
            cell: KeyCell = cell,
            dirty: list[Entries] = dirty,
            unknown: object = UNKNOWN,
            load: Callable[[object, int], object] = load,
        ) -> object:
            value = dirty[cell.group].get(cell.key, unknown)
            return load(cell.key, cell.group) if value is unknown else value

        def update(self, value: object, cell: KeyCell = cell, dirty: list[Entries] = dirty) -> None:
            dirty[cell.group][cell.key] = value

        def clear(self, cell: KeyCell = cell, dirty: list[Entries] = dirty) -> None:
            dirty[cell.group][cell.key] = None

    return Values()

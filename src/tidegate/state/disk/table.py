"""One named keyed state over a key space: what was written lately in dicts, the rest on disk.

An entry is looked for in four places, the newest first: what was written since the last snapshot,
what older snapshots still have to bring to disk (`written`), what was read lately, and the disk. So
a state that fits into the cache is read and written like a dict, and a snapshot's quick part only
sets a layer aside. Nothing reaches the disk while a snapshot is being linked there.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tidegate.state.disk.store import Rows, after, prefix_of
from tidegate.state.disk.written import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.api.operator import KeyCell
    from tidegate.api.state import ValueState
    from tidegate.state.disk.codecs import StoredKeys, StoredValues
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.disk.written import Log

Entries = dict[object, object]

_ROWS_A_SCAN: Final = 256
_ROWS_PREFETCHED: Final = 1024


class _Unknown:
    """What a dict gives where the entry has to be looked for elsewhere."""


_UNKNOWN: Final = _Unknown()


class RocksDBTable:
    """The entries of one named state.

    number: of the state in the key space. copy: copies an entry, or None where entries can't be
    changed. entries_max: how many may be cached, as asked for now. log: None for nobody.
    """

    def __init__(
        self,
        cell: KeyCell,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        store: RocksDBStore,
        number: int,
        keys: StoredKeys,
        values: StoredValues,
        *,
        copy: Callable[[object], object] | None,
        entries_max: Callable[[], int],
        log: Log | None = None,
    ) -> None:
        self.cell = cell
        self._key_groups = key_groups
        self._store = store
        self._prefixes = [prefix_of(group, number) for group in range(max_parallelism)]
        self._keys = keys
        self._values = values
        self._paired = keys.paired
        self._copy = copy
        self._entries_max = entries_max
        self._log = log
        self.written = Written[object](key_groups, max_parallelism, store, self)
        self._dirty, self._layers = self.written.dirty, self.written.layers
        self._young: Entries = {}
        self._old: Entries = {}
        self._round = self._all_around()
        self.loads = 0
        self.read = self._reader()
        self.peek = self._peeker()
        self.write = self._writer()

    # --- KeyedTable ---

    def is_shared(self) -> bool:
        """Whether a snapshot needs the current key's entry."""
        cell = self.cell
        if cell.key in self._dirty[cell.group]:
            return False
        return any(
            cell.key in layer.entries[cell.group]
            for layer in self._layers
            if cell.group in layer.pending
        )

    def edit(self) -> object:
        """The current key's entry, to be changed in place at once."""
        value = self.read()
        if value is not None:
            self._dirty[self.cell.group][self.cell.key] = value
        return value

    def fold(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Iterable[object],
        merge: Callable[[object, object], object],
        emit: Callable[[object], None],
    ) -> None:
        """Merge each value into its key's entry, and emit each new entry."""
        dirty, load = self._dirty, self._load
        for value, key, group in zip(values, keys, groups, strict=True):
            entries = dirty[group]
            old = entries.get(key, _UNKNOWN)
            if old is _UNKNOWN:
                old = load(key, group)
            new = entries[key] = value if old is None else merge(old, value)
            emit(new)

    def accumulate(
        self,
        keys: Iterable[object],
        groups: Sequence[int],
        values: Iterable[object],
        add: Callable[[object, object], object],
        create: Callable[[], object],
    ) -> None:
        """Set each key's entry to ``add(value, entry)``; ``create`` makes a first entry."""
        dirty, load = self._dirty, self._load
        if self._paired:
            # Which namespaces a batch asks for is known only here.
            keys = list(keys)
            self.prefetch(keys, groups)
        for value, key, group in zip(values, keys, groups, strict=True):
            entries = dirty[group]
            old = entries.get(key, _UNKNOWN)
            if old is _UNKNOWN:
                old = load(key, group)
            entries[key] = add(value, create() if old is None else old)

    def value_state(self) -> ValueState[object]:
        """The entries as value state."""
        return _value_state(self, self._dirty, self._load)

    def scan(self) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry of all there is."""
        for group in self._key_groups:
            newer: Entries = {}
            for layer in self._layers:
                newer.update(layer.entries[group])
            newer.update(self._dirty[group])
            for keys, values in self._on_disk(group):
                for key, value in zip(keys, values, strict=True):
                    if key not in newer:
                        yield group, key, value
            for key, value in newer.items():
                if value is not None:
                    yield group, key, value

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        """Look at about that many entries, or empty key groups, and leave of each what is kept."""
        for group, key, before in islice(self._round, steps):
            if before is None or kept(before) is before:
                continue
            entry = self._dirty[group].get(key, _UNKNOWN)
            if entry is _UNKNOWN:
                entry = self._load(key, group)
            left = None if entry is None else kept(entry)
            if left is not entry:
                self._dirty[group][key] = left

    # --- The cache ---

    def prefetch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Read at once what these keys have on disk, unless hardly any had to be read lately."""
        loads, self.loads = self.loads, 0
        if loads * 64 < len(keys):
            return
        dirty, young, old = self._dirty, self._young, self._old
        layers = [layer.entries for layer in self._layers]
        wanted = {
            key: group
            for key, group in zip(keys, groups, strict=True)
            if key not in dirty[group]
            and key not in young
            and key not in old
            and not any(key in entries[group] for entries in layers)
        }
        self.loads = len(wanted)
        names = list(wanted)
        for start in range(0, len(names), _ROWS_PREFETCHED):
            part = names[start : start + _ROWS_PREFETCHED]
            self._fetch(part, [wanted[key] for key in part])

    def settle(self) -> None:
        """Drop the layers that are on disk by now, and keep to the memory."""
        self._remember({})
        self.written.settle()

    def _fetch(self, keys: list[object], groups: list[int]) -> None:
        prefixes = self._prefixes
        stored = [
            (prefixes[group] + piece, key)
            for group, piece, key in zip(groups, self._keys.encode_each(keys), keys, strict=True)
        ]
        stored.sort(key=_first)
        found = self._store.get_many([name for name, _ in stored])
        pieces = [piece for piece in found if piece is not None]
        values = iter(self._values.decode_each(pieces))
        self._remember(
            {
                key: None if piece is None else next(values)
                for (_, key), piece in zip(stored, found, strict=True)
            }
        )

    def _load(self, key: object, group: int) -> object:
        """An entry that was not written since the last snapshot, for its user to change."""
        for layer in reversed(self._layers):
            value = layer.entries[group].get(key, _UNKNOWN)
            if value is not _UNKNOWN:
                # Until its bytes are made, the layer has to stay as it is.
                return value if self._copy is None or value is None else self._copy(value)
        value = self._young.get(key, _UNKNOWN)
        if value is not _UNKNOWN:
            return value
        value = self._old.pop(key, _UNKNOWN)
        if value is _UNKNOWN:
            self.loads += 1
            piece = self._store.get(self._prefixes[group] + self._keys.encode_each([key])[0])
            value = None if piece is None else self._values.decode_each([piece])[0]
        self._young[key] = value
        return value

    def _remember(self, entries: Entries) -> None:
        """Keep what is on disk; of what was not asked for since half the cache changed, nothing."""
        self._young.update(entries)
        if len(self._young) * 2 > self._entries_max():
            self._old, self._young = self._young, {}

    # --- What is written ---

    def size(self, entries: Entries) -> int:
        """One a key."""
        return len(entries)

    def rows(self, group: int, entries: Entries, rows_max: int) -> Iterator[Rows]:
        """The bytes of entries, in pieces of so many."""
        rows = iter(entries.items())
        prefix = self._prefixes[group]
        while part := list(islice(rows, rows_max)):
            kept = [(key, value) for key, value in part if value is not None]
            gone = [key for key, value in part if value is None]
            keys = [key for key, _ in kept]
            names = self._keys.encode_each(keys)
            pieces = self._values.encode_each([value for _, value in kept], keys.__getitem__)
            missing = self._keys.encode_each(gone)
            if self._log is not None:
                self._log(group, names, pieces, missing)
            puts = sorted(zip([prefix + name for name in names], pieces, strict=True))
            yield Rows(puts, [prefix + name for name in missing])

    def settled(self, entries: Entries) -> None:
        """They are on disk: go on to read them quickly."""
        self._remember(entries)

    def take_back(self, group: int, entries: Entries, newer: Sequence[Entries]) -> None:
        """Keep entries that can't be encoded as if they were written now."""
        left = entries.keys() - set[object]().union(*newer)
        self._dirty[group].update((key, entries[key]) for key in left)

    # --- Within ---

    def _on_disk(self, group: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Keys and entries of a key group on disk, some at a time."""
        prefix = first = self._prefixes[group]
        end = after(prefix)
        size = len(prefix)
        while found := list(islice(self._store.scan(first, end), _ROWS_A_SCAN)):
            keys = self._keys.decode_each([name[size:] for name, _ in found])
            yield keys, self._values.decode_each([piece for _, piece in found])
            first = found[-1][0] + b"\0"

    def _all_around(self) -> Iterator[tuple[int, object, object]]:
        """Key group, key and entry on disk or written lately, over and over."""
        while True:
            for group in self._key_groups:
                yield group, None, None
                for keys, values in self._on_disk(group):
                    yield from (
                        (group, key, value) for key, value in zip(keys, values, strict=True)
                    )
                yield from ((group, *entry) for entry in list(self._dirty[group].items()))

    def _reader(self) -> Callable[[], object]:
        cell, dirty, load = self.cell, self._dirty, self._load

        def read() -> object:
            value = dirty[cell.group].get(cell.key, _UNKNOWN)
            return load(cell.key, cell.group) if value is _UNKNOWN else value

        return read

    def _peeker(self) -> Callable[[], object]:
        cell, dirty, layers, load = self.cell, self._dirty, self._layers, self._load

        def peek() -> object:
            value = dirty[cell.group].get(cell.key, _UNKNOWN)
            if value is not _UNKNOWN:
                return value
            for layer in reversed(layers):
                value = layer.entries[cell.group].get(cell.key, _UNKNOWN)
                if value is not _UNKNOWN:
                    return value
            return load(cell.key, cell.group)

        return peek

    def _writer(self) -> Callable[[object], None]:
        cell, dirty = self.cell, self._dirty

        def write(value: object) -> None:
            dirty[cell.group][cell.key] = value

        return write


def _value_state(
    table: RocksDBTable, dirty: list[Entries], load: Callable[[object, int], object]
) -> ValueState[object]:
    """Value state in a class of its own for each table, as in `heap.hashmap`, and why there."""
    cell = table.cell

    class Values:
        __slots__ = ()

        def value(
            self,
            cell: KeyCell = cell,
            dirty: list[Entries] = dirty,
            unknown: object = _UNKNOWN,
            load: Callable[[object, int], object] = load,
        ) -> object:
            value = dirty[cell.group].get(cell.key, unknown)
            return load(cell.key, cell.group) if value is unknown else value

        def update(self, value: object, cell: KeyCell = cell, dirty: list[Entries] = dirty) -> None:
            dirty[cell.group][cell.key] = value

        def clear(self, cell: KeyCell = cell, dirty: list[Entries] = dirty) -> None:
            dirty[cell.group][cell.key] = None

    return Values()


def _first(pair: tuple[bytes, object]) -> bytes:
    return pair[0]

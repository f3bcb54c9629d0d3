"""One named map state over a key space, each entry of a map for itself.

A put costs an entry, however large the map is: neither it nor a checkpoint touches the others.
What was written and what was read lately stands in parts of maps (`Part`), where `table` has
entries; a part may be *whole*, so that what is not in it is not there. So a map is cleared:
older parts are not looked at, and its keys are deleted where the part goes to disk.

Only maps whose keys have a declared type of which equal ones have equal bytes are stored so
(`by_entry`); others are one entry each, in `table`.
"""

from __future__ import annotations

from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.state.disk.by_entry import beginning, split_name
from tidegate.state.disk.recent import Recent
from tidegate.state.disk.store import PREFIX_BYTES, Rows, after, prefix_of
from tidegate.state.disk.written import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.api.operator import KeyCell
    from tidegate.state.disk.codecs import StoredKeys, StoredMapKeys, StoredValues
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.disk.written import Log

    Pair = tuple[object, object]

_ROWS_A_SCAN: Final = 256
_ROWS_AHEAD: Final = 9
_LOADS_WITHOUT: Final = 20_000


class _Gone:
    """Stands for an entry that is not there."""


_GONE: Final = _Gone()


class _Unknown:
    """What a part gives where an entry has to be looked for elsewhere."""


_UNKNOWN: Final = _Unknown()


class Part(dict[object, object]):
    """Entries of one map. whole: whether what is not in it is not there."""

    whole = False


Parts = dict[object, Part]


class RocksDBMaps:
    """The maps of one named state. Arguments as for `RocksDBTable`.

    copy: copies a value. log: with what writes maps as a whole, for so they are logged.
    """

    def __init__(
        self,
        cell: KeyCell,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        store: RocksDBStore,
        number: int,
        keys: StoredKeys,
        map_keys: StoredMapKeys,
        values: StoredValues,
        *,
        copy: Callable[[object], object] | None,
        entries_max: Callable[[], int],
        log: tuple[Log, StoredValues] | None,
    ) -> None:
        self.cell = cell
        self._key_groups = key_groups
        self._store = store
        self._number = number
        self._keys = keys
        self._map_keys = map_keys
        self._values = values
        self._copy = copy
        self._log = log
        self.written = Written[Part](key_groups, max_parallelism, store, self)
        self._recent = Recent[Part](entries_max)
        self._loads = 0
        self._round = self._all_around()

    # --- One entry ---

    def find(self, map_key: object) -> object:
        """The entry of the current key's map; `_GONE` where there is none."""
        cell = self.cell
        part = self.written.dirty[cell.group].get(cell.key)
        if part is not None:
            value = part.get(map_key, _UNKNOWN)
            if value is not _UNKNOWN:
                return value
            if part.whole:
                return _GONE
        return self._load(cell.key, cell.group, map_key)

    def set(self, map_key: object, value: object) -> None:
        """Set an entry of the current key's map."""
        written, cell = self.written, self.cell
        parts = written.dirty[cell.group]
        part = parts.get(cell.key)
        if part is None:
            part = parts[cell.key] = Part()
        elif part and map_key not in part:
            written.more += 1
        part[map_key] = value

    def delete(self, map_key: object) -> None:
        """Remove an entry of the current key's map."""
        self.set(map_key, _GONE)

    def clear(self) -> None:
        """Remove all entries of the current key's map."""
        parts = self.written.dirty[self.cell.group]
        before = parts.get(self.cell.key)
        if before:
            self.written.more -= len(before) - 1
        part = parts[self.cell.key] = Part()
        part.whole = True

    def _load(self, key: object, group: int, map_key: object) -> object:
        """An entry that was not written since the last snapshot, for its user to change."""
        for layer in reversed(self.written.layers):
            part = layer.entries[group].get(key)
            if part is not None:
                value = part.get(map_key, _UNKNOWN)
                if value is not _UNKNOWN:
                    # Until its bytes are made, the layer has to stay as it is.
                    return value if self._copy is None or value is _GONE else self._copy(value)
                if part.whole:
                    return _GONE
        part = self._recent.get(key)
        if part is None:
            part = Part()
            self._recent.keep(key, part)
        value = part.get(map_key, _UNKNOWN)
        if value is _UNKNOWN:
            if part.whole:
                return _GONE
            name = beginning(self._owner(key, group)) + self._map_keys.encode_each([map_key])[0]
            self._loads += 1
            piece = self._store.get(name)
            value = _GONE if piece is None else self._values.decode_each([piece])[0]
            part[map_key] = value
            self._recent.grew(1)
        return value

    # --- A whole map ---

    def pairs(self, *, few: bool = False) -> Iterator[Pair]:
        """All entries of the current key's map as they are now. few: hardly any will be drawn."""
        cell = self.cell
        newer = self._in_memory(cell.key, cell.group)
        if newer.whole:
            return _present(newer)
        pages = self._on_disk(cell.key, cell.group, 1 if few else _ROWS_A_SCAN)
        if few:
            return chain(_present(newer), _without(chain.from_iterable(pages), newer))
        self._loads += 1
        first = next(pages, [])
        if len(first) == _ROWS_A_SCAN:  # a large map: it is drawn from the disk, and not kept
            rest = chain(first, chain.from_iterable(pages))
            return chain(_without(rest, newer), _present(newer))
        part = Part(first)
        part.whole = True
        self._recent.keep(cell.key, part)
        return _present(Part({**part, **newer}))

    def _in_memory(self, key: object, group: int) -> Part:
        """What of a map needs no look at the disk, the newer over the older."""
        dirty = self.written.dirty[group]
        layers = [layer.entries[group] for layer in reversed(self.written.layers)]
        return self._merged([dirty, *layers], key, self._recent.get(key))

    def _merged(self, newest_first: Sequence[Parts], key: object, cached: Part | None) -> Part:
        """The same of these alone, and of what was read; what is no more dirty is copied."""
        parts: list[Part] = []
        for index, entries in enumerate(newest_first):
            part = entries.get(key)
            if part is not None and not (parts and parts[-1].whole):
                parts.append(self._copied(part) if index and self._copy is not None else part)
        if cached is not None and cached.whole and not (parts and parts[-1].whole):
            parts.append(cached)
        merged = Part()
        for part in reversed(parts):
            merged.update(part)
        merged.whole = bool(parts) and parts[-1].whole
        return merged

    def _copied(self, part: Part) -> Part:
        copy = cast("Callable[[object], object]", self._copy)
        copied = Part({key: v if v is _GONE else copy(v) for key, v in part.items()})
        copied.whole = part.whole
        return copied

    def _on_disk(self, key: object, group: int, rows_max: int) -> Iterator[list[Pair]]:
        """What a map has on disk, some at a time."""
        prefix = beginning(self._owner(key, group))
        size = len(prefix)
        for names, pieces in self._store.slices(prefix, after(prefix), rows_max, cached=True):
            keys = self._map_keys.decode_each([name[size:] for name in names])
            yield list(zip(keys, self._values.decode_each(pieces), strict=True))

    def _owner(self, key: object, group: int) -> bytes:
        return prefix_of(group, self._number) + self._keys.encode_each([key])[0]

    # --- All maps ---

    def scan(self) -> Iterator[tuple[int, object, object]]:
        """Key group, key and map of all there is."""
        for group in self._key_groups:
            newer: Parts = {}
            for layer in self.written.layers:
                _lay_over(newer, layer.entries[group])
            _lay_over(newer, self.written.dirty[group])
            for key, entries in self._maps_on_disk(group):
                over = newer.pop(key, None)
                if over is not None:
                    entries = over if over.whole else {**entries, **over}
                if left := dict(_present(entries)):
                    yield group, key, left
            for key, part in newer.items():
                if left := dict(_present(part)):
                    yield group, key, left

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        """Look at about that many entries, or empty key groups, and leave those that are kept.

        kept: as of `KeyedTable.prune`, of a map of one entry.
        """
        cell = self.cell
        standing = cell.key, cell.group
        for group, key, map_key, before in islice(self._round, steps):
            if before is _GONE or kept({map_key: before}):
                continue
            cell.key, cell.group = key, group
            entry = self.find(map_key)
            if entry is not _GONE and not kept({map_key: entry}):
                self.delete(map_key)
        cell.key, cell.group = standing

    def _maps_on_disk(self, group: int) -> Iterator[tuple[object, dict[object, object]]]:
        before: object = _UNKNOWN
        entries: dict[object, object] = {}
        for key, map_key, value in self._entries_on_disk(group):
            if key != before:
                if entries:
                    yield before, entries
                before, entries = key, {}
            entries[map_key] = value
        if entries:
            yield before, entries

    def _entries_on_disk(self, group: int) -> Iterator[tuple[object, object, object]]:
        prefix = first = prefix_of(group, self._number)
        while found := list(islice(self._store.scan(first, after(prefix)), _ROWS_A_SCAN)):
            names = [split_name(name) for name, _ in found]
            keys = self._keys.decode_each([owner[PREFIX_BYTES:] for owner, _ in names])
            map_keys = self._map_keys.decode_each([key for _, key in names])
            values = self._values.decode_each([piece for _, piece in found])
            yield from zip(keys, map_keys, values, strict=True)
            first = found[-1][0] + b"\0"

    def _all_around(self) -> Iterator[tuple[int, object, object, object]]:
        """Key group, key and entry on disk or written lately, over and over."""
        while True:
            for group in self._key_groups:
                yield group, None, None, _GONE
                yield from ((group, *entry) for entry in self._entries_on_disk(group))
                dirty = list(self.written.dirty[group].items())
                yield from (
                    (group, key, *entry) for key, part in dirty for entry in list(part.items())
                )

    # --- What is read lately ---

    def settle(self) -> None:
        """Drop the layers that are on disk by now, and keep to the memory."""
        self.written.settle()
        self._recent.settle()

    def prefetch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Read at once the small maps of these keys, unless hardly any had to be read lately."""
        loads, self._loads = self._loads, 0
        if loads * 64 < len(keys):
            return
        wanted = {
            key: group
            for key, group in zip(keys, groups, strict=True)
            if not self._is_whole(self.written.dirty[group].get(key))
            and not self._is_whole(self._recent.get(key))
        }
        names = self._keys.encode_each(list(wanted))
        found = [
            (beginning(prefix_of(group, self._number) + name), key)
            for name, (key, group) in zip(names, wanted.items(), strict=True)
        ]
        found.sort(key=itemgetter(0))
        starts = [start for start, _ in found]
        rows = self._store.first_of(starts, _ROWS_AHEAD)
        small = [
            (key, len(start), each)
            for (start, key), each in zip(found, rows, strict=True)
            if len(each) < _ROWS_AHEAD
        ]
        map_keys = iter(
            self._map_keys.decode_each([name[size:] for _, size, each in small for name, _ in each])
        )
        values = iter(self._values.decode_each([v for _, _, each in small for _, v in each]))
        for key, _, each in small:
            part = Part((next(map_keys), next(values)) for _ in each)
            part.whole = True
            self._recent.keep(key, part)
        # Large maps are not read so: where most are, it pays only now and then.
        self._loads = len(small) if len(small) * 2 > len(found) else -_LOADS_WITHOUT

    @staticmethod
    def _is_whole(part: Part | None) -> bool:
        return part is not None and part.whole

    # --- What is written ---

    def size(self, entries: Parts) -> int:
        """One an entry; a map that was cleared is one, too."""
        return sum(max(len(part), 1) for part in entries.values())

    def rows(self, group: int, entries: Parts, rows_max: int) -> Iterator[Rows]:
        """The bytes of parts, in pieces of so many rows."""
        if self._log is not None:
            self._log_maps(group, entries, *self._log)
        prefix = prefix_of(group, self._number)
        changes = _changes(entries)
        while some := list(islice(changes, rows_max)):
            owners = self._keys.encode_each([key for key, _, _ in some])
            starts = [beginning(prefix + owner) for owner in owners]
            map_keys = [map_key for _, map_key, _ in some if map_key is not _UNKNOWN]
            pieces = iter(self._map_keys.encode_each(map_keys))
            kept: list[tuple[bytes, object, object]] = []
            deletes: list[bytes] = []
            cleared: list[bytes] = []
            for start, (key, map_key, value) in zip(starts, some, strict=True):
                if map_key is _UNKNOWN:
                    cleared.append(start)
                elif value is _GONE:
                    deletes.append(start + next(pieces))
                else:
                    kept.append((start + next(pieces), key, value))
            under = [key for _, key, _ in kept]
            values = self._values.encode_each([each for _, _, each in kept], under.__getitem__)
            puts = sorted(zip((name for name, _, _ in kept), values, strict=True))
            yield Rows(puts, deletes, cleared)

    def _log_maps(self, group: int, entries: Parts, log: Log, whole: StoredValues) -> None:
        """Log the maps that parts belong to, as they are with them and nothing newer."""
        older = [layer.entries[group] for layer in self.written.layers]
        at = next((i for i, each in enumerate(older) if each is entries), len(older))
        maps: list[tuple[object, dict[object, object]]] = []
        gone: list[object] = []
        for key in entries:
            # Of what was read lately, values may have been changed since the snapshot.
            cached = self._recent.get(key) if self._copy is None else None
            merged = self._merged([entries, *reversed(older[:at])], key, cached)
            if not merged.whole:
                pages = self._on_disk(key, group, _ROWS_A_SCAN)
                merged = Part({**dict(chain.from_iterable(pages)), **merged})
            left = dict(_present(merged))
            if left:
                maps.append((key, left))
            else:
                gone.append(key)
        keys = [key for key, _ in maps]
        names, missing = self._keys.encode_each(keys), self._keys.encode_each(gone)
        log(group, names, whole.encode_each([m for _, m in maps], keys.__getitem__), missing)

    def settled(self, entries: Parts) -> None:
        """They are on disk: go on to read them quickly."""
        for key, part in entries.items():
            held = None if part.whole else self._recent.get(key)
            if held is None:
                self._recent.keep(key, part)
            else:
                self._recent.grew(len(part))
                held.update(part)

    def take_back(self, group: int, entries: Parts, newer: Sequence[Parts]) -> None:
        """Keep parts that can't be encoded as if they were written now."""
        dirty = newer[-1]
        for key, part in entries.items():
            since = [parts[key] for parts in newer if key in parts]
            if any(each.whole for each in since):
                continue
            held = dirty.get(key)
            if held is None:
                held = dirty[key] = Part()
                since.append(held)
            since[0].whole = part.whole
            size = max(len(held), 1)
            left = part.keys() - set[object]().union(*since)
            held.update((map_key, part[map_key]) for map_key in left)
            self.written.more += max(len(held), 1) - size


def _present(entries: dict[object, object]) -> Iterator[Pair]:
    return iter([pair for pair in entries.items() if pair[1] is not _GONE])


def _without(pairs: Iterable[Pair], newer: Part) -> Iterator[Pair]:
    return (pair for pair in pairs if pair[0] not in newer)


def _lay_over(older: Parts, newer: Parts) -> None:
    for key, part in newer.items():
        under = older.get(key)
        if under is None or part.whole:
            over = older[key] = Part(part)
            over.whole = part.whole
        else:
            under.update(part)


def _changes(entries: Parts) -> Iterator[tuple[object, object, object]]:
    """Keys, and the changes of their maps: first that one is cleared, then its entries."""
    for key, part in entries.items():
        if part.whole:
            yield key, _UNKNOWN, None
        for map_key, value in part.items():
            if not (part.whole and value is _GONE):
                yield key, map_key, value


class RocksDBMapState:
    """A map a key, entry by entry."""

    def __init__(self, maps: RocksDBMaps) -> None:
        self._maps = maps

    def get(self, key: object) -> Any:
        """The value under a map key."""
        value = self._maps.find(key)
        return None if value is _GONE else value

    def put(self, key: object, value: object) -> None:
        """Set it."""
        self._maps.set(key, value)

    def put_all(self, entries: Iterable[tuple[object, object]] | dict[object, object]) -> None:
        """Set many."""
        for key, value in dict(entries).items():
            self._maps.set(key, value)

    def remove(self, key: object) -> None:
        """Remove it."""
        self._maps.delete(key)

    def contains(self, key: object) -> bool:
        """Whether it is there."""
        return self._maps.find(key) is not _GONE

    def items(self) -> Iterator[Pair]:
        """All pairs as they are now; the map may be changed while they are drawn."""
        return self._maps.pairs()

    def keys(self) -> Iterator[object]:
        """All map keys as they are now."""
        return (key for key, _ in self._maps.pairs())

    def values(self) -> Iterator[object]:
        """All values as they are now."""
        return (value for _, value in self._maps.pairs())

    def is_empty(self) -> bool:
        """Whether the map has no entries."""
        return next(self._maps.pairs(few=True), None) is None

    def clear(self) -> None:
        """Forget them."""
        self._maps.clear()

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains
    __iter__ = keys

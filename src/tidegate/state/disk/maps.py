"""Map state with one row for each entry of a map.

A put costs a row, however large the map is: neither it nor a checkpoint touches the others. A map
is cleared by a part that is whole: older parts are not looked at, and the rows that begin with its
name are deleted where the part goes to disk.

Only maps whose keys have a declared type of which equal ones have equal bytes are stored so
(`by_entry`); others are one row each, in `entries`.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.state.disk.by_entry import beginning, split_name
from tidegate.state.disk.layered import UNKNOWN, fetched
from tidegate.state.disk.store import PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.loops.cells import KeyCell
    from tidegate.state.disk.layered import LayeredTable, ReadCache, Written
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.format.encoding import StoredMapKeys, StoredValues

Pair = tuple[object, object]

_ROWS_DRAWN: Final = 256
"""Entries of a map that are read at a time; a map with as many is large, and is not kept."""

_GONE: Final[Any] = type("Gone", (), {})()
"""Stands in a part for an entry that was removed."""


class MapPart(dict[object, object]):
    """Entries of one map. whole: what is not in it is not in the map."""

    whole = False


class MapCodec:
    """Maps of several rows, as a `Codec`. values: of the values of maps; wholes: of maps."""

    in_parts = True

    def __init__(
        self,
        map_keys: StoredMapKeys,
        values: StoredValues,
        wholes: StoredValues,
        copy: Callable[[object], object] | None,
    ) -> None:
        self.map_keys = map_keys
        self.values = values
        self.wholes = wholes
        self.copy = copy

    def size(self, parts: dict[object, MapPart]) -> int:
        return sum([len(part) or 1 for part in parts.values()])

    def is_whole(self, part: MapPart) -> bool:
        return part.whole

    def joined(self, parts: Sequence[MapPart]) -> object:
        return {key: v for key, v in merged(parts).items() if v is not _GONE} or None

    def lay_under(self, part: MapPart, since: Sequence[MapPart]) -> None:
        over = since[0]
        if not over.whole:
            over.whole = part.whole
            for map_key in part.keys() - over.keys():
                over[map_key] = part[map_key]

    def looked_at(self, parts: dict[object, MapPart]) -> Iterable[tuple[object, object]]:
        for key, part in list(parts.items()):
            for map_key, value in _present(part):
                yield key, {map_key: value}

    def changes(self, parts: dict[object, MapPart]) -> Iterator[tuple[object, Pair]]:
        for key, part in parts.items():
            if part.whole:  # its rows on disk have to go before its own are written
                yield key, (UNKNOWN, None)
            for change in part.items():
                if not (part.whole and change[1] is _GONE):
                    yield key, change

    def written(self, names: list[bytes], changes: list[tuple[object, Pair]]) -> Written:
        map_keys = [map_key for _, (map_key, _) in changes if map_key is not UNKNOWN]
        pieces = iter(self.map_keys.encode_each(map_keys))
        puts: list[bytes] = []
        values: list[Pair] = []
        deletes: list[bytes] = []
        cleared: list[bytes] = []
        for start, (key, (map_key, value)) in zip(map(beginning, names), changes, strict=True):
            if map_key is UNKNOWN:
                cleared.append(start)
            elif value is _GONE:
                deletes.append(start + next(pieces))
            else:
                puts.append(start + next(pieces))
                values.append((key, value))
        return puts, values, deletes, cleared

    def settled(self, parts: dict[object, MapPart], cache: ReadCache[MapPart]) -> None:
        fresh: dict[object, MapPart] = {}
        for key, part in parts.items():
            held = UNKNOWN if part.whole else cache.get(key)
            if held is UNKNOWN:
                fresh[key] = part
            else:
                cache.more += len(part)
                held.update(part)
        cache.keep_all(fresh, self.size(fresh))

    def beginning(self, name: bytes) -> bytes:
        return beginning(name)

    def split(self, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        split = list(map(split_name, names))
        return [owner[PREFIX_BYTES:] for owner, _ in split], [rest for _, rest in split]

    def rows(self, rests: list[bytes], pieces: list[bytes]) -> list[Pair]:
        map_keys = self.map_keys.decode_each(rests)
        return list(zip(map_keys, self.values.decode_each(pieces), strict=True))

    def row_entries(self, keys: list[object], rows: list[Pair]) -> Iterable[tuple[object, object]]:
        return zip(keys, [{map_key: value} for map_key, value in rows], strict=True)

    def whole(self, rows: Sequence[Pair], newer: Sequence[MapPart]) -> MapPart:
        part = MapPart(rows)
        part.whole = True
        return part

    def fetched(self, store: RocksDBStore, beginnings: list[bytes]) -> Iterable[MapPart]:
        return fetched(self, store, beginnings)


class DiskMapState:
    """The map of the current key, read and written entry by entry; also a `Pruned`."""

    def __init__(self, cell: KeyCell, table: LayeredTable[MapPart], codec: MapCodec) -> None:
        self._cell = cell
        self._table = table
        self._dirty, self._layers = table.dirty, table.layers
        self._codec = codec

    def get(self, key: object) -> Any:
        value = self._find(key)
        return None if value is _GONE else value

    def put(self, key: object, value: object) -> None:
        cell = self._cell
        parts = self._dirty[cell.group]
        part = parts.get(cell.key)
        if part is None:
            part = parts[cell.key] = MapPart()
        elif part and key not in part:
            self._table.more += 1
        part[key] = value

    def put_all(self, dict_value: Iterable[Pair] | dict[object, object]) -> None:
        for key, value in dict(dict_value).items():
            self.put(key, value)

    def remove(self, key: object) -> None:
        self.put(key, _GONE)

    def contains(self, key: object) -> bool:
        return self._find(key) is not _GONE

    def items(self) -> Iterator[Pair]:
        # Gives the pairs of now: the map may be changed while they are drawn.
        newer = self._in_memory()
        if newer.whole:
            return _present(newer)
        cell, table = self._cell, self._table
        table.loads += 1
        pages = table.pages(cell.key, cell.group, _ROWS_DRAWN)
        first = next(pages, [])
        if len(first) == _ROWS_DRAWN:  # a large map: it is drawn from the disk, and not kept
            newer = dict(newer)
            return chain(_without(chain(first, chain.from_iterable(pages)), newer), _present(newer))
        part = self._codec.whole(first, ())
        table.cache.keep(cell.key, part)
        return _present({**part, **newer})

    def keys(self) -> Iterator[object]:
        return (key for key, _ in self.items())

    def values(self) -> Iterator[object]:
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        newer = self._in_memory()
        if newer.whole or any(value is not _GONE for value in newer.values()):
            return next(_present(newer), None) is None
        pages = self._table.pages(self._cell.key, self._cell.group, 1)
        return next(_without(chain.from_iterable(pages), newer), None) is None

    def clear(self) -> None:
        parts = self._dirty[self._cell.group]
        before = parts.get(self._cell.key)
        if before:
            self._table.more -= len(before) - 1
        part = parts[self._cell.key] = MapPart()
        part.whole = True

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        cell = self._cell
        standing = cell.key, cell.group
        for group, key, entry in self._table.expired(steps, kept):
            cell.key, cell.group = key, group
            for map_key in cast("dict[object, object]", entry):
                value = self._find(map_key)
                if value is not _GONE and not kept({map_key: value}):
                    self.remove(map_key)
        cell.key, cell.group = standing

    def _find(self, map_key: object) -> object:
        """Find an entry of the current key's map; `_GONE` where there is none."""
        cell = self._cell
        part = self._dirty[cell.group].get(cell.key)
        if part is not None:
            value = part.get(map_key, UNKNOWN)
            if value is not UNKNOWN:
                return value
            if part.whole:
                return _GONE
        return self._load(cell.key, cell.group, map_key)

    def _load(self, key: object, group: int, map_key: object) -> object:
        """Find an entry that was not written since the last snapshot; its user may change it."""
        for layer in reversed(self._layers):
            part = layer.entries[group].get(key)
            if part is not None:
                value = part.get(map_key, UNKNOWN)
                if value is not UNKNOWN:
                    # Until its bytes are made, the layer has to stay as it is.
                    copy = self._codec.copy
                    return value if copy is None or value is _GONE else copy(value)
                if part.whole:
                    return _GONE
        table = self._table
        part = table.cache.get(key)
        if part is UNKNOWN:
            part = MapPart()
            table.cache.keep(key, part)
        value = part.get(map_key, UNKNOWN)
        if value is UNKNOWN:
            if part.whole:
                return _GONE
            piece = self._codec.map_keys.encode_each([map_key])[0]
            value = table.value(beginning(table.name(key, group)) + piece)
            value = part[map_key] = _GONE if value is UNKNOWN else value
            table.cache.more += 1
        return value

    def _in_memory(self) -> MapPart:
        """The current key's map as far as memory has it; its user may change the values."""
        key, group = self._cell.key, self._cell.group
        dirty = self._dirty[group].get(key)
        if self._layers:
            parts = self._table.in_memory(key, self._table.newest_first(group))
            if self._codec.copy is not None:
                parts = [part if part is dirty else self._copied(part) for part in parts]
        else:
            parts = [] if dirty is None else [dirty]
        if not (parts and parts[0].whole):
            cached = self._table.cache.get(key)
            if cached is not UNKNOWN and cached.whole:
                parts.insert(0, cached)
        return merged(parts)

    def _copied(self, part: MapPart) -> MapPart:
        copy = cast("Callable[[object], object]", self._codec.copy)
        copied = MapPart({key: v if v is _GONE else copy(v) for key, v in part.items()})
        copied.whole = part.whole
        return copied

    __getitem__ = get
    __setitem__ = put
    __delitem__ = remove
    __contains__ = contains
    __iter__ = keys


def merged(parts: Sequence[MapPart]) -> MapPart:
    """One part of several, the oldest first; of a single one, itself."""
    if len(parts) == 1:
        return parts[0]
    found = MapPart()
    for part in parts:
        found.update(part)
    found.whole = bool(parts) and parts[0].whole
    return found


def _present(entries: dict[object, object]) -> Iterator[Pair]:
    return iter([pair for pair in entries.items() if pair[1] is not _GONE])


def _without(pairs: Iterable[Pair], newer: dict[object, object]) -> Iterator[Pair]:
    return (pair for pair in pairs if pair[0] not in newer)

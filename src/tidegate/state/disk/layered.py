"""One named state on disk: dicts of what was written and read lately, in front of the key space.

Entries written since the last snapshot are *dirty*. A snapshot sets it aside as a layer, whose
bytes are made in slices and brought to disk by whoever uploads, one layer after the other. Nothing
newer reaches the disk before, so the folder is the state at the barrier. An entry is looked for in
the dirty dicts, in the layers from the newest to the oldest, in the read cache, and on disk.

A dict has *parts* by key. A part of a value is the value, or None if it was removed. A part of a
map or list is what was changed of it; one that is *whole* hides all that is older. A codec knows
what parts are, and how they stand in the key space: as one row, or as several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from tidegate.state.disk.store import PREFIX_BYTES, Rows, after, prefix_of
from tidegate.state.user.refusing import refusing_maps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.state.disk.store import Batch, RocksDBStore
    from tidegate.state.format.encoding import StoredKeys, StoredValues

P = TypeVar("P")
Log = Callable[[int, Sequence[bytes], Sequence[bytes], Sequence[bytes]], None]
"""Takes what becomes bytes, before it is on disk: key group, keys, their entries, keys without."""

Written = tuple[list[bytes], list[tuple[object, Any]], Sequence[bytes], Sequence[bytes]]
"""Names of rows, the key and the value of each; names to delete; beginnings to delete first."""

Newer = dict[object, list[P]]
"""Parts that are newer than what is on disk, by key, the oldest first."""

UNKNOWN: Final[Any] = type("Unknown", (), {})()
"""What a dict gives for a key that has to be looked for elsewhere."""

_ROWS_A_SCAN: Final = 256
_ROWS_A_BATCH: Final = 512
_NAMES_AHEAD: Final = 1024
_ROWS_AHEAD: Final = 9
"""Rows of one entry that are read ahead; one that has as many is too large for it."""

_LOADS_WITHOUT: Final = 20_000


class Codec(Protocol[P]):
    """The parts of one kind of state, and how they are rows of the key space.

    in_parts: whether a part may be less than all of its entry. copy: copies what a user may change
    of a part; None if nothing can be changed.
    """

    @property
    def in_parts(self) -> bool: ...
    @property
    def copy(self) -> Callable[[object], object] | None: ...
    @property
    def values(self) -> StoredValues:
        """Serializer of the value of a row."""
        ...

    @property
    def wholes(self) -> StoredValues:
        """Serializer of an entry as one value, for logs and canonical savepoints."""
        ...

    def size(self, parts: dict[object, P]) -> int:
        """How many rows these are, about; at least one a key."""
        ...

    def is_whole(self, part: P) -> bool: ...

    def joined(self, parts: Sequence[P]) -> object:
        """The entry that parts make, the oldest of them whole and first; None for none."""
        ...

    def lay_under(self, part: P, since: Sequence[P]) -> None:
        """Put a part below newer ones of its key, of which there is at least one."""
        ...

    def looked_at(self, parts: dict[object, P]) -> Iterable[tuple[object, object]]:
        """Keys and entries for clean-up to look at one by one, while others are changed."""
        ...

    def changes(self, parts: dict[object, P]) -> Iterator[tuple[object, Any]]:
        """Keys and what is written of each; a key may come several times."""
        ...

    def written(self, names: list[bytes], changes: list[tuple[object, Any]]) -> Written:
        """The rows of changes. names: of the entries that they belong to."""
        ...

    def settled(self, parts: dict[object, P], cache: ReadCache[P]) -> None:
        """These are on disk, and nobody else holds them: let them be read quickly."""
        ...

    def beginning(self, name: bytes) -> bytes:
        """How the names of all rows of an entry begin. name: as it would be of one row."""
        ...

    def split(self, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """The encoded keys in the names of rows, and the rests behind the beginnings."""
        ...

    def rows(self, rests: list[bytes], pieces: list[bytes]) -> list[Any]:
        """Content of rows, each with the decoded rest of its name."""
        ...

    def row_entries(self, keys: list[object], rows: list[Any]) -> Iterable[tuple[object, object]]:
        """Keys and rows, each as an entry of its own."""
        ...

    def whole(self, rows: Sequence[Any], newer: Sequence[P]) -> P:
        """The part that all rows of an entry make; without what in-memory parts have of them."""
        ...

    def fetched(self, store: RocksDBStore, beginnings: list[bytes]) -> Iterable[P]:
        """The whole part of each entry; `UNKNOWN` for one that is too large to be read ahead."""
        ...


class ReadCache(Generic[P]):
    """Parts that were read lately, or written and are on disk: all of them are droppable.

    What was asked for since about half of the cache has changed is kept. more: rows beyond one a
    key. entries_max: how many rows may be kept, as asked for now.
    """

    def __init__(self, entries_max: Callable[[], int]) -> None:
        self.young: dict[object, P] = {}
        self.old: dict[object, P] = {}
        self.more = 0
        self._entries_max = entries_max

    def get(self, key: object) -> P:
        """The part of a key, or `UNKNOWN`; of entries of several rows."""
        found: Any = self.young.get(key, UNKNOWN)
        if found is UNKNOWN:
            found = self.old.pop(key, UNKNOWN)
            if found is not UNKNOWN:
                self.keep(key, found)
        return found

    def keep(self, key: object, part: Any) -> None:
        """Keep a part that has as many rows as its length, in the place of what was kept."""
        self.young[key] = part
        self.more += (len(part) or 1) - 1

    def keep_all(self, parts: dict[object, P], rows: int) -> None:
        """Keep parts of so many rows."""
        self.young.update(parts)
        self.more += rows - len(parts)

    def settle(self) -> None:
        """Drop what was not asked for lately, once there is too much."""
        if (len(self.young) + self.more) * 2 > self._entries_max():
            self.old, self.young, self.more = self.young, {}, 0


@dataclass(slots=True)
class Layer(Generic[P]):
    """Entries written between two snapshots, by key group.

    pending: key groups whose bytes are still to be made. encoded: what is ready to be written.
    """

    entries: list[dict[object, P]]
    pending: list[int]
    encoded: list[Batch] = field(default_factory=list["Batch"])
    written: bool = False


class LayeredTable(Generic[P]):
    """The entries of one named state, for the views over it.

    number: of the state in the key space. log: takes entries before they are on disk.
    dirty, layers: as above. more: how many rows are dirty beyond one a key; whoever writes such
    keeps it. loads: how often the disk was asked since the last batch came.
    """

    def __init__(
        self,
        store: RocksDBStore,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        number: int,
        keys: StoredKeys,
        codec: Codec[P],
        *,
        entries_max: Callable[[], int],
        log: Log | None,
    ) -> None:
        dirty = refusing_maps(key_groups, max_parallelism)
        self.dirty = cast("list[dict[object, P]]", dirty)
        self.layers: list[Layer[P]] = []
        self.more = 0
        self.cache = ReadCache[P](entries_max)
        self.loads = 0
        self._store = store
        self._key_groups = key_groups
        self._prefixes = [prefix_of(group, number) for group in range(max_parallelism)]
        self._keys = keys
        self.codec = codec
        self._log = log
        self._spilled = 0
        self._round = self._all_around()

    # --- What there is ---

    def scan(self) -> Iterator[tuple[int, object, object]]:
        codec = self.codec
        for group in self._key_groups:
            newer: Newer[P] = {}
            for parts in reversed(self.newest_first(group)):
                for key, part in parts.items():
                    newer[key] = [part] if codec.is_whole(part) else [*newer.get(key, ()), part]
            on_disk = self._joined_on_disk if codec.in_parts else self._rows_on_disk
            for page in on_disk(group, newer):
                for key, entry in page:
                    if entry is not None:
                        yield group, key, entry
            for key, parts in newer.items():
                entry = codec.joined(parts)
                if entry is not None:
                    yield group, key, entry

    def newest_first(self, group: int) -> list[dict[object, P]]:
        """Entries of a key group in memory that may not be on disk yet."""
        return [self.dirty[group], *(layer.entries[group] for layer in reversed(self.layers))]

    def in_memory(self, key: object, newest_first: Iterable[dict[object, P]]) -> list[P]:
        """The parts of an entry in these dicts, the oldest first; none older than a whole one."""
        found: list[P] = []
        for parts in newest_first:
            part: Any = parts.get(key, UNKNOWN)
            if part is not UNKNOWN:
                found.append(part)
                if self.codec.is_whole(part):
                    break
        return found[::-1]

    def stored(self, key: object, group: int, newer: Sequence[P], *, fresh: bool = False) -> P:
        """The stored part of an entry, cached or read now. newer: its parts in memory.

        fresh: bypasses the cache, whose value a user may have changed.
        """
        found = UNKNOWN if fresh else self.cache.get(key)
        if found is UNKNOWN or not self.codec.is_whole(found):
            self.loads += 1
            rows = [row for page in self.pages(key, group, _ROWS_A_SCAN) for row in page]
            found = self.codec.whole(rows, newer)
            if not fresh:
                self.cache.keep(key, found)
        return found

    def pages(self, key: object, group: int, rows_max: int) -> Iterator[list[Any]]:
        """Rows of an entry on disk, in pieces."""
        first = self.codec.beginning(self.name(key, group))
        for names, pieces in self._store.slices(first, after(first), rows_max, cached=True):
            yield self.codec.rows([name[len(first) :] for name in names], pieces)

    def name(self, key: object, group: int) -> bytes:
        """The name that an entry has in the key space, if it is one row."""
        return self._prefixes[group] + self._keys.encode_each([key])[0]

    def value(self, name: bytes) -> Any:
        """The value of a row, or `UNKNOWN`."""
        self.loads += 1
        piece = self._store.get(name)
        return UNKNOWN if piece is None else self.codec.values.decode_each([piece])[0]

    def _rows_on_disk(self, group: int, newer: Newer[P]) -> Iterator[list[tuple[object, object]]]:
        """Keys and entries of one row each, but for those that are newer in memory."""
        for keys, rows in self._pages_on_disk(group):
            found = zip(keys, rows, strict=True)
            yield [entry for entry in found if entry[0] not in newer] if newer else list(found)

    def _joined_on_disk(self, group: int, newer: Newer[P]) -> Iterator[list[tuple[object, object]]]:
        """Keys and entries of several rows, laid under what is newer, which is taken out."""
        found: list[tuple[object, list[Any]]] = []
        before: object = UNKNOWN
        rows_of_one: list[Any] = []
        for keys, rows in self._pages_on_disk(group):
            for key, row in zip(keys, rows, strict=True):
                if key != before:
                    before, rows_of_one = key, []
                    found.append((key, rows_of_one))
                rows_of_one.append(row)
            # The last one may go on in the next page.
            yield [self._joined(key, each, newer) for key, each in found[:-1]]
            del found[:-1]
        yield [self._joined(key, each, newer) for key, each in found]

    def _joined(self, key: object, rows: list[Any], newer: Newer[P]) -> tuple[object, object]:
        codec, parts = self.codec, newer.pop(key, ())
        if not (parts and codec.is_whole(parts[0])):
            parts = (codec.whole(rows, parts), *parts)
        return key, codec.joined(parts)

    def _pages_on_disk(self, group: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Keys and rows. Each page is a scan of its own: what is written meanwhile may be seen."""
        codec, prefix = self.codec, self._prefixes[group]
        first, end = prefix, after(prefix)
        while found := list(islice(self._store.scan(first, end), _ROWS_A_SCAN)):
            keys, rests = codec.split([name for name, _ in found])
            yield self._keys.decode_each(keys), codec.rows(rests, [piece for _, piece in found])
            first = found[-1][0] + b"\0"

    # --- Clean-up ---

    def expired(
        self, steps: int, kept: Callable[[Any], object]
    ) -> list[tuple[int, object, object]]:
        """Look at about that many entries, or empty key groups; gives those that are not kept."""
        return [
            found
            for found in islice(self._round, steps)
            if found[2] is not None and kept(found[2]) is not found[2]
        ]

    def _all_around(self) -> Iterator[tuple[int, object, Any]]:
        """Key group, key and what was on disk or written lately, over and over."""
        codec = self.codec
        while True:
            for group in self._key_groups:
                yield group, None, None
                for keys, rows in self._pages_on_disk(group):
                    for key, entry in codec.row_entries(keys, rows):
                        yield group, key, entry
                for key, entry in codec.looked_at(self.dirty[group]):
                    yield group, key, entry

    # --- What is read ahead ---

    def prefetch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Reads these keys' entries at once, unless recent batches needed hardly any reads."""
        loads, self.loads = self.loads, 0
        if loads * 64 < len(keys):
            return
        dirty, young, old = self.dirty, self.cache.young, self.cache.old
        layers = [layer.entries for layer in self.layers]
        in_parts = self.codec.in_parts
        wanted = {
            key: group
            for key, group in zip(keys, groups, strict=True)
            if (
                key not in dirty[group]
                and key not in young
                and key not in old
                and not any(key in entries[group] for entries in layers)
            )
            or (in_parts and self._lacks_some(key, group))
        }
        pieces = zip(wanted.values(), self._keys.encode_each(list(wanted)), strict=True)
        starts = (self.codec.beginning(self._prefixes[group] + piece) for group, piece in pieces)
        beginnings = sorted(zip(starts, wanted, strict=True), key=_FIRST)
        read = 0
        for start in range(0, len(beginnings), _NAMES_AHEAD):
            some = beginnings[start : start + _NAMES_AHEAD]
            parts = self.codec.fetched(self._store, [name for name, _ in some])
            found = {
                key: part for (_, key), part in zip(some, parts, strict=True) if part is not UNKNOWN
            }
            self.cache.settle()  # before, so that this is there when it is asked for
            self.cache.keep_all(found, self.codec.size(found))
            read += len(found)
        # Large entries are not read so: where most are, it pays only now and then.
        self.loads = read if read * 2 >= len(wanted) else -_LOADS_WITHOUT

    def _lacks_some(self, key: object, group: int) -> bool:
        """True if the disk may have more of an entry than memory, and may be asked for it."""
        if any(key in layer.entries[group] for layer in self.layers):
            return False
        held: list[dict[object, P]] = [self.dirty[group], self.cache.young, self.cache.old]
        return not any(key in parts and self.codec.is_whole(parts[key]) for parts in held)

    # --- What is written ---

    @property
    def unwritten(self) -> int:
        """Rows that are dirty, about."""
        return self.more + sum(len(self.dirty[group]) for group in self._key_groups)

    def spill(self, rows: int) -> None:
        """Write about that many rows to disk; only while no layer waits."""
        assert not self.layers, "a snapshot is being linked"
        groups = list(self._key_groups)
        for _ in groups:
            group = groups[self._spilled % len(groups)]
            self._spilled += 1
            parts = self.dirty[group]
            if not parts:
                continue
            size = self.codec.size(parts)
            self.more -= size - len(parts)
            self.dirty[group] = {}
            for batch in self._batches(group, parts):
                self._store.write(batch)
            self.codec.settled(parts, self.cache)
            self.cache.settle()
            rows -= size
            if rows <= 0:
                return

    def freeze(self) -> Layer[P]:
        """Sets aside the entries written since the last snapshot, to be written first."""
        groups = [group for group in self._key_groups if self.dirty[group]]
        # Of where nothing is, a dict of its own too: what is written there next is not the layer's.
        layer = Layer([parts or {} for parts in self.dirty], groups)
        for group in groups:
            self.dirty[group] = {}
        self.more = 0
        self.layers.append(layer)
        return layer

    def encode(self, layer: Layer[P]) -> Iterator[int]:
        """Make a layer's bytes, step by step; gives the rows of each step."""
        while layer.pending:
            group, begun = layer.pending[-1], len(layer.encoded)
            try:
                for batch in self._batches(group, layer.entries[group]):
                    layer.encoded.append(batch)
                    yield batch.rows
            except Exception:
                del layer.encoded[begun:]  # a key group is taken back as a whole
                raise
            layer.pending.pop()

    def take_back(self, layer: Layer[P]) -> None:
        """Takes back the rest of a layer that can't be encoded."""
        newer = self.layers[self.layers.index(layer) + 1 :]
        size = self.codec.size
        for group in layer.pending:
            dirty = self.dirty[group]
            for key, part in layer.entries[group].items():
                oldest_first = (*(each.entries[group] for each in newer), dirty)
                since = [parts[key] for parts in oldest_first if key in parts]
                before = size({key: dirty[key]}) if key in dirty else 1
                if since:
                    self.codec.lay_under(part, since)
                else:
                    dirty[key] = part
                self.more += size({key: dirty[key]}) - before if key in dirty else 0
            layer.entries[group] = {}
        layer.pending.clear()

    def settle(self) -> None:
        """Drops layers that are on disk, and limits memory."""
        while self.layers and self.layers[0].written:
            layer = self.layers.pop(0)
            for group in self._key_groups:
                self.codec.settled(layer.entries[group], self.cache)
        self.cache.settle()

    def _batches(self, group: int, parts: dict[object, P]) -> Iterator[Batch]:
        codec, log = self.codec, self._log
        if log is not None and codec.in_parts:
            self._log_wholes(log, group, parts)
        changes = codec.changes(parts)
        while some := list(islice(changes, _ROWS_A_BATCH)):
            prefix = self._prefixes[group]
            names = [prefix + key for key in self._keys.encode_each([key for key, _ in some])]
            names, rows, deletes, cleared = codec.written(names, some)
            pieces = codec.values.encode_each(
                [value for _, value in rows],
                lambda index, rows=rows: rows[index][0],
            )
            if log is not None and not codec.in_parts:
                missing = [name[PREFIX_BYTES:] for name in deletes]
                log(group, [name[PREFIX_BYTES:] for name in names], pieces, missing)
            yield self._store.batch(Rows(sorted(zip(names, pieces, strict=True)), deletes, cleared))

    def _log_wholes(self, log: Log, group: int, parts: dict[object, P]) -> None:
        """Log the entries that parts belong to, as they are with them and nothing newer."""
        codec = self.codec
        layers = [layer.entries[group] for layer in self.layers]
        at = next((i for i, each in enumerate(layers) if each is parts), len(layers))
        newest_first = [parts, *reversed(layers[:at])]
        entries: list[object] = []
        keys: list[object] = []
        gone: list[object] = []
        for key in parts:
            found = self.in_memory(key, newest_first)
            if not codec.is_whole(found[0]):
                # Of what was read lately, values may have been changed since the snapshot.
                found.insert(0, self.stored(key, group, found, fresh=codec.copy is not None))
            entry = codec.joined(found)
            if entry is None:
                gone.append(key)
            else:
                keys.append(key)
                entries.append(entry)
        names, missing = self._keys.encode_each(keys), self._keys.encode_each(gone)
        log(group, names, codec.wholes.encode_each(entries, keys.__getitem__), missing)


_FIRST: Final = itemgetter(0)


def fetched(codec: Codec[P], store: RocksDBStore, beginnings: list[bytes]) -> Iterator[P]:
    """The whole parts of entries of several rows; `UNKNOWN` for those that have too many."""
    found = list(store.first_of(beginnings, _ROWS_AHEAD))
    rests: list[bytes] = []
    pieces: list[bytes] = []
    for start, rows in zip(beginnings, found, strict=True):
        if len(rows) < _ROWS_AHEAD:
            rests += [name[len(start) :] for name, _ in rows]
            pieces += [piece for _, piece in rows]
    all_rows = iter(codec.rows(rests, pieces))
    for rows in found:
        if len(rows) < _ROWS_AHEAD:
            yield codec.whole(list(islice(all_rows, len(rows))), ())
        else:
            yield UNKNOWN

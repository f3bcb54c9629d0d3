"""One named list state over a key space, each list in parts.

What is added to a list goes to disk as a part of its own, behind those that are there, and none of
them is read: it costs what is added, however long the list is. Only `get` reads a list, part by
part; `update` and `clear` put one part, or none, in the place of all. A list that has been read and
has become many parts is written as one when it is added to next.

Parts are numbered in the order in which they were begun. A part that is in memory is the newest of
its list as long as it is not known to be on disk, so that what the disk has from its number on is
left out: it is the part itself, which is being written.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.state.disk.by_entry import NUMBER, list_name
from tidegate.state.disk.recent import Recent
from tidegate.state.disk.store import PREFIX_BYTES, Rows, after, prefix_of
from tidegate.state.disk.written import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.api.operator import KeyCell
    from tidegate.state.disk.codecs import StoredKeys, StoredValues
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.disk.written import Log

_PARTS_MAX: Final = 16
"""Of a list that was read; one that has as many is written as a whole when it is added to."""

_PARTS_A_SCAN: Final = 256
_PARTS_AHEAD: Final = 9


@dataclass(slots=True)
class Part:
    """What was added to a list. whole: it is all that the list has, and older parts are not.

    needless: the numbers of what such a one finds on disk; None where that is not known.
    """

    number: int
    elements: list[object]
    whole: bool = False
    needless: list[int] | None = None


Parts = dict[object, Part]


@dataclass(slots=True)
class _OnDisk:
    """What a list has on disk. numbers: of its parts."""

    elements: list[object]
    numbers: list[int]

    def __len__(self) -> int:
        return len(self.elements)


class RocksDBLists:
    """The lists of one named state. Arguments as for `RocksDBTable`.

    values: writes and reads a list. copy: copies an element. numbered: the numbers of all parts on
    disk are below.
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
        log: Log | None,
        numbered: int,
    ) -> None:
        self.cell = cell
        self._key_groups = key_groups
        self._store = store
        self._number = number
        self._keys = keys
        self._values = values
        self._copy = copy
        self._log = log
        self.numbered = max(numbered, 1)
        self.written = Written[Part](key_groups, max_parallelism, store, self)
        self._dirty, self._layers = self.written.dirty, self.written.layers
        self._recent = Recent[_OnDisk](entries_max)
        self._asked = self._loads = 0
        self._round = self._all_around()

    # --- One list ---

    def elements(self) -> list[object]:
        """The current key's list, to give away; an element that a snapshot needs is a copy."""
        key, group = self.cell.key, self.cell.group
        newest = self._dirty[group].get(key)
        if newest is not None and newest.whole:
            return newest.elements.copy()
        if self._layers:
            return self._with_layers(key, group, newest)
        if newest is None:
            return self._read(key, group, self.numbered).elements.copy()
        return self._read(key, group, newest.number).elements + newest.elements

    def append(self, element: object) -> None:
        """Add one to the current key's list."""
        part = self._dirty[self.cell.group].get(self.cell.key)
        if part is None:
            self._begin([element])
        else:
            self.written.more += bool(part.elements)
            part.elements.append(element)

    def extend(self, elements: list[object]) -> None:
        """Add many to the current key's list; not none."""
        part = self._dirty[self.cell.group].get(self.cell.key)
        if part is None:
            self._begin(elements)
        else:
            self.written.more += len(elements) - (not part.elements)
            part.elements += elements

    def replace(self, elements: list[object]) -> None:
        """Put these in the place of the current key's list."""
        key, group = self.cell.key, self.cell.group
        before = self._dirty[group].get(key)
        if before is not None and before.elements:
            self.written.more -= len(before.elements) - 1
        if before is not None and before.whole:
            needless = before.needless
        else:
            needless = self._numbers_on_disk(key, group)
        self._put(Part(self.numbered, elements, True, needless))

    def _begin(self, elements: list[object]) -> None:
        """The first of what is added since the last snapshot."""
        key, group = self.cell.key, self.cell.group
        known = self._recent.get(key)
        many = known is not None and len(known.numbers) >= _PARTS_MAX
        if known is None or not many or any(key in each.entries[group] for each in self._layers):
            self._put(Part(self.numbered, elements))
        else:
            self.replace([*known.elements, *elements])

    def _put(self, part: Part) -> None:
        self.numbered += 1
        self._dirty[self.cell.group][self.cell.key] = part
        if part.elements:
            self.written.more += len(part.elements) - 1

    def _with_layers(self, key: object, group: int, newest: Part | None) -> list[object]:
        layers = [layer.entries[group] for layer in reversed(self._layers)]
        parts = _in_memory(key, [self._dirty[group], *layers])
        found: list[object] = []
        if below := self._below(parts):
            found += self._read(key, group, below).elements
        for part in parts:
            if part is newest or self._copy is None:
                found += part.elements
            else:  # until its bytes are made, the layer has to stay as it is
                found += map(self._copy, part.elements)
        return found

    def _below(self, parts: Sequence[Part]) -> int:
        """What is on disk of the list of these parts, and belongs to it, has numbers below."""
        if not parts:
            return self.numbered
        return 0 if parts[0].whole else parts[0].number

    def _read(self, key: object, group: int, below: int) -> _OnDisk:
        """What is on disk of a list, and no more in memory. below: the numbers of its parts are."""
        self._asked += 1
        found = self._recent.get(key)
        if found is None:
            self._loads += 1
            found = self._on_disk(key, group, below)
            self._recent.keep(key, found)
        return found

    def _on_disk(self, key: object, group: int, below: int) -> _OnDisk:
        numbers: list[int] = []
        pieces: list[bytes] = []
        name = prefix_of(group, self._number) + self._keys.encode_each([key])[0]
        for names, values in self._store.slices(name, after(name), _PARTS_A_SCAN, cached=True):
            numbers += [number for number in map(_number_in, names) if number < below]
            pieces += values
        return _OnDisk(_joined(self._values.decode_each(pieces[: len(numbers)])), numbers)

    def _numbers_on_disk(self, key: object, group: int) -> list[int] | None:
        """The numbers of a list's parts once all layers are on disk; None where that is unknown."""
        known = self._recent.get(key)
        numbers = None if known is None else known.numbers
        for layer in self._layers:
            part = layer.entries[group].get(key)
            if part is not None and part.whole:
                numbers = [0] if part.elements else []
            elif part is not None and numbers is not None:
                numbers = [*numbers, part.number]
        return numbers

    # --- All lists ---

    def scan(self) -> Iterator[tuple[int, object, object]]:
        """Key group, key and list of all there is."""
        for group in self._key_groups:
            newer: dict[object, list[Part]] = {}
            for entries in self._oldest_first(group):
                for key, part in entries.items():
                    newer[key] = [part] if part.whole else [*newer.get(key, ()), part]
            for key, rows in groupby(self._parts_on_disk(group), itemgetter(0)):
                parts = newer.pop(key, [])
                below = self._below(parts)
                on_disk = [elements for _, number, elements in rows if number < below]
                if found := [*chain(*on_disk), *_elements(parts)]:
                    yield group, key, found
            for key, parts in newer.items():
                if found := list(_elements(parts)):
                    yield group, key, found

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        """Look at about that many parts, or empty key groups, and leave of each what is kept."""
        cell = self.cell
        standing = cell.key, cell.group
        for group, key, before in islice(self._round, steps):
            if not before or kept(before) is before:
                continue
            cell.key, cell.group = key, group
            found = self.elements()
            left = kept(found) if found else found
            if left is not found:
                self.replace(cast("list[object]", left or []))
        cell.key, cell.group = standing

    def _parts_on_disk(self, group: int) -> Iterator[tuple[object, int, list[object]]]:
        prefix = first = prefix_of(group, self._number)
        while found := list(islice(self._store.scan(first, after(prefix)), _PARTS_A_SCAN)):
            names = [name for name, _ in found]
            keys = self._keys.decode_each([list_name(name)[PREFIX_BYTES:] for name in names])
            values = self._values.decode_each([piece for _, piece in found])
            yield from zip(keys, map(_number_in, names), values, strict=True)
            first = names[-1] + b"\0"

    def _all_around(self) -> Iterator[tuple[int, object, list[object]]]:
        """Key group, key and part on disk or written lately, over and over."""
        while True:
            for group in self._key_groups:
                yield group, None, []
                for key, _, elements in self._parts_on_disk(group):
                    yield group, key, elements
                for key, part in list(self._dirty[group].items()):
                    yield group, key, part.elements

    def _oldest_first(self, group: int) -> list[Parts]:
        layers = [layer.entries[group] for layer in self._layers]
        return [*layers, self._dirty[group]]

    # --- What is read lately ---

    def settle(self) -> None:
        """Drop the layers that are on disk by now, and keep to the memory."""
        self.written.settle()
        self._recent.settle()

    def prefetch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Read at once the lists of these keys, unless hardly any had to be read lately."""
        loads = min(self._loads, self._asked)
        self._loads = self._asked = 0
        if loads * 64 < len(keys):
            return
        wanted = {
            key: group
            for key, group in zip(keys, groups, strict=True)
            if self._recent.get(key) is None
            and not any(key in entries for entries in self._oldest_first(group))
        }
        found = [
            (prefix_of(group, self._number) + name, key)
            for name, (key, group) in zip(
                self._keys.encode_each(list(wanted)), wanted.items(), strict=True
            )
        ]
        found.sort(key=itemgetter(0))
        rows = self._store.first_of([name for name, _ in found], _PARTS_AHEAD)
        few = [
            (key, each)
            for (_, key), each in zip(found, rows, strict=True)
            if len(each) < _PARTS_AHEAD
        ]
        lists = iter(self._values.decode_each([piece for _, each in few for _, piece in each]))
        for key, each in few:
            numbers = [_number_in(name) for name, _ in each]
            self._recent.keep(key, _OnDisk(_joined(islice(lists, len(each))), numbers))
        self._loads = len(found)

    # --- What is written ---

    def size(self, entries: Parts) -> int:
        """One an element; a list that was cleared is one, too."""
        return sum(map(_size, entries.values()))

    def rows(self, group: int, entries: Parts, rows_max: int) -> Iterator[Rows]:
        """The bytes of parts, in pieces of so many."""
        if self._log is not None:
            layers = [layer.entries[group] for layer in self._layers]
            at = next((i for i, each in enumerate(layers) if each is entries), len(layers))
            self._log_lists(group, [entries, *reversed(layers[:at])], self._log)
        prefix = prefix_of(group, self._number)
        parts = iter(entries.items())
        while some := list(islice(parts, rows_max)):
            keys = [key for key, _ in some]
            names = [prefix + name for name in self._keys.encode_each(keys)]
            kept: list[tuple[bytes, object, list[object]]] = []
            deletes: list[bytes] = []
            cleared: list[bytes] = []
            for name, (key, part) in zip(names, some, strict=True):
                number = 0 if part.whole else part.number
                if part.elements:
                    kept.append((name + NUMBER.pack(number), key, part.elements))
                if part.whole and part.needless is None:
                    cleared.append(name)
                elif part.needless:
                    kept_at = {0} if part.elements else ()
                    deletes += [name + NUMBER.pack(n) for n in part.needless if n not in kept_at]
            under = [key for _, key, _ in kept]
            pieces = self._values.encode_each([each for _, _, each in kept], under.__getitem__)
            puts = sorted(zip((name for name, _, _ in kept), pieces, strict=True))
            yield Rows(puts, deletes, cleared)

    def _log_lists(self, group: int, newest_first: Sequence[Parts], log: Log) -> None:
        """Log the lists that parts belong to, as they are with them and nothing newer."""
        lists: list[tuple[object, list[object]]] = []
        gone: list[object] = []
        for key in newest_first[0]:
            parts = _in_memory(key, newest_first)
            found: list[object] = []
            if below := self._below(parts):
                # Of what was read lately, elements may have been changed since.
                read = self._read if self._copy is None else self._on_disk
                found += read(key, group, below).elements
            found += _elements(parts)
            if found:
                lists.append((key, found))
            else:
                gone.append(key)
        keys = [key for key, _ in lists]
        names, missing = self._keys.encode_each(keys), self._keys.encode_each(gone)
        pieces = self._values.encode_each([each for _, each in lists], keys.__getitem__)
        log(group, names, pieces, missing)

    def settled(self, entries: Parts) -> None:
        """They are on disk: go on to read them quickly."""
        for key, part in entries.items():
            if part.whole:
                self._recent.keep(key, _OnDisk(part.elements, [0] if part.elements else []))
                continue
            known = self._recent.get(key)
            if known is not None:
                known.elements += part.elements
                known.numbers.append(part.number)
                self._recent.grew(len(part.elements))

    def take_back(self, group: int, entries: Parts, newer: Sequence[Parts]) -> None:
        """Keep parts that can't be encoded as if they were written now."""
        dirty = newer[-1]
        for key, part in entries.items():
            since = [parts[key] for parts in newer if key in parts]
            for each in since:
                each.needless = None  # what they were to find on disk was to come of this part
            if not since:
                dirty[key] = part
                self.written.more += _size(part) - 1
            elif not since[0].whole:
                before = _size(since[0])
                since[0].elements[:0] = part.elements
                since[0].number, since[0].whole = part.number, part.whole
                if since[0] is dirty.get(key):
                    self.written.more += _size(since[0]) - before


def _size(part: Part) -> int:
    return max(len(part.elements), 1)


def _elements(parts: Iterable[Part]) -> Iterator[object]:
    return chain.from_iterable(part.elements for part in parts)


def _joined(lists: Iterable[list[object]]) -> list[object]:
    """One list of all; the first of them, if there is one."""
    rest = iter(lists)
    first = next(rest, [])
    for each in rest:
        first += each
    return first


def _number_in(name: bytes) -> int:
    return NUMBER.unpack_from(name, len(name) - NUMBER.size)[0]


def _in_memory(key: object, newest_first: Iterable[Parts]) -> list[Part]:
    """The parts of a list, the oldest first; nothing is older than one that is whole."""
    found: list[Part] = []
    for entries in newest_first:
        part = entries.get(key)
        if part is not None:
            found.append(part)
            if part.whole:
                break
    return found[::-1]


class RocksDBListState:
    """A list a key, in parts."""

    def __init__(self, lists: RocksDBLists) -> None:
        self._lists = lists
        self.get = lists.elements
        self.add = lists.append

    def __iter__(self) -> Iterator[object]:
        return iter(self.get())

    def add_all(self, values: Iterable[Any]) -> None:
        """Append many."""
        added = list(values)
        if added:
            self._lists.extend(added)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all."""
        self._lists.replace(list(values))

    def clear(self) -> None:
        """Forget them."""
        self._lists.replace([])

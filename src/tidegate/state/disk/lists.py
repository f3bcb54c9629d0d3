"""List state with a row for each part of a list.

Added elements go to disk as a new part, behind the existing ones, none of which is read: the cost
depends on what is added, not on the length of the list. Only `get` reads a list, part by part;
`update` and `clear` put one part, or none, in the place of all. A list that has been read and has
become many parts is written as one when it is added to next.

Parts are numbered in the order in which they were begun. A part that is in memory is the newest of
its list as long as it is not known to be on disk, so that what the disk has from its number on is
left out: it is the part itself, which is being written.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.state.disk.by_entry import NUMBER, list_name
from tidegate.state.disk.layered import UNKNOWN, fetched
from tidegate.state.disk.store import PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidegate.loops.cells import KeyCell
    from tidegate.state.disk.layered import LayeredTable, ReadCache, Written
    from tidegate.state.disk.store import RocksDBStore
    from tidegate.state.format.encoding import StoredValues

Row = tuple[int, list[object]]
"""The number of a part on disk, and its elements."""

_PARTS_MAX: Final = 16
"""Of a list that was read; one that has as many is written as a whole when it is added to."""


@dataclass(slots=True)
class ListPart:
    """Elements of one list. whole: it is all that the list has, and older parts are not.

    number: as said above; 0 for what was read. on_disk: the numbers of all parts that a whole one
    was read of, or is going to replace; None if they are not known.
    """

    number: int
    elements: list[object]
    whole: bool = False
    on_disk: list[int] | None = None

    def __len__(self) -> int:
        return len(self.elements)


class ListCodec:
    """Lists of several rows, as a `Codec`."""

    in_parts = True

    def __init__(self, values: StoredValues, copy: Callable[[object], object] | None) -> None:
        self.values = self.wholes = values
        self.copy = copy

    def size(self, parts: dict[object, ListPart]) -> int:
        return sum([len(part.elements) or 1 for part in parts.values()])

    def is_whole(self, part: ListPart) -> bool:
        return part.whole

    def joined(self, parts: Sequence[ListPart]) -> object:
        if len(parts) == 1:
            return parts[0].elements or None
        return list(chain.from_iterable([part.elements for part in parts])) or None

    def lay_under(self, part: ListPart, since: Sequence[ListPart]) -> None:
        for each in since:
            each.on_disk = None  # what they were to find on disk was to come of this part
        over = since[0]
        if not over.whole:
            over.elements[:0] = part.elements
            over.number, over.whole = part.number, part.whole

    def looked_at(self, parts: dict[object, ListPart]) -> Iterable[tuple[object, object]]:
        return [(key, part.elements) for key, part in parts.items() if part.elements]

    def changes(self, parts: dict[object, ListPart]) -> Iterator[tuple[object, ListPart]]:
        return iter(parts.items())

    def written(self, names: list[bytes], changes: list[tuple[object, ListPart]]) -> Written:
        puts: list[bytes] = []
        values: list[tuple[object, list[object]]] = []
        deletes: list[bytes] = []
        cleared: list[bytes] = []
        for name, (key, part) in zip(names, changes, strict=True):
            number = 0 if part.whole else part.number
            if part.elements:
                puts.append(name + NUMBER.pack(number))
                values.append((key, part.elements))
            if part.whole and part.on_disk is None:
                cleared.append(name)
            elif part.on_disk:
                kept_at = {0} if part.elements else ()
                deletes += [name + NUMBER.pack(n) for n in part.on_disk if n not in kept_at]
        return puts, values, deletes, cleared

    def settled(self, parts: dict[object, ListPart], cache: ReadCache[ListPart]) -> None:
        for key, part in parts.items():
            if part.whole:
                numbers = [0] if part.elements else []
                cache.keep(key, ListPart(0, part.elements, True, numbers))
                continue
            known = cache.get(key)
            if known is not UNKNOWN:
                known.elements += part.elements
                assert known.on_disk is not None, "what is cached was read or written"
                known.on_disk.append(part.number)
                cache.more += len(part.elements)

    def beginning(self, name: bytes) -> bytes:
        return name

    def split(self, names: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        keys = [list_name(name)[PREFIX_BYTES:] for name in names]
        return keys, [name[-NUMBER.size :] for name in names]

    def rows(self, rests: list[bytes], pieces: list[bytes]) -> list[Row]:
        numbers = [NUMBER.unpack(rest)[0] for rest in rests]
        return list(zip(numbers, self.values.decode_each(pieces), strict=True))

    def row_entries(self, keys: list[object], rows: list[Row]) -> Iterable[tuple[object, object]]:
        return zip(keys, [elements for _, elements in rows], strict=True)

    def whole(self, rows: Sequence[Row], newer: Sequence[ListPart]) -> ListPart:
        if newer:
            below = 0 if newer[0].whole else newer[0].number
            rows = [row for row in rows if row[0] < below]
        elements: list[object] = rows[0][1] if rows else []
        for _, more in rows[1:]:
            elements += more
        return ListPart(0, elements, True, [number for number, _ in rows])

    def fetched(self, store: RocksDBStore, beginnings: list[bytes]) -> Iterable[ListPart]:
        return fetched(self, store, beginnings)


class DiskListState:
    """The list of the current key; also a `Pruned`. numbered: all parts on disk are below."""

    def __init__(
        self, cell: KeyCell, table: LayeredTable[ListPart], codec: ListCodec, numbered: int
    ) -> None:
        self.numbered = max(numbered, 1)
        self._cell = cell
        self._table = table
        self._dirty = table.dirty
        self._copy = codec.copy
        self._asked = 0

    def get(self) -> list[object]:
        key, group = self._cell.key, self._cell.group
        newest = self._dirty[group].get(key)
        if newest is not None and newest.whole:
            return newest.elements.copy()
        self._asked += 1
        table = self._table
        if table.layers:
            return self._with_layers(key, group, newest)
        held = table.cache.young.get(key)
        if held is None:
            held = table.stored(key, group, () if newest is None else (newest,))
        return held.elements.copy() if newest is None else held.elements + newest.elements

    def add(self, value: object) -> None:
        cell = self._cell
        part = self._dirty[cell.group].get(cell.key)
        if part is None:
            self._begin([value])
        else:
            self._table.more += bool(part.elements)
            part.elements.append(value)

    def __iter__(self) -> Iterator[object]:
        return iter(self.get())

    def add_all(self, values: Iterable[Any]) -> None:
        added = list(values)
        part = self._dirty[self._cell.group].get(self._cell.key)
        if part is not None:
            self._table.more += max(len(added) - (not part.elements), 0)
            part.elements += added
        elif added:
            self._begin(added)

    def update(self, values: Iterable[Any]) -> None:
        key, group = self._cell.key, self._cell.group
        elements = list(values)
        before = self._dirty[group].get(key)
        if before is not None and before.elements:
            self._table.more -= len(before.elements) - 1
        if before is not None and before.whole:
            numbers = before.on_disk
        else:
            numbers = self._numbers_on_disk(key, group)
        self._put(ListPart(self.numbered, elements, True, numbers))

    def clear(self) -> None:
        self.update(())

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        cell = self._cell
        standing = cell.key, cell.group
        for group, key, _ in self._table.expired(steps, kept):
            cell.key, cell.group = key, group
            found = self.get()
            left = kept(found) if found else found
            if left is not found:
                self.update(cast("list[object]", left or []))
        cell.key, cell.group = standing

    def prefetch(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        """Read ahead as `LayeredTable` does; adding reads nothing, so it needs nothing either."""
        self._table.loads = min(self._table.loads, self._asked)
        self._asked = 0
        self._table.prefetch(keys, groups)

    def _begin(self, elements: list[object]) -> None:
        """Start a part: nothing was added to the list since the last snapshot."""
        key, group = self._cell.key, self._cell.group
        known = self._table.cache.get(key)
        many = known is not UNKNOWN and len(known.on_disk or ()) >= _PARTS_MAX
        if many and not any(key in layer.entries[group] for layer in self._table.layers):
            self.update([*known.elements, *elements])
        else:
            self._put(ListPart(self.numbered, elements))

    def _put(self, part: ListPart) -> None:
        self.numbered += 1
        self._dirty[self._cell.group][self._cell.key] = part
        if part.elements:
            self._table.more += len(part.elements) - 1

    def _with_layers(self, key: object, group: int, newest: ListPart | None) -> list[object]:
        table, copy = self._table, self._copy
        parts = table.in_memory(key, table.newest_first(group))
        found: list[object] = []
        if not (parts and parts[0].whole):
            found += table.stored(key, group, parts).elements
        for part in parts:
            if part is newest or copy is None:
                found += part.elements
            else:  # until its bytes are made, the layer has to stay as it is
                found += map(copy, part.elements)
        return found

    def _numbers_on_disk(self, key: object, group: int) -> list[int] | None:
        """Numbers that the list will have once all layers are on disk; None if unknown."""
        known = self._table.cache.get(key)
        numbers = None if known is UNKNOWN else known.on_disk
        for layer in self._table.layers:
            part = layer.entries[group].get(key)
            if part is not None and part.whole:
                numbers = [0] if part.elements else []
            elif part is not None and numbers is not None:
                numbers = [*numbers, part.number]
        return numbers

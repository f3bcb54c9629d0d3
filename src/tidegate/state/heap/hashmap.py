"""The HashMap backend's table: a dict for each key group, snapshots by copy-on-write at the entry.

`freeze` is the quick part of a snapshot: it only marks the key groups that hold anything. From then
on the first write to an entry of a frozen group keeps the old value beside, its *pre-image*, and a
value that can be changed is copied when it is read or edited. `pieces` gives a group's entries as
they are now (some older, some newer than the barrier) and then the pre-images, which restore lays
over them: together they are the group at the barrier. A group thaws when its last entry is out of
reach of writes. While nothing is frozen, a write pays for one look into a list.

A table that is tracked also knows what was written to since it was frozen last: the first write to
a key group after that meets an `_Unwritten` where pre-images would be, and puts a dict there that
comes to hold each key that is written, by the same look that finds pre-images. Where that were most
of a group's keys it only notes the group, for then all of it is written again anyway.

A table that is logged keeps pre-images all the time: they tell which entries were written since
they were last drained to the log. `cut` sets them aside, and what is written from then on keeps the
values that `tail` gives.

Measured against copying whole dicts, merging pre-images, a thread, and fork:
docs/design/entry-copy-on-write.md.
"""

from __future__ import annotations

from itertools import islice, repeat
from typing import TYPE_CHECKING, Final

from tidegate.loops.forms import loops_with
from tidegate.state.heap.pieces import (
    ABSENT,
    Entries,
    Missing,
    Present,
    as_they_are,
    left_of,
    missing_pieces,
    preimage_pieces,
    present_pieces,
)
from tidegate.state.user.kinds import TableListState, TableMapState
from tidegate.state.user.refusing import refusing_maps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence

    from flinkformat.key_groups import KeyGroupRange
    from tidegate.api.state import State, ValueState
    from tidegate.loops.cells import KeyCell

_UNTOLD_MAX: Final = 8
"""For how many snapshots it is not noted which keys of a busy key group are written."""


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


class _Unwritten(dict[object, object]):
    """Stands in the place of pre-images until the first write to its key group.

    untold: for how many snapshots more it is not noted which keys are written: one after a group
    was busy, and twice as many as before where it still is.
    """

    def __init__(self, group: int, saved: list[Entries | None]) -> None:
        super().__init__()
        self._group = group
        self._saved = saved
        self.untold = 0
        self._pause = 1

    def __contains__(self, key: object) -> bool:
        self._saved[self._group] = {key: None} if self.untold == 0 else None
        return True

    def begin(self, *, busy: bool, told: bool) -> None:
        """A snapshot begins; returns earlier notes of the group."""
        if busy:
            self.untold, self._pause = self._pause, min(self._pause * 2, _UNTOLD_MAX)
        elif told:
            self._pause = 1
        else:
            self.untold = max(0, self.untold - 1)


class _FirstLogged(dict[object, object]):
    """First write to a key group of a logged table after a snapshot."""

    def __init__(
        self, check: Callable[[object], None], group: int, saved: list[Entries | None]
    ) -> None:
        super().__init__()
        self._check = check
        self._group = group
        self._saved = saved

    def __contains__(self, key: object) -> bool:
        self._check(key)
        self._saved[:] = [{} if type(each) is _FirstLogged else each for each in self._saved]
        self._saved[self._group] = {key: ABSENT}
        return True


class HashMapTable:
    """One named keyed state in dicts.

    copy: copies an entry, or None if entries can't be changed. tracked: whether it is asked for
    what was `written`. logged: whether it is drained.
    """

    def __init__(
        self,
        cell: KeyCell,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        *,
        copy: Callable[[object], object] | None,
        tracked: bool = False,
        logged: bool = False,
    ) -> None:
        self._key_groups = key_groups
        self._maps = refusing_maps(key_groups, max_parallelism)
        # Where writes look for pre-images, or note their keys; and where pre-images alone are.
        self._saved: list[Entries | None] = [None] * (max_parallelism + 1)
        self._shared: list[Entries | None] = [None] * (max_parallelism + 1)
        self._unwritten = (
            {group: _Unwritten(group, self._saved) for group in key_groups} if tracked else {}
        )
        # What was noted before a freeze; a million keys would take it 6 ms to let go of at once.
        self._noted: dict[int, Entries] = {}
        # What was to be drained when a key group was frozen or cut; None where nothing is logged.
        self._undrained: dict[int, Entries] | None = {} if logged else None
        if logged:
            for group in key_groups:
                self._saved[group] = {}
        self._round = self._all_around()
        self._copy = copy
        self.cell = cell
        self.peek = _peek(cell, self._maps)
        self.read = self.peek if copy is None else _read(cell, self._maps, self._shared, copy)
        self.is_shared = _is_shared(cell, self._shared)
        self.edit = (
            self.peek if copy is None else _edit(cell, self._maps, self._saved, self._shared, copy)
        )
        self.write = _write(cell, self._maps, self._saved)

    def fold(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Iterable[object],
        merge: Callable[[object, object], object],
        emit: Callable[[object], None],
    ) -> None:
        maps, saved, shared, copy = self._maps, self._saved, self._shared, self._copy
        fold = loops_with(self.cell).fold
        fold(maps, saved, shared, ABSENT, copy, keys, groups, values, merge, emit)

    def accumulate(
        self,
        keys: Iterable[object],
        groups: Sequence[int],
        values: Iterable[object],
        add: Callable[[object, object], object],
        create: Callable[[], object],
    ) -> None:
        """Sets each key's entry to ``add(value, entry)``; ``create`` makes a first entry."""
        maps, saved, shared, copy = self._maps, self._saved, self._shared, self._copy
        accumulate = loops_with(self.cell).accumulate
        accumulate(maps, saved, shared, ABSENT, copy, keys, groups, values, add, create)

    def read_all(self, keys: Sequence[object], groups: Sequence[int]) -> list[object]:
        read_all = loops_with(self.cell).read_all
        return read_all(self._maps, self._shared, self._copy, keys, groups)

    def remove_all(self, keys: Sequence[object], groups: Sequence[int]) -> None:
        remove_all = loops_with(self.cell).remove_all
        remove_all(self._maps, self._saved, ABSENT, keys, groups)

    def prefetch(self, keys: Sequence[object], groups: Sequence[int]) -> None: ...

    def value_state(self) -> ValueState[object]:
        cell, maps, saved, copy = self.cell, self._maps, self._saved, self._copy
        loops = loops_with(cell)
        if copy is None:
            return loops.immutable_values(cell, maps, saved, ABSENT)
        return loops.copied_values(cell, maps, saved, ABSENT, self._shared, copy)

    def list_state(self, copy: Callable[[object], object] | None) -> State:
        made = loops_with(self.cell).list_values
        return TableListState(self, copy) if made is None else self._parted(made, copy)

    def map_state(self, copy: Callable[[object], object] | None) -> State:
        made = loops_with(self.cell).map_values
        return TableMapState(self, copy) if made is None else self._parted(made, copy)

    def _parted(self, made: Callable[..., State], copy: Callable[[object], object] | None) -> State:
        maps, saved, shared = self._maps, self._saved, self._shared
        return made(self.cell, maps, saved, shared, ABSENT, self._copy, copy)

    def scan(self) -> Iterator[tuple[int, object, object]]:
        for group in self._key_groups:
            for key, value in self._maps[group].items():
                yield group, key, value

    def prune(self, steps: int, kept: Callable[[object], object]) -> None:
        for group, (key, before) in islice(self._round, steps):
            if before is None or kept(before) is before:
                continue  # without a look into the dict, which would cost more than all else
            entries, preimages = self._maps[group], self._shared[group]
            entry = entries.get(key)
            left = None if entry is None else kept(entry)
            if left is entry:
                continue
            # What is left out counts as no write: it would be left out of what was written, too.
            if preimages is not None:
                preimages.setdefault(key, entry)
            if left is None:
                del entries[key]
            else:
                entries[key] = left

    def _all_around(self) -> Iterator[tuple[int, tuple[object, object]]]:
        """Key group, key and entry of everything, as of some moment ago; may repeat."""
        while True:
            for group in self._key_groups:
                yield from zip(repeat(group), list(self._maps[group].items()) or ((None, None),))

    def load(self, group: int, loaded: Present | Missing) -> None:
        """Loads the output of `pieces`, in order; only while nothing is frozen."""
        entries = self._maps[group]
        if isinstance(loaded, Present):
            entries.update(zip(loaded.keys, loaded.values, strict=True))
            return
        for key in loaded.keys:
            entries.pop(key, None)

    def check_first_key(self, check: Callable[[object], None]) -> None:
        """Registers a check for the key of the first write; before anything is frozen."""
        if self._undrained is not None:
            for group in self._key_groups:
                self._saved[group] = _FirstLogged(check, group, self._saved)
        else:
            self._saved[:] = [_FirstWrite(check, self._saved)] * len(self._saved)

    def written(self) -> dict[int, Collection[object] | None]:
        """Keys that may have been written since the last `freeze`, if tracked.

        By key group the keys, or None for any of it.
        """
        return {
            group: saved
            for group in self._key_groups
            if type(saved := self._saved[group]) is not _Unwritten
        }

    def entries(self, group: int) -> int:
        """Number of entries in a key group."""
        return len(self._maps[group])

    def freeze(
        self,
        kept: Container[int] = (),
        also: Container[int] = (),
        busy: Container[int] = (),
    ) -> list[int]:
        """Mark every key group that holds anything, and name them; from now on writes save.

        kept: key groups to leave out. also: those to mark though they may hold nothing any more.
        busy: those of which it is not noted for a while which keys are written.
        """
        assert not self._frozen, "frozen before"
        frozen = [g for g in self._key_groups if (self._maps[g] or g in also) and g not in kept]
        for group, unwritten in self._unwritten.items():
            saved = self._saved[group]
            if type(saved) is not _FirstWrite:
                if saved is not None:
                    self._noted[group] = saved
                self._saved[group] = unwritten
                unwritten.begin(busy=group in busy, told=saved is not None)
        for group in frozen:
            self._set_aside(group)
        return frozen

    @property
    def _frozen(self) -> list[int]:
        return [group for group in self._key_groups if self._shared[group] is not None]

    def _set_aside(self, group: int) -> None:
        before = self._saved[group]
        if self._undrained is not None and before is not None:
            self._undrained[group] = before
        self._saved[group] = self._shared[group] = {}

    def pieces(
        self,
        group: int,
        rows: Callable[[], int],
        kept: Callable[[object], object] | None = None,
        only: Collection[object] | None = None,
    ) -> Iterator[Present | Missing]:
        """Content of a frozen key group at the time of the freeze, to be loaded in this order.

        rows: asked for each piece how many entries it may have. kept: as in `prune`, for what is
        given; None for all. only: the keys that are given, also as missing. A piece is to be
        encoded before the next write, for its values are live.
        """
        entries = self._maps[group]
        if only is None:
            keys, values, missing = list(entries), list(entries.values()), list[object]()
        else:
            keys = [key for key in only if key in entries]
            values = [entries[key] for key in keys]
            missing = [key for key in only if key not in entries]
        # Values that can't be changed are safe in the list, so writes need save nothing more.
        saved = self._thaw(group) if self._copy is None else None
        present = present_pieces(keys, values, rows)
        yield from present if kept is None else (left_of(piece, kept) for piece in present)
        yield from missing_pieces(missing, rows)
        saved = self._thaw(group) if saved is None else saved
        if only is not None:
            saved = {key: value for key, value in saved.items() if key in only}
        if kept is not None:
            for key, value in saved.items():
                left = value if value is ABSENT else kept(value)
                saved[key] = ABSENT if left is None else left
        yield from preimage_pieces(saved, rows)

    def thaw(self) -> None:
        """Releases everything that is still frozen."""
        for group in self._frozen:
            self._thaw(group)

    def _thaw(self, group: int) -> Entries:
        saved = self._shared[group]
        assert saved is not None, f"key group {group} is not frozen"
        self._noted.pop(group, None)
        unwritten = self._unwritten.get(group)
        told = unwritten is not None and unwritten.untold == 0
        self._shared[group] = None
        if self._undrained is not None:
            self._saved[group] = dict.fromkeys(saved) | self._undrained.pop(group, {})
            return saved
        self._saved[group] = unwritten
        if saved:
            self._saved[group] = {key: None for key in saved} if told else None
        return saved

    # --- For a log ---

    @property
    def undrained(self) -> int:
        saved = self._saved
        return sum([len(saved[group] or ()) for group in self._key_groups])

    def drain(
        self, group: int, rows: int, kept: Callable[[object], object] | None
    ) -> list[Present | Missing]:
        """Some entries of a key group written recently, in their current form; now drained."""
        written, entries = self._saved[group], self._maps[group]
        if not written:
            return []
        keys = [written.popitem()[0] for _ in range(min(rows, len(written)))]
        return as_they_are(keys, [entries.get(key) for key in keys], kept)

    def undrain(self, group: int, pieces: Iterable[Present | Missing]) -> None:
        """Takes back entries that could not be logged."""
        written = self._saved[group]
        assert written is not None, "a logged table keeps what was written"
        for piece in pieces:
            written.update(dict.fromkeys(piece.keys))

    def cut(self) -> list[int]:
        """Sets aside undrained entries, and names their key groups."""
        assert not self._frozen, "frozen before"
        cut = [group for group in self._key_groups if self._saved[group]]
        for group in cut:
            self._set_aside(group)
        return cut

    def tail(
        self,
        group: int,
        rows: Callable[[], int],
        kept: Callable[[object], object] | None,
    ) -> Iterator[Present | Missing]:
        """Entries of a key group that were set aside, as of the cut."""
        entries, newer = self._maps[group], self._shared[group]
        assert newer is not None and self._undrained is not None, f"key group {group} is not cut"
        left = self._undrained[group]
        while left:
            keys = [left.popitem()[0] for _ in range(min(rows(), len(left)))]
            values = [newer[key] if key in newer else entries.get(key) for key in keys]
            values = [None if value is ABSENT else value for value in values]
            try:
                yield from as_they_are(keys, values, kept)
            except BaseException:
                left.update(dict.fromkeys(keys))
                raise
        del self._undrained[group]
        self._shared[group] = None

    def current(
        self, group: int, rows: Callable[[], int], kept: Callable[[object], object] | None
    ) -> Iterator[Present]:
        """A key group's entries, each as of its turn; writes may go on meanwhile."""
        entries = self._maps[group]
        keys = iter(list(entries))
        while some := list(islice(keys, rows())):
            for piece in as_they_are(some, [entries.get(key) for key in some], kept):
                if isinstance(piece, Present):
                    yield piece


# The functions of a table: closures, for one call a record and no look-up of attributes but the
# cell's.


def _peek(cell: KeyCell, maps: list[Entries]) -> Callable[[], object]:
    def peek() -> object:
        return maps[cell.group].get(cell.key)

    return peek


def _read(
    cell: KeyCell,
    maps: list[Entries],
    shared: list[Entries | None],
    copy: Callable[[object], object],
) -> Callable[[], object]:
    def read() -> object:
        group = cell.group
        preimages = shared[group]
        if preimages is None:
            return maps[group].get(cell.key)
        key = cell.key
        value = maps[group].get(key)
        # What was written since the barrier is in no snapshot.
        return value if key in preimages else copy(value)

    return read


def _is_shared(cell: KeyCell, shared: list[Entries | None]) -> Callable[[], bool]:
    def is_shared() -> bool:
        preimages = shared[cell.group]
        return preimages is not None and cell.key not in preimages

    return is_shared


def _edit(
    cell: KeyCell,
    maps: list[Entries],
    saved: list[Entries | None],
    shared: list[Entries | None],
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
            if shared[cell.group] is not None:
                value = entries[key] = copy(value)
        return value

    return edit


def _write(
    cell: KeyCell, maps: list[Entries], saved: list[Entries | None]
) -> Callable[[object], None]:
    def write(value: object) -> None:
        key, entries, preimages = cell.key, maps[cell.group], saved[cell.group]
        if preimages is not None and key not in preimages:
            preimages[key] = entries.get(key, ABSENT)
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value

    return write

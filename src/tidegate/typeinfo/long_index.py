"""A hash table from 64-bit integers to rows, all in NumPy: a batch of keys a call.

Open addressing; a slot holds a row, -1 where it is empty, and the keys stand beside the table by
row, so that a key costs 16 to 32 bytes. The load stays below a half, and each probe is one slot
further from the one before than that from its own (which reaches all slots, and leaves no clusters
as steps of one do), so a batch is found in few rounds, each over the keys still looked for.
Small keys, such as numbers of customers or sensors, stand in a list beside it too, which a batch
that has no others is looked up in.
10 k keys: 3 ns a row, 1 ns if they are small, 5 M keys: 15 to 20 ns (benchmarks/batch_path.py).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_BITS_MIN: Final = 8
_PIECE_MIN: Final = 256
_SMALL: Final = 1 << 17
"""Keys from 0 to below this are small: half a megabyte of rows, in a core's cache."""

_SLOTS_A_KEY: Final = 16
"""Room for small keys, for each key of the index."""


class LongIndex:
    """Rows of keys, from 0 on in the order in which they were added, each key once."""

    def __init__(self) -> None:
        self._count = 0
        self._stored = np.zeros(1 << _BITS_MIN, np.int64)
        self._rows_of_small = np.empty(0, np.int32)
        self._clear(_BITS_MIN)

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> Longs:
        """Keys by row; what is there stays as it is when others are added."""
        return self._stored[: self._count]

    def _clear(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._rows = np.full(1 << bits, -1, np.int32)

    def find(self, keys: Longs) -> Longs:
        """Row of each key; -1 for unknown keys."""
        # As unsigned numbers, negative keys are great ones.
        if keys.view(np.uint64).max(initial=0) < len(self._rows_of_small):
            return self._rows_of_small.take(keys).astype(np.int64)
        slots = self._slots(keys)
        rows = self._rows.take(slots).astype(np.int64)
        # An empty slot has any key, and no row.
        lost = ((self._stored.take(rows) != keys) & (rows >= 0)).nonzero()[0]
        slots = slots.take(lost)
        step = 0
        while len(lost):
            step += 1
            slots = (slots + step) & self._mask
            found = self._rows.take(slots)
            rows[lost] = found
            again = (self._stored.take(found) != keys.take(lost)) & (found >= 0)
            lost, slots = lost[again], slots[again]
        return rows

    def place(self, keys: Longs) -> tuple[Longs, Longs]:
        """Row of each key, and the positions of those that were not there, each key once.

        New keys get the next rows, in the order of their positions.
        """
        rows = self.find(keys)
        missing = (rows < 0).nonzero()[0]
        new: list[Longs] = []
        size = max(len(missing) // 16, _PIECE_MIN)
        while len(missing):
            # In pieces, for of many rows with few new keys only the first have to be placed.
            piece, missing = missing[:size], missing[size:]
            self._make_room(len(piece))
            rows[piece], added = self._place_new(keys.take(piece))
            new.append(piece.take(added))
            if len(missing):
                found = self.find(keys.take(missing))
                rows[missing] = found
                missing = missing[found < 0]
                size *= 4
        return rows, np.concatenate(new) if new else missing

    def _place_new(self, keys: Longs) -> tuple[Longs, Longs]:
        """Places keys that are all new, in a table with room for them."""
        first, end = self._count, self._count + len(keys)
        self._stored[first:end] = keys
        slots = self._slots(keys)
        left = np.arange(len(keys))
        step = 0
        while len(left):
            step += 1
            tried = slots.take(left)
            claims = self._rows.take(tried) < 0
            self._rows[tried[claims]] = first + left[claims]
            # A claimed slot belongs to the last that came for it, and to all rows of its key.
            left = left[self._stored.take(self._rows.take(tried)) != keys.take(left)]
            slots[left] = (slots.take(left) + step) & self._mask
        owners = np.flatnonzero(self._rows.take(slots) == np.arange(first, end))
        self._count += len(owners)
        self._rows[slots.take(owners)] = np.arange(first, self._count)
        self._stored[first : self._count] = keys.take(owners)
        self._note_small(first)
        return self._rows.take(slots).astype(np.int64), owners

    def add(self, keys: Longs) -> None:
        """Adds new, distinct keys."""
        self._make_room(len(keys))
        first = self._count
        self._count += len(keys)
        self._stored[first : self._count] = keys
        self._put(keys, np.arange(first, self._count))
        self._note_small(first)

    def _note_small(self, first: int) -> None:
        """Notes the rows from the first on whose keys are small."""
        added = self._stored[first : self._count]
        held = len(self._rows_of_small)
        # A list for far more keys than there are is mostly empty.
        most = max(held, min(_SMALL, _SLOTS_A_KEY * max(self._count, 1 << _BITS_MIN)))
        small = (added.view(np.uint64) < most).nonzero()[0]
        if not len(small):
            return
        keys = added.take(small)
        if (end := int(keys.max()) + 1) > held:
            self._rows_of_small = np.full(1 << max(end - 1, 1).bit_length(), -1, np.int32)
            # Some of those before may have been too great for the shorter list.
            known = self.keys.view(np.uint64)
            first, small = 0, (known < len(self._rows_of_small)).nonzero()[0]
            keys = self.keys.take(small)
        self._rows_of_small[keys] = first + small

    def _make_room(self, more: int) -> None:
        """Makes room for so many more keys."""
        total = self._count + more
        assert total < 1 << 31, "a subtask has fewer than 2^31 keys"
        if total > len(self._stored):
            grown = np.empty(max(total, 2 * len(self._stored)), np.int64)
            grown[: self._count] = self.keys
            self._stored = grown
        if total * 2 > self._mask:
            self._clear((total * 2).bit_length())
            self._put(self.keys, np.arange(self._count))

    def _put(self, keys: Longs, rows: Longs) -> None:
        slots = self._slots(keys)
        step = 0
        while len(keys):
            step += 1
            free = self._rows.take(slots) < 0
            self._rows[slots[free]] = rows[free]
            # Of several keys that came for one free slot the last one got it: it finds its row.
            left = self._rows.take(slots) != rows
            keys, rows, slots = keys[left], rows[left], (slots[left] + step) & self._mask

    def _slots(self, keys: Longs) -> Longs:
        return ((keys.view(np.uint64) * _GOLDEN) >> self._shift).view(np.int64)

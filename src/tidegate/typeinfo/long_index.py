"""A hash table from 64-bit integers to rows, all in NumPy: a batch of keys a call.

Open addressing with linear probing; a slot holds a key and its row, -1 where it is empty. The load
stays below a half, so a batch is found in few rounds, each over the keys that are still looked for.
10 k keys: 4 to 10 ns a row, 1 M keys: 18 to 34 ns (benchmarks/state_bench.py).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_BITS_MIN: Final = 8
_PIECE_MIN: Final = 256


class LongIndex:
    """Rows of keys. Each key is added once; rows are the caller's."""

    def __init__(self) -> None:
        self._count = 0
        self._clear(_BITS_MIN)

    def _clear(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._keys = np.zeros(1 << bits, np.int64)
        self._rows = np.full(1 << bits, -1, np.int64)

    def find(self, keys: Longs) -> Longs:
        """Row of each key; -1 for unknown keys."""
        slots = self._slots(keys)
        rows = self._rows.take(slots)
        lost = np.flatnonzero((self._keys.take(slots) != keys) & (rows >= 0))
        slots = slots.take(lost)
        while len(lost):
            slots = (slots + 1) & self._mask
            found = self._rows.take(slots)
            rows[lost] = found
            again = (self._keys.take(slots) != keys.take(lost)) & (found >= 0)
            lost, slots = lost[again], slots[again]
        return rows

    def place(self, keys: Longs, first: int) -> tuple[Longs, Longs]:
        """Row of each key, and the positions of those that were not there, each key once.

        New keys get rows from `first` on, in the order of their positions.
        """
        rows = self.find(keys)
        missing = np.flatnonzero(rows < 0)
        new: list[Longs] = []
        size = max(len(missing) // 16, _PIECE_MIN)
        while len(missing):
            # In pieces, for of many rows with few new keys only the first have to be placed.
            piece, missing = missing[:size], missing[size:]
            most = self._count + len(piece)
            if most * 2 > self._mask:
                self._resize(most)
            rows[piece], added = self._place_new(keys.take(piece), first)
            new.append(piece.take(added))
            first += len(added)
            if len(missing):
                found = self.find(keys.take(missing))
                rows[missing] = found
                missing = missing[found < 0]
                size *= 4
        return rows, np.concatenate(new) if new else missing

    def _place_new(self, keys: Longs, first: int) -> tuple[Longs, Longs]:
        """Places keys that are all new, in a table with room for them."""
        slots = self._slots(keys)
        left = np.arange(len(keys))
        while len(left):
            tried = slots.take(left)
            claims = self._rows.take(tried) < 0
            claimed, by = tried[claims], left[claims]
            self._keys[claimed] = keys.take(by)
            self._rows[claimed] = first + by
            # A claimed slot belongs to the last that came for it, and to all rows of its key.
            left = left[self._keys.take(tried) != keys.take(left)]
            slots[left] = (slots.take(left) + 1) & self._mask
        owners = np.flatnonzero(self._rows.take(slots) == first + np.arange(len(keys)))
        self._rows[slots.take(owners)] = np.arange(first, first + len(owners))
        self._count += len(owners)
        return self._rows.take(slots), owners

    def add(self, keys: Longs, rows: Longs) -> None:
        """Adds new, distinct keys."""
        total = self._count + len(keys)
        if total * 2 > self._mask:
            self._resize(total)
        self._put(keys, rows)
        self._count = total

    def _resize(self, total: int) -> None:
        used = self._rows >= 0
        keys, rows = self._keys[used], self._rows[used]
        self._clear((total * 2).bit_length())
        self._put(keys, rows)

    def _put(self, keys: Longs, rows: Longs) -> None:
        slots = self._slots(keys)
        while len(keys):
            free = self._rows.take(slots) < 0
            self._keys[slots[free]] = keys[free]
            self._rows[slots[free]] = rows[free]
            # Of several keys that came for one free slot the last one got it: it finds its row.
            left = self._rows.take(slots) != rows
            keys, rows, slots = keys[left], rows[left], (slots[left] + 1) & self._mask

    def _slots(self, keys: Longs) -> Longs:
        return ((keys.view(np.uint64) * _GOLDEN) >> self._shift).view(np.int64)

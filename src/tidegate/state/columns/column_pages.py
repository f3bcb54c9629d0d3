"""An array as it was at a barrier, by copy-on-write of pages.

Freezing notes the array and copies nothing. A write copies the pages that it touches first, the
snapshot's slices copy the others, and once all are there the array is as before. Pages are small
enough that copying one (128 KiB of numbers, some 20 µs) is never felt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tidegate.typeinfo.long_index import Longs

PAGE_BITS: Final = 14
PAGE_ROWS: Final = 1 << PAGE_BITS


class FrozenArray:
    """The first `count` values of an array, which may be written to at once.

    Call `save` before writing to the array; replacing it needs no call, since the old one stays
    unchanged. copy: makes a page of its own; None if nobody writes to the array.
    """

    def __init__(
        self,
        values: NDArray[Any],
        count: int,
        copy: Callable[[NDArray[Any]], NDArray[Any]] | None = np.copy,
    ) -> None:
        pages = -(-count // PAGE_ROWS)
        self._values = values[:count]
        self._copy = copy
        self._copies: dict[int, NDArray[Any]] = {}
        self._shared = np.full(pages, copy is not None)

    def save(self, rows: Longs) -> None:
        """Copies rows that are about to be written; they may lie beyond the end."""
        if not self._shared.any():
            return
        pages = rows >> PAGE_BITS
        touched = np.zeros(len(self._shared), np.bool_)
        touched[pages[pages < len(touched)]] = True
        for page in np.flatnonzero(touched & self._shared).tolist():
            self._save(page)

    def steps(self) -> Iterator[int]:
        """Copies what is still shared, a page in each step; yields its rows."""
        for page in range(len(self._shared)):
            if self._shared[page]:
                yield self._save(page)

    def release(self) -> None:
        """Frees the array when nobody needs it; from any thread, also after the last step."""
        self._shared[:] = False
        self._copies.clear()
        self._values = self._values[:0].copy()

    def values(self) -> NDArray[Any]:
        """All values, after the last of the steps; from any thread."""
        if self._copy is None or not self._copies:
            return self._values
        return np.concatenate([self._copies[page] for page in range(len(self._copies))])

    def _save(self, page: int) -> int:
        assert self._copy is not None, "only what may be written to is shared"
        start = page << PAGE_BITS
        self._copies[page] = self._copy(self._values[start : start + PAGE_ROWS])
        self._shared[page] = False
        return len(self._copies[page])

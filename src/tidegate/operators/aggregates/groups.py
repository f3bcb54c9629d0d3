"""Rows of a batch grouped by key, and running folds over each key's rows, without a Python loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]

_NARROW: Final = 1 << 16

_LONG_GROUP: Final = 128
"""Groups of more rows are accumulated one by one, shorter ones all together, row by row."""


@dataclass(frozen=True)
class Groups:
    """Rows of a batch in the order of their keys' rows; in a key in the order of the batch.

    order: position in the batch, shape (rows,). keys: the row of each group's key; starts,
    lengths: where in the order its rows are; shape (groups,).
    """

    order: Longs
    keys: Longs
    starts: Longs
    lengths: Longs

    @staticmethod
    def of(index: Longs, keys_total: int) -> Groups:
        order = _order(index, keys_total)
        return Groups.sorted(order, index.take(order))

    @staticmethod
    def sorted(order: Longs, keys: Longs) -> Groups:
        begins = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=begins[1:])
        starts = begins.nonzero()[0]
        lengths = np.empty_like(starts)
        lengths[:-1] = starts[1:] - starts[:-1]
        lengths[-1:] = len(keys) - starts[-1:]
        return Groups(order, keys.take(starts), starts, lengths)

    def only(self, chosen: NDArray[np.bool_]) -> Groups:
        """Groups of the chosen rows only; empty groups are left out."""
        return Groups.sorted(self.order[chosen], np.repeat(self.keys, self.lengths)[chosen])

    @property
    def lasts(self) -> Longs:
        return self.starts + self.lengths - 1

    @cached_property
    def places(self) -> Longs:
        """Where each row of the batch stands in the groups' order."""
        made = np.empty(len(self.order), np.int64)
        made[self.order] = np.arange(len(made))
        return made

    def running_count(self, before: Longs) -> Longs:
        """Number of each row in its group. before: rows that the group had."""
        made = (before - self.starts + 1).repeat(self.lengths)
        made += np.arange(len(made))
        return made

    def spread(self, values: NDArray[Any], offsets: NDArray[Any]) -> NDArray[Any]:
        """The values, changed in place, with the offset of its group added to each."""
        values += offsets.repeat(self.lengths)
        return values

    def running_sum(self, values: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
        """Running sum of each group's integers. before: its start value."""
        totals = values.cumsum()
        return self.spread(totals, before - totals.take(self.starts) + values.take(self.starts))

    def running(self, ufunc: np.ufunc, values: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
        """Running fold of each group's values by ``ufunc``, starting with before."""
        made = values.copy()
        made[self.starts] = ufunc(before, made[self.starts])
        long = self.lengths > _LONG_GROUP
        for start, length in zip(self.starts[long], self.lengths[long], strict=True):
            made[start : start + length] = ufunc.accumulate(made[start : start + length])
        shorter = np.argsort(-self.lengths[~long], kind="stable")
        starts, lengths = self.starts[~long][shorter], self.lengths[~long][shorter]
        for step in range(1, lengths[0] if len(lengths) else 0):
            at = starts[: np.searchsorted(-lengths, -step)] + step
            made[at] = ufunc(made[at - 1], made[at])
        return made


def _order(index: Longs, keys_total: int) -> Longs:
    # NumPy sorts 16-bit numbers by radix, several times faster than wider ones.
    if keys_total <= _NARROW:
        return index.astype(np.uint16).argsort(kind="stable")
    if keys_total > _NARROW * _NARROW:
        return np.argsort(index, kind="stable")
    low = np.argsort((index & (_NARROW - 1)).astype(np.uint16), kind="stable")
    return low.take(np.argsort((index >> 16).astype(np.uint16).take(low), kind="stable"))

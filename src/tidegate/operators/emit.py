"""Results that come one by one, passed on in batches of bounded size."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tidegate.model.elements import RowBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.api.operator import Output, Steps


def emit_rows(
    results: Iterator[object], rows_max: int, out: Output, *, stamp: Callable[[], int] | None = None
) -> Steps | None:
    """Pass results on; where they don't fit one batch, in steps that wait for room.

    stamp: gives the event time of the result drawn last; None where rows have no time.
    """
    batch = _draw(results, rows_max, stamp)
    if len(batch) < rows_max:
        if batch.values:
            out.emit(batch)
        return None
    return _rest(batch, results, rows_max, out, stamp)


def _rest(
    batch: RowBatch,
    results: Iterator[object],
    rows_max: int,
    out: Output,
    stamp: Callable[[], int] | None,
) -> Steps:
    while batch.values:
        out.emit(batch)
        if not out.has_room:
            yield None
        batch = _draw(results, rows_max, stamp)


def _draw(results: Iterator[object], rows_max: int, stamp: Callable[[], int] | None) -> RowBatch:
    if stamp is None:
        return RowBatch(list(islice(results, rows_max)))
    values: list[object] = []
    stamps: list[int] = []
    for value in islice(results, rows_max):
        values.append(value)
        stamps.append(stamp())
    return RowBatch(values, stamps)

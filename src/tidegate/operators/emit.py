"""Results that come one by one, passed on in batches of bounded size, each to its output."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, cast

from tidegate.api.output_tag import MADE, OutputTag, is_aside
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
            emit_sorted(batch, out)
        return None
    return _rest(batch, results, rows_max, out, stamp)


def emit_sorted(batch: RowBatch, out: Output) -> None:
    """Pass a batch on, what is meant for side outputs to them."""
    if MADE.any and any(map(is_aside, batch.values)):
        batch = _emit_aside(batch, out)
    if batch.values:
        out.emit(batch)


def _emit_aside(batch: RowBatch, out: Output) -> RowBatch:
    """Pass on what is meant for side outputs; what is not."""
    stamps = batch.timestamps_ms
    sides: dict[str | None, RowBatch] = {}
    for index, value in enumerate(batch.values):
        tag = None
        if is_aside(value):
            pair = cast("tuple[OutputTag[object], object]", value)
            tag, value = pair[0].tag_id, pair[1]
        side = sides.get(tag)
        if side is None:
            side = sides[tag] = RowBatch([], None if stamps is None else [])
        side.values.append(value)
        if side.timestamps_ms is not None and stamps is not None:
            side.timestamps_ms.append(stamps[index])
    main = sides.pop(None, RowBatch([]))
    for tag, side in sides.items():
        assert tag is not None, "the main output was taken out"
        out.emit_side(tag, side)
    return main


def _rest(
    batch: RowBatch,
    results: Iterator[object],
    rows_max: int,
    out: Output,
    stamp: Callable[[], int] | None,
) -> Steps:
    while batch.values:
        emit_sorted(batch, out)
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

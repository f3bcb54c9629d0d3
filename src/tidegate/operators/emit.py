"""Results that come one by one, passed on in batches of bounded size, each to its output."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, cast

from tidegate.api.operator import Pause
from tidegate.api.output_tag import MADE, OutputTag, is_aside
from tidegate.model.elements import RowBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.api.operator import Output, Steps
    from tidegate.model.elements import Watermark

PIECE_MS: Final = 5
"""How long what is due at once is worked on before a checkpoint may come in between."""


class Timed(Protocol):
    """Knows the event time of the result drawn last, which has one."""

    @property
    def timestamp_ms(self) -> int | None:
        """Milliseconds."""
        ...


def emit_rows(
    results: Iterator[object], rows_max: int, out: Output, *, timed: Timed | None = None
) -> Steps | None:
    """Pass results on; where they don't fit one batch, in steps that wait for room.

    timed: None where rows have no time.
    """
    batch = _draw(results, rows_max, timed)
    if len(batch) < rows_max:
        if batch.values:
            emit_sorted(batch, out)
        return None
    return _rest(batch, results, rows_max, out, timed)


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
    timed: Timed | None,
) -> Steps:
    while batch.values:
        emit_sorted(batch, out)
        if not out.has_room:
            yield None
        batch = _draw(results, rows_max, timed)


def _draw(results: Iterator[object], rows_max: int, timed: Timed | None) -> RowBatch:
    if timed is None:
        return RowBatch(list(islice(results, rows_max)))
    values: list[object] = []
    stamps: list[int | None] = []
    for value in islice(results, rows_max):
        values.append(value)
        stamps.append(timed.timestamp_ms)
    return RowBatch(values, cast("list[int]", stamps))


def in_pieces(piece: Callable[[], Steps | None], is_due: Callable[[], bool]) -> Steps:
    """Do what is due at once, in pieces between which a checkpoint may come.

    piece: does about ``PIECE_MS`` of it; called once at least. is_due: whether any is left.
    """
    while True:
        yield from piece() or ()
        if not is_due():
            return
        yield Pause.HERE


def ahead_of(watermark: Watermark, steps: Steps | None, out: Output) -> Steps:
    """Do what comes before a watermark, then pass it on."""
    yield from steps or ()
    out.emit_watermark(watermark)

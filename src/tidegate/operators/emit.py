"""Emits results that come one by one in batches of bounded size, each to its output."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, cast

from tidegate.api.operator import Pause
from tidegate.api.output_tag import MADE, OutputTag, is_aside
from tidegate.api.pieces import TURN_S, PieceSize
from tidegate.errors import TidegateError
from tidegate.loops.forms import INTERPRETED
from tidegate.model.elements import RowBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.api.operator import Output, Steps, TimerQueue
    from tidegate.loops.forms import Loops
    from tidegate.model.elements import Watermark

PIECE_MS: Final = 5
"""How long what is due at once is worked on before a checkpoint may come in between."""


_UNSEEN_MAX: Final = 15
"""How many things may be done without a look at the clock, if it stood still before."""


class Timed(Protocol):
    """Knows the event time of the last drawn result."""

    @property
    def timestamp_ms(self) -> int | None: ...


class Draws:
    """Draws results in batches that take a few milliseconds each, by how long earlier ones took.

    rows_max: results of a batch.
    """

    def __init__(
        self, rows_max: int, monotonic_ms: Callable[[], int], loops: Loops = INTERPRETED
    ) -> None:
        self._loops = loops
        self._size = PieceSize(rows_max, TURN_S)
        self._monotonic_ms = monotonic_ms
        self._failure: TidegateError | None = None

    def next(
        self, results: Iterator[object], timed: Timed | None, rows_max: int
    ) -> tuple[RowBatch, bool]:
        """The next results, and whether there may be more. timed: None if rows have no time.

        rows_max: of these results; more would wait for credit together.

        A failure after some results is raised by the next call, so that these results leave first.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        wanted, began_ms = min(self._size.rows, rows_max), self._monotonic_ms()
        batch = RowBatch([], None if timed is None else [])
        try:
            self._draw(results, wanted, timed, batch)
        except TidegateError as failure:
            if not batch.values:
                raise
            self._failure = failure
            return batch, True
        if batch.values:
            self._size.took(len(batch), (self._monotonic_ms() - began_ms) / 1000)
        return batch, len(batch) == wanted

    def _draw(
        self, results: Iterator[object], count: int, timed: Timed | None, batch: RowBatch
    ) -> None:
        if timed is None:
            batch.values.extend(islice(results, count))
        else:
            self._loops.draw_with_times(results, count, timed, batch.values, batch.timestamps_ms)


def emit_rows(
    results: Iterator[object], draws: Draws, out: Output, *, timed: Timed | None = None
) -> Steps | None:
    """Pass results on; where they don't fit one batch, in steps that wait for room.

    timed: None if rows have no time.
    """
    batch, has_more = draws.next(results, timed, out.rows_max)
    if batch.values:
        emit_sorted(batch, out)
    return _rest(results, draws, out, timed) if has_more else None


def emit_sorted(batch: RowBatch, out: Output) -> None:
    """Emits a batch, sorting out results for side outputs."""
    if MADE.any and any(map(is_aside, batch.values)):
        batch = _emit_aside(batch, out)
    if batch.values:
        out.emit(batch)


def _emit_aside(batch: RowBatch, out: Output) -> RowBatch:
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


def _rest(results: Iterator[object], draws: Draws, out: Output, timed: Timed | None) -> Steps:
    has_more = True
    while has_more:
        yield None
        batch, has_more = draws.next(results, timed, out.rows_max)
        if batch.values:
            emit_sorted(batch, out)


class Piece:
    """Some milliseconds of what is due, after which a checkpoint may come in between."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._end_ms = self._seen_ms = self._unseen = 0

    def begin(self) -> None:
        self._seen_ms = self._monotonic_ms()
        self._end_ms = self._seen_ms + PIECE_MS
        self._unseen = 0

    def is_over(self) -> bool:
        """Asked after each thing that was due; where these are short not each asks the clock."""
        if self._unseen:
            self._unseen -= 1
            return False
        now_ms = self._monotonic_ms()
        if now_ms == self._seen_ms:
            self._unseen = _UNSEEN_MAX
        self._seen_ms = now_ms
        return now_ms >= self._end_ms


def then_fail(failure: TidegateError) -> Steps:
    yield None
    raise failure


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
    yield from steps or ()
    out.emit_watermark(watermark)


def is_due(timers: TimerQueue, until_ms: int) -> bool:
    """True if a timer may be due by then."""
    return timers.next_ms is not None and timers.next_ms <= until_ms

"""Tumbling and sliding windows that fire at their end, for all keys at once.

Records are gathered in *panes*, the parts of time that windows share: a sliding window is put
together of its panes when it fires, so that a record is added once, not once a window. If
accumulators cannot be merged, a pane is a whole window. A window needs no timer for each key: it
fires when time has passed its end, for the keys that its panes hold.

State is what is gathered, by key and start of the pane. Which windows have fired already is known
from the time each subtask had reached, which is kept where contents outlive the firing.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heappop, heappush
from itertools import groupby, islice
from math import gcd
from operator import attrgetter, itemgetter, length_hint
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from flinkformat.frozen import frozen
from tidegate.api.functions import AggregateFunction, AggregatingStateDescriptor
from tidegate.api.pieces import PieceSize
from tidegate.api.rows.column_rows import ColumnRows, joined
from tidegate.api.windows import TimeWindow
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from tidegate.operators.emit import in_pieces
from tidegate.operators.failures import raise_user_code_failed
from tidegate.operators.keys import keys_of
from tidegate.operators.windows.firing import (
    CONTENTS,
    HeapFiringOperator,
    WindowContents,
    event_times,
)
from tidegate.operators.windows.folded_panes import (
    FoldedPanes,
    folds_of_windows,
    results_of_windows,
)
from tidegate.operators.windows.progress import Progress
from tidegate.traced.purity import NotPure
from tidegate.typeinfo.copies import copier_of
from tidegate.typeinfo.types import LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.state import AggregatingState
    from tidegate.api.windows.assigners import AlignedWindows
    from tidegate.model.elements import Batch

_FIRE: Final = 0
_DROP: Final = 1
_KEYS_AHEAD: Final = 512

Keys = dict[object, int]
"""Keys with their key groups."""


@frozen
class _Panes:
    """How windows cut time into panes. shared: True if overlapping windows share panes."""

    windows: AlignedWindows
    shared: bool

    @property
    def length_ms(self) -> int:
        size_ms, slide_ms = self.windows.size_ms, self.windows.slide_ms
        return gcd(size_ms, slide_ms) if self.shared else slide_ms

    def in_window(self, stamp_ms: int) -> bool:
        """True if a time lies in a window: it may lie between two of them."""
        windows = self.windows
        return (stamp_ms - windows.offset_ms) % windows.slide_ms < windows.size_ms

    def start(self, stamp_ms: int) -> int:
        return stamp_ms - (stamp_ms - self.windows.offset_ms) % self.length_ms

    def starts(self, stamps: Sequence[int], ago_ms: int) -> list[int]:
        """Starts of the records' panes, or of the windows that began that long before."""
        first, last = self.start(min(stamps)), self.start(max(stamps))
        if first == last:
            return [first - ago_ms] * len(stamps)
        times = np.array(stamps, np.int64)
        times -= (times - self.windows.offset_ms) % self.length_ms + ago_ms
        return times.tolist()

    def window(self, start: int) -> TimeWindow:
        return TimeWindow(start, start + self.windows.size_ms)

    def windows_of(self, start: int) -> list[TimeWindow]:
        return self.windows.windows_of(start) if self.shared else [self.window(start)]

    def of(self, window: TimeWindow) -> range:
        end_ms = window.end if self.shared else window.start + 1
        return range(window.start, end_ms, self.length_ms)

    def left_by(self, window: TimeWindow) -> range:
        """Starts of the panes of a window that no later window has."""
        last = window.start + min(self.windows.slide_ms, self.windows.size_ms)
        return range(window.start, last, self.length_ms)


class AlignedWindowOperator(HeapFiringOperator):
    """Windows of one size, the same for all keys. plan: with the assigner's own trigger."""

    def open(self, context: OperatorContext) -> None:
        self._open(context, WindowContents(self._plan, context))
        windows = cast("AlignedWindows", self._plan.assigner)
        overlap = windows.slide_ms < windows.size_ms
        self._cut = _Panes(windows, shared=overlap and self._plan.can_merge)
        # What windows held may be there still once they have fired.
        self._outlived = self._cut.shared or self._plan.lateness_ms > 0
        self._by_row = self._plan.gathers_by_row
        self._copy = copier_of(self._contents.type)
        self._panes: dict[int, Keys] = {}
        self._known: set[int] = set()
        self._due: list[tuple[int, int, int]] = []
        self._left: deque[tuple[object, int]] = deque()
        # What these hold, where it is in no state.
        self._at_hand: deque[object] = deque()
        self._keys_at_once = PieceSize(_KEYS_AHEAD)
        gathered = _Gathered(self._contents, self._begin)
        descriptor = AggregatingStateDescriptor(CONTENTS, gathered, self._contents.type)
        state = context.state.keyed_state(descriptor, LONG)
        self._state = cast("AggregatingState[Any, Any]", state)
        self._folded = self._folded_panes() if context.info.settings.trace_functions else None
        self._progress = Progress(context) if self._outlived else None
        for group, pair, _ in context.state.scan(CONTENTS):
            key, pane = cast("tuple[object, int]", pair)
            self._pane(pane)[key] = group
        self._pass_to(MIN_TIMESTAMP_MS)
        self._set_alarm()
        self._prepare(context)

    @property
    def by_row(self) -> Mapping[str, str]:
        call = self._gathering_call
        if call is None:
            return {}
        try:
            folds_of_windows(self._plan)
        except NotPure as reason:
            return {call: str(reason)}
        return {call: ""}

    @property
    def _gathering_call(self) -> str | None:
        if self._plan.reduce is not None:
            return "reduce"
        return None if self._plan.aggregate is None else "aggregate"

    def _why_called(self) -> str:
        call = self._gathering_call
        if call is not None and self.by_row[call]:
            return f"{call} is called for each row"
        try:
            folds, _ = folds_of_windows(self._plan)
            results_of_windows(self._plan, folds)
        except NotPure as reason:
            return str(reason)
        return ""

    def _folded_panes(self) -> FoldedPanes | None:
        try:
            folds, initial = folds_of_windows(self._plan)
        except NotPure:
            return None
        try:
            results = results_of_windows(self._plan, folds)
        except NotPure:
            results = None
        state, cell, current = self._state, self._cell, self._current
        return FoldedPanes(folds, initial, state, cell, current, self._pane, results)

    def snapshot(self, context: SnapshotContext) -> None:
        if self._folded is not None:
            self._folded.flush()
        if self._at_hand:
            # In the midst of a window, which goes on with the keys that are left.
            pane = self._due[0][2]
            self._panes[pane].update(self._left)
            keys, groups = map(list, zip(*self._left, strict=True))
            self._state.put_rows([(key, pane) for key in keys], groups, self._at_hand)
        super().snapshot(context)
        if self._progress is None:
            return
        to_fire = [at for at, what, _ in self._due if what == _FIRE and at <= self._time_ms]
        if not to_fire:
            self._progress.note(self._time_ms)
            return
        # In the midst of a round: it goes on with this window, for the key groups that are left.
        end_ms = min(to_fire)
        first_left = self._left[0][1] if self._left else 0
        self._progress.note(end_ms, end_ms - 1, first_left)

    # --- records ---

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = self._rows(batch, port)
        if not len(rows):
            return None
        if self._folded is not None:
            if isinstance(rows, ColumnRows) and self._gather_columns(rows, self._folded):
                self._set_alarm()
                return None
            self._folded.forget()
        keys, groups = keys_of(rows)
        if self._event_time:
            stamps = event_times(rows, self._name)
        else:
            # A clock that was put back makes nobody late.
            reached_ms = max(self._time_ms, self._fired_until_ms)
            stamps = [max(self._context.time.processing_time(), reached_ms + 1)] * len(rows)
        has_gaps = self._cut.windows.slide_ms > self._cut.windows.size_ms
        if min(stamps) >= self._ahead_ms and not has_gaps:
            self._gather(keys, groups, rows.values, stamps)
            self._set_alarm()
            return None
        table = list(zip(keys, groups, rows.values, stamps, strict=True))
        plain = [row for row in table if self._is_plain(row[3])]
        if plain:
            self._gather(*map(list, zip(*plain, strict=True)))
        others = (row for row in table if not self._is_plain(row[3]))
        return self._emit(self._one_by_one(others, out), out)

    def _is_plain(self, stamp_ms: int) -> bool:
        """True if the time is in windows, and none of them has fired yet."""
        return self._cut.in_window(stamp_ms) and stamp_ms >= self._ahead_ms

    def _gather_columns(self, rows: ColumnRows, folded: FoldedPanes) -> bool:
        """Adds rows that are in windows, of which none has fired yet; False for others."""
        stamps, windows = rows.stamps, self._cut.windows
        if stamps is None:
            return False
        first_ms, last_ms = int(stamps.min()), int(stamps.max())
        if first_ms < max(self._ahead_ms, MIN_TIMESTAMP_MS + 1) or last_ms == MAX_WATERMARK_MS:
            return False
        pane_ms = self._cut.length_ms
        first, last = self._cut.start(first_ms), self._cut.start(last_ms)
        starts = np.array([first])
        if first != last:
            starts = stamps - (stamps - windows.offset_ms) % pane_ms
        for ago_ms in range(0, pane_ms if self._cut.shared else windows.size_ms, pane_ms):
            for left, panes in folded.add(rows, starts - ago_ms):
                keys, groups = keys_of(left)
                self._add(keys, panes, groups, left.values)
        return True

    def _gather(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Sequence[object],
        stamps: Sequence[int],
    ) -> None:
        size_ms, pane_ms = self._cut.windows.size_ms, self._cut.length_ms
        for ago_ms in range(0, pane_ms if self._cut.shared else size_ms, pane_ms):
            starts = self._cut.starts(stamps, ago_ms)
            if not ago_ms or not size_ms % pane_ms:
                self._add(keys, starts, groups, values)
                continue
            found = zip(keys, starts, groups, values, stamps, strict=True)
            kept = [row[:4] for row in found if row[4] < row[1] + size_ms]
            if kept:
                self._add(*map(list, zip(*kept, strict=True)))

    def _add(
        self,
        keys: Sequence[object],
        starts: Sequence[int],
        groups: Sequence[int],
        values: Sequence[object],
    ) -> None:
        if not self._by_row:
            self._add_all(keys, starts, groups, values)
            return
        cell = self._cell
        for value, start, cell.key, cell.group in zip(values, starts, keys, groups, strict=True):
            self._add_all([cell.key], [start], [cell.group], [value])

    def _add_all(
        self,
        keys: Sequence[object],
        starts: Sequence[int],
        groups: Sequence[int],
        values: Sequence[object],
    ) -> None:
        rest = iter(values)
        self._adding = keys, starts, groups, rest
        try:
            self._state.add_rows(zip(keys, starts, strict=True), groups, rest)
        except BaseException as error:
            row = values[-1 - length_hint(rest)]
            raise_user_code_failed(error, operator=self._name, row=row)

    def _begin(self) -> object:
        """Accumulator for a new pair, which is that of the record drawn last."""
        keys, starts, groups, rest = self._adding
        at = -1 - length_hint(rest)
        key, known = keys[at], self._pane(starts[at])
        if key in known:
            self._contents.checked(None)
        known[key] = groups[at]
        return self._contents.create_accumulator()

    def _one_by_one(
        self, rows: Iterable[tuple[object, int, object, int]], out: Output
    ) -> Iterator[object]:
        """Adds records that are in no window, or in some that have fired already."""
        late = list[object](), list[int]()
        lateness_ms, progress = self._plan.lateness_ms, self._progress
        for key, group, value, stamp_ms in rows:
            fired_ms = MIN_TIMESTAMP_MS if progress is None else progress.of(group)
            # A pane that is left of a window that was dropped cannot make it whole again.
            over_ms = max(self._time_ms, fired_ms) if self._cut.shared else self._time_ms
            windows = self._cut.windows.windows_of(stamp_ms)
            live = [each for each in windows if each.max_timestamp() + lateness_ms > over_ms]
            if not live:
                if windows or stamp_ms + lateness_ms <= self._time_ms:
                    late[0].append(value)
                    late[1].append(stamp_ms)
                continue
            panes = (
                [self._cut.start(stamp_ms)] if self._cut.shared else [each.start for each in live]
            )
            for pane in panes:
                self._add([key], [pane], [group], [value])
            self._cell.key, self._cell.group = key, group
            for window in reversed(live):
                if window.max_timestamp() <= self._time_ms:
                    gathered = self._put_together(window, [key], [group])
                    yield from self._evaluated_all(window, [key], [group], gathered)
                elif progress is not None and window.max_timestamp() <= fired_ms:
                    self._current.stand_on(window.start)
                    progress.fire_again()
        self._late.take(*late, out)
        self._set_alarm()

    # --- panes and windows ---

    def _pane(self, start: int) -> Keys:
        """Keys of a pane; a new pane schedules its windows."""
        keys = self._panes.get(start)
        if keys is None:
            keys = self._panes[start] = {}
            for window in self._cut.windows_of(start):
                if window.start not in self._known:
                    self._known.add(window.start)
                    end_ms = window.max_timestamp()
                    if end_ms > self._time_ms:
                        heappush(self._due, (end_ms, _FIRE, window.start))
                    if self._outlived:
                        drop_ms = end_ms + self._plan.lateness_ms
                        heappush(self._due, (drop_ms, _DROP, window.start))
        return keys

    def _panes_of(self, window: TimeWindow) -> list[int]:
        return [start for start in self._cut.of(window) if start in self._panes]

    def _keys_of(self, window: TimeWindow) -> Keys:
        panes = [self._panes[start] for start in self._panes_of(window)]
        if len(panes) == 1:
            return panes[0]
        keys: Keys = {}
        for pane in panes:
            keys.update(pane)
        return keys

    # --- time ---

    def _pass_to(self, time_ms: int) -> None:
        super()._pass_to(time_ms)
        size_ms, slide_ms = self._cut.windows.size_ms, self._cut.windows.slide_ms
        before = max(self._time_ms, self._fired_until_ms) + 1 - size_ms
        # The first window that is still to fire; whatever comes after the ones before it is ahead.
        first = before - (before - self._cut.windows.offset_ms) % slide_ms + slide_ms
        self._ahead_ms = max(first, first - slide_ms + size_ms)

    @property
    def _fired_until_ms(self) -> int:
        return MIN_TIMESTAMP_MS if self._progress is None else self._progress.until_ms

    def _fire(
        self, due: Callable[[], Iterator[object]], is_due: Callable[[], bool], out: Output
    ) -> Steps:
        def piece() -> Steps | None:
            self._piece.begin()
            columns = self._due_columns(out.rows_max)
            return _emitted(columns, out) if columns else self._emit(due(), out)

        return in_pieces(piece, is_due)

    def _due_columns(self, rows_max: int) -> list[ColumnRows]:
        """Results of windows whose functions can be evaluated, until the piece is over.

        rows_max: of results; the last window may exceed it.
        """
        found: list[ColumnRows] = []
        count = 0
        while count < rows_max and self._is_due() and not self._left:
            window = self._cut.window(self._due[0][2])
            made = self._columns_of(window)
            if made is None:
                break
            found.append(made)
            count += len(made)
            heappop(self._due)
            if self._piece.is_over():
                break
        return found

    def _columns_of(self, window: TimeWindow) -> ColumnRows | None:
        """Fires a window for all keys; None if its function has to be called."""
        made = None if self._folded is None else self._folded.results_of(window)
        if made is not None:
            self._known.discard(window.start)
            self._clear_written(window.start, list(self._panes[window.start]))
            self._drop_pane(window.start)
        return made

    def _due_results(self) -> Iterator[object]:
        due = self._due
        while self._is_due():
            _, what, start = due[0]
            window = self._cut.window(start)
            if what == _FIRE:
                yield from self._results_of(window)
                if self._left:
                    return
            else:
                self._drop(window)
            heappop(due)
        if self._progress is not None and self._progress.until_ms <= self._time_ms:
            self._progress.caught_up()
        self._set_alarm()

    def _results_of(self, window: TimeWindow) -> Iterator[object]:
        """Fires a window for the remaining keys, until the piece is over."""
        left, outlived = self._left, self._outlived
        if not left:
            self._begin_to_fire(window)
        clear = None if outlived or self._clears is None else partial(self._clear, window)
        monotonic_ms = self._context.time.monotonic_ms
        while left:
            keys, groups = self._some_left()
            began_ms = monotonic_ms()
            if outlived:
                to_fire = self._to_fire(window, keys, groups)
                contents = self._put_together(window, *to_fire)
                yield from self._evaluated_all(window, *to_fire, contents)
            elif self._at_hand:
                contents = [self._at_hand.popleft() for _ in keys]
                yield from self._evaluated_all(window, keys, groups, contents, clear)
                self._clear_written(window.start, keys)
            else:
                pairs = [(key, window.start) for key in keys]
                self._state.read_ahead(pairs, groups)
                contents = self._state.accumulators(pairs, groups)
                yield from self._evaluated_all(window, keys, groups, contents, clear)
                self._state.clear_rows(pairs, groups)
            for _ in keys:
                left.popleft()
            self._keys_at_once.took(len(keys), (monotonic_ms() - began_ms) / 1000)
            # How far a key group has come can be noted, how far within it cannot.
            is_cut = left and (not outlived or left[0][1] != groups[-1])
            if is_cut and self._piece.is_over():
                return
        if not outlived:
            self._known.discard(window.start)
            self._drop_pane(window.start)

    def _begin_to_fire(self, window: TimeWindow) -> None:
        """Notes the keys that are to fire, and what they hold where that is in columns."""
        folded = self._folded
        held = None if folded is None or self._outlived else folded.whole(window.start)
        if folded is not None and held is not None:
            folded.drop(window.start)
            order = held.groups.argsort(kind="stable")
            fields = [each.take(order).tolist() for each in held.values]
            self._at_hand.extend(held.form.rows(fields))
            keys, groups = held.keys.take(order).tolist(), held.groups.take(order).tolist()
            self._left.extend(zip(keys, groups, strict=True))
            return
        if folded is not None:
            folded.flush_some(self._cut.of(window))
        self._left.extend(sorted(self._keys_of(window).items(), key=itemgetter(1)))

    def _clear_written(self, pane: int, keys: Sequence[object]) -> None:
        """Clears what these keys have in a pane; what is not known there is in columns alone."""
        known = self._panes[pane]
        written = [key for key in keys if key in known]
        if written:
            pairs = [(key, pane) for key in written]
            self._state.clear_rows(pairs, [known[key] for key in written])

    def _some_left(self) -> tuple[list[object], list[int]]:
        """The keys that are next, and their key groups."""
        most = self._keys_at_once.rows
        some = list(islice(self._left, most + 1))
        if len(some) > most:
            _, following = some.pop()
            # Where it matters how far a key group has come, the last one is whole if it can be.
            whole = most
            while self._outlived and whole and some[whole - 1][1] == following:
                whole -= 1
            del some[whole or most :]
        return [key for key, _ in some], [group for _, group in some]

    def _to_fire(
        self, window: TimeWindow, keys: list[object], groups: list[int]
    ) -> tuple[list[object], list[int]]:
        """The keys whose window had not fired before the restore, or has grown."""
        progress, cell = self._progress, self._cell
        assert progress is not None, "windows that go once they fire have no progress to note"
        if window.max_timestamp() > progress.until_ms:
            return keys, groups
        chosen: tuple[list[object], list[int]] = [], []
        for cell.key, cell.group in zip(keys, groups, strict=True):
            if self._is_to_fire(window):
                chosen[0].append(cell.key)
                chosen[1].append(cell.group)
        return chosen

    def _drop_pane(self, start: int) -> Keys:
        if self._folded is not None:
            self._folded.drop(start)
        return self._panes.pop(start, {})

    def _is_to_fire(self, window: TimeWindow) -> bool:
        progress = self._progress
        assert progress is not None, "looked at before"
        if window.max_timestamp() > progress.of(self._cell.group):
            return True
        self._current.stand_on(window.start)
        return progress.is_to_fire()

    # --- contents ---

    def _put_together(
        self, window: TimeWindow, keys: Sequence[object], groups: Sequence[int]
    ) -> list[object]:
        """Content of each key's window; merged from copies if it has several panes."""
        parts: list[list[object]] = []
        for pane in self._panes_of(window):
            pairs = [(key, pane) for key in keys]
            self._state.read_ahead(pairs, groups)
            parts.append(self._state.accumulators(pairs, groups))
        return parts[0] if len(parts) == 1 else self._merged(window, keys, parts)

    def _merged(
        self, window: TimeWindow, keys: Sequence[object], parts: Sequence[Sequence[object]]
    ) -> list[object]:
        whole: list[object] = []
        try:
            whole.extend(map(self._whole, *parts))
            if len(whole) < len(keys):
                # `map` takes a StopIteration that leaves the function for its own end.
                raise StopIteration("raised by the function itself")
        except Exception as error:
            call = f"{self._contents.merging}, for key {keys[len(whole)]!r} and {window}"
            raise_user_code_failed(error, operator=self._name, call=call)
        return whole

    def _whole(self, *parts: object) -> object:
        whole: object = None
        for part in parts:
            if part is not None:
                own = part if self._copy is None else self._copy(part)
                whole = own if whole is None else self._contents.merge(whole, own)
        return whole

    def _drop(self, window: TimeWindow) -> None:
        self._known.discard(window.start)
        if self._clears is not None:
            self._clear_all(window)
        for start in self._cut.left_by(window):
            for key, group in self._drop_pane(start).items():
                self._cell.key, self._cell.group = key, group
                self._current.stand_on(start)
                self._state.clear()

    def _clear_all(self, window: TimeWindow) -> None:
        progress = self._progress
        assert progress is not None, "what is dropped has outlived its firing"
        over_ms = window.max_timestamp() + self._plan.lateness_ms
        for key, group in self._keys_of(window).items():
            # Else a pane is left of it that later windows have as well.
            if not self._cut.shared or over_ms > progress.of(group):
                self._cell.key, self._cell.group = key, group
                self._clear(window)


def _emitted(parts: list[ColumnRows], out: Output) -> Steps | None:
    """Emits batches of columns, joined where they are of one shape."""
    alike = [list(some) for _, some in groupby(parts, attrgetter("shape"))]
    whole = [joined(some) for some in alike]
    if len(whole) == 1 and len(whole[0]) <= out.rows_max:
        out.emit(whole[0])
        return None
    return _in_batches(whole, out)


def _in_batches(parts: list[ColumnRows], out: Output) -> Steps:
    for part in parts:
        start = 0
        while start < len(part):
            # How many an output takes at once changes with each batch.
            stop = min(start + out.rows_max, len(part))
            out.emit(part.piece(start, stop))
            start = stop
            yield None


class _Gathered(AggregateFunction[Any, Any, Any]):
    """The contents' function, whose first accumulators the operator notes."""

    def __init__(self, contents: WindowContents, begin: Callable[[], object]) -> None:
        self.add = contents.add
        self.create_accumulator = begin

    def create_accumulator(self) -> object:
        raise NotImplementedError

    def add(self, value: object, accumulator: object, /) -> object:
        raise NotImplementedError

    def get_result(self, accumulator: object) -> object:
        return accumulator

    def merge(self, acc_a: object, acc_b: object) -> object:
        raise NotImplementedError

"""Tumbling and sliding windows that fire at their end, for all keys at once.

Records are gathered in *panes*, the parts of time that windows share: a sliding window is put
together of its panes when it fires, so that a record is added once, not once a window. Where two
accumulators cannot be merged a pane is a whole window. A window needs no timer for each key: it
fires when time has passed its end, for the keys that its panes hold.

State is what is gathered, by key and start of the pane. Which windows have fired already is known
from the time each subtask had reached, which is kept where contents outlive the firing.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import chain, repeat
from math import gcd
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.api.batches import as_rows
from tidegate.api.functions import AggregateFunction
from tidegate.api.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    OperatorStateDescriptor,
    RedistributionMode,
    ValueStateDescriptor,
)
from tidegate.api.windows import AlignedWindows, TimeWindow
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.model.key_groups import KeyGroupRange
from tidegate.operators.emit import emit_rows
from tidegate.operators.failures import user_code_failed
from tidegate.operators.function import FunctionOperator
from tidegate.operators.process import keys_of
from tidegate.operators.windows import (
    CONTENTS,
    Evaluation,
    LateRecords,
    WindowContents,
    WindowContext,
    WindowPlan,
    event_times,
    namespace_of,
    stand_on,
)
from tidegate.typeinfo.copies import copier_of
from tidegate.typeinfo.types import BOOLEAN, LONG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidegate.api.operator import OperatorContext, Output, SnapshotContext, Steps
    from tidegate.api.state import ValueState
    from tidegate.model.elements import Batch, Watermark
    from tidegate.typeinfo.types import TypeInformation

PROGRESS: Final = "window-progress"
AGAIN: Final = "window-again"

_FIRE, _DROP = 0, 1

Keyed = tuple[int, object]
"""Key group and key."""


class AlignedWindowOperator(FunctionOperator):
    """Windows of one size, the same for all keys. plan: with the assigner's own trigger."""

    def __init__(self, plan: WindowPlan, key_type: TypeInformation | None = None) -> None:
        self._plan = plan
        self.key_type = key_type
        self._windows = cast("AlignedWindows", plan.assigner)
        self.contents = WindowContents(plan)
        size_ms, slide_ms = self._windows.size_ms, self._windows.slide_ms
        self._gaps = slide_ms > size_ms
        self._shared = slide_ms < size_ms and self.contents.can_merge
        self._whole = not self._shared
        self._outlive = self._shared or plan.lateness_ms > 0
        self._pane_ms = gcd(size_ms, slide_ms) if self._shared else slide_ms

    @property
    def _functions(self) -> tuple[object, ...]:
        return self._plan.functions

    def open(self, context: OperatorContext) -> None:
        """Take up what was gathered before, then open the functions."""
        self._context = context
        self._cell, self._pair = context.current_key, context.current_pair
        self._event_time = self._windows.is_event_time()
        self._watermark_ms = self._time_ms = MIN_TIMESTAMP_MS
        self._window_context = WindowContext(
            context, self._windows.window_type, lambda: self._watermark_ms
        )
        self._evaluation = Evaluation(self._plan.function, self.contents, context.name)
        self._late = LateRecords(context, self._plan.late_tag)
        self._copy = copier_of(self.contents.type)
        self._stamp_ms = self._ahead_ms = MIN_TIMESTAMP_MS
        self._panes: dict[int, list[Keyed]] = {}
        self._known: set[int] = set()
        self._due: list[tuple[int, int, int]] = []
        descriptor = AggregatingStateDescriptor(CONTENTS, _Gathered(self), self.contents.type)
        state = cast("AggregatingState[Any, Any]", context.keyed_state(descriptor, LONG))
        self._state = state
        self._restore(context)
        self._prepare(context)

    def _restore(self, context: OperatorContext) -> None:
        self._fired_ms: dict[int, int] = {}
        if self._outlive:
            # What fired windows held is still there: those of a key group had the time of whoever
            # had the group. They fire again for the keys that get more.
            descriptor = OperatorStateDescriptor(PROGRESS, mode=RedistributionMode.UNION)
            self._progress = context.operator_state(descriptor)
            for first, last, time_ms in self._progress.get():
                self._fired_ms.update(zip(range(first, last + 1), repeat(time_ms), strict=False))
            again = context.keyed_state(ValueStateDescriptor(AGAIN, BOOLEAN), LONG)
            self._again = cast("ValueState[bool]", again)
        for group, pair, _ in context.entries(CONTENTS):
            key, pane = cast("tuple[object, int]", pair)
            self._pane(pane).append((group, key))
        self._set_alarm()

    def snapshot(self, context: SnapshotContext) -> None:
        """Note how far time has come, where contents outlive the firing."""
        super().snapshot(context)
        if self._outlive:
            own = self._context
            groups = KeyGroupRange.of(own.subtask, own.parallelism, own.max_parallelism)
            reached = [(groups.first, groups.last, self._time_ms)]
            if self._fired_ms:  # not yet where the last run was
                fired = {group: self._fired_ms.get(group, MIN_TIMESTAMP_MS) for group in groups}
                reached = [(g, g, max(self._time_ms, fired[g])) for g in groups]
            self._progress.update(reached)

    # --- records ---

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        """Gather a batch; late records are set aside, or fire their windows at once."""
        rows = as_rows(batch)
        keys, groups = keys_of(rows)
        if not rows.values:
            return None
        if self._event_time:
            stamps = event_times(rows, self._name)
        else:
            # A clock that was put back makes nobody late.
            now_ms = max(self._context.processing_time(), self._time_ms + 1)
            stamps = [now_ms] * len(rows)
        if self._fired_ms:
            self._note_again(keys, groups, stamps)
        if min(stamps) >= self._ahead_ms and not self._gaps:
            self._gather(keys, groups, rows.values, stamps)
            self._set_alarm()
            return None
        table = list(zip(keys, groups, rows.values, stamps, strict=True))
        plain = [row for row in table if row[3] >= self._ahead_ms and self._is_in_a_window(row[3])]
        if plain:
            self._gather(*map(list, zip(*plain, strict=True)))
        others = (
            row for row in table if row[3] < self._ahead_ms or not self._is_in_a_window(row[3])
        )
        found = self._one_by_one(others, out)
        return emit_rows(found, self._chunk_rows, out, stamp=self._stamp)

    def _gather(
        self,
        keys: Sequence[object],
        groups: Sequence[int],
        values: Sequence[object],
        stamps: Sequence[int],
    ) -> None:
        """Add records all of whose windows are still to fire."""
        for ago_ms in range(0, self._windows.size_ms if self._whole else 1, self._pane_ms):
            pairs: Iterable[tuple[object, int]] = zip(
                keys, self._starts(stamps, ago_ms), strict=False
            )
            if not ago_ms or not self._windows.size_ms % self._pane_ms:
                self._add(list(pairs), groups, values)
                continue
            found = zip(pairs, groups, values, stamps, strict=True)
            kept = [row for row in found if row[3] < row[0][1] + self._windows.size_ms]
            if kept:
                self._add(*list(map(list, zip(*kept, strict=True)))[:3])

    def _starts(self, stamps: Sequence[int], ago_ms: int) -> Iterable[int]:
        """The starts of the records' panes, or of the windows that began that long before."""
        pane_ms, offset_ms = self._pane_ms, self._windows.offset_ms
        first = self._start(min(stamps))
        if first == self._start(max(stamps)):
            return repeat(first - ago_ms)
        shift_ms = offset_ms - ago_ms
        return [stamp - ago_ms - (stamp - ago_ms - shift_ms) % pane_ms for stamp in stamps]

    def _start(self, stamp_ms: int) -> int:
        return stamp_ms - (stamp_ms - self._windows.offset_ms) % self._pane_ms

    def _add(self, pairs: Sequence[Any], groups: Sequence[int], values: Sequence[object]) -> None:
        rest = iter(values)
        self._adding = pairs, groups, rest
        try:
            self._state.add_rows(pairs, groups, rest)
        except Exception as error:
            row = values[-1 - length_hint(rest)]
            raise user_code_failed(error, operator=self._name, row=row) from error

    def begin(self) -> object:
        """The accumulator of a pair that was not there: that of the record drawn last."""
        pairs, groups, rest = self._adding
        at = -1 - length_hint(rest)
        key, pane = pairs[at]
        self._pane(pane).append((groups[at], key))
        return self.contents.create_accumulator()

    def _one_by_one(
        self, rows: Iterable[tuple[object, int, object, int]], out: Output
    ) -> Iterator[object]:
        """Add records some of whose windows have fired already, or that are in none."""
        late = list[object](), list[int]()
        for key, group, value, stamp_ms in rows:
            windows = self._windows.windows_of(stamp_ms)
            live = [window for window in windows if self._outlives(window.max_timestamp())]
            if not live:
                if not self._outlives(stamp_ms):
                    late[0].append(value)
                    late[1].append(stamp_ms)
                continue
            panes = [self._start(stamp_ms)] if self._shared else [each.start for each in live]
            for pane in panes:
                self._add([(key, pane)], [group], [value])
            for window in reversed(live):
                if window.max_timestamp() <= self._time_ms:
                    yield from self._results(key, group, window)
        self._late.take(*late, out)
        self._set_alarm()

    def _outlives(self, stamp_ms: int) -> bool:
        return stamp_ms + self._plan.lateness_ms > self._time_ms

    # --- panes and windows ---

    def _is_in_a_window(self, stamp_ms: int) -> bool:
        windows = self._windows
        return (stamp_ms - windows.offset_ms) % windows.slide_ms < windows.size_ms

    def _pane(self, start: int) -> list[Keyed]:
        """The keys of a pane; a new one has its windows fire and go."""
        pane = self._panes.get(start)
        if pane is None:
            pane = self._panes[start] = []
            size_ms = self._windows.size_ms
            first = (
                [start] if self._whole else [each.start for each in self._windows.windows_of(start)]
            )
            for window in first:
                if window not in self._known:
                    self._known.add(window)
                    end_ms = window + size_ms - 1
                    if end_ms > self._time_ms:
                        heappush(self._due, (end_ms, _FIRE, window))
                    heappush(self._due, (end_ms + self._plan.lateness_ms, _DROP, window))
        return pane

    def _panes_of(self, window: int) -> list[int]:
        if self._whole:
            return [window] if window in self._panes else []
        starts = range(window, window + self._windows.size_ms, self._pane_ms)
        return [start for start in starts if start in self._panes]

    def _keys_of(self, window: int) -> Iterable[Keyed]:
        panes = [self._panes[start] for start in self._panes_of(window)]
        return panes[0] if len(panes) == 1 else dict.fromkeys(chain.from_iterable(panes))

    # --- time ---

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        """Fire the windows that have ended, then pass the watermark on."""
        self._watermark_ms = watermark.ms
        if self._event_time and self._passes(watermark.ms):
            return self._fire_then(watermark, out)
        out.emit_watermark(watermark)
        return None

    def on_ready(self, out: Output) -> Steps | None:
        """Fire the windows that have ended by the clock."""
        if self._event_time:
            return None
        self._passes(self._context.processing_time() - 1)
        return emit_rows(self._due_results(), self._chunk_rows, out, stamp=self._stamp)

    def _fire_then(self, watermark: Watermark, out: Output) -> Steps:
        found = self._due_results()
        yield from emit_rows(found, self._chunk_rows, out, stamp=self._stamp) or ()
        out.emit_watermark(watermark)

    def _passes(self, time_ms: int) -> bool:
        """Time has come to there: whether windows have ended."""
        self._time_ms = max(self._time_ms, time_ms)
        size_ms, slide_ms = self._windows.size_ms, self._windows.slide_ms
        before = self._time_ms + 1 - size_ms
        # The first window that is still to fire; whatever comes after the ones before it is ahead.
        first = before - (before - self._windows.offset_ms) % slide_ms + slide_ms
        self._ahead_ms = max(first, first - slide_ms + size_ms)
        return bool(self._due) and self._due[0][0] <= self._time_ms

    def _due_results(self) -> Iterator[object]:
        due = self._due
        while due and due[0][0] <= self._time_ms:
            _, what, start = heappop(due)
            window = TimeWindow(start, start + self._windows.size_ms)
            if what == _FIRE:
                for group, key in self._keys_of(start):
                    if self._is_to_fire(group, key, window):
                        yield from self._results(key, group, window)
            else:
                self._drop(window)
        if self._fired_ms and max(self._fired_ms.values()) <= self._time_ms:
            self._fired_ms = {}
        self._set_alarm()

    def _set_alarm(self) -> None:
        if not self._event_time and self._due:
            self._context.wake_at_wall(self._due[0][0] + 1)

    def _note_again(
        self, keys: Sequence[object], groups: Sequence[int], stamps: Sequence[int]
    ) -> None:
        """Of the windows that fired before the restore, these keys' are to fire again."""
        for key, group, stamp_ms in zip(keys, groups, stamps, strict=True):
            for window in self._windows.windows_of(stamp_ms):
                if (
                    self._time_ms
                    < window.max_timestamp()
                    <= self._fired_ms.get(group, MIN_TIMESTAMP_MS)
                ):
                    stand_on(self._pair, key, group, window.start)
                    self._again.update(True)

    def _is_to_fire(self, group: int, key: object, window: TimeWindow) -> bool:
        fired_ms = self._fired_ms.get(group, MIN_TIMESTAMP_MS) if self._fired_ms else None
        if fired_ms is None or window.max_timestamp() > fired_ms:
            return True
        stand_on(self._pair, key, group, window.start)
        again = self._again.value() is not None
        self._again.clear()
        return again

    # --- results ---

    def _stamp(self) -> int:
        return self._stamp_ms

    def _results(self, key: object, group: int, window: TimeWindow) -> Iterable[object]:
        gathered = self._put_together(key, group, window.start)
        self._cell.key, self._cell.group = key, group
        stand_on(self._pair, key, group, namespace_of(window))
        self._window_context.current = window
        self._stamp_ms = window.max_timestamp()
        own = self._own
        try:
            results = self._evaluation.results(key, window, self._window_context, gathered)
            yield from results if own is None else map(own, results)
        except Exception as error:
            call = f"window function, for key {key!r} and {window}"
            raise user_code_failed(error, operator=self._name, call=call) from error

    def _put_together(self, key: object, group: int, window: int) -> object:
        """What a key's window holds; changed by nobody else where it is of several panes."""
        panes = self._panes_of(window)
        if self._whole or len(panes) == 1:
            stand_on(self._pair, key, group, panes[0])
            return self._state.get()
        whole: object = None
        for pane in panes:
            stand_on(self._pair, key, group, pane)
            part = self._state.get()
            if part is not None:
                part = part if self._copy is None else self._copy(part)
                whole = part if whole is None else self.contents.merge(whole, part)
        return whole

    def _drop(self, window: TimeWindow) -> None:
        """The window is over, with the panes that no later one has."""
        self._known.discard(window.start)
        if self._evaluation.clear is not None:
            self._window_context.current = window
            for group, key in self._keys_of(window.start):
                self._cell.key, self._cell.group = key, group
                stand_on(self._pair, key, group, namespace_of(window))
                self._guarded(self._evaluation.clear, self._window_context)
        last = window.start + min(self._windows.slide_ms, self._windows.size_ms)
        for start in (window.start,) if self._whole else range(window.start, last, self._pane_ms):
            for group, key in self._panes.pop(start, ()):
                stand_on(self._pair, key, group, start)
                self._state.clear()


class _Gathered(AggregateFunction[Any, Any, Any]):
    """The contents' function, whose first accumulators the operator notes."""

    def __init__(self, operator: AlignedWindowOperator) -> None:
        contents = operator.contents
        self.add = contents.add
        self.create_accumulator = operator.begin

    def create_accumulator(self) -> object:
        """Made by the operator."""
        raise NotImplementedError

    def add(self, value: object, accumulator: object) -> object:
        """As the contents do."""
        raise NotImplementedError

    def get_result(self, accumulator: object) -> object:
        """The accumulator."""
        return accumulator

    def merge(self, acc_a: object, acc_b: object) -> object:
        """Not called."""
        raise NotImplementedError

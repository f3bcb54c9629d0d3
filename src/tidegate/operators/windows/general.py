"""Windows of any assigner, trigger and evictor, record by record."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate.api.functions import TimeDomain
from tidegate.api.state import MapStateDescriptor, ValueStateDescriptor
from tidegate.api.windows import CountWindow, Window
from tidegate.api.windows.assigners import MergeCallback, MergingWindowAssigner
from tidegate.api.windows.evictors import TimestampedValue
from tidegate.api.windows.triggers import TriggerResult
from tidegate.errors import UserError
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS
from tidegate.operators.emit import is_due
from tidegate.operators.failures import raise_user_code_failed
from tidegate.operators.keys import keys_of
from tidegate.operators.windows.firing import (
    CONTENTS,
    EvictedContents,
    FiringOperator,
    WindowContents,
    event_times,
    namespace_of,
    window_of,
)
from tidegate.operators.windows.trigger_contexts import WindowTimers, WindowTriggerContext
from tidegate.typeinfo.types import LONG, PICKLED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidegate.api.operator import OperatorContext
    from tidegate.api.state import MapState

    Merged = Callable[[Window, list[Window], object, list[object]], None]
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.api.operator import Output, Steps
    from tidegate.api.state import ValueState
    from tidegate.api.windows.evictors import Evictor
    from tidegate.model.elements import Batch, RowBatch, Watermark
    from tidegate.operators.windows.firing import WindowPlan
    from tidegate.typeinfo.types import TypeInformation


class MergingWindows:
    """The windows of the current key that may still merge, each with its *home*.

    The home is the namespace of a window under which the contents stand; it stays when that window
    grows, so that contents need not move.
    """

    def __init__(self, context: OperatorContext, assigner: MergingWindowAssigner[Any, Any]) -> None:
        windows = assigner.window_type or PICKLED
        descriptor = MapStateDescriptor("merging-window-set", windows, windows)
        self._homes = cast("MapState[object, object]", context.state.keyed_state(descriptor))
        self._merge = assigner.merge_windows

    def home(self, window: Window) -> object:
        return self._homes.get(namespace_of(window))

    def add(self, window: Window, merged: Merged) -> Window:
        """The window that this one becomes part of, or itself.

        merged: told of each merge: the new window, the old ones, its home, and their other homes.
        """
        if self._homes.contains(namespace_of(window)):
            return window
        found = _Merges()
        self._merge([window, *map(window_of, self._homes.keys())], found)
        joined, alone = window, True
        for parts, whole in found.groups:
            if window in parts:
                joined = whole
            old = [part for part in parts if part != window]
            homes = [self._taken_out(part) for part in old]
            if homes:
                alone = alone and window not in parts
                self._homes.put(namespace_of(whole), homes[0])
                if old != [whole]:
                    merged(whole, old, homes[0], homes[1:])
        if alone:
            self._homes.put(namespace_of(joined), namespace_of(window))
        return joined

    def retire(self, window: Window) -> None:
        self._homes.remove(namespace_of(window))

    def _taken_out(self, window: Window) -> object:
        home = self._homes.get(namespace_of(window))
        self._homes.remove(namespace_of(window))
        return home


class _Merges(MergeCallback[Window]):
    def __init__(self) -> None:
        self.groups: list[tuple[list[Window], Window]] = []

    def merge(self, merged: Collection[Window], merge_result: Window) -> None:
        self.groups.append((list(merged), merge_result))


_NUMBER: Final = "window-number"


class WindowOperator(FiringOperator):
    """Windows as their assigner, trigger and evictor say.

    A window's contents, its trigger's state and its timers are keyed state under the window's
    namespace; where windows merge the contents stand under the window's home.
    """

    def __init__(
        self,
        plan: WindowPlan,
        evictor: Evictor[Any, Any] | None,
        key_type: TypeInformation | None = None,
    ) -> None:
        super().__init__(plan, key_type)
        self._evictor = evictor

    def open(self, context: OperatorContext) -> None:
        kind = WindowContents if self._evictor is None else EvictedContents
        self._open(context, kind(self._plan, context))
        assigner = self._plan.assigner
        self._domain = TimeDomain.EVENT_TIME if self._event_time else TimeDomain.PROCESSING_TIME
        descriptor = ValueStateDescriptor(CONTENTS, self._contents.type)
        namespaces = assigner.window_type or PICKLED
        self._state = cast("ValueState[Any]", context.state.keyed_state(descriptor, namespaces))
        self._timers = WindowTimers(context, assigner.window_type)
        self._trigger = WindowTriggerContext(
            context, self._timers, assigner.window_type, lambda: self._watermark_ms
        )
        self._merging = (
            MergingWindows(context, cast("Any", assigner))
            if isinstance(assigner, MergingWindowAssigner)
            else None
        )
        self._assigning = _AssignerContext(context)
        self._prepare(context)

    # --- records ---

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        rows = self._rows(batch, port)
        if self._event_time and rows.values:
            event_times(rows, self._name)
        return self._emit(self._added(rows, out), out)

    def _added(self, rows: RowBatch, out: Output) -> Iterator[object]:
        assign, cell = self._plan.assigner.assign_windows, self._cell
        keys, groups = keys_of(rows)
        stamps: Iterable[int | None] = rows.timestamps_ms or repeat(None)
        late = list[object](), list[int]()
        value: object = None
        try:
            for value, key, group, stamp_ms in zip(rows.values, keys, groups, stamps, strict=False):
                cell.key, cell.group = key, group
                event_ms = MIN_TIMESTAMP_MS if stamp_ms is None else stamp_ms
                windows = assign(value, event_ms, self._assigning)
                live = False
                for window in windows:
                    home = self._home(window)
                    if home is None:
                        continue
                    live = True
                    yield from self._add(value, stamp_ms, *home)
                if not live and (windows or self._is_over(event_ms)):
                    late[0].append(value)
                    late[1].append(event_ms)
        except BaseException as error:
            raise_user_code_failed(error, operator=self._name, row=value)
        self._late.take(*late, out)

    def _home(self, window: Window) -> tuple[Window, object] | None:
        """Window that holds a record, and the place of its content; None if it is over."""
        merging = self._merging
        if merging is None:
            return None if self._is_over(window.max_timestamp()) else (window, namespace_of(window))
        joined = merging.add(window, self._merged)
        if self._is_over(joined.max_timestamp()):
            merging.retire(joined)
            return None
        return joined, merging.home(joined)

    def _is_over(self, end_ms: int) -> bool:
        return self._event_time and self._cleanup_ms(end_ms) <= self._watermark_ms

    def _cleanup_ms(self, end_ms: int) -> int:
        return min(end_ms + self._plan.lateness_ms, MAX_WATERMARK_MS)

    def _add(
        self, value: object, stamp_ms: int | None, window: Window, home: object
    ) -> Iterable[object]:
        contents = self._contents
        self._current.stand_on(home)
        gathered = self._state.value()
        added = value if self._evictor is None else (value, stamp_ms)
        self._state.update(
            contents.checked(
                contents.add(added, contents.create_accumulator() if gathered is None else gathered)
            )
        )
        self._trigger.stand_on(namespace_of(window))
        event_ms = MIN_TIMESTAMP_MS if stamp_ms is None else stamp_ms
        result = self._plan.trigger.on_element(value, event_ms, window, self._trigger)
        cleanup_ms = self._cleanup_ms(window.max_timestamp())
        if cleanup_ms < MAX_WATERMARK_MS:
            self._timers.register(self._domain, cleanup_ms, self._trigger.namespace)
        return () if result is TriggerResult.CONTINUE else self._obey(result, window, home)

    def _merged(self, whole: Window, old: list[Window], home: object, others: list[object]) -> None:
        if self._is_over(whole.max_timestamp()):
            raise UserError(
                f"The windows {old} were merged into {whole}, whose time is over",
                where=f"operator '{self._name}', key {self._cell.key!r}",
                remedy="Let merge_windows of the assigner give windows that hold those merged.",
            )
        trigger, context = self._plan.trigger, self._trigger
        context.stand_on(namespace_of(whole), [namespace_of(each) for each in old])
        trigger.on_merge(whole, context)
        for each in old:
            if each != whole:
                context.stand_on(namespace_of(each))
                trigger.clear(each, context)
                self._forget_end(each)
        self._current.stand_on(home)
        gathered = self._state.value()
        for other in others:
            self._current.stand_on(other)
            part = self._state.value()
            self._state.clear()
            if part is not None:
                gathered = part if gathered is None else self._contents.merge(gathered, part)
        self._current.stand_on(home)
        self._state.update(gathered)

    def _forget_end(self, window: Window) -> None:
        cleanup_ms = self._cleanup_ms(window.max_timestamp())
        if cleanup_ms < MAX_WATERMARK_MS:
            self._timers.delete(self._domain, cleanup_ms, namespace_of(window))

    # --- time ---

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        self._watermark_ms = watermark.ms
        timers, on_time = self._timers.event, self._plan.trigger.on_event_time

        def fired() -> Iterator[object]:
            return self._fired(timers.due(watermark.ms), TimeDomain.EVENT_TIME, on_time)

        return self._fire_then(fired, partial(is_due, timers, watermark.ms), watermark, out)

    def on_ready(self, out: Output) -> Steps | None:
        timers, on_time = self._timers.processing, self._plan.trigger.on_processing_time
        now_ms = self._context.time.processing_time()

        def fired() -> Iterator[object]:
            due = ((ms - 1, namespace) for ms, namespace in timers.due(now_ms))
            return self._fired(due, TimeDomain.PROCESSING_TIME, on_time)

        return self._fire(fired, partial(is_due, timers, now_ms), out)

    def _fired(
        self,
        due: Iterator[tuple[int, object]],
        domain: TimeDomain,
        on_time: Callable[[int, Any, WindowTriggerContext], TriggerResult],
    ) -> Iterator[object]:
        for ms, namespace in due:
            window = window_of(namespace)
            home = namespace if self._merging is None else self._merging.home(window)
            if home is None:
                continue  # it has become part of another
            self._trigger.stand_on(namespace)
            try:
                result = on_time(ms, window, self._trigger)
            except BaseException as error:
                call = f"trigger, for key {self._cell.key!r} and {window}"
                raise_user_code_failed(error, operator=self._name, call=call)
            yield from self._obey(result, window, home)
            if domain is self._domain and ms == self._cleanup_ms(window.max_timestamp()):
                self._drop(window, home)
            if self._piece.is_over():
                return

    # --- windows ---

    def _obey(self, result: TriggerResult, window: Window, home: object) -> Iterator[object]:
        if not isinstance(result, TriggerResult):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UserError(
                f"The trigger has returned {result!r} for {window}, which is not a TriggerResult",
                where=f"operator '{self._name}', key {self._cell.key!r}",
                remedy="Return one of TriggerResult, such as TriggerResult.CONTINUE.",
            )
        if result.is_fire():
            yield from self._results(window, home)
        if not result.is_purge():
            return
        if isinstance(window, CountWindow):
            self._drop(window, home)  # it was full; no time ends it
        else:
            self._current.stand_on(home)
            self._state.clear()

    def _results(self, window: Window, home: object) -> Iterator[object]:
        self._current.stand_on(home)
        gathered = self._state.value()
        if gathered is None:
            return
        if self._evictor is None:
            yield from self._evaluated(window, gathered)
            return
        kept = [TimestampedValue(*pair) for pair in gathered]
        self._guarded(self._evictor.evict_before, kept, window, self._trigger)
        yield from self._evaluated(window, [each.value for each in kept])
        self._guarded(self._evictor.evict_after, kept, window, self._trigger)
        self._current.stand_on(home)
        self._state.update([(each.value, each.timestamp) for each in kept] or None)

    def _drop(self, window: Window, home: object) -> None:
        namespace = namespace_of(window)
        self._current.stand_on(home)
        self._state.clear()
        self._trigger.stand_on(namespace)
        self._guarded(self._plan.trigger.clear, window, self._trigger)
        self._clear(window)
        if self._merging is not None:
            self._merging.retire(window)


class _AssignerContext:
    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._numbers: ValueState[int] | None = None
        self.get_current_processing_time = context.time.processing_time

    def next_number(self) -> int:
        if self._numbers is None:
            descriptor = ValueStateDescriptor(_NUMBER, LONG)
            self._numbers = cast("ValueState[int]", self._context.state.keyed_state(descriptor))
        number = self._numbers.value() or 0
        self._numbers.update(number + 1)
        return number

"""Contents of panes as columns, for functions that fold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from tidegate.api.functions.window_functions import WindowFunction
from tidegate.api.rows.column_rows import TUPLE
from tidegate.operators.aggregates.folded import FoldedKeys
from tidegate.operators.function import has_life
from tidegate.operators.windows.column_results import ColumnResults
from tidegate.operators.windows.firing import clearing
from tidegate.traced.folds import Folds, folds_of
from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Constant, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tidegate.api.rows.column_rows import ColumnRows
    from tidegate.api.state import AggregatingState
    from tidegate.api.windows import TimeWindow
    from tidegate.api.windows.assigners import AlignedWindows
    from tidegate.loops.cells import KeyCell
    from tidegate.operators.windows.firing import CurrentWindow, WindowPlan


ROWS_MIN: Final = 32
"""Rows a pane from which on batches of several panes are folded: 64 take as long either way."""


class FoldedPanes:
    """Holds what panes gather, until it is written back.

    keys_of: known keys of a pane. results: evaluates what fires; None if functions are called.
    """

    def __init__(
        self,
        folds: Folds,
        initial: object,
        state: AggregatingState[Any, Any],
        cell: KeyCell,
        current: CurrentWindow,
        keys_of: Callable[[int], dict[object, int]],
        results: ColumnResults | None,
    ) -> None:
        self._folds = folds
        self._initial = initial
        self._state = state
        self._cell = cell
        self._current = current
        self._keys_of = keys_of
        self._results = results
        self._panes: dict[int, FoldedKeys] = {}

    def add(
        self, rows: ColumnRows, starts: NDArray[np.int64]
    ) -> Iterator[tuple[ColumnRows, list[int]]]:
        """Adds rows to the panes that begin at these times; gives those that it can't add.

        starts: of each row's pane; of one row's if it is the pane of all. Result: beside rows the
        start of each one's pane.
        """
        if len(starts) == 1:
            yield from self._gather(rows, int(starts[0]))
            return
        if len(rows) < ROWS_MIN * len(np.unique(starts)):
            # NumPy would take longer for so few rows than the function for each of them.
            held = np.isin(starts, list(self._panes))
            called = np.flatnonzero(~held)
            if len(called):
                yield rows.take(called), starts.take(called).tolist()
            rows, starts = rows.take(np.flatnonzero(held)), starts[held]
        order = starts.argsort(kind="stable")
        panes, firsts = np.unique(starts.take(order), return_index=True)
        groups = np.split(order, firsts[1:]) if len(panes) else []
        for start, group in zip(panes.tolist(), groups, strict=True):
            yield from self._gather(rows.take(group), start)

    def _gather(self, rows: ColumnRows, start: int) -> Iterator[tuple[ColumnRows, list[int]]]:
        if not self._pane(start).gather(rows):
            yield rows, [start] * len(rows)

    def _pane(self, start: int) -> FoldedKeys:
        pane = self._panes.get(start)
        if pane is None:
            is_new = not self._keys_of(start)
            pane = FoldedKeys(self._folds, _Pane(self, start), self._initial, is_whole=is_new)
            self._panes[start] = pane
        return pane

    def read(self, start: int, keys: Sequence[object], groups: Sequence[int]) -> list[object]:
        """Reads what each key has gathered in a pane; None for a key that is new there."""
        known, cell, get = self._keys_of(start), self._cell, self._state.get
        found: list[object] = []
        for key, group in zip(keys, groups, strict=True):
            if key in known:
                cell.key, cell.group = key, group
                self._current.stand_on(start)
                found.append(get())
            else:
                found.append(None)
        return found

    def write(
        self, start: int, keys: Sequence[object], groups: Sequence[int], values: Iterable[object]
    ) -> None:
        self._keys_of(start).update(zip(keys, groups, strict=True))
        self._state.put_rows([(key, start) for key in keys], groups, values)

    def whole(self, start: int) -> FoldedKeys | None:
        """The columns of a pane, if all of it is there; state may have some of it too."""
        pane = self._panes.get(start)
        return pane if pane is not None and pane.is_whole and len(pane) else None

    def results_of(self, window: TimeWindow) -> ColumnRows | None:
        """Results of a window of one pane for all keys; None if its function has to be called."""
        held = None if self._results is None else self.whole(window.start)
        return None if held is None or self._results is None else self._results.rows(window, held)

    def flush(self) -> None:
        for pane in self._panes.values():
            pane.flush()

    def flush_some(self, starts: Iterable[int]) -> None:
        """Writes back what has changed in these panes."""
        for start in starts:
            if start in self._panes:
                self._panes[start].flush()

    def forget(self) -> None:
        """Writes all back: others are about to add to it."""
        self.flush()
        self._panes.clear()

    def drop(self, start: int) -> None:
        """Forgets a pane that is over."""
        self._panes.pop(start, None)


class _Pane:
    def __init__(self, panes: FoldedPanes, start: int) -> None:
        self._panes = panes
        self._start = start

    def read(self, keys: Sequence[object], key_groups: Sequence[int]) -> list[object]:
        return self._panes.read(self._start, keys, key_groups)

    def write(
        self, keys: Sequence[object], key_groups: Sequence[int], values: Iterable[object]
    ) -> None:
        self._panes.write(self._start, keys, key_groups, values)


def results_of_windows(plan: WindowPlan, folds: Folds) -> ColumnResults:
    """How results are made of what windows hold, for all keys at once.

    Raises NotPure if functions have to be called for that.
    """
    windows = cast("AlignedWindows", plan.assigner)
    if plan.can_merge and windows.slide_ms < windows.size_ms:
        raise NotPure("the windows overlap")
    if plan.lateness_ms:
        raise NotPure("the windows allow lateness")
    if any(map(has_life, plan.functions)):
        raise NotPure("it has an open(), and so may have state")
    if clearing(plan.function) is not None:
        raise NotPure("it has a clear()")
    of_element = None if plan.aggregate is None else plan.aggregate.get_result
    function = plan.function
    if isinstance(function, WindowFunction):
        function = cast("Any", function).apply
    return ColumnResults(of_element, function, form=folds.form, width=len(folds.folds))


def folds_of_windows(plan: WindowPlan) -> tuple[Folds, object]:
    """How rows are gathered, and with what a window begins; None for its first row.

    Raises NotPure if functions have to be called for that.
    """
    windows = cast("AlignedWindows", plan.assigner)
    if not windows.is_event_time():
        raise NotPure("the windows are of processing time")
    if plan.paired:
        raise NotPure("the windows are of two streams")
    if plan.gathers_by_row:
        raise NotPure("it has an open(), and so may have state")
    if windows.slide_ms > windows.size_ms:
        raise NotPure("the windows leave gaps")
    if not plan.can_merge and windows.size_ms % windows.slide_ms:
        raise NotPure("it has no merge(), and windows begin at other times than they end")
    if plan.reduce is not None:
        return folds_of(plan.reduce), None
    if plan.aggregate is None:
        raise NotPure("the rows themselves are kept")
    folds = folds_of(plan.aggregate.add, argument=0)
    begun = trace(plan.aggregate.create_accumulator, 0)
    if begun.seen:
        raise NotPure("create_accumulator reads what may change")
    values = tuple(each.value for each in begun.expressions if isinstance(each, Constant))
    if len(values) != len(folds.folds) or begun.form != folds.form:
        raise NotPure("create_accumulator gives other fields than add")
    return folds, values if folds.form == TUPLE else values[0]

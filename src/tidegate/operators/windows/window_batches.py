"""Aggregates of Arrow batches by key and window of event time.

Time is cut into slices, as long as the greatest span that divides the windows' size and slide, so
that each window is made of whole slices. A row is added to its slice only, whatever the number of
windows it is in; a window merges its slices when the watermark passes its end. A slice is a pane of
columnar state with keys of its own, and goes with them after its last window.

How far windows have fired is in the snapshot, for each key group, although watermarks are not: a
window that fired before the snapshot is not fired again after a restore by what its slices still
hold for later windows, and a row is late after it where it would have been without it.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from flinkformat.key_groups import KeyGroupRange
from tidegate.api.aggregates import Collect
from tidegate.api.operator import Operator
from tidegate.api.state import OperatorStateDescriptor, RedistributionMode
from tidegate.errors import BadRecord
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, ArrowBatch
from tidegate.operators.aggregates.aggregated_columns import AggregatedColumns
from tidegate.operators.arrow import BATCH_CALL_S, ArrowInput, first_row
from tidegate.operators.windows.slices import (
    SliceCombiner,
    SlicedAggregates,
    Slices,
    columns_over,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tidegate.api.aggregates import Aggregate
    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, Output, Steps
    from tidegate.api.state import KeyedPane, KeyedPanes
    from tidegate.api.windows.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
    from tidegate.model.elements import Batch, Watermark
    from tidegate.typeinfo.types import TypeInformation

    Longs = NDArray[np.int64]

START: Final = "window_start"
END: Final = "window_end"

_LATENESS_MAX_MS: Final = 1 << 62
"""More is as long; with it no sum with a time wraps around."""

_FIRED: Final = OperatorStateDescriptor("fired", mode=RedistributionMode.UNION)
"""(first key group, last key group, milliseconds up to which windows have fired, schema or None)"""


class WindowAggregateBatchesOperator(Operator):
    """A row for each key and window: the key, the window's start and end, and the aggregates.

    key_column: the column that the edge before it is keyed by. lateness_ms: how long after its end
    a window takes rows in; each batch with such rows gives its keys' results anew. late_tag: the
    side output of rows that are late for all their windows; None drops and counts them.
    """

    piece_s = BATCH_CALL_S

    def __init__(
        self,
        windows: TumblingEventTimeWindows | SlidingEventTimeWindows,
        aggregates: Sequence[Aggregate],
        key_column: str,
        key_type: TypeInformation | None = None,
        *,
        lateness_ms: int = 0,
        late_tag: str | None = None,
    ) -> None:
        self._slices = Slices(windows.size_ms, windows.slide_ms, windows.offset_ms)
        self._aggregates = aggregates
        self._key_column = key_column
        self.key_type = key_type
        self._lateness_ms = min(lateness_ms, _LATENESS_MAX_MS)
        self._late_tag = late_tag

    @property
    def takes_any_order(self) -> bool:
        return not any(isinstance(each, Collect) for each in self._aggregates)

    def combiner(self) -> SliceCombiner:
        return SliceCombiner(self._slices, self._aggregates, self._key_column, self.key_type)

    def open(self, context: OperatorContext) -> None:
        self._name = context.info.name
        self._rows_max = context.info.settings.arrow_rows
        self._panes = context.state.keyed_panes(self.key_type)
        self._sums = SlicedAggregates(self._slices, self._panes)
        self._dropped = context.tasks.metrics.counter("numLateRecordsDropped")
        self._watermark_ms = MIN_TIMESTAMP_MS
        self._fired = _Fired(context)
        self._columns: AggregatedColumns | None = None
        restored: pa.Schema | None = None
        if self._fired.schema is not None:
            restored = pa.ipc.read_schema(pa.py_buffer(self._fired.schema))
            self._columns = AggregatedColumns(self._aggregates, restored, self._name)
        self._input = ArrowInput(self._name, restored)

    def snapshot(self, context: SnapshotContext) -> None:
        schema = None if self._columns is None else self._columns.schema.serialize().to_pybytes()
        self._fired.note(schema)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        given = self._input.batch(batch)
        if not len(given):
            return
        self._columns = columns_over(
            self._columns, self._aggregates, self._key_column, given.batch.schema, self._name
        )
        stamps = self._stamps(given)
        kept = self._in_time(given, stamps, out)
        if kept is not None:
            given, stamps = _chosen(given, kept), stamps[kept]
        if not len(given):
            return
        key_groups = given.key_groups
        assert key_groups is not None, "a keyed edge gives key groups"
        rows = self._panes.index(given.batch.column(self._key_column), key_groups)
        self._sums.take(self._columns, given.batch, rows, stamps)
        if self._lateness_ms:
            self._fire_again(self._columns, rows, stamps, out)

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        if watermark.ms > self._watermark_ms:
            yield from self._fire_due(watermark.ms, out)
            if watermark.ms < MAX_WATERMARK_MS:
                # The end of the input is no time: a job that goes on from here takes rows in.
                self._fired.by_ms = watermark.ms
            self._watermark_ms = watermark.ms
            self._clean_up(watermark.ms)
        out.emit_watermark(watermark)

    # Rows in

    def _stamps(self, given: ArrowBatch) -> Longs:
        stamps = given.timestamps_ms
        if stamps is None or stamps.min() == MIN_TIMESTAMP_MS:
            raise BadRecord(
                "Windows of event time got rows without timestamps",
                where=f"operator '{self._name}', batch with {first_row(given.batch)}",
                remedy="Give the source, or the stream before it, a watermark strategy with a "
                "timestamp assigner; flat_map_batches gives rows without timestamps.",
            )
        return stamps

    def _in_time(self, given: ArrowBatch, stamps: Longs, out: Output) -> NDArray[np.bool_] | None:
        """Mask of rows in a window that still accepts them; None for all. Sets others aside."""
        in_window = self._slices.in_window(stamps)
        reached = self._reached(given)
        if isinstance(reached, int):
            earliest = self._slices.last_end(int(stamps.min())) - 1 + self._lateness_ms
            if earliest > reached:
                return in_window
        late = self._slices.last_end(stamps) - 1 + self._lateness_ms <= reached
        if in_window is not None:
            late &= in_window
        if late.any():
            if self._late_tag is None:
                self._dropped.inc(int(late.sum()))
            else:
                out.emit_side(self._late_tag, _plain(_chosen(given, late)))
        return ~late if in_window is None else in_window & ~late

    # Windows out

    def _fire_due(self, watermark_ms: int, out: Output) -> Steps:
        columns = self._columns
        if columns is None:
            return
        gathered = self._gathered(columns, out)
        for start in self._due(watermark_ms):
            pane = self._window(columns, start)
            rows = pane.rows()
            last_ms = start + self._slices.size_ms - 1
            if last_ms <= self._fired.restored_max_ms:
                rows = rows[self._fired.restored_ms(self._panes.key_groups(rows)) < last_ms]
            gathered.add(start, pane, rows)
            if not out.has_room:
                yield None
        gathered.flush()

    def _fire_again(
        self, columns: AggregatedColumns, rows: Longs, stamps: Longs, out: Output
    ) -> None:
        key_groups = self._panes.key_groups(rows)
        reached = np.maximum(self._fired.restored_ms(key_groups), self._watermark_ms)
        first_end = (
            self._slices.last_end(stamps)
            - (self._slices.size_ms - 1) // self._slices.slide_ms * self._slices.slide_ms
        )
        late = np.flatnonzero(first_end - 1 <= reached)
        if not len(late):
            return
        gathered = self._gathered(columns, out)
        stamps, reached = stamps.take(late), reached.take(late)
        starts = {
            start
            for each in np.unique(self._slices.starts_of(stamps))
            for start in self._slices.windows(each)
        }
        for start in sorted(starts):
            last_ms = start + self._slices.size_ms - 1
            inside = (stamps >= start) & (stamps <= last_ms)
            fired = (last_ms <= reached) & (last_ms + self._lateness_ms > reached)
            chosen = late.take(np.flatnonzero(inside & fired))
            if len(chosen):
                pane, fired_rows = self._window(columns, start), np.unique(rows.take(chosen))
                gathered.add(start, pane, fired_rows)
        gathered.flush()

    def _due(self, watermark_ms: int) -> list[int]:
        """Starts of windows with rows that end after the last watermark, up to this one."""
        from_ms, to_ms = (
            each + 1 - self._slices.size_ms for each in (self._watermark_ms, watermark_ms)
        )
        found: set[int] = set()
        for slice_start in self._panes.namespaces():
            if slice_start - self._slices.size_ms >= to_ms:
                break
            found.update(self._slices.windows(slice_start, from_ms, to_ms))
        return sorted(found)

    def _window(self, columns: AggregatedColumns, start: int) -> KeyedPane:
        end = start + self._slices.size_ms
        inside = [each for each in self._panes.namespaces() if start <= each < end]
        if len(inside) == 1:
            return self._panes.pane(inside[0])
        merged = self._panes.temporary()
        for slice_start in inside:
            part = self._panes.pane(slice_start)
            rows = part.rows()
            merged.add(rows)
            for accumulator in columns.accumulators:
                accumulator.merge(merged, rows, part)
        return merged

    def _gathered(self, columns: AggregatedColumns, out: Output) -> _Gathered:
        size_ms, rows_max = self._slices.size_ms, self._rows_max
        return _Gathered(columns, self._panes, self._key_column, size_ms, rows_max, out)

    def _clean_up(self, watermark_ms: int) -> None:
        """Drops slices after their last window; packs slices that are only read from now on."""
        over: list[int] = []
        for start in self._panes.namespaces():
            if self._slices.last_end(start) - 1 + self._lateness_ms <= watermark_ms:
                over.append(start)
            elif start + self._slices.length_ms - 1 <= watermark_ms:
                self._panes.pane(start).pack()
        self._panes.drop(over)

    def _reached(self, given: ArrowBatch) -> int | Longs:
        """Event time reached, for all rows or for each; at least the time before the restore."""
        if self._watermark_ms >= self._fired.restored_max_ms:
            return self._watermark_ms
        return np.maximum(self._fired.restored_ms(given.key_groups), self._watermark_ms)


class _Fired:
    """How far windows have fired, for each key group; part of every snapshot.

    by_ms: up to where they have fired since the restore.
    """

    def __init__(self, context: OperatorContext) -> None:
        info = context.info
        self._own = KeyGroupRange.of(info.subtask, info.parallelism, info.max_parallelism)
        self._entries = context.state.operator_state(_FIRED)
        self._restored_ms = np.full(info.max_parallelism, MIN_TIMESTAMP_MS, np.int64)
        self.schema: bytes | None = None
        for first, last, fired_ms, schema in self._entries.get():
            self._restored_ms[first : last + 1] = fired_ms
            self.schema = schema or self.schema
        self.by_ms = MIN_TIMESTAMP_MS
        self.restored_max_ms = int(self._of_own().max())

    def restored_ms(self, key_groups: Any) -> Longs:
        """How far the windows of key groups had fired when the restored snapshot was taken."""
        return self._restored_ms[key_groups]

    def note(self, schema: bytes | None) -> None:
        """Put into the state how far windows have fired. schema: of the batches, serialized."""
        fired = np.maximum(self._of_own(), self.by_ms).tolist()
        entries: list[tuple[int, int, int, bytes | None]] = []
        first = self._own.first
        for fired_ms, groups in groupby(fired):
            last = first + len(list(groups)) - 1
            entries.append((first, last, fired_ms, schema))
            first = last + 1
        self._entries.update(entries)

    def _of_own(self) -> Longs:
        return self._restored_ms[self._own.first : self._own.last + 1]


class _Gathered:
    """Results of windows, made together and emitted in batches of a suitable size.

    Making a batch costs as much as thousands of its rows, and a window may have few.
    """

    def __init__(
        self,
        columns: AggregatedColumns,
        panes: KeyedPanes,
        key_column: str,
        size_ms: int,
        rows_max: int,
        out: Output,
    ) -> None:
        self._columns = columns
        self._panes = panes
        self._key_column = key_column
        self._size_ms = size_ms
        self._rows_max = rows_max
        self._out = out
        self._begin()

    def _begin(self) -> None:
        self._starts: list[int] = []
        self._rows: list[Longs] = []
        self._results: list[list[pa.Array]] = []
        self._total = 0

    def add(self, start: int, pane: KeyedPane, rows: Longs) -> None:
        """Adds the results of a window for these rows of its pane."""
        if not len(rows):
            return
        self._starts.append(start)
        self._rows.append(rows)
        accumulators = self._columns.accumulators
        self._results.append([each.result(pane, rows) for each in accumulators])
        self._total += len(rows)
        if self._total >= self._rows_max:
            self.flush()

    def flush(self) -> None:
        if not self._total:
            return
        whole, last_ms = self._whole()
        self._begin()
        for at in range(0, whole.num_rows, self._rows_max):
            stamps = last_ms[at : at + self._rows_max]
            self._out.emit(ArrowBatch(whole.slice(at, self._rows_max), stamps))

    def _whole(self) -> tuple[pa.RecordBatch, Longs]:
        """One batch of all results, and the last millisecond of each row's window."""
        starts = np.repeat(self._starts, [len(each) for each in self._rows])
        ends = starts + self._size_ms
        keys = self._panes.keys(np.concatenate(self._rows)).cast(self._columns.key_type)
        results = [pa.concat_arrays(each) for each in zip(*self._results, strict=True)]
        key = pa.field(self._key_column, keys.type)
        times = [pa.field(name, pa.int64()) for name in (START, END)]
        schema = pa.schema([key, *times, *self._columns.fields])
        arrays = [keys, pa.array(starts), pa.array(ends), *results]
        return pa.RecordBatch.from_arrays(arrays, schema=schema), ends - 1


def _chosen(given: ArrowBatch, rows: NDArray[np.bool_]) -> ArrowBatch:
    stamps, groups = given.timestamps_ms, given.key_groups
    assert stamps is not None and groups is not None, "looked at before"
    batch = given.batch.filter(pa.array(rows))
    return ArrowBatch(batch, stamps[rows], given.key_column, groups[rows])


def _plain(given: ArrowBatch) -> ArrowBatch:
    return ArrowBatch(given.batch, given.timestamps_ms)

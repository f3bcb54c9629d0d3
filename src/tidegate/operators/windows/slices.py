"""Aggregates by key and slice of time, where their windows are and where their rows come from.

A slice is a pane of columnar state. In a batch, which gives a result of each key and window once,
rows may be added up where they are sent: what goes over the edge is then the accumulators of a key
and slice, and they are merged into the same panes. Only aggregates take part whose result does not
depend on it, to the bit: of sums the whole numbers, of the rest those that keep a value they saw.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa

from flinkformat.frozen import frozen
from tidegate.api.rows.column_rows import ColumnRows
from tidegate.errors import UserError
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS, ArrowBatch
from tidegate.operators.aggregates.accumulators import array_of
from tidegate.operators.aggregates.aggregated_columns import AggregatedColumns
from tidegate.operators.aggregates.groups import Groups
from tidegate.operators.arrow import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tidegate.api.aggregates import Aggregate
    from tidegate.api.state import ColumnStateDescriptor, KeyedPanes
    from tidegate.model.elements import Batch
    from tidegate.typeinfo.types import TypeInformation

    Longs = NDArray[np.int64]

_COMBINED: Final = b"tidegate.combined"
"""Names, in the metadata of a batch of accumulators, the schema of the rows that were added up."""

_PREFIX: Final = "tidegate."
"""Of the accumulators' columns, so that none is taken for the key's."""

_ROWS_AT_ONCE: Final = 65_536
CELLS_MAX: Final = 1 << 20
"""Keys times slices that are held before what is gathered is sent: some 50 MB of two aggregates."""

TEXTS_MAX: Final = 1 << 17
"""The same where keys are texts, which take several times as much."""

SLICES_MAX: Final = 512
"""Slices that are held at once, each of which takes room for a thousand keys at least."""

_REPEATS_MIN: Final = 2
"""Rows of a key and slice, on average, below which combining costs more than it saves."""


class Cuts(Protocol):
    """How time is cut into slices."""

    @property
    def timed(self) -> bool:
        """True if rows need an event time."""
        ...

    def spanned(self, stamps: Longs | None) -> int:
        """Number of slices from the first time to the last."""
        ...

    def split(self, stamps: Longs | None) -> Iterator[tuple[int, Longs | None]]:
        """Start of each slice with the positions of its rows, in their order; None for all rows."""
        ...


@frozen
class Slices:
    """How windows cut time into slices; its arithmetic is for a number as for an array."""

    size_ms: int
    slide_ms: int
    offset_ms: int

    timed = True

    @property
    def length_ms(self) -> int:
        return gcd(self.size_ms, self.slide_ms)

    def spanned(self, stamps: Longs | None) -> int:
        assert stamps is not None, "rows without event time were refused"
        first, last = (int(self.starts_of(int(each))) for each in (stamps.min(), stamps.max()))
        return (last - first) // self.length_ms + 1

    def split(self, stamps: Longs | None) -> Iterator[tuple[int, Longs | None]]:
        assert stamps is not None, "rows without event time were refused"
        begin = self.starts_of(int(stamps.min()))
        if int(stamps.max()) < begin + self.length_ms:
            yield begin, None
            return
        number = (stamps - begin) // self.length_ms
        groups = Groups.of(number, int(number.max()) + 1)
        ends = (groups.starts + groups.lengths).tolist()
        for slice_number, start, stop in zip(
            groups.keys.tolist(), groups.starts.tolist(), ends, strict=True
        ):
            yield begin + slice_number * self.length_ms, groups.order[start:stop]

    def starts_of(self, stamps: Any) -> Any:
        return stamps - (stamps - self.offset_ms) % self.length_ms

    def last_end(self, stamps: Any) -> Any:
        return stamps - (stamps - self.offset_ms) % self.slide_ms + self.size_ms

    def in_window(self, stamps: Longs) -> NDArray[np.bool_] | None:
        """Times that lie in a window; None for all, where windows leave no gaps."""
        if self.slide_ms <= self.size_ms:
            return None
        return (stamps - self.offset_ms) % self.slide_ms < self.size_ms

    def windows(
        self, slice_start: int, from_ms: int = MIN_TIMESTAMP_MS, to_ms: int = MAX_WATERMARK_MS
    ) -> range:
        """Starts of the windows that hold a slice, above from_ms, up to to_ms; descending."""
        last = self.last_end(slice_start) - self.size_ms
        if last > to_ms:
            last -= -((to_ms - last) // self.slide_ms) * self.slide_ms
        return range(last, max(slice_start - self.size_ms, from_ms), -self.slide_ms)


@frozen
class NoCuts:
    """All time is one slice."""

    timed = False

    def spanned(self, stamps: Longs | None) -> int:
        return 1

    def split(self, stamps: Longs | None) -> Iterator[tuple[int, Longs | None]]:
        yield 0, None


class SlicedAggregates:
    """Adds rows, or accumulators, to the panes of their slices."""

    def __init__(self, cuts: Cuts, panes: KeyedPanes) -> None:
        self._cuts = cuts
        self._panes = panes

    def take(
        self, columns: AggregatedColumns, batch: pa.RecordBatch, rows: Longs, stamps: Longs | None
    ) -> None:
        """Takes a batch in, whatever it holds. rows: of its keys. stamps: its event times."""
        if batch.schema.metadata is not None and _COMBINED in batch.schema.metadata:
            self._merge(columns, batch, rows, stamps)
        else:
            self._add(columns, batch, rows, stamps)

    def _add(
        self, columns: AggregatedColumns, batch: pa.RecordBatch, rows: Longs, stamps: Longs | None
    ) -> None:
        values = columns.values(batch.column)
        # Of rows without a time the first to come is the first.
        known = np.zeros(len(rows), np.int64) if stamps is None else stamps
        for start, chosen in self._cuts.split(stamps):
            own, times = _chosen(rows, chosen), _chosen(known, chosen)
            pane = self._panes.pane(start)
            pane.add(own)
            for accumulator, column in zip(columns.accumulators, values, strict=True):
                if column is None:
                    accumulator.add(pane, own, own, times)
                    continue
                each = column if chosen is None else column.ordered(chosen)
                if each.valid is None:
                    accumulator.add(pane, own, each.values, times)
                else:
                    valid = each.valid
                    accumulator.add(pane, own[valid], each.values[valid], times[valid])

    def _merge(
        self, columns: AggregatedColumns, batch: pa.RecordBatch, rows: Longs, stamps: Longs | None
    ) -> None:
        for start, chosen in self._cuts.split(stamps):
            own = _chosen(rows, chosen)
            part = _Part(batch if chosen is None else batch.take(pa.array(chosen)))
            pane = self._panes.pane(start)
            pane.add(own)
            for accumulator in columns.accumulators:
                accumulator.merge(pane, own, part)


class _Part:
    """Accumulators of a batch's keys, in its order."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def column(self, descriptor: ColumnStateDescriptor) -> Any:
        return _PartColumn(_values_of(self._batch.column(_PREFIX + descriptor.name)))


@frozen
class _PartColumn:
    values: NDArray[Any]

    def get(self, index: Longs) -> NDArray[Any]:
        assert len(index) == len(self.values), "all are merged at once"
        return self.values


def columns_over(
    known: AggregatedColumns | None,
    aggregates: Sequence[Aggregate],
    key_column: str,
    schema: pa.Schema,
    operator: str,
) -> AggregatedColumns:
    """The aggregates over rows like these, or like those that were combined.

    known: over earlier batches. Raises GraphError for a batch unlike them.
    """
    combined = _combined_of(schema)
    if known is not None:
        known.check(combined or schema)
        return known
    if combined is not None:
        return AggregatedColumns(aggregates, combined, operator)
    return AggregatedColumns.of(aggregates, key_column, schema, operator)


def _combined_of(schema: pa.Schema) -> pa.Schema | None:
    data = (schema.metadata or {}).get(_COMBINED)
    return None if data is None else pa.ipc.read_schema(pa.py_buffer(data))


class SliceCombiner:
    """Adds rows up by key and slice where they are sent: a ``Combiner``.

    What it holds is bounded: beyond that it is sent, and where keys have hardly repeated by then,
    rows pass as they are from there on. So do rows that it cannot add up; whoever reads them says
    why, if it cannot either.
    """

    def __init__(
        self,
        cuts: Cuts,
        aggregates: Sequence[Aggregate],
        key_column: str,
        key_type: TypeInformation | None,
    ) -> None:
        self._cuts = cuts
        self._aggregates = aggregates
        self._key_column = key_column
        self._key_type = key_type
        self._cells_max: int | None = None

    def holding(self, cells_max: int | None) -> SliceCombiner:
        """Sets how many keys times slices are held; None for what suits the type of the keys."""
        self._cells_max = cells_max
        return self

    def open(self, panes: Callable[[TypeInformation | None], KeyedPanes]) -> None:
        self._make = panes
        self._columns: AggregatedColumns | None = None
        self._passes = False
        self._begin()

    def _begin(self) -> None:
        self._panes = self._make(self._key_type)
        self._sums = SlicedAggregates(self._cuts, self._panes)
        self._rows = self._keys = 0

    def add(self, batch: Batch) -> Sequence[Batch]:
        """Takes rows in; gives what is to be sent now."""
        if not len(batch):
            return ()
        if not self._passes:
            try:
                sent = self._combined(batch)
                if sent is not None:
                    return sent
            except UserError:  # as whoever reads the batch will find, and say with its own name
                pass
            self._passes = True
        return [*self.flush(), batch]

    def _combined(self, batch: Batch) -> Sequence[Batch] | None:
        """Does what ``add`` does; gives None for a batch that is not to be combined."""
        if isinstance(batch, ColumnRows):
            batch = columns_of(batch)
        # Of other rows the columns' types are found in the rows that come together.
        columns = self._fitting(batch) if isinstance(batch, ArrowBatch) else None
        return None if columns is None else self._added(columns, cast("ArrowBatch", batch))

    def _added(self, columns: AggregatedColumns, batch: ArrowBatch) -> Sequence[ArrowBatch]:
        keys = batch.batch.column(self._key_column)
        # Key groups are told by who sends: of each key once.
        rows = self._panes.index(keys, np.zeros(len(batch), np.int16))
        self._sums.take(columns, batch.batch, rows, batch.timestamps_ms)
        self._rows += len(batch)
        self._keys = max(self._keys, int(rows.max()) + 1)
        limit = self._cells_max or (CELLS_MAX if _is_number(columns.key_type) else TEXTS_MAX)
        slices = len(self._panes.namespaces())
        if self._keys * slices < limit and slices < SLICES_MAX:
            return ()
        added = self._rows
        sent = self.flush()
        self._passes = added < _REPEATS_MIN * sum(map(len, sent))
        return sent

    def flush(self) -> Sequence[ArrowBatch]:
        """All that is held; nothing is held afterwards."""
        columns, made = self._columns, list[ArrowBatch]()
        if columns is not None and self._keys:
            schema = _schema_of(self._key_column, columns)
            for start in self._panes.namespaces():
                pane = self._panes.pane(start)
                rows = pane.rows()
                for at in range(0, len(rows), _ROWS_AT_ONCE):
                    made.append(self._sent(columns, schema, start, rows[at : at + _ROWS_AT_ONCE]))
            self._begin()
        return made

    def _sent(
        self, columns: AggregatedColumns, schema: pa.Schema, start: int, rows: Longs
    ) -> ArrowBatch:
        pane = self._panes.pane(start)
        keys = self._panes.keys(rows).cast(columns.key_type)
        arrays = [
            array_of(pane.column(each).get(rows), each.type)
            for accumulator in columns.accumulators
            for each in accumulator.columns
        ]
        batch = pa.RecordBatch.from_arrays([keys, *arrays], schema=schema)
        return ArrowBatch(batch, np.full(len(rows), start) if self._cuts.timed else None)

    def _fitting(self, batch: ArrowBatch) -> AggregatedColumns | None:
        """The aggregates over this batch; None where they are not to be combined."""
        stamps, schema = batch.timestamps_ms, batch.batch.schema
        if self._cuts.timed and (stamps is None or stamps.min() == MIN_TIMESTAMP_MS):
            return None
        if self._cuts.spanned(stamps) > SLICES_MAX:
            return None  # in no order of time: there are few rows of each
        columns = columns_over(self._columns, self._aggregates, self._key_column, schema, "")
        if not all(each.combines for each in columns.accumulators):
            return None
        self._columns = columns
        # Of floating numbers some that differ are one key in state, and have two places before.
        floating = pa.types.is_floating(columns.key_type)
        return None if floating or batch.batch.column(self._key_column).null_count else columns


def _schema_of(key_column: str, columns: AggregatedColumns) -> pa.Schema:
    fields = [
        pa.field(_PREFIX + each.name, each.type)
        for accumulator in columns.accumulators
        for each in accumulator.columns
    ]
    metadata = {_COMBINED: columns.schema.serialize().to_pybytes()}
    return pa.schema([pa.field(key_column, columns.key_type), *fields], metadata)


def _is_number(key_type: pa.DataType) -> bool:
    return pa.types.is_primitive(key_type)


def _values_of(array: pa.Array) -> NDArray[Any]:
    """Values of an accumulator's column, as its state holds them."""
    if pa.types.is_primitive(array.type) or pa.types.is_boolean(array.type):
        return array.to_numpy(zero_copy_only=False)
    return np.fromiter(array.to_pylist(), object, len(array))


def _chosen(values: Longs, positions: Longs | None) -> Longs:
    return values if positions is None else values.take(positions)

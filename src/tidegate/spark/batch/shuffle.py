"""Elements as rows of Spark's shuffle, and back.

Rows without event time travel as batches, one to a row of Spark, in the bytes that they have
between slots: nobody has to put them in order. Rows with event time travel one by one, so that
Spark brings those of all senders into the order of their times, on disk where they are many.

Each row of Spark names the subtask that it is for and the edge that it came over. What tasks have
to say to others, and to the driver, is said in such rows too, so it holds for the very attempt
whose rows are read.

A task gets its rows in one order, by their times and then by their places, in whatever order Spark
has fetched them. So a task that is run again, since what it had written was lost, writes the same
once more: some of its readers may have read the first, and others read the second.
"""

from __future__ import annotations

from dataclasses import field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from flinkformat.frozen import frozen
from tidegate.api import ship
from tidegate.api.rows.batches import arrow_take
from tidegate.api.rows.column_rows import ColumnRows, RowForm
from tidegate.model.elements import RowBatch
from tidegate.model.nullable import Nullable
from tidegate.transport.arrow_records import (
    ArrowLayout,
    arrow_layout,
    arrow_records,
    arrow_rows,
    binaries,
    of_binaries,
)
from tidegate.transport.codec import decode, encode, pickled, unpickled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tidegate.errors import TidegateError
    from tidegate.model.control import CheckpointAcknowledged, SubtaskFigures
    from tidegate.model.elements import ArrowBatch, Batch, OperatorEvent
    from tidegate.model.ids import ExecutionId, OperatorId, SubtaskId

SCHEMA: Final = pa.schema(
    [
        pa.field("target", pa.int32(), nullable=False),
        pa.field("edge", pa.int32(), nullable=False),
        pa.field("time", pa.int64()),
        pa.field("form", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
    ]
)
SPARK_SCHEMA: Final = (
    "target int not null, edge int not null, time bigint, form bigint not null, "
    "data binary not null, place bigint not null"
)
PLACE: Final = "place"
"""Column that says over which edge a row came, who wrote it, and how many that had written there.

What comes over one edge has one order, but which of two edges is written to next hangs on time.
"""

WHOLE: Final = 0
"""Form of a row of Spark that holds a batch."""

PICKLED: Final = 1
"""Form of a record that is a pickle of its value, key and key group."""

_FORMS: Final = 2
"""Columns of records have the forms from here on, as their sender has numbered them."""

WORDS: Final = -1
"""The edge of a row that holds words of a task. It comes before all records."""

END: Final = -2
"""The edge of a reader's last row. Arrow's stream does not tell whether something is missing."""

_LAST: Final = (1 << 63) - 1
"""Time and place of that row."""

_FORM_BITS: Final = 12
"""A form's number says in these bits which one of its sender's it is, above them who that is."""

_EDGES: Final = 1 << 11
_SUBTASK_BITS: Final = 15
_ROW_BITS: Final = 36
"""Bits of a place for the subtask and for the number of the row; the edge is above them."""

BATCH_BYTES: Final = 1 << 20
"""Rows of Spark are given on once they hold about as much."""

ROW_BYTES: Final = 4 << 20
"""A row of Spark, and what is given to Spark at once, has not many more: its JVM holds some."""


@frozen
class Committables:
    """Output of a sink that is to be committed once all tasks have ended."""

    operator: OperatorId
    data: tuple[bytes, ...]


@frozen
class Told:
    """A message of an operator to its coordinator."""

    operator: OperatorId
    event: OperatorEvent


@frozen
class Said:
    """Words of one task, and what it has done. failure: rows behind this are not all.

    share: of the snapshot that the batch ends with. again: an earlier attempt may have left
    something behind.
    """

    task: ExecutionId
    words: Sequence[Committables | Told]
    figures: SubtaskFigures | None
    failure: TidegateError | None = None
    share: CheckpointAcknowledged | None = None
    again: bool = False


def hear(heard: dict[SubtaskId, Said], said: Iterable[Said]) -> None:
    """Adds words to those of other tasks: of a subtask's attempts the newest counts.

    An older one may have been replaced where it wrote, such as its transaction. But a failure
    stays, for tasks have stopped at it.
    """
    for each in said:
        known = heard.get(each.task.subtask)
        if known is not None:
            is_newer = each.failure is not None or each.task.attempt > known.task.attempt
            if known.failure is not None or not is_newer:
                continue
        heard[each.task.subtask] = each


@frozen
class Layout:
    """How the bytes of a record hold its fields, its key and its key group, one after another."""

    form: RowForm
    kinds: tuple[str, ...]
    width: int
    key_column: int | None

    @property
    def type(self) -> np.dtype[Any]:
        fields = [(f"f{index}", kind) for index, kind in enumerate(self.kinds)]
        return np.dtype([*fields, ("group", "<i2")])


def layout_of(batch: Batch) -> Layout | None:
    """The layout of the records of a batch; None where they have to be pickled."""
    if not isinstance(batch, ColumnRows):
        return None
    columns = batch.columns
    if any(isinstance(each, Nullable) or each.dtype.hasobject for each in columns):
        return None
    kinds = tuple(each.dtype.str for each in cast("Any", columns))
    return Layout(batch.form, kinds, batch.width, batch.key_column)


class ShuffleWriter:
    """Gathers what a task emits as rows of Spark.

    step, subtask: their numbers in the job. ahead: edges whose rows come before all others.
    watermarks: the last one over each edge.
    """

    def __init__(self, step: int, subtask: int, ahead: Collection[int] = ()) -> None:
        self._step = step
        self._ahead = ahead
        self._subtask = subtask
        self._sender = (step << _SUBTASK_BITS) + subtask
        self._counts: dict[int, int] = {}
        self._layouts: dict[Layout | ArrowLayout, int] = {}
        self._parts: list[pa.RecordBatch] = []
        self.watermarks: dict[int, int] = {}
        self.waiting_bytes = 0

    def batch(self, batch: Batch, edge: int, target: int) -> None:
        """Writes a batch as it is, in pieces if it is large. target: the subtask that it is for."""
        for data in _whole(batch):
            self._add_one(target, edge, data)

    def records(self, batch: RowBatch, edge: int, target: int) -> None:
        """Writes records that have event times, one by one."""
        layout = layout_of(batch)
        if layout is None:
            keys, groups = cast("list[object]", batch.keys), cast("list[int]", batch.key_groups)
            records = zip(batch.values, keys, groups, strict=True)
            data = pa.array(map(pickled, records), pa.binary())
            times = pa.array(cast("list[int]", batch.timestamps_ms), pa.int64())
            self._add(target, edge, times, PICKLED, data)
            return
        columns = cast("ColumnRows", batch)
        records = np.empty(len(batch), layout.type)
        for index, column in enumerate(columns.columns):
            records[f"f{index}"] = column
        records["group"] = 0 if columns.groups is None else columns.groups
        times = pa.array(cast("NDArray[np.int64]", columns.stamps))
        self._add(target, edge, times, self._number(layout), binaries(records))

    def arrow(self, batch: ArrowBatch, edge: int, target: int) -> None:
        """Writes rows of columns that have event times: one by one, or all of one time at once."""
        stamps, layout = cast("NDArray[np.int64]", batch.timestamps_ms), arrow_layout(batch)
        if layout is not None:
            data, form = arrow_records(layout, batch), self._number(layout)
            self._add(target, edge, pa.array(stamps, pa.int64()), form, data)
            return
        order = np.argsort(stamps, kind="stable")
        ordered, times = arrow_take(batch, order), stamps[order]
        starts = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), len(batch)]
        for start, stop in pairwise(starts):
            for data in _whole(ordered.piece(start, stop)):
                at = pa.array(times[start : start + 1], pa.int64())
                self._add(target, edge, at, WHOLE, pa.array([data], pa.binary()))

    def said(self, said: Sequence[Said], targets: Sequence[int], *, to_all: bool = False) -> None:
        """Writes words for the first of these subtasks, so that each reaches the driver once.

        to_all: all are to hear them. The others are told the layouts of the records alone.
        """
        layouts = {number: layout for layout, number in self._layouts.items()}
        for target in targets:
            heard = said if to_all or target == targets[0] else ()
            data = ship.dumps((layouts, self.watermarks, heard), name="words of a task")
            self._add_one(target, WORDS, data)

    def end(self, targets: Sequence[int]) -> None:
        """Writes the row that is the last one of each of these subtasks. One of a step does."""
        count = len(targets)
        last = pa.array(np.full(count, _LAST))
        self._parts.append(
            pa.RecordBatch.from_arrays(
                [
                    pa.array(targets, pa.int32()),
                    pa.array(np.full(count, END, np.int32)),
                    last,
                    pa.array(np.full(count, self._step, np.int64)),
                    pa.array([b""] * count, pa.binary()),
                    last,
                ],
                schema=SCHEMA,
            )
        )

    def take(self) -> list[pa.RecordBatch]:
        """Takes what has been gathered, as few batches of no more than a row of Spark may have."""
        taken, self._parts, self.waiting_bytes = self._parts, [], 0
        batches: list[pa.RecordBatch] = []
        held: list[pa.RecordBatch] = []
        size = 0
        for part in chain.from_iterable(map(_cut, taken)):
            if held and size + part.nbytes > ROW_BYTES:
                batches.append(pa.concat_batches(held))
                held, size = [], 0
            held.append(part)
            size += part.nbytes
        return [*batches, pa.concat_batches(held)] if held else batches

    def _number(self, layout: Layout | ArrowLayout) -> int:
        number = self._layouts.get(layout)
        if number is None:
            assert len(self._layouts) < (1 << _FORM_BITS) - _FORMS, "records have a few layouts"
            number = (self._sender << _FORM_BITS) + _FORMS + len(self._layouts)
            self._layouts[layout] = number
        return number

    def _add_one(self, target: int, edge: int, data: bytes) -> None:
        self._add(target, edge, pa.nulls(1, pa.int64()), WHOLE, pa.array([data], pa.binary()))

    def _add(self, target: int, edge: int, times: pa.Array, form: int, data: pa.Array) -> None:
        count = len(data)
        place = self._next_place(edge, count)
        part = pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(count, target, np.int32)),
                pa.array(np.full(count, edge, np.int32)),
                times,
                pa.array(np.full(count, form, np.int64)),
                data,
                pa.array(np.arange(place, place + count)),
            ],
            schema=SCHEMA,
        )
        self._parts.append(part)
        self.waiting_bytes += part.nbytes

    def _next_place(self, edge: int, count: int) -> int:
        """The place of the next row that goes over an edge, of so many."""
        assert edge < _EDGES, "a job has fewer edges"
        before = self._counts.get(edge, 0)
        self._counts[edge] = before + count
        rank = edge - _EDGES if edge < 0 or edge in self._ahead else edge
        return (((rank << _SUBTASK_BITS) + self._subtask) << _ROW_BITS) + before


def _whole(batch: Batch) -> Iterator[bytes]:
    """The bytes of a batch, of pieces of it if it is large."""
    data = b"".join(bytes(part) for part in encode(batch))
    pieces = min(-(-len(data) // ROW_BYTES), len(batch))
    if pieces <= 1:
        yield data
        return
    del data
    step = -(-len(batch) // pieces)
    for start in range(0, len(batch), step):
        piece = batch.piece(start, min(start + step, len(batch)))
        yield b"".join(bytes(part) for part in encode(piece))


def _cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows of Spark in parts that are not large."""
    step = max(1, len(rows) * ROW_BYTES // max(rows.nbytes, 1))
    return (rows.slice(start, step) for start in range(0, len(rows), step))


@frozen
class Came:
    """A batch that came over an edge, or words. Records with times come in their order.

    watermarks: the last ones of a sender, by edge. time_ms: of the last record, if they have times.
    """

    edge: int
    batch: Batch | None = None
    said: Sequence[Said] = ()
    watermarks: Mapping[int, int] = field(default_factory=dict[int, int])
    time_ms: int | None = None


class ShuffleReader:
    """Makes elements of rows of Spark, in their order. ended: steps whose last row has come."""

    def __init__(self) -> None:
        self.ended: set[int] = set()
        self._layouts: list[Layout | ArrowLayout] = []
        self._forms = {WHOLE: WHOLE, PICKLED: PICKLED}

    def read(self, rows: pa.RecordBatch) -> Iterator[Came]:
        """Yields what these rows hold."""
        edges = rows.column(1).to_numpy(zero_copy_only=False)
        is_word = edges == WORDS
        if is_word.any():
            # Ahead of the records behind them, whose layouts they may tell.
            for data in rows.column(4).filter(pa.array(is_word)):
                layouts, watermarks, said = _words(data.as_py())
                self._learn(layouts)
                yield Came(WORDS, said=said, watermarks=watermarks)
            rows, edges = rows.filter(pa.array(~is_word)), edges[~is_word]
        if ends := int(np.count_nonzero(edges == END)):
            self.ended.update(rows.column(3)[-ends:].to_pylist())
            rows, edges = rows.slice(0, len(rows) - ends), edges[:-ends]
        numbers, places = np.unique(
            rows.column(3).to_numpy(zero_copy_only=False), return_inverse=True
        )
        # Records of one layout come from many senders, and would else be taken one by one.
        own = [self._forms.get(number, number) for number in numbers.tolist()]
        forms = np.array(own, np.int64)[places]
        change = (edges[1:] != edges[:-1]) | (forms[1:] != forms[:-1])
        starts = [0, *(np.flatnonzero(change) + 1).tolist(), len(rows)]
        for start, stop in pairwise(starts):
            if stop > start:
                part = rows.slice(start, stop - start)
                yield from self._run(int(edges[start]), int(forms[start]), part)

    def _run(self, edge: int, form: int, rows: pa.RecordBatch) -> Iterator[Came]:
        if form == WHOLE:
            for data, time_ms in zip(rows.column(4), rows.column(2).to_pylist(), strict=True):
                batch = cast("Batch", decode(memoryview(data.as_buffer())))
                yield Came(edge, batch, time_ms=time_ms)
        else:
            times = rows.column(2).to_numpy(zero_copy_only=False)
            if form == PICKLED:
                batch = self._pickles(rows, times)
            else:
                layout = self._layouts[form - _FORMS]
                if isinstance(layout, ArrowLayout):
                    for piece in arrow_rows(layout, rows.column(4), times):
                        last_ms = cast("NDArray[np.int64]", piece.timestamps_ms)[-1]
                        yield Came(edge, piece, time_ms=int(last_ms))
                    return
                batch = self._columns(rows.column(4), times, layout)
            yield Came(edge, batch, time_ms=int(times[-1]))

    def _learn(self, layouts: Mapping[int, Layout | ArrowLayout]) -> None:
        for number, layout in layouts.items():
            if layout not in self._layouts:
                self._layouts.append(layout)
            self._forms[number] = _FORMS + self._layouts.index(layout)

    def _pickles(self, rows: pa.RecordBatch, times: NDArray[np.int64]) -> RowBatch:
        records = [unpickled(data.as_buffer()) for data in rows.column(4)]
        values, keys, groups = map(list, zip(*records, strict=True))
        return RowBatch(values, times.tolist(), keys, groups)

    def _columns(self, data: pa.Array, times: NDArray[np.int64], layout: Layout) -> ColumnRows:
        records = of_binaries(data, layout.type)
        groups = np.ascontiguousarray(records["group"])
        return ColumnRows(
            [np.ascontiguousarray(records[f"f{index}"]) for index in range(len(layout.kinds))],
            form=layout.form,
            stamps=times,
            key_column=layout.key_column,
            groups=None if layout.key_column is None else groups,
            width=layout.width,
        )


def said_in(data: bytes) -> Sequence[Said]:
    """The words in the data of a row of Spark."""
    return _words(data)[2]


def _words(
    data: bytes,
) -> tuple[Mapping[int, Layout | ArrowLayout], Mapping[int, int], Sequence[Said]]:
    return cast("Any", ship.loads(data, name="words of a task"))

"""The other ends of a channel of a subtask in a task of Spark: elements become rows of Spark."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.api.rows.column_rows import ColumnRows, joined
from tidegate.model.elements import ArrowBatch, RowBatch, Watermark
from tidegate.model.nullable import values_of

if TYPE_CHECKING:
    from tidegate.model.elements import Batch, Element
    from tidegate.model.ids import ChannelId

AT_ONCE_ROWS: Final = 65_536
"""Rows for one subtask that are gathered before they are given to Spark, at most."""

GATHERED_ROWS: Final = 8 * AT_ONCE_ROWS
"""Rows that are gathered for all subtasks of a step, where each gets at least a full batch."""


GATHERED_BYTES: Final = 4 << 20
"""About so many bytes are gathered for one subtask, at most; more where a batch has more."""

_LOOKED_AT: Final = 16
"""Rows whose texts are measured, of a batch."""


class Writer(Protocol):
    """Gathers rows of Spark. watermarks: the last one over each edge."""

    watermarks: dict[int, int]

    def batch(self, batch: Batch, edge: int, target: int) -> None:
        """Writes a batch as it is. target: the subtask that it is for."""
        ...

    def records(self, batch: RowBatch, edge: int, target: int) -> None:
        """Writes records that have event times, one by one."""
        ...

    def arrow(self, batch: ArrowBatch, edge: int, target: int) -> None:
        """Writes rows of columns that have event times, so that Spark puts them in order."""
        ...


class Unbounded:
    """The sending end of an input: Spark sends what is asked for."""

    def grant(self) -> None: ...

    def resize(self, rows: int) -> None: ...


class ToSubtask:
    """The reading end of a channel. ordered: records with event times come in their order.

    arrow_ordered: Arrow batches too. rows_max: so many rows as columns are gathered.
    """

    def __init__(
        self,
        writer: Writer,
        channel: ChannelId,
        *,
        ordered: bool,
        arrow_ordered: bool,
        rows_max: int,
    ) -> None:
        self._writer = writer
        self._edge = channel.edge
        self._target = channel.consumer
        self._ordered = ordered
        self._arrow_ordered = arrow_ordered
        self._rows_max = min(rows_max, AT_ONCE_ROWS)
        self._gathered: list[ColumnRows] = []
        self._rows = self._bytes = 0

    def send(self, element: Element) -> int:
        if isinstance(element, RowBatch) and self._ordered and element.timestamps_ms is not None:
            self._writer.records(element, self._edge, self._target)
        elif (
            isinstance(element, ArrowBatch)
            and self._arrow_ordered
            and element.timestamps_ms is not None
        ):
            self._writer.arrow(element, self._edge, self._target)
        elif isinstance(element, ColumnRows):
            self._gather(element)
        elif isinstance(element, RowBatch | ArrowBatch):
            self.flush()
            self._write(element)
        elif isinstance(element, Watermark):
            self._writer.watermarks[self._edge] = element.ms
        return 0

    def _gather(self, batch: ColumnRows) -> None:
        if self._gathered and self._gathered[0].shape != batch.shape:
            self.flush()
        self._gathered.append(batch)
        self._rows += len(batch)
        self._bytes += size_of(batch)
        if self._rows >= self._rows_max or self._bytes >= GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        gathered, self._gathered, self._rows, self._bytes = self._gathered, [], 0, 0
        if gathered:
            self._write(joined(gathered))

    def _write(self, batch: Batch) -> None:
        self._writer.batch(batch, self._edge, self._target)


def size_of(batch: ColumnRows) -> int:
    """About how many bytes the columns of a batch have: of texts by a few that are looked at."""
    size = 0
    for column in map(values_of, batch.columns):
        size += column.nbytes
        if column.dtype.hasobject and len(column):
            some = column[:: max(1, len(column) // _LOOKED_AT)].tolist()
            size += sum(map(getsizeof, some)) * len(column) // len(some)
    return size

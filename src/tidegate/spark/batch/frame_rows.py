"""Rows of a DataFrame in the task that Spark reads them in: a source for the subtask there."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from tidegate.errors import RestoreRefused
from tidegate.model.elements import ArrowBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.api.operator import VertexPlan
    from tidegate.api.source import EnumeratorContext, ReaderContext, SplitEnumerator
    from tidegate.model.ids import CheckpointId
    from tidegate.operators.sources.source import SourceReaderOperator


class FrameRows:
    """A source whose rows are given to it, in the place of the one that the plan has.

    schema: of the records; Spark's batches have the same columns, in types that may differ by the
    name of a time zone or of the values of a list.
    """

    bounded = True
    produced_type = None

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: deque[pa.RecordBatch] = deque()
        self._has_all = False

    def enumerator(
        self, context: EnumeratorContext[object], restored: bytes | None
    ) -> SplitEnumerator[object]:
        raise AssertionError("it is made in a task, and its enumerator is the plan's")

    def reader(self, context: ReaderContext) -> FrameRowsReader:
        return FrameRowsReader(self, context)

    def give(self, rows: pa.RecordBatch) -> None:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(rows.columns, self._schema, strict=True)
        ]
        self._rows.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def end(self) -> None:
        """All rows have been given."""
        self._has_all = True

    @property
    def is_empty(self) -> bool:
        return not self._rows

    @property
    def is_over(self) -> bool:
        return self._has_all and not self._rows

    def take(self, rows: int) -> pa.RecordBatch | None:
        """Takes so many rows at most; None where there are none."""
        if not self._rows:
            return None
        batch = self._rows.popleft()
        if batch.num_rows > rows:
            self._rows.appendleft(batch.slice(rows))
        return batch.slice(0, rows)


class FrameRowsReader:
    """The reader of `FrameRows`: positions there are none, for a task begins anew."""

    def __init__(self, rows: FrameRows, context: ReaderContext) -> None:
        self._rows = rows
        self._context = context

    def add_splits(self, splits: Sequence[object]) -> None:
        raise RestoreRefused(
            "The snapshot was taken before all rows of an earlier DataFrame had been read, and "
            "another DataFrame has no more of them",
            where="from_spark",
            remedy="Give this source another uid, or let the job that was stopped read to its end.",
        )

    def no_more_splits(self) -> None: ...

    def poll(self) -> ArrowBatch | None:
        batch = self._rows.take(self._context.arrow_rows)
        return None if batch is None else ArrowBatch(batch)

    @property
    def finished(self) -> bool:
        return self._rows.is_over

    wants_splits = False

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[object]:
        return ()

    def on_complete(self, checkpoint: CheckpointId) -> None: ...

    def close(self) -> None: ...


def reading(plan: VertexPlan, rows: FrameRows) -> VertexPlan:
    """A plan whose source reads these rows."""
    source, *others = plan.operators
    return replace(plan, operators=(cast("SourceReaderOperator", source).over(rows), *others))

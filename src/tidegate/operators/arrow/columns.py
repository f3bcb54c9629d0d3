"""Converts records of any kind to Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import Operator
from tidegate.api.rows.columns import as_found
from tidegate.model.elements import ArrowBatch

if TYPE_CHECKING:
    from tidegate.api.operator import Output
    from tidegate.api.rows.columns import Columns
    from tidegate.model.elements import Batch


class ToColumns(Operator):
    """Gives each batch its columns, of the declared types where there are such.

    If rows have no declared type, the columns are marked as found.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def process(self, batch: Batch, port: int, out: Output) -> None:
        if isinstance(batch, ArrowBatch):
            made = self._columns.batch(batch.batch)
        else:
            made = self._columns.batch(batch.values)
            if self._columns.schema is None:
                made = as_found(made)
        out.emit(ArrowBatch(made))

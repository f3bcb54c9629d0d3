"""Records of any kind become Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.api.operator import Operator
from tidegate.model.elements import ArrowBatch

if TYPE_CHECKING:
    from tidegate.api.columns import Columns
    from tidegate.api.operator import Output
    from tidegate.model.elements import Batch


class ToColumns(Operator):
    """Gives each batch its columns, of the declared types where there are such."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def process(self, batch: Batch, port: int, out: Output) -> None:
        """Emit the batch as columns; timestamps end here."""
        records = batch.batch if isinstance(batch, ArrowBatch) else batch.values
        out.emit(ArrowBatch(self._columns.batch(records)))

"""Rolling reduce on a keyed stream: each row gives what its key has been reduced to."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.api.batches import as_rows
from tidegate.api.state import ValueState, ValueStateDescriptor
from tidegate.model.elements import RowBatch
from tidegate.operators.failures import user_code_failed
from tidegate.operators.function import FunctionOperator
from tidegate.operators.process import keys_of

if TYPE_CHECKING:
    from tidegate.api.operator import OperatorContext, Output
    from tidegate.model.elements import Batch
    from tidegate.typeinfo.types import TypeInformation


class ReduceOperator(FunctionOperator):
    """A rolling reduce. type_info: of the values; None for any picklable value."""

    def __init__(self, function: object, type_info: TypeInformation | None = None) -> None:
        super().__init__(function, "reduce")
        self._type_info = type_info

    def open(self, context: OperatorContext) -> None:
        """Get the state, then open the function."""
        self._cell = context.current_key
        descriptor = ValueStateDescriptor("_reduce_state", self._type_info)
        self._state = cast("ValueState[object]", context.keyed_state(descriptor))
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        """Reduce a batch, row by row."""
        rows = as_rows(batch)
        out.emit(RowBatch(self._reduced(rows), rows.timestamps_ms))

    def _reduced(self, rows: RowBatch) -> list[object]:
        call, cell = self._call, self._cell
        get, update = self._state.value, self._state.update
        keys, groups = keys_of(rows)
        results: list[object] = []
        append = results.append
        value: object = None
        try:
            for value, cell.key, cell.group in zip(rows.values, keys, groups, strict=True):
                old = get()
                new = value if old is None else call(old, value)
                update(new)
                append(new)
        except Exception as error:
            raise user_code_failed(error, operator=self._name, row=value) from error
        return results

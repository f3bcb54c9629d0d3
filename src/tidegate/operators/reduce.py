"""Rolling reduce on a keyed stream: each row gives what its key has been reduced to."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.api.batches import as_rows
from tidegate.api.functions import ReduceFunction
from tidegate.api.state import ReducingState, ReducingStateDescriptor
from tidegate.model.elements import RowBatch
from tidegate.operators.failures import user_code_failed
from tidegate.operators.function import FunctionOperator, row_call
from tidegate.operators.process import keys_of

if TYPE_CHECKING:
    from collections.abc import Callable

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
        reduce = _Reduce(row_call(self._function, self._method))
        descriptor = ReducingStateDescriptor("_reduce_state", reduce, self._type_info)
        self._state = cast("ReducingState[object]", context.keyed_state(descriptor))
        super().open(context)

    def process(self, batch: Batch, port: int, out: Output) -> None:
        """Reduce a batch, row by row."""
        rows = as_rows(batch)
        keys, groups = keys_of(rows)
        results: list[object] = []
        try:
            self._state.add_rows(keys, groups, rows.values, self._emitter(results))
        except Exception as error:
            row = rows.values[len(results)]
            raise user_code_failed(error, operator=self._name, row=row) from error
        out.emit(RowBatch(results, rows.timestamps_ms))

    def _emitter(self, results: list[object]) -> Callable[[object], None]:
        """What takes a result before the next row, which may change it."""
        own, append = self._own, results.append
        return append if own is None else lambda result: append(own(result))


class _Reduce(ReduceFunction[object]):
    """The user's function, whatever its form."""

    def __init__(self, call: Callable[[object, object], object]) -> None:
        # A method that calls would be one more call a row.
        self.reduce = call  # pyright: ignore[reportAttributeAccessIssue]  # parameter names

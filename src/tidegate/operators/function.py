"""Base of operators around a user's function: its life, and its part in checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from tidegate.api.functions import (
    CheckpointedFunction,
    CheckpointListener,
    Function,
    RuntimeContext,
)
from tidegate.api.operator import Operator
from tidegate.errors import GraphError, TidegateError
from tidegate.loops.forms import loops_with
from tidegate.operators.emit import Draws
from tidegate.operators.failures import raise_user_code_failed
from tidegate.typeinfo.copies import copier_of_results

if TYPE_CHECKING:
    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext
    from tidegate.model.ids import CheckpointId

RowCall = Callable[..., Any]
"""A user's function of a row; what it gives is the user's affair."""


class FunctionOperator(Operator):
    """Opens and closes a function, and passes checkpoints on to it.

    method: what is called where ``function`` is an object, not a plain function.
    """

    def __init__(self, function: object, method: str) -> None:
        self._function = function
        self._method = method
        row_call(function, method)
        self._name = method

    @property
    def _functions(self) -> tuple[object, ...]:
        return (self._function,)

    def open(self, context: OperatorContext) -> None:
        self._call = row_call(self._function, self._method)
        self._prepare(context)

    def _prepare(self, context: OperatorContext) -> None:
        self._name = context.info.name
        settings = context.info.settings
        self._loops = loops_with(context.state.cell)
        self._draws = Draws(2 * settings.rows, context.time.monotonic_ms, self._loops)
        self._own = (
            None if settings.object_reuse else copier_of_results(self.result_type, self._loops)
        )
        self._open_functions(context)

    def _open_functions(self, context: OperatorContext) -> None:
        for function in self._functions:
            if isinstance(function, Function):
                runtime = RuntimeContext(context.info, context.state, context.tasks.metrics)
                self._guarded(function.open, runtime)

    def snapshot(self, context: SnapshotContext) -> None:
        for function in self._functions:
            if isinstance(function, CheckpointedFunction):
                self._guarded(function.snapshot_state, context)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        for function in self._functions:
            if isinstance(function, CheckpointListener):
                self._guarded(function.notify_checkpoint_complete, checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        for function in self._functions:
            if isinstance(function, CheckpointListener):
                self._guarded(function.notify_checkpoint_aborted, checkpoint)

    def close(self) -> Awaitable[None] | None:
        """Closes every function. Raises the first failure; later ones become notes on it."""
        first: TidegateError | None = None
        for function in self._functions:
            if isinstance(function, Function):
                try:
                    self._guarded(function.close)
                except TidegateError as error:
                    if first is None:
                        first = error
                    else:
                        first.add_note(f"Then this failed too: {error}")
        if first is not None:
            raise first

    def _guarded(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except BaseException as error:
            raise_user_code_failed(error, operator=self._name, call=call.__name__)


def has_life(function: object) -> bool:
    """True for a function object that wants to be opened, and so may have state."""
    return isinstance(function, Function) and type(function).open is not Function.open


def row_call(function: object, method: str) -> RowCall:
    """Callable of a function object or plain function. Raises GraphError for anything else."""
    if isinstance(function, Function) or not callable(function):
        found = getattr(function, method, None)
        if not callable(found):
            raise GraphError(
                f"{function!r} is neither callable nor has it a method '{method}'",
                remedy=f"Give a function, a lambda, or an object with a method '{method}'.",
            )
        return cast("RowCall", found)
    return function

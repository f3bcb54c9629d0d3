"""A step whose failing rows go to a side output instead of failing the job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from tidegate.api.dead_letters import DeadLetter
from tidegate.api.operator import Operator
from tidegate.api.rows.batches import as_rows
from tidegate.errors import GraphError, UserCodeFailed
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.typeinfo.copies import private_copy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tidegate.api.functions import SnapshotContext
    from tidegate.api.operator import OperatorContext, OperatorStates, Output, Steps
    from tidegate.api.output_tag import OutputTag
    from tidegate.api.state import (
        BroadcastState,
        MapStateDescriptor,
        OperatorListState,
        OperatorStateDescriptor,
    )
    from tidegate.model.elements import Batch, Watermark, WatermarkStatus
    from tidegate.model.ids import CheckpointId


class DeadLetterOperator(Operator):
    """Stands around an operator without state, whose rows have nothing to do with each other.

    The output of a batch is held back until the batch is done. If the batch fails, its rows are
    processed one by one, and those that fail again are reported.

    refuses_state: a function that asks for state when it is opened is refused; otherwise its rows
    fail the job as without dead letters.
    """

    def __init__(
        self, operator: Operator, tag: OutputTag[DeadLetter], *, refuses_state: bool
    ) -> None:
        self._operator = operator
        self._tag = tag
        self._refuses_state = refuses_state
        self._has_state = False
        self.result_type = operator.result_type
        self.keeps_type = operator.keeps_type
        self.side_types = operator.side_types

    def check(self) -> None:
        self._operator.check()

    def open(self, context: OperatorContext) -> None:
        self._where = f"operator '{context.info.name}'"
        self._letters = context.tasks.metrics.counter("numDeadLetters")
        states = cast("OperatorStates", _Watched(context.state, self._asked_for_state))
        self._operator.open(replace(context, state=states))

    def _asked_for_state(self, call: str) -> None:
        if self._refuses_state:
            raise GraphError(
                f"{call} asks for state in a step with dead_letters: a call that fails may have "
                "changed some of it",
                where=self._where,
                remedy="Do what may fail in a step without state in front of it.",
            )
        self._has_state = True

    def declare(self, context: OperatorContext) -> None:
        self._operator.declare(context)

    def process(self, batch: Batch, port: int, out: Output) -> Steps | None:
        if self._has_state:
            return self._operator.process(batch, port, out)
        try:
            held = self._held(_given(batch), port, out)
        except UserCodeFailed:
            return self._one_by_one(batch, port, out)
        return _emitted(held, out)

    def _held(self, batch: Batch, port: int, out: Output) -> _Held:
        held = _Held(out)
        for _ in self._operator.process(batch, port, held) or ():
            pass  # nothing leaves yet, so there is room, and these operators wait for nothing
        return held

    def _one_by_one(self, batch: Batch, port: int, out: Output) -> Steps:
        for row in _rows(batch):
            try:
                held = self._held(_given(row), port, out)
            except UserCodeFailed as error:
                self._letters.inc()
                [value] = as_rows(row).values
                letter = DeadLetter(self._where, error.what, value=value)
                out.emit_side(self._tag.tag_id, RowBatch([letter], as_rows(row).timestamps_ms))
            else:
                yield from _emitted(held, out) or ()
            if not out.has_room:
                yield None

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps | None:
        return self._operator.on_watermark(watermark, out)

    def on_watermark_status(self, status: WatermarkStatus, out: Output) -> None:
        self._operator.on_watermark_status(status, out)

    def finish(self, out: Output) -> Steps | None:
        return self._operator.finish(out)

    def snapshot(self, context: SnapshotContext) -> Awaitable[None] | None:
        return self._operator.snapshot(context)

    def on_complete(self, checkpoint: CheckpointId) -> None:
        self._operator.on_complete(checkpoint)

    def on_aborted(self, checkpoint: CheckpointId) -> None:
        self._operator.on_aborted(checkpoint)

    def close(self) -> Awaitable[None] | None:
        return self._operator.close()


class _Watched:
    """The states of an operator, which tell when one of its own is asked for, not one of a key."""

    def __init__(self, states: OperatorStates, asked: Callable[[str], None]) -> None:
        self._states = states
        self._asked = asked

    def __getattr__(self, name: str) -> object:
        return getattr(self._states, name)

    def operator_state(self, descriptor: OperatorStateDescriptor) -> OperatorListState[Any]:
        self._asked("get_operator_list_state")
        return self._states.operator_state(descriptor)

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        self._asked("get_broadcast_state")
        return self._states.broadcast_state(descriptor)


class _Held:
    """An ``Output`` that holds results back until nothing can fail any more."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.emits: list[Callable[[], None]] = []

    def emit(self, batch: Batch) -> None:
        self.emits.append(lambda: self._out.emit(batch))

    def emit_side(self, tag: str, batch: Batch) -> None:
        self.emits.append(lambda: self._out.emit_side(tag, batch))

    def emit_watermark(self, watermark: Watermark | WatermarkStatus) -> None:
        self.emits.append(lambda: self._out.emit_watermark(watermark))

    @property
    def has_room(self) -> bool:
        return True

    @property
    def rows_max(self) -> int:
        return self._out.rows_max

    @property
    def piece_rows(self) -> int:
        return self._out.piece_rows


def _emitted(held: _Held, out: Output) -> Steps | None:
    """Emits held results, in steps if there is more than one batch."""
    if len(held.emits) > 1:
        return _in_steps(held, out)
    for emit in held.emits:
        emit()
    return None


def _in_steps(held: _Held, out: Output) -> Steps:
    for emit in held.emits:
        emit()
        if not out.has_room:
            yield None


def _given(batch: Batch) -> Batch:
    """The argument for the function, copied if the rows may be passed to it again."""
    if isinstance(batch, ArrowBatch):
        return batch
    values = list(map(private_copy, batch.values))
    return RowBatch(values, batch.timestamps_ms, batch.keys, batch.key_groups)


def _rows(batch: Batch) -> Iterator[Batch]:
    return (batch.piece(index, index + 1) for index in range(len(batch)))

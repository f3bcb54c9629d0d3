"""Where rows go for which the function of a step fails, and which steps can tell them.

Operators that load NumPy, Arrow or asyncio are imported where they are used: most programs have
none.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TypeGuard

from tidegate.api.dead_letters import DeadLetter
from tidegate.api.output_tag import OutputTag
from tidegate.api.rows.batches import shown
from tidegate.errors import GraphError
from tidegate.graph.transformations import NodeKind, SideOutputTransformation, UnionTransformation
from tidegate.operators.map import FilterOperator, FlatMapOperator, MapOperator

if TYPE_CHECKING:
    from tidegate.api.operator import Operator
    from tidegate.datastream.program import Program
    from tidegate.graph.transformations import OperatorTransformation
    from tidegate.operators.async_calls.async_wait import AsyncWaitOperator

_ALL: Final = OutputTag[DeadLetter]("tidegate-dead-letters")
"""The side output of each step, where rows that fail go to a folder."""


def tell_failed_rows(step: OperatorTransformation, tag: OutputTag[DeadLetter]) -> None:
    """Have a step send rows that fail to a side output. Raises GraphError if it has state."""
    if not _can_tell(step):
        raise GraphError(
            f"The step '{step.name}' cannot send rows that fail to a side output: a call that "
            "fails may have written state, or rows before it count in its results",
            where="dead_letters",
            remedy="Do what may fail in a map, flat_map, filter, process or batch function "
            "without state in front of it, or in AsyncDataStream.",
        )
    if _is_async(step.operator):
        step.operator.dead_letters = tag
    else:
        from tidegate.operators.dead_letters import DeadLetterOperator

        refuses_state = tag is not _ALL  # a folder is for the steps that can, whichever these are
        step.operator = DeadLetterOperator(step.operator, tag, refuses_state=refuses_state)


def send_failed_rows(program: Program, folder: str) -> None:
    """Have each step that can, and does not do so yet, send rows that fail to a folder."""
    from tidegate.connectors.files.file_sink import FileSink
    from tidegate.operators.sinks.sink import SinkOperator

    failing = [step for step in program.operators if _can_tell(step)]
    for step in failing:
        tell_failed_rows(step, _ALL)
    sides = tuple(SideOutputTransformation(step, _ALL.tag_id) for step in failing)
    if sides:
        letters = sides[0] if len(sides) == 1 else UnionTransformation(sides)
        operator = MapOperator(_as_json)
        lines = program.add(NodeKind.OPERATOR, "Dead letters", operator, (letters,))
        sink = SinkOperator(FileSink.json(folder))
        written = program.add(NodeKind.SINK, "FileSink", sink, (lines,), stateful=True)
        lines.state.uid, written.state.uid = "dead-letters", "dead-letters-sink"


def _can_tell(step: OperatorTransformation) -> bool:
    """True if rows are independent of each other, and failed ones have no side output yet."""
    operator = step.operator
    if _is_async(operator):
        return operator.dead_letters is None
    # A subclass, such as one with keyed state, is another kind of step.
    return type(operator) in _row_by_row() and not step.state.keyed and not step.state.kept


def _is_async(operator: Operator) -> TypeGuard[AsyncWaitOperator]:
    from tidegate.operators.async_calls.async_wait import AsyncWaitOperator

    return isinstance(operator, AsyncWaitOperator)


def _row_by_row() -> tuple[type[Operator], ...]:
    from tidegate.operators.arrow import (
        FilterBatchesOperator,
        FlatMapBatchesOperator,
        MapBatchesOperator,
    )
    from tidegate.operators.process.process_functions import ProcessOperator

    of_rows = MapOperator, FilterOperator, FlatMapOperator, ProcessOperator
    return (*of_rows, MapBatchesOperator, FlatMapBatchesOperator, FilterBatchesOperator)


def _as_json(letter: DeadLetter) -> dict[str, object]:
    """The letter in a form that JSON lines can hold, whatever the row and its error are."""
    import msgspec  # with the first letter only

    raw = None if letter.raw is None else letter.raw.decode("utf-8", "backslashreplace")
    value = letter.value
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError):
        value = _writable(shown(value, sys.maxsize))
    where, why = _writable(letter.where), _writable(letter.why)
    return {"where": where, "why": why, "raw": raw, "value": value}


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()

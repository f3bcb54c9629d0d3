"""Where rows go for which the function of a step fails, and which steps can tell them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.api.dead_letters import DeadLetter
from tidegate.api.output_tag import OutputTag
from tidegate.api.rows.batches import shown
from tidegate.errors import GraphError
from tidegate.graph.transformations import SideOutputTransformation
from tidegate.operators.arrow.batches import (
    FilterBatchesOperator,
    FlatMapBatchesOperator,
    MapBatchesOperator,
)
from tidegate.operators.async_calls.async_wait import AsyncWaitOperator
from tidegate.operators.dead_letters import DeadLetterOperator
from tidegate.operators.map import FilterOperator, FlatMapOperator, MapOperator
from tidegate.operators.process.process_functions import ProcessOperator

if TYPE_CHECKING:
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.program import Program
    from tidegate.datastream.stream import DataStream
    from tidegate.graph.transformations import OperatorTransformation

_ROW_BY_ROW = (
    *(MapOperator, FilterOperator, FlatMapOperator, ProcessOperator),
    *(MapBatchesOperator, FlatMapBatchesOperator, FilterBatchesOperator),
)


_ALL: Final = OutputTag[DeadLetter]("tidegate-dead-letters")
"""The side output of each step, where rows that fail go to a folder."""


def tell_failed_rows(step: OperatorTransformation, tag: OutputTag[DeadLetter]) -> None:
    """Have a step send rows that fail to a side output. Raises GraphError where it has state."""
    if not _can_tell(step):
        raise GraphError(
            f"The step '{step.name}' cannot send rows that fail to a side output: a call that "
            "fails may have written state, or rows before it count in its results",
            where="dead_letters",
            remedy="Do what may fail in a map, flat_map, filter, process or batch function "
            "without state in front of it, or in AsyncDataStream.",
        )
    if isinstance(step.operator, AsyncWaitOperator):
        step.operator.dead_letters = tag
    else:
        step.operator = DeadLetterOperator(step.operator, tag)


def send_failed_rows(
    environment: StreamExecutionEnvironment, program: Program, folder: str
) -> None:
    """Have each step that can, and does not do so yet, send rows that fail to a folder."""
    from tidegate.connectors import FileSink
    from tidegate.datastream.stream import DataStream  # it imports this module

    sides: list[DataStream[DeadLetter]] = []
    for step in program.operators:
        if _can_tell(step):
            tell_failed_rows(step, _ALL)
            side = SideOutputTransformation(step, _ALL.tag_id)
            sides.append(DataStream(environment, program, side))
    if sides:
        lines = sides[0].union(*sides[1:]).map(_as_json).name("Dead letters").uid("dead-letters")
        lines.sink_to(FileSink.json(folder)).uid("dead-letters-sink")


def _can_tell(step: OperatorTransformation) -> bool:
    """Whether rows have nothing to do with each other, and do not go to a side output yet."""
    operator = step.operator
    if isinstance(operator, AsyncWaitOperator):
        return operator.dead_letters is None
    # A subclass, such as one with keyed state, is another kind of step.
    return type(operator) in _ROW_BY_ROW and not step.keyed and not step.stateful


def _as_json(letter: DeadLetter) -> dict[str, object]:
    """As JSON lines can hold it, whatever the row and its error are: else the letter would fail."""
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

"""Functions that raise what is no `Exception`, as `sys.exit` and `pytest.fail` do."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.world import Hosted, World
from tidegate.api.functions import MapFunction, ProcessFunction
from tidegate.api.operator import Operator
from tidegate.errors import CallInterrupted, UserCodeFailed
from tidegate.model.elements import RowBatch
from tidegate.operators.failures import user_code_failed
from tidegate.operators.map import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    SinkFunctionOperator,
)
from tidegate.operators.process.process_functions import ProcessOperator


def failed(value: object) -> Any:
    pytest.fail(f"not {value}")


class Process(ProcessFunction[Any, Any]):
    def process_element(self, value: object, ctx: object) -> Any:
        raise asyncio.CancelledError(f"not {value}")


@pytest.mark.parametrize(
    ("make", "raised"),
    [
        (lambda: MapOperator(failed), "Failed: not 1"),
        (lambda: FilterOperator(failed), "Failed: not 1"),
        (lambda: FlatMapOperator(failed), "Failed: not 1"),
        (lambda: SinkFunctionOperator(failed), "Failed: not 1"),
        (lambda: ProcessOperator(Process()), "CancelledError: not 1"),
    ],
)
def test_it_is_told_with_operator_and_row(
    world: World, make: Callable[[], Operator], raised: str
) -> None:
    step = Hosted(make(), world)
    with pytest.raises(UserCodeFailed, match=raised) as caught:
        step.process(RowBatch([1]))
    assert caught.value.where == "operator 'step', at the row 1"


class Exits(MapFunction[Any, Any]):
    """Ends the program in one of its calls."""

    def __init__(self, call: str) -> None:
        self._call = call

    def open(self, runtime_context: object) -> None:
        self._may_exit("open")

    def map(self, value: object) -> object:
        return value

    def close(self) -> None:
        self._may_exit("close")

    def _may_exit(self, call: str) -> None:
        if call == self._call:
            raise SystemExit(2)


def test_in_open_and_close_it_is_told_with_the_call(world: World) -> None:
    with pytest.raises(UserCodeFailed, match="SystemExit: 2") as caught:
        Hosted(MapOperator(Exits("open")), world)
    assert caught.value.where == "operator 'step', in its open"
    step = Hosted(MapOperator(Exits("close")), world)
    with pytest.raises(UserCodeFailed, match="SystemExit: 2") as caught:
        step.close()
    assert caught.value.where == "operator 'step', in its close"


@pytest.mark.parametrize("ends", [CallInterrupted, KeyboardInterrupt, GeneratorExit])
def test_what_ends_a_call_from_outside_is_no_failure_of_the_function(
    world: World, ends: type[BaseException]
) -> None:
    def ended(value: object) -> Any:
        raise ends

    for operator in (MapOperator(ended), FlatMapOperator(ended), SinkFunctionOperator(ended)):
        step = Hosted(operator, world)
        with pytest.raises(ends):
            step.process(RowBatch([1]))
    with pytest.raises(ends):
        user_code_failed(ends(), operator="step")

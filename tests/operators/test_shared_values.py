"""A user may change what it has emitted: the batch keeps the value as it was."""

from collections.abc import Callable, Iterator

import pytest

from tests.operators.world import Hosted, World
from tidegate.api.functions import KeyedProcessFunction
from tidegate.api.operator import Operator
from tidegate.model.elements import RowBatch
from tidegate.operators.aggregates.reduce import ReduceOperator
from tidegate.operators.map import FlatMapOperator, MapOperator
from tidegate.operators.process.process_functions import KeyedProcessOperator
from tidegate.typeinfo.types import Types


def mapping() -> Operator:
    seen: list[object] = []

    def gather(value: object) -> list[object]:
        seen.append(value)
        return seen

    return MapOperator(gather)


def flat_mapping() -> Operator:
    seen: list[object] = []

    def gather(value: object) -> Iterator[object]:
        seen.append(value)
        yield seen

    return FlatMapOperator(gather)


class Gather(KeyedProcessFunction):
    def __init__(self) -> None:
        self._seen: list[object] = []

    def process_element(self, value: object, ctx: object) -> Iterator[object]:
        self._seen.append(value)
        yield self._seen


@pytest.mark.parametrize("make", [mapping, flat_mapping, lambda: KeyedProcessOperator(Gather())])
def test_a_value_emitted_twice_keeps_both_its_states(
    world: World, make: Callable[[], Operator]
) -> None:
    step = Hosted(make(), world)
    step.process(RowBatch([1, 2], None, ["a", "a"], [0, 0]))
    assert step.out.values == [[1], [1, 2]]


def test_a_reduce_that_changes_its_state_in_place_emits_each_step(world: World) -> None:
    def add(old: list[int], new: list[int]) -> list[int]:
        old.extend(new)
        return old

    step = Hosted(ReduceOperator(add), world)
    step.process(RowBatch([[1], [2], [3]], None, ["a", "a", "a"], [0, 0, 0]))
    assert step.out.values == [[1], [1, 2], [1, 2, 3]]


def test_values_of_a_type_that_nobody_can_change_are_passed_on_as_they_are(world: World) -> None:
    operator = MapOperator(lambda value: (value,))
    operator.result_type = Types.TUPLE([Types.LONG()])
    step = Hosted(operator, world)
    step.rows(1)
    assert step.out.values == [(1,)]

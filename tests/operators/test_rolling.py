from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from flinkformat.row import Row, RowKind
from tests.operators.world import Hosted, World
from tidegate.api import ship
from tidegate.errors import UserCodeFailed
from tidegate.model.elements import RowBatch
from tidegate.operators.aggregates.reduce import RollingCall, RollingOperator

if TYPE_CHECKING:
    from collections.abc import Callable

SALES = [("x", 3, 0.5), ("y", 7, 1.5), ("x", 2, 2.5), ("x", 2, 3.5), ("y", 9, 4.5)]
EXPECTED: dict[RollingCall, list[tuple[str, int, float]]] = {
    "sum": [("x", 3, 0.5), ("y", 7, 1.5), ("x", 5, 0.5), ("x", 7, 0.5), ("y", 16, 1.5)],
    "min": [("x", 3, 0.5), ("y", 7, 1.5), ("x", 2, 0.5), ("x", 2, 0.5), ("y", 7, 1.5)],
    "max": [("x", 3, 0.5), ("y", 7, 1.5), ("x", 3, 0.5), ("x", 3, 0.5), ("y", 9, 1.5)],
    "min_by": [("x", 3, 0.5), ("y", 7, 1.5), ("x", 2, 2.5), ("x", 2, 2.5), ("y", 7, 1.5)],
    "max_by": [("x", 3, 0.5), ("y", 7, 1.5), ("x", 3, 0.5), ("x", 3, 0.5), ("y", 9, 4.5)],
}


NAN = math.nan


class Sale(NamedTuple):
    shop: str
    amount: int
    day: float


@dataclass(frozen=True)
class Sold:
    shop: str
    amount: int
    day: float


FORMS: dict[str, tuple[Callable[[Any], Any], int | str]] = {
    "tuple": (tuple, 1),
    "tuple by name": (tuple, "f1"),
    "list": (list, 1),
    "dict": (lambda sale: dict(zip(Sale._fields, sale, strict=True)), "amount"),
    "row": (lambda sale: Row(*sale), 1),
    "named row": (lambda sale: Row(**Sale(*sale)._asdict()), "amount"),
    "named tuple": (Sale._make, "amount"),
    "named tuple by position": (Sale._make, 1),
    "dataclass": (lambda sale: Sold(*sale), "amount"),
    "dataclass by position": (lambda sale: Sold(*sale), 1),
}


def rolled(
    world: World, call: RollingCall, field: int | str, values: list[Any], keys: list[Any]
) -> list[Any]:
    step = Hosted(RollingOperator(call, field), world)
    step.process(RowBatch(values, None, keys, [0] * len(values)))
    return step.out.values


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", EXPECTED)
def test_each_row_gives_what_its_key_has_come_to(
    world: World, call: RollingCall, form: str
) -> None:
    make, field = FORMS[form]
    found = rolled(world, call, field, list(map(make, SALES)), [sale[0] for sale in SALES])
    expected = list(map(make, EXPECTED[call]))
    assert found == expected
    assert {type(row) for row in found} == {type(row) for row in expected}


@pytest.mark.parametrize("values", [[NAN, 5.0, 3.0, NAN, 7.0], [5.0, NAN, 3.0, 7.0, NAN]])
@pytest.mark.parametrize("call", ["min", "max", "min_by", "max_by"])
def test_nan_is_greater_than_all_numbers(
    world: World, call: RollingCall, values: list[float]
) -> None:
    found = rolled(world, call, 0, values, ["a"] * len(values))
    pick = min if call.startswith("min") else max
    for at, value in enumerate(found):
        expected = pick(values[: at + 1], key=lambda each: (math.isnan(each), each))
        assert value == expected or (math.isnan(value) and math.isnan(expected))


@pytest.mark.parametrize(
    ("call", "expected"), [("sum", [3, 4, 6]), ("min", [3, 1, 1]), ("max_by", [3, 3, 3])]
)
def test_plain_values_need_no_field(world: World, call: RollingCall, expected: list[int]) -> None:
    assert rolled(world, call, 0, [3, 1, 2], ["a"] * 3) == expected


def test_texts_have_an_order(world: World) -> None:
    assert rolled(world, "min", 0, ["b", "a"], [0, 0]) == ["b", "a"]


def test_a_row_keeps_its_kind_in_a_sum(world: World) -> None:
    rows = [Row.of_kind(RowKind.UPDATE_AFTER, "a", 1), Row("a", 2)]
    found = rolled(world, "sum", 1, rows, ["a", "a"])
    assert found == [Row.of_kind(RowKind.UPDATE_AFTER, "a", n) for n in (1, 3)]
    assert rows[0][1] == 1


@pytest.mark.parametrize(
    ("call", "field", "value", "reason"),
    [
        ("sum", 1, ("a", "b"), "unsupported operand"),
        ("sum", 1, ("a", None), "NoneType"),
        ("sum", 0, "a", "unsupported operand"),
        ("max", 2, ("a", 1), "out of range"),
        ("max", "amount", ("a", 1), "a tuple has no field 'amount'"),
        ("sum", "-1", ("a", 1), "a tuple has no field '-1'"),
        ("min_by", "x", {"shop": 1}, "KeyError: 'x'"),
        ("max", 1, "a", "TypeError: a str has no field 1"),
        ("min", "x", Row(a=1), "has no field 'x'"),
        ("min", "x", Sale("x", 1, 2.0), "no attribute 'x'"),
        ("min", 3, Sold("x", 1, 2.0), "out of range"),
    ],
)
def test_a_field_that_cannot_be_aggregated_is_told(
    world: World, call: RollingCall, field: int | str, value: object, reason: str
) -> None:
    with pytest.raises(UserCodeFailed, match=f"{call} of field {field!r} does not work") as raised:
        rolled(world, call, field, [value, value], ["a", "a"])
    assert reason in raised.value.what
    assert f"field {field!r}, at the row" in raised.value.where


def test_it_can_be_shipped(world: World) -> None:
    shipped = ship.loads(ship.dumps(RollingOperator("sum", 1), name="sum"), name="sum")
    step = Hosted(shipped, world)
    step.process(RowBatch([("a", 1), ("a", 2)], None, ["a", "a"], [0, 0]))
    assert step.out.values == [("a", 1), ("a", 3)]

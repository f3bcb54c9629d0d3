from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from flinkformat.row import Row
from tidegate.api.operator import KeyBy
from tidegate.api.rows.keys import keys_of_rows
from tidegate.errors import GraphError, UserCodeFailed


class Sale(NamedTuple):
    shop: str
    amount: int


@dataclass
class Sold:
    shop: str
    amount: int


@pytest.mark.parametrize(
    "row",
    [Sale("x", 1), Sold("x", 1), Row(shop="x", amount=1), {"shop": "x", "amount": 1}],
    ids=lambda row: type(row).__name__,
)
def test_a_column_is_a_field_of_any_record(row: Any) -> None:
    assert keys_of_rows([row, row], KeyBy(column="shop"), "here") == ["x", "x"]
    assert keys_of_rows([{"shop": "y"}, row], KeyBy(column="shop"), "here") == ["y", "x"]


@pytest.mark.parametrize(
    ("row", "has"),
    [
        ({"shop": "x", "n": 1}, "it has shop, n"),
        (Row(shop="x"), "it has shop"),
        (Row("x"), "it has no columns"),
        (Sale("x", 1), "it has shop, amount"),
        (Sold("x", 1), "it has shop, amount"),
        (("x", 1), "it has no columns"),
        ("x", "it has no columns"),
    ],
)
def test_a_column_that_a_record_does_not_have_is_told(row: Any, has: str) -> None:
    with pytest.raises(GraphError, match="there is no column 'shp' in the row") as raised:
        keys_of_rows([{"shp": 1}, row], KeyBy(column="shp"), "here")
    assert raised.value.what.endswith(has)
    assert raised.value.where == "here"


def test_a_selector_that_fails_is_told_with_its_row() -> None:
    def digit(row: str) -> int:
        return int(row)

    with pytest.raises(UserCodeFailed, match="the key selector raised ValueError") as raised:
        keys_of_rows(["1", "x"], KeyBy(selector=digit), "here")
    assert raised.value.where == "here, at the row 'x'"
    assert "return int(row)" in raised.value.trace
    assert "results.extend" not in raised.value.trace


@pytest.mark.parametrize("error", [SystemExit(2), StopIteration()])
def test_a_selector_that_raises_what_ends_loops_is_told_too(error: BaseException) -> None:
    def odd(row: str) -> int:
        raise error

    with pytest.raises(UserCodeFailed, match="the key selector raised S") as raised:
        keys_of_rows(["1", "x"], KeyBy(selector=odd), "here")
    assert raised.value.where == "here, at the row '1'"


def test_a_selector_that_raises_stop_iteration_leaves_no_record_out() -> None:
    names = iter(["a"])
    with pytest.raises(UserCodeFailed, match="the key selector raised StopIteration") as raised:
        keys_of_rows([1, 2, 3], KeyBy(selector=lambda row: next(names)), "here")
    assert raised.value.where == "here, at the row 2"


def test_a_record_without_its_attribute_names_it() -> None:
    broken = Sold("x", 1)
    del broken.shop
    with pytest.raises(AttributeError, match="shop"):
        keys_of_rows([Sold("y", 1), broken], KeyBy(column="shop"), "here")

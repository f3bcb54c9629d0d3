"""Which functions are traced, and what is said of those that are not."""

import math
from collections.abc import Callable
from operator import attrgetter, itemgetter

import pytest

from tidegate.api.rows.column_rows import RowForm
from tidegate.traced.projection import Projection
from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Binary, Constant, Field, trace

FACTOR, MOST = 3, 5


class Total:
    def add(self, value: int, total: int) -> int:
        return value + total


def test_a_function_becomes_the_expressions_of_its_result() -> None:
    bound = 7
    traced = trace(lambda row: (row[0], row.price * FACTOR, bound, row["n"] > 2))
    assert traced.is_tuple
    assert traced.expressions == (
        Field(0, 0),
        Binary("mul", Field(0, "price", attribute=True), Constant(3)),
        Constant(7),
        Binary("gt", Field(0, "n"), Constant(2)),
    )
    assert sorted(traced.seen, key=str) == [3, 7]


def test_two_arguments_are_told_apart() -> None:
    traced = trace(lambda old, new: (old[0], old[1] + new[1]), arguments=2)
    assert traced.expressions[1] == Binary("add", Field(0, 1), Field(1, 1))


def test_one_expression_is_no_tuple() -> None:
    traced = trace(lambda n: n - 1)
    assert not traced.is_tuple
    assert traced.expressions == (Binary("sub", Field(0, None), Constant(1)),)


def test_a_dict_is_a_result_where_one_may_be() -> None:
    name = "b"
    traced = trace(lambda row: {"a": row["x"], name: row["y"] * 2, "c": 1}, named=True)
    assert traced.form == RowForm(names=("a", "b", "c"))
    assert traced.expressions == (
        Field(0, "x"), Binary("mul", Field(0, "y"), Constant(2)), Constant(1)
    )  # fmt: skip
    assert trace(lambda row: {"a": row}, named=True).form == RowForm(names=("a",))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda row: {}, "its result has no fields"),
        (lambda row: {1: row}, "a part of type dict"),
        (lambda row: {row["a"]: 1}, "do not take it"),
        (lambda row: {"a": {"b": row}}, "a part of type dict"),
        (lambda row: {**row, "a": 1}, "does what symbols do not show"),
        (lambda row: {name: row for name in "ab"}, "stores something"),
    ],
)
def test_dicts_that_are_no_rows_of_columns_are_refused(
    function: Callable[..., object], why: str
) -> None:
    with pytest.raises(NotPure, match=why):
        trace(function, named=True)


def test_what_is_asked_about_none_is_compared_with_it() -> None:
    most = 3
    traced = trace(lambda row: (row.a is None, (row["b"] is not None) & (row[0] > most), row[1]))
    assert traced.expressions == (
        Binary("eq", Field(0, "a", attribute=True), Constant(None)),
        Binary(
            "and_",
            Binary("ne", Field(0, "b"), Constant(None)),
            Binary("gt", Field(0, 0), Constant(3)),
        ),
        Field(0, 1),
    )
    assert trace(lambda n: n != None).expressions == trace(lambda n: n is not None).expressions  # noqa: E711


def test_a_value_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: object = 1
    traced = trace(lambda n: n * bound + MOST)
    assert traced.is_current()
    bound = True  # equal, and yet another type
    assert not traced.is_current()
    bound = 1
    assert traced.is_current()
    monkeypatch.setitem(globals(), "MOST", 6)
    assert not traced.is_current()
    bound = [1]
    with pytest.raises(NotPure, match="it reads 'bound', which is of type list"):
        traced.is_current()


def test_a_zero_that_loses_its_sign_is_seen() -> None:
    bound = 0.0
    traced = trace(lambda n: n * bound)
    bound = -0.0
    assert not traced.is_current()


def counting(n: int, seen: list[int] = []) -> int:  # noqa: B006
    return n


def branching(n: int) -> int:
    return 1 if n > 2 else n


def generating(n: int):
    yield n


def storing(n: int) -> int:
    m = n + 1
    return m * m


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda n: math.sqrt(n), "calls a function"),
        (lambda row: len(row), "calls a function"),
        (lambda row: row.lower(), "calls a function"),
        (lambda n: f"{n}", "does what symbols do not show"),
        (lambda n: n > 1 and n < 3, "decides or repeats something"),
        (lambda n: not n, "decides or repeats something"),
        (branching, "decides or repeats something"),
        (storing, "stores something"),
        (generating, "a generator"),
        (counting, "has defaults"),
        (lambda n: "%s" % n == "5", "makes a text of a value"),  # noqa: UP031
        (lambda n: "%r" % (n,) == "5", "does what symbols do not show"),  # noqa: UP031
        (lambda n: b"%a" % n == b"5", "makes a text of a value"),
        (lambda row: row[0] + "x", "more with a text than compare"),
        (lambda row: "x" * row[0], "more with a text than compare"),
        (lambda row: row[0] < "x", "more with a text than compare"),
        (lambda n: n is n, "does what symbols do not show"),
        (lambda n: None is n, "does what symbols do not show"),
        (lambda n: n < None, "a part of type NoneType"),
        (lambda n: None, "a part of type NoneType"),
        (lambda n: {"a": n}, "its result is of type dict"),
        (lambda n: math, "it reads 'math', which is of type module"),
        (lambda n: undefined, "does not exist"),  # noqa: F821
        (lambda n: (), "its result has no fields"),
        (lambda n: n[n], "by something else than a number or a name"),
        (lambda n: n[0][1], "takes a part of a field"),
        (lambda n: n[1:2], "does what symbols do not show"),
        (lambda n: n**2, "do not take it"),
        (lambda n: (n, (n, n)), "a part of type tuple"),
        (lambda a, b: a, "it takes 2 arguments, not 1"),
        (attrgetter("a.b"), "takes a part of a field"),
        (len, "not a function written in Python"),
        (Total().add, "it takes 2 arguments, not 1"),
    ],
)
def test_what_does_more_than_symbols_show_is_refused(
    function: Callable[..., object], why: str
) -> None:
    with pytest.raises(NotPure, match=why.replace("(", r"\(")):
        trace(function)


@pytest.mark.parametrize(
    ("getter", "taken", "is_tuple"),
    [
        (itemgetter(1), (Field(0, 1),), False),
        (itemgetter(1, -1), (Field(0, 1), Field(0, -1)), True),
        (attrgetter("price"), (Field(0, "price", attribute=True),), False),
        (Projection((2,)), (Field(0, 2),), True),
    ],
)
def test_getters_are_known_by_their_type(
    getter: Callable[..., object], taken: tuple[Field, ...], is_tuple: bool
) -> None:
    traced = trace(getter)
    assert (traced.expressions, traced.is_tuple) == (taken, is_tuple)


def test_the_line_is_named() -> None:
    with pytest.raises(NotPure, match=rf"line {storing.__code__.co_firstlineno + 1} stores"):
        trace(storing)

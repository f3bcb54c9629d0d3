"""Which functions are traced, and what is said of those that are not."""

import math
from collections.abc import Callable
from operator import attrgetter, itemgetter

import pytest

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
        Binary("mul", Field(0, "price"), Constant(3)),
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
        (lambda n: n is None, "does what symbols do not show"),
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
        (attrgetter("price"), (Field(0, "price"),), False),
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

"""Which functions are traced, and what is said of those that are not."""

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import pytest

from flinkformat.row import Row
from tidegate.api.rows.column_rows import RowForm
from tidegate.traced.projection import Projection
from tidegate.traced.purity import NotPure
from tidegate.traced.symbols import Binary, Constant, Field, Text, trace

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


def test_an_f_string_becomes_its_parts() -> None:
    traced = trace(lambda row: (f"user-{row[0] % 9}{{}}", f"{row[1]}", f"{f'{FACTOR}/{row[1]}'}!"))
    assert traced.expressions == (
        Text((Constant("user-"), Binary("mod", Field(0, 0), Constant(9)), Constant("{}"))),
        Text((Field(0, 1),)),
        Text((Constant(3), Constant("/"), Field(0, 1), Constant("!"))),
    )


def test_a_function_may_have_as_many_constants_as_its_instructions_reach() -> None:
    function = eval(f"lambda n: f'<{{n + {' + '.join(map(str, range(300, 552)))}}}>'")
    less, total, greater = trace(function).expressions[0].parts
    assert (less, greater) == (Constant("<"), Constant(">"))
    assert total.right == Constant(551)


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


COMPREHENDS = "stores something" if sys.version_info < (3, 12) else "decides or repeats something"
"""From 3.12 on a comprehension is no function of its own."""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda row: {}, "its result has no fields"),
        (lambda row: {1: row}, "a part of type dict"),
        (lambda row: {row["a"]: 1}, "do not take it"),
        (lambda row: {"a": {"b": row}}, "a part of type dict"),
        (lambda row: {**row, "a": 1}, "does what symbols do not show"),
        (lambda row: {name: row for name in "ab"}, COMPREHENDS),
    ],
)
def test_dicts_that_are_no_rows_of_columns_are_refused(
    function: Callable[..., object], why: str
) -> None:
    with pytest.raises(NotPure, match=why):
        trace(function, named=True)


@dataclass
class Sale:
    shop: str
    cents: int = 5


@dataclass(frozen=True)
class Price:
    cents: int


class Pair(NamedTuple):
    left: int
    right: int = 3


def calls_a_class_in_a_cell() -> Callable[..., object]:
    kind = Sale
    return lambda row: kind(row.shop, cents=row.n * FACTOR)


SHOP, N = (Field(0, name, attribute=True) for name in ("shop", "n"))


@pytest.mark.parametrize(
    ("function", "form", "expressions"),
    [
        (
            lambda row: Sale(row.shop, row.n * FACTOR),
            RowForm(names=("shop", "cents"), record=Sale),
            (SHOP, Binary("mul", N, Constant(3))),
        ),
        (
            calls_a_class_in_a_cell(),
            RowForm(names=("shop", "cents"), record=Sale),
            (SHOP, Binary("mul", N, Constant(3))),
        ),
        (
            lambda row: Sale(row.shop),
            RowForm(names=("shop", "cents"), record=Sale),
            (SHOP, Constant(5)),
        ),
        (lambda row: Price(cents=row.n), RowForm(names=("cents",), record=Price), (N,)),
        (
            lambda row: Pair(right=1, left=row.n),
            RowForm(is_tuple=True, names=("left", "right"), record=Pair),
            (N, Constant(1)),
        ),
        (
            lambda row: Row(number=row.n, shop=row.shop),
            RowForm(names=("number", "shop"), record=Row),
            (N, SHOP),
        ),
    ],
)
def test_a_record_is_a_result_where_one_may_be(
    function: Callable[..., object], form: RowForm, expressions: tuple[object, ...]
) -> None:
    traced = trace(function, named=True)
    assert (traced.form, traced.expressions) == (form, expressions)
    with pytest.raises(NotPure, match="calls a function"):
        trace(function)


@dataclass
class Counted:
    n: int
    number: int = field(default_factory=itertools.count().__next__)


@dataclass
class Checked:
    n: int

    def __post_init__(self) -> None:
        self.n += 1


@dataclass
class Kept:
    n: int
    factor: InitVar[int]


@dataclass
class Watched:
    n: int

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value + 1)


@dataclass(init=False)
class Own:
    n: int

    def __init__(self, n: int) -> None:
        self.n = n + 1


class Wider(Pair):
    def __init__(self, left: int, right: int = 3) -> None:
        pass


class Plain:
    def __init__(self, n: int) -> None:
        self.n = n

    def doubled(self, n: int) -> int:
        return 2 * n


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda n: Kept(n, 2), "calls a function"),
        (lambda n: Price(n).cents, "calls a function"),
        (lambda n: (Price(n), 1), "calls a function"),
        (lambda n: Sale("a", Price(n)), "calls a function"),  # pyright: ignore[reportArgumentType]
        (lambda n: Sale("a", Sale.cents), "calls a function"),
        (lambda n: Pair._make(n), "calls a function"),
        (lambda n: n.doubled(1), "calls a function"),
        (lambda n: Price(n) if n else n, "decides or repeats something"),
        (lambda n: Price((n, n)), "a part of type tuple"),  # pyright: ignore[reportArgumentType]
        (lambda n: Price(n, n), "do not take it"),  # pyright: ignore[reportCallIssue]
        (lambda n: Row(n, 1), "a part of type Row"),
    ],
)
def test_records_that_are_more_than_their_fields_are_refused(
    function: Callable[..., object], why: str
) -> None:
    with pytest.raises(NotPure, match=why):
        trace(function, named=True)


@pytest.mark.parametrize("kind", [Counted, Checked, Watched, Own, Wider, Plain, int])
def test_classes_that_do_more_than_hold_fields_are_refused(kind: Callable[..., object]) -> None:
    with pytest.raises(NotPure, match="calls a function"):
        trace(lambda n: kind(n), named=True)


def test_another_class_under_the_name_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = trace(lambda n: Price(n), named=True)
    assert traced.is_current()
    monkeypatch.setitem(
        globals(), "Price", dataclass(type("Price", (), {"__annotations__": {"cents": int}}))
    )
    assert not traced.is_current()
    monkeypatch.setitem(globals(), "Price", Plain)
    with pytest.raises(NotPure, match="it reads 'Price', which is of type type"):
        traced.is_current()


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
        (lambda n: f"{n:>9}", "writes a value into a text by a format of its own"),
        (lambda n: f"{n!r}", "writes a value into a text by a format of its own"),
        (lambda n: f"{n}"[0], "takes a part of a field"),
        (lambda n: f"{n}" < "5", "does more with a text than compare"),
        (lambda n: f"{(n, n)}", "a part of type tuple"),
        (lambda n: n > 1 and n < 3, "decides or repeats something"),
        (lambda n: not n, "decides or repeats something"),
        (branching, "decides or repeats something"),
        (storing, "stores something"),
        (generating, "a generator"),
        (counting, "has defaults"),
        (lambda n: "%s" % n == "5", "puts values into a text by %"),  # noqa: UP031
        (lambda n: ("total" % n, n), "puts values into a text by %"),  # noqa: UP031, F507
        (lambda n: "%r" % (n,) == "5", "by a format of its own"),  # noqa: UP031
        (lambda n: b"%a" % n == b"5", "puts values into a text by %"),
        (lambda n: b"total" % n == b"total", "puts values into a text by %"),
        (lambda row: row.__class__, "do not take it"),
        (lambda row: (row.__class__.__name__, row.n), "do not take it"),
        (lambda row: row.__doc__ is None, "do not take it"),
        (lambda row: (row[0] // row[1], row[2])[1], "computes what its result does not have"),
        (lambda row: {"a": row["b"], "a": 1}["a"], "computes what its result does not have"),  # noqa: F601
        (lambda n: (n, (1 // n,) is None), "computes what its result does not have"),
        (eval(f"lambda n: {' + '.join('n' * 300)}"), "more than 260 operations"),
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

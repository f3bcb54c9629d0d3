from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator  # noqa: TC003 - read at run time
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, NamedTuple, NewType, Optional

import pytest

from tidegate.errors import GraphError
from tidegate.typeinfo.hints import declared_type, type_of_hint, type_of_return
from tidegate.typeinfo.types import RecordTypeInfo, TypeInformation, Types

UserId = NewType("UserId", int)
PICKLED = Types.PICKLED_BYTE_ARRAY()


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Stats:
    count: int
    points: dict[str, list[Point]] = field(default_factory=dict)


@dataclass(frozen=True)
class Wider(Stats):
    note: str | None = None


@dataclass
class WithHook:
    count: int

    def __post_init__(self) -> None:
        self.count += 1


@dataclass
class WithOwnPickling:
    count: int

    def __reduce__(self) -> tuple[object, ...]:
        return WithOwnPickling, (self.count,)


@dataclass
class WithComputed:
    count: int
    twice: int = field(init=False, default=0)


@dataclass
class WithAnything:
    count: object


@dataclass
class Node:
    root: ClassVar[Node | None]
    name: str
    next: Node | None = None


class Tree(NamedTuple):
    name: str
    children: list[Tree]


@dataclass
class Chicken:
    eggs: dict[str, list[Egg]]


class Egg(NamedTuple):
    inside: Chicken


@dataclass
class Forest:
    tree: Tree
    area: int


@dataclass
class Known:
    first: ClassVar[Known]
    name: str


class Ordinary:
    pass


class Longer(Point):
    pass


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (int, Types.LONG()),
        (str, Types.STRING()),
        (float, Types.DOUBLE()),
        (bool, Types.BOOLEAN()),
        (bytes, Types.PRIMITIVE_ARRAY(Types.BYTE())),
        (datetime.date, Types.SQL_DATE()),
        (datetime.time, Types.SQL_TIME()),
        (datetime.datetime, Types.SQL_TIMESTAMP()),
        (Decimal, Types.BIG_DEC()),
        (list[int], Types.LIST(Types.LONG())),
        (dict[str, int], Types.MAP(Types.STRING(), Types.LONG())),
        (tuple[str, int], Types.TUPLE([Types.STRING(), Types.LONG()])),
        (tuple[()], Types.TUPLE([])),
        (int | None, Types.LONG()),
        (Optional[int], Types.LONG()),  # noqa: UP045
        (Annotated[int, "id"], Types.LONG()),
        (UserId, Types.LONG()),
        (Types.INT(), Types.INT()),
        (int | str, PICKLED),
        (tuple[int, ...], PICKLED),
        (list[object], PICKLED),
        (set[int], PICKLED),
        (list, PICKLED),
        (Any, PICKLED),
        (object, PICKLED),
        (None, PICKLED),
        ("int", PICKLED),
        (Ordinary, PICKLED),
        (WithHook, PICKLED),
        (WithOwnPickling, PICKLED),
        (WithComputed, PICKLED),
        (WithAnything, PICKLED),
        (Longer, PICKLED),
        (Node, PICKLED),
        (Tree, PICKLED),
        (Chicken, PICKLED),
        (Egg, PICKLED),
        (Forest, PICKLED),
        (tuple[int, Node], PICKLED),
    ],
    ids=str,
)
def test_a_hint_is_a_type(hint: object, expected: TypeInformation) -> None:
    assert type_of_hint(hint) == expected


def test_records_know_their_fields_and_defaults() -> None:
    stats = type_of_hint(Stats)
    assert isinstance(stats, RecordTypeInfo)
    assert str(stats) == (
        "Stats(count: Long, points: MapTypeInfo<String, ListTypeInfo<Point(x: Long, y: Double)>>)"
    )
    assert (stats.kind, stats.defaulted, stats.python_class) == ("dataclass", {"points"}, Stats)
    point = type_of_hint(Point)
    assert isinstance(point, RecordTypeInfo)
    assert (point.kind, point.defaulted, point.python_class) == ("namedtuple", {"y"}, Point)
    wider = type_of_hint(Wider)
    assert isinstance(wider, RecordTypeInfo)
    assert wider.field_names == ("count", "points", "note")


def test_a_constant_of_its_own_class_is_no_field_of_a_record() -> None:
    assert type_of_hint(Known).children == (Types.STRING(),)


def test_a_class_known_only_where_it_was_written_is_pickled() -> None:
    @dataclass
    class Inner:
        count: int

    @dataclass
    class Outer:
        inner: Inner

    assert type_of_hint(Outer) == PICKLED


def test_a_function_says_what_it_returns() -> None:
    def one(value: object) -> tuple[str, int]:
        raise NotImplementedError

    def many(value: object) -> Iterator[int]:
        raise NotImplementedError

    def listed(value: object) -> list[str]:
        raise NotImplementedError

    def silent(value):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def vague(value: object) -> Any:
        raise NotImplementedError

    def bare(value: object) -> Iterable:  # type: ignore[type-arg]
        raise NotImplementedError

    assert type_of_return(one) == Types.TUPLE([Types.STRING(), Types.LONG()])
    assert type_of_return(many, iterable=True) == Types.LONG()
    assert type_of_return(listed, iterable=True) == Types.STRING()
    untyped: list[Callable[..., object]] = [silent, vague, len, lambda value: value]
    assert [type_of_return(function) for function in untyped] == [None] * 4
    assert type_of_return(bare, iterable=True) is None
    assert type_of_return(one, iterable=True) is None
    assert type_of_return(WithHook(1).__post_init__) is None


@pytest.mark.parametrize("given", [3, "int", len, (int, str)])
def test_what_is_no_type_is_refused(given: Any) -> None:
    with pytest.raises(GraphError, match="is not a type"):
        declared_type(given, where="map")


def test_a_declared_type_is_none_a_type_or_a_hint() -> None:
    assert declared_type(None, where="map") is None
    assert declared_type(Types.INT(), where="map") == Types.INT()
    hints: list[Any] = [list[int], UserId, Any, int | None]
    assert [declared_type(hint, where="map") for hint in hints] == [
        Types.LIST(Types.LONG()), Types.LONG(), PICKLED, Types.LONG(),
    ]  # fmt: skip

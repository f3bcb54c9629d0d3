"""What is declared of records, and what cannot go together, said where the program is built."""

from __future__ import annotations

from collections.abc import Iterator  # noqa: TC003 - read at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.datastream.fakes import environment
from tidegate import (
    GraphError,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    Row,
    Types,
    UnsupportedKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate import DataStream

    Call = Callable[[DataStream[Any]], object]

LONG, STRING = Types.LONG(), Types.STRING()
PAIR = Types.TUPLE([STRING, LONG])


class Sale(NamedTuple):
    shop: str
    amount: int


@dataclass
class Point:
    x: float


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class Join(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> str:
        return f"{value1}{value2}"


class Letters(ProcessFunction[Any, str]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[str]:
        yield from str(value)


def text(value: object) -> str:
    return str(value)


def letters(value: object) -> list[str]:
    return list(str(value))


def typed(type_info: Any) -> DataStream[Any]:
    return environment().generate(lambda n: n, 1, None, type_info)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (int, LONG),
        (tuple[str, int], PAIR),
        (list[float], Types.LIST(Types.DOUBLE())),
        (int | None, LONG),
        (Any, Types.PICKLED_BYTE_ARRAY()),
        (Types.INT(), Types.INT()),
    ],
)
def test_a_python_type_declares_as_well_as_one_of_types(given: Any, expected: object) -> None:
    stream = typed(None)
    assert stream.map(lambda n: n, given).get_type() == expected
    assert stream.key_by(lambda n: n, str).flat_map(list, given).get_type() == expected
    assert str(stream.map(Sale, Sale).get_type()) == "Sale(shop: String, amount: Long)"


def test_an_annotation_alone_declares_nothing() -> None:
    assert typed(None).map(text).get_type() == Types.PICKLED_BYTE_ARRAY()


def test_the_values_of_a_collection_are_brought_to_the_type_at_once() -> None:
    env = environment()
    with pytest.raises(GraphError, match="element 1 is not of the declared type, field 'n'") as at:
        env.from_collection([("a", 1), ("b", "2")], Types.ROW_NAMED(["k", "n"], [STRING, LONG]))
    assert "'2', a str, is not of type Long" in at.value.what
    assert at.value.where == "from_collection, element 1, field 'n'"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda s: s.map(str, 3), "3 is not a type"),
        (lambda s: s.map(str, "int"), "'int' is not a type"),
        (lambda s: s.key_by(str, 3), "3 is not a type"),
        (lambda s: s.map(text, int), "text is annotated to return String, which cannot be Long"),
        (lambda s: s.map(Length(), Types.STRING()), "Length.map is annotated to return Long"),
        (lambda s: s.flat_map(letters, int), "letters is annotated to return String"),
        (lambda s: s.process(Letters(), int), "Letters.process_element is annotated to return Str"),
        (lambda s: s.key_by(text, int), "text is annotated to return String"),
        (lambda s: s.key_by(str, int).map(Length(), str), "Length.map is annotated"),
        (lambda s: s.key_by(str).reduce(Join()), "Join.reduce is annotated to return String"),
        (lambda s: s.union(s.map(str, str)), "union streams of different types: Long and String"),
        (lambda s: s.project(0), "Only tuple streams can be projected, and this one is of Long"),
        (lambda s: s.map(str).project(0), "this one is of no type"),
        (lambda s: s.map(str, PAIR).project(), "no field was named"),
        (lambda s: s.map(str, PAIR).project(0, 2), "there is no field 2 in TupleTypeInfo(String"),
        (lambda s: s.map(str, PAIR).project(-1), "there is no field -1"),
        (lambda s: s.key_by(str).project(0), "project cannot follow key_by"),
        (lambda s: s.key_by("shop"), "there is no column 'shop' in Long"),
        (lambda s: s.map(str, PAIR).key_by("f0"), "there is no column 'f0' in TupleTypeInfo"),
        (lambda s: s.map(str, Sale).key_by("shp"), "there is no column 'shp' in Sale(shop"),
        (lambda s: s.map(str, Sale).key_by(str).sum("shop"), "field 'shop' is String, which"),
        (lambda s: s.map(str, Sale).key_by(str).sum("x"), "there is no field 'x' in Sale(shop"),
        (lambda s: s.map(str, PAIR).key_by(str).sum(0), "field 0 is String, which cannot be sum"),
        (lambda s: s.map(str, PAIR).key_by(str).max(2), "there is no field 2 in TupleTypeInfo"),
        (lambda s: s.map(str, PAIR).key_by(str).min(-1), "there is no field -1"),
        (lambda s: s.map(str).key_by(str).sum(-1), "there is no field -1"),
        (lambda s: s.map(str).key_by(str).max_by(True), "there is no field True"),
        (lambda s: s.map(str).key_by(str).min(0.5), "there is no field 0.5"),
        (lambda s: s.map(str, PAIR).key_by(str).max(True), "there is no field True"),
        (lambda s: s.key_by(str).min_by(1), "Long has no field 1"),
        (lambda s: s.map(str, str).key_by(str).sum(), "field 0 is String, which cannot be summed"),
        (lambda s: s.map(str, list[int]).key_by(str).max_by(), "has no order"),
    ],
)
def test_types_that_cannot_fit_are_told_by_the_call(call: Call, what: str) -> None:
    with pytest.raises(GraphError) as raised:
        call(typed(Types.LONG()))
    assert what in raised.value.what
    assert raised.value.where
    assert raised.value.remedy


def test_a_key_type_without_a_stable_hash_is_told_by_the_call() -> None:
    with pytest.raises(UnsupportedKey, match="is not a type of key"):
        typed(LONG).key_by(lambda n: n, dict[str, int])


def test_fields_that_are_there_are_accepted() -> None:
    sales = typed(Sale)
    keyed = sales.key_by("shop")
    assert keyed.sum("amount").get_type() == keyed.sum(1).get_type() == sales.get_type()
    assert sales.map(str, PAIR).key_by(str).sum("f1").get_type() == PAIR
    assert typed(None).key_by(str).max_by("anything").get_type() == Types.PICKLED_BYTE_ARRAY()
    assert sales.map(Row, Types.ROW([PAIR, LONG])).key_by("f1").max(1).get_type() is not None


def test_a_projection_is_of_the_fields_it_keeps() -> None:
    assert typed(PAIR).project(1, 0, 1).get_type() == Types.TUPLE([LONG, STRING, LONG])


def test_a_union_with_an_undeclared_stream_is_undeclared() -> None:
    stream = typed(LONG)
    assert stream.union(stream.map(str)).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert stream.union(stream.filter(bool)).get_type() == LONG

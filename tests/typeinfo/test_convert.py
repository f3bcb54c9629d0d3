from __future__ import annotations

import datetime
from array import array
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest

from flinkformat.row import Row, RowKind
from tidegate.model.duration import Instant
from tidegate.typeinfo.convert import Converter, Misfit, single
from tidegate.typeinfo.hints import type_of_hint
from tidegate.typeinfo.types import TypeInformation, Types

DAY = datetime.date(2024, 2, 29)
ZONED = datetime.datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=datetime.UTC)
MOMENT = datetime.datetime.fromisoformat("2024-02-29T12:00:00.123456")
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
NAMED = Types.ROW_NAMED(["name", "count"], [Types.STRING(), Types.INT()])
NESTED = Types.ROW_NAMED(["k", "pair"], [Types.INT(), PAIR])


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass
class Stats:
    count: int
    points: list[Point]


@dataclass
class MoreStats(Stats):
    note: str


def converted(type_info: TypeInformation, *values: object) -> list[Any]:
    return Converter(type_info).batch(list(values))


@pytest.mark.parametrize(
    ("type_info", "given", "expected"),
    [
        (Types.STRING(), "a", "a"),
        (Types.CHAR(), "a", "a"),
        (Types.BYTE(), -128, -128),
        (Types.INT(), np.int16(3), 3),
        (Types.LONG(), np.int64(2**40), 2**40),
        (Types.LONG(), True, 1),
        (Types.BIG_INT(), 2**70, 2**70),
        (Types.DOUBLE(), 3, 3.0),
        (Types.DOUBLE(), np.float32(0.5), 0.5),
        (Types.FLOAT(), 0.1, 0.10000000149011612),
        (Types.FLOAT(), 1e39, float("inf")),
        (Types.FLOAT(), -1e39, float("-inf")),
        (Types.BOOLEAN(), np.bool_(True), True),
        (Types.BIG_DEC(), 3, Decimal(3)),
        (Types.BIG_DEC(), Decimal("1.5"), Decimal("1.5")),
        (Types.SQL_DATE(), DAY, DAY),
        (Types.SQL_TIME(), MOMENT.time(), datetime.time(12, 0, 0, 123_000)),
        (Types.SQL_TIMESTAMP(), MOMENT, MOMENT.replace(microsecond=123_000)),
        (Types.INSTANT(), Instant(1, 5), Instant(1, 5)),
        (Types.INSTANT(), ZONED, ZONED),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"ab"), b"ab"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), array("i", [1, 2]), [1, 2]),
        (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), np.array([1.5]), [1.5]),
        (Types.BASIC_ARRAY(Types.STRING()), ("a", None), ["a", None]),
        (Types.OBJECT_ARRAY(PAIR), [Row("a", 1)], [("a", 1)]),
        (Types.LIST(Types.PICKLED_BYTE_ARRAY()), (1, "a"), [1, "a"]),
        (Types.LIST(Types.FLOAT()), [0.5, 1], [0.5, 1.0]),
        (Types.MAP(Types.STRING(), Types.DOUBLE()), {"a": 1}, {"a": 1.0}),
        (Types.MAP(Types.PICKLED_BYTE_ARRAY(), PAIR), {1: ["a", 1]}, {1: ("a", 1)}),
        (PAIR, ["a", np.int32(1)], ("a", 1)),
        (PAIR, Row(a="a", b=1), ("a", 1)),
        (PAIR, ("a", None), ("a", None)),
        (type_of_hint(Point), (1, 2), Point(1, 2.0)),
        (type_of_hint(Point), {"y": 2, "x": 1}, Point(1, 2.0)),
        (type_of_hint(Stats), Stats(1, [Point(np.int64(1), 2)]), Stats(1, [Point(1, 2.0)])),
        (NAMED, ("a", 1), Row(name="a", count=1)),
        (NAMED, Row("a", 1), Row(name="a", count=1)),
        (NAMED, Row(f0="a", f1=1), Row(name="a", count=1)),
        (NAMED, Row(count=1, name="a"), Row(name="a", count=1)),
        (NAMED, {"count": 1, "name": "a"}, Row(name="a", count=1)),
        (NESTED, (1, ["a", 2]), Row(k=1, pair=("a", 2))),
        (Types.TUPLE([]), [], ()),
        (Types.PICKLED_BYTE_ARRAY(), [1], [1]),
    ],
    ids=str,
)
def test_a_value_is_brought_to_its_type(
    type_info: TypeInformation, given: object, expected: object
) -> None:
    (found,) = converted(type_info, given)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "type_info",
    [
        Types.STRING(), Types.INT(), Types.FLOAT(), Types.SQL_TIMESTAMP(), Types.INSTANT(),
        Types.LIST(Types.INT()), Types.MAP(Types.INT(), Types.INT()), PAIR, NAMED,
        type_of_hint(Point),
    ],
    ids=str,
)  # fmt: skip
def test_none_is_legal_anywhere(type_info: TypeInformation) -> None:
    assert converted(type_info, None) == [None]
    assert converted(Types.TUPLE([type_info, Types.INT()]), (None, 1)) == [(None, 1)]


def test_values_that_are_of_the_type_stay_the_objects_that_they_are() -> None:
    dated = Types.TUPLE([Types.SQL_DATE(), Types.BYTE(), Types.DOUBLE()])
    values: list[object] = [(DAY, 127, 1.5), (None, None, None), (DAY, -128, 0.0)]
    assert Converter(dated).batch(values) is values
    for beyond in (128, -129):
        with pytest.raises(Misfit):
            converted(dated, *values, (DAY, beyond, 1.5))
    (_, widened) = converted(dated, values[0], (DAY, True, 2))
    assert [type(part) for part in widened] == [datetime.date, int, float]


def test_a_batch_with_a_value_that_changes_gives_the_same_as_each_value_alone() -> None:
    plain: list[object] = [("a", 1), ("b", 2), None, ("c", None)]
    mixed = [*plain, Row("d", np.int64(4)), ["e", 5]]
    assert converted(PAIR, *plain) == plain
    assert converted(PAIR, *mixed) == [*plain, ("d", 4), ("e", 5)]
    rows = converted(NAMED, ("a", 1), Row("b", 2), {"name": "c", "count": 3})
    assert [tuple(row) for row in rows] == [("a", 1), ("b", 2), ("c", 3)]
    assert {row.names for row in rows} == {("name", "count")}


@pytest.mark.parametrize("last", [("c", 3), ("c", np.int64(3))])
def test_a_row_keeps_its_kind(last: object) -> None:
    rows = [Row.of_kind(RowKind.DELETE, "a", 1), Row("b", 2)]
    for batch in (rows, [*rows, last]):
        kinds = [row.get_row_kind() for row in converted(NAMED, *batch)]
        assert kinds[:2] == [RowKind.DELETE, RowKind.INSERT]


def test_fields_of_a_named_tuple_are_fields_of_a_tuple_or_a_row() -> None:
    two = Types.TUPLE([Types.INT(), Types.DOUBLE()])
    (pair,) = converted(two, Point(1, 2.0))
    assert (pair, type(pair)) == ((1, 2.0), tuple)


@pytest.mark.parametrize(
    ("type_info", "value", "path", "reason"),
    [
        (Types.STRING(), 1, (), ""),
        (Types.CHAR(), "ab", (), "one character"),
        (Types.BYTE(), 128, (), "not in [-128, 127]"),
        (Types.INT(), "1", (), ""),
        (Types.INT(), 1.0, (), ""),
        (Types.INT(), -(2**31) - 1, (), "not in [-2147483648, 2147483647]"),
        (Types.DOUBLE(), "1.0", (), ""),
        (Types.FLOAT(), 10**400, (), "too large"),
        (Types.BOOLEAN(), 1, (), ""),
        (Types.BIG_DEC(), 1.5, (), ""),
        (Types.SQL_DATE(), MOMENT, (), "time of day"),
        (Types.SQL_DATE(), "2024-02-29", (), ""),
        (Types.SQL_TIME(), MOMENT, (), ""),
        (Types.SQL_TIMESTAMP(), ZONED, (), "zone"),
        (Types.SQL_TIMESTAMP(), DAY, (), ""),
        (Types.INSTANT(), MOMENT, (), "a datetime with a zone"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "ab", (), ""),
        (Types.LIST(Types.INT()), [1, "b"], ("[1]",), ""),
        (Types.LIST(Types.INT()), "ab", (), ""),
        (Types.MAP(Types.STRING(), PAIR), {"a": ("b", "c")}, ("['a']", "f1"), ""),
        (Types.MAP(Types.STRING(), PAIR), [1], (), ""),
        (PAIR, ("a", "b"), ("f1",), ""),
        (PAIR, ("a",), (), "it has 1 fields, not 2"),
        (PAIR, "ab", (), ""),
        (PAIR, {"f0": "a", "f1": 1}, (), ""),
        (NAMED, ("a", "b"), ("count",), ""),
        (NAMED, Row("a"), (), "it has 1 fields, not 2"),
        (NAMED, Row(name="a", cuont=1), (), "'count' is missing, there is no field 'cuont'"),
        (NAMED, {"name": "a"}, (), "the field 'count' is missing"),
        (NESTED, (1, ("a", "b")), ("pair", "f1"), ""),
        (type_of_hint(Point), "ab", (), ""),
        (type_of_hint(Stats), MoreStats(1, [], ""), (), "it is a MoreStats"),
        (type_of_hint(Stats), Stats(1, [("a", 1.0)]), ("points", "[0]", "x"), ""),  # type: ignore[list-item]
    ],
    ids=str,
)
def test_what_cannot_be_of_the_type_is_told_with_its_field(
    type_info: TypeInformation, value: object, path: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(Misfit) as raised:
        converted(type_info, None, value)
    assert (raised.value.index, raised.value.path) == (1, path)
    assert reason in raised.value.reason


def test_a_list_given_again_and_again_for_a_tuple_is_refused() -> None:
    again = ["a", 1]
    with pytest.raises(Misfit, match="same object was given for several records") as raised:
        converted(PAIR, ("b", 1), again, again)
    assert raised.value.index == 1


def test_a_single_is_the_nearest_float_of_32_bits() -> None:
    assert single(0.1) == float(np.float32(0.1))
    assert single(16_777_217.0) == 16_777_216.0


def test_records_of_the_type_stay_the_objects_that_they_are() -> None:
    values: list[object] = [Point(1, 2.0), Point(2, 0.5)]
    assert Converter(type_of_hint(Point)).batch(values) is values
    assert converted(type_of_hint(Point), Point(1, 2.0), Point(1, 2)) == [Point(1, 2.0)] * 2
    with pytest.raises(Misfit, match="field 'y': 'x' is not of type Double"):
        converted(type_of_hint(Point), Point(1, 2.0), Point(1, "x"))  # type: ignore[arg-type]


def test_a_record_without_one_of_its_attributes_is_no_record() -> None:
    @dataclass
    class Pair:
        left: int
        right: int

    broken = Pair(1, 2)
    del broken.right
    with pytest.raises(AttributeError, match="right"):
        converted(type_of_hint(Pair), Pair(1, 2), broken)

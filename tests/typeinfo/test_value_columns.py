"""Values as columns and back; the types that undeclared values turn out to have; stand-ins."""

import datetime
import decimal
import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.row import Row
from tidegate.errors import FormatError
from tidegate.model.duration import Instant
from tidegate.typeinfo.arrow import column_of, column_type, recast, values_of
from tidegate.typeinfo.evolution import serializer_standing_in
from tidegate.typeinfo.hints import type_of_hint, type_of_values
from tidegate.typeinfo.serializers import SerializerSnapshot, serializer_of
from tidegate.typeinfo.types import RecordTypeInfo, TypeInformation, Types


@dataclass
class Flights:
    count: int
    carrier: str | None = None


class Route(NamedTuple):
    origin: str
    days: list[datetime.date]


SCALARS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.STRING(), st.text(st.characters(exclude_categories=["Cs"]))),
    (Types.BOOLEAN(), st.booleans()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
    (Types.SQL_DATE(), st.dates()),
    (Types.BIG_INT(), st.integers(-(10**37), 10**37)),
    (Types.PICKLED_BYTE_ARRAY(), st.frozensets(st.integers())),
]


def nested(depth: int) -> st.SearchStrategy[tuple[TypeInformation, st.SearchStrategy[Any]]]:
    scalar = st.sampled_from(SCALARS)
    if not depth:
        return scalar
    inner = nested(depth - 1)
    of_lists = inner.map(lambda t: (Types.LIST(t[0]), st.lists(st.none() | t[1], max_size=3)))
    of_maps = inner.map(
        lambda t: (
            Types.MAP(Types.STRING(), t[0]),
            st.dictionaries(st.text("ab"), st.none() | t[1]),
        )
    )
    of_tuples = st.lists(inner, min_size=0, max_size=3).map(
        lambda ts: (Types.TUPLE([t for t, _ in ts]), st.tuples(*(st.none() | v for _, v in ts)))
    )
    return scalar | of_lists | of_maps | of_tuples


@given(st.data())
def test_values_come_back_from_their_columns(data: st.DataObject) -> None:
    type_info, value = data.draw(nested(2))
    values = data.draw(st.lists(st.none() | value, max_size=5))
    column = column_of(values, type_info)
    assert column.type == column_type(type_info)
    column.validate(full=True)
    assert values_of(column, type_info) == values


def test_records_rows_and_times_come_back_too() -> None:
    day, time = datetime.date(2013, 1, 1), datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    route = type_of_hint(Route)
    for type_info, value in (
        (type_of_hint(Flights), Flights(1)),
        (route, Route("EWR", [day])),
        (Types.ROW_NAMED(["a", "b"], [Types.LONG(), route]), Row(a=1, b=Route("JFK", []))),
        (Types.INSTANT(), time),
        (Types.BIG_DEC(), decimal.Decimal("1.5")),
    ):
        assert values_of(column_of([value, None], type_info), type_info) == [value, None]
    assert column_of([Instant(5, 10**6)], Types.INSTANT()).to_pylist()[0].microsecond == 1_000


def test_pickled_values_are_pickles_of_themselves() -> None:
    [data] = column_of([{1, 2}], Types.PICKLED_BYTE_ARRAY()).to_pylist()
    assert pickle.loads(data) == {1, 2}


def test_a_value_of_another_type_is_refused() -> None:
    for type_info, value in (
        (Types.LONG(), "a"),
        (Types.INT(), 2**40),
        (type_of_hint(Flights), 5),
        (Types.TUPLE([Types.LONG()]), (1, 2)),
    ):
        with pytest.raises((pa.ArrowException, TypeError, ValueError, OverflowError)):
            column_of([value], type_info)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1, 2.5], Types.DOUBLE()),
        ([1, 2**70], Types.BIG_INT()),
        ([True, 1], Types.PICKLED_BYTE_ARRAY()),
        ([None, "a"], Types.STRING()),
        ([[], [1], [None]], Types.LIST(Types.LONG())),
        ([(1, None), (2, "a")], Types.TUPLE([Types.LONG(), Types.STRING()])),
        ([{"a": [1]}, {}], Types.MAP(Types.STRING(), Types.LIST(Types.LONG()))),
        ([Row(n=1)], Types.ROW_NAMED(["n"], [Types.LONG()])),
        ([datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)], Types.INSTANT()),
        ([(1,), (1, 2)], Types.PICKLED_BYTE_ARRAY()),
        ([], Types.PICKLED_BYTE_ARRAY()),
    ],
)
def test_undeclared_values_have_what_they_have_in_common(
    values: list[object], found: TypeInformation
) -> None:
    assert type_of_values(values) == found


def test_dicts_of_several_types_and_records_keep_their_fields() -> None:
    for values in ([{"n": 1, "s": "x"}, {"n": None, "s": "y"}], [Flights(1, "UA"), Flights(2)]):
        found = type_of_values(values)
        assert isinstance(found, RecordTypeInfo)
        assert found.field_types == (Types.LONG(), Types.STRING())
        assert values_of(column_of(values, found), found) == values


def test_a_stand_in_reads_and_writes_what_the_class_did() -> None:
    for value in (Flights(1, "UA"), Route("EWR", [datetime.date(2013, 1, 1)])):
        real = serializer_of(type_of_hint(type(value)))
        written = SerializerSnapshot.from_bytes(real.snapshot().to_bytes())
        stand_in = serializer_standing_in(written)
        [read] = stand_in.decode_many(real.encode_many([value]))
        assert type(read) is not type(value) and repr(read) == repr(value)
        assert real.decode_many(stand_in.encode_many([read])) == [value]
        assert recast(read, real.type_info) == value
        assert stand_in.snapshot() == written


def test_a_record_of_impossible_fields_is_no_class() -> None:
    odd = RecordTypeInfo("X", "dataclass", ("not a name",), (Types.LONG(),))
    with pytest.raises(FormatError, match="can't be of a class"):
        serializer_standing_in(SerializerSnapshot("msgpack", 1, odd))
    with pytest.raises(FormatError, match="MessagePack"):
        serializer_standing_in(SerializerSnapshot("msgpack", 1, Types.PICKLED_BYTE_ARRAY()))

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tidegate.typeinfo.serializers import (
    SerializerSnapshot,
    join_pieces,
    serializer_of,
    split_piece,
)
from tidegate.typeinfo.types import TypeInformation, Types

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=5)
LEAVES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.LONG(), LONGS),
    (Types.BIG_INT(), st.integers()),
    (Types.STRING(), TEXTS),
    (Types.DOUBLE(), st.floats()),
    (Types.BOOLEAN(), st.booleans()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5)),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), st.datetimes()),
    (Types.BIG_DEC(), st.decimals(allow_nan=False)),
    (Types.PICKLED_BYTE_ARRAY(), st.sets(st.integers(), max_size=2)),
]
Typed = tuple[TypeInformation, st.SearchStrategy[Any]]


def composites(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    lists = inner.map(lambda of: (Types.LIST(of[0]), st.lists(of[1] | st.none(), max_size=3)))
    tuples = st.lists(inner, max_size=3).map(
        lambda of: (Types.TUPLE([t for t, _ in of]), st.tuples(*(v for _, v in of)))
    )
    maps = inner.map(
        lambda of: (
            Types.MAP(Types.STRING(), of[0]),
            st.dictionaries(TEXTS, of[1] | st.none(), max_size=3),
        )
    )
    return lists | tuples | maps


TYPED = st.recursive(st.sampled_from(LEAVES), composites, max_leaves=4)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS | LONGS, inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


def shape(value: Any) -> Any:
    """A value with the exact type of each of its parts; NaN equals itself."""
    if isinstance(value, dict):
        return dict, [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [shape(each) for each in value]
    if isinstance(value, float):
        return float, math.copysign(1, value), "nan" if math.isnan(value) else value
    return type(value), value


@examples(150)
@given(typed=TYPED, data=st.data())
def test_values_of_any_type_come_back_as_they_were(typed: Typed, data: st.DataObject) -> None:
    type_info, kind = typed
    values = data.draw(st.lists(kind | st.none(), max_size=4))
    serializer = serializer_of(type_info)
    assert shape(serializer.decode_many(serializer.encode_many(values))) == shape(values)
    assert shape(serializer.decode_each(serializer.encode_each(values))) == shape(values)
    pieces = split_piece(serializer.encode_many(values))
    assert shape(serializer.decode_each(pieces)) == shape(values)
    if pieces:
        assert shape(serializer.decode_many(join_pieces(pieces))) == shape(values)
    snapshot = serializer.snapshot()
    assert SerializerSnapshot.from_bytes(snapshot.to_bytes()) == snapshot


@examples(100)
@given(values=st.lists(ANYTHING, max_size=4))
def test_undeclared_values_come_back_as_they_were(values: list[Any]) -> None:
    serializer = serializer_of(None)
    assert shape(serializer.decode_many(serializer.encode_many(values))) == shape(values)


@examples(100)
@given(leaf=st.sampled_from(LEAVES), values=st.lists(ANYTHING, max_size=4))
def test_values_of_a_wrong_type_come_back_as_they_were(leaf: Typed, values: list[Any]) -> None:
    serializer = serializer_of(leaf[0])
    assert shape(serializer.decode_many(serializer.encode_many(values))) == shape(values)
    assert shape(serializer.decode_each(serializer.encode_each(values))) == shape(values)

"""Rows that a declared type of columns would change are refused, not rounded."""

import datetime as dt
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tidegate.api.rows.batches import as_arrow
from tidegate.errors import BadRecord

NOON = dt.datetime(2024, 1, 1, 12, 0, 0, 123456)  # noqa: DTZ001 - times without a zone
MIDNIGHT = dt.datetime(2024, 1, 1)  # noqa: DTZ001
EAST = dt.timezone(dt.timedelta(hours=5))
STRUCT = pa.struct([("x", pa.int64())])
TEXTS = pa.struct([("a", pa.string()), ("b", pa.string())])


class Named(NamedTuple):
    a: str
    b: str


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (9.99, pa.int64()),
        (-0.9, pa.int8()),
        (np.float64(1.5), pa.int32()),
        (Decimal("2.5"), pa.int64()),
        (1e300, pa.float32()),
        (-1e300, pa.float32()),
        (NOON, pa.date32()),
        (NOON, pa.timestamp("ms")),
        (NOON, pa.timestamp("s", "UTC")),
        (NOON.time(), pa.time32("ms")),
        (dt.timedelta(microseconds=1500), pa.duration("ms")),
        ([1, 1.5], pa.list_(pa.int64())),
        ([1e300], pa.list_(pa.float32())),
        ({"x": 1.5}, STRUCT),
        ({"x": 1, "y": 2}, STRUCT),
        ([{"x": 1}, {"y": 2}], pa.list_(STRUCT)),
        ({"a": 1.5}, pa.map_(pa.string(), pa.int64())),
        ([(1.5, "a")], pa.map_(pa.int64(), pa.string())),
        ((1.5,), STRUCT),
        ([("x", 1.5)], STRUCT),
        ([("y", 1)], STRUCT),
        ([(1,), (1.5,)], pa.list_(STRUCT)),
        ({"a": (1.5,)}, pa.map_(pa.string(), STRUCT)),
        ([{"key": "a", "value": 1.5}], pa.map_(pa.string(), pa.int64())),
        ([1.5], pa.list_view(pa.int64())),
        ([1.5], pa.large_list_view(pa.int64())),
        ([NOON], pa.list_view(pa.date32())),
        (pd.NaT, pa.date32()),
        ([pd.NaT], pa.list_(pa.date64())),
        (pd.Timestamp(1), pa.date32()),
        (pd.Timestamp(1), pa.timestamp("us")),
        (pd.Timestamp(1), pa.timestamp("s")),
        (pd.Timedelta(1), pa.duration("us")),
    ],
)
def test_a_value_that_its_type_would_change_is_refused(value: object, kind: pa.DataType) -> None:
    rows = [{"a": None}, {"a": value}, {"a": value}]
    with pytest.raises(BadRecord, match="would change it") as refused:
        as_arrow(rows, pa.schema([("a", kind)]))
    assert refused.value.where == "row 1 of a batch"


@pytest.mark.parametrize(
    ("value", "kind", "held"),
    [
        (9.0, pa.int64(), 9),
        (np.int64(9), pa.int32(), 9),
        (Decimal(2), pa.int64(), 2),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (float("inf"), pa.float32(), float("inf")),
        (MIDNIGHT, pa.date32(), dt.date(2024, 1, 1)),
        (NOON.replace(microsecond=123000), pa.timestamp("ms"), NOON.replace(microsecond=123000)),
        (7, pa.timestamp("s"), dt.datetime(1970, 1, 1, 0, 0, 7)),  # noqa: DTZ001
        (dt.time(1, 2, 3), pa.time32("s"), dt.time(1, 2, 3)),
        (NOON.replace(tzinfo=EAST), pa.timestamp("us"), NOON - dt.timedelta(hours=5)),
        (NOON, pa.timestamp("us", "UTC"), NOON.replace(tzinfo=dt.UTC)),
        ((1, 2.0), pa.list_(pa.int64()), [1, 2]),
        (np.array([1, 2]), pa.list_(pa.int64()), [1, 2]),
        ([(1, 2.0)], pa.map_(pa.int64(), pa.int64()), [(1, 2)]),
        ({"x": 1.0}, STRUCT, {"x": 1}),
        ({}, STRUCT, {"x": None}),
        ([1.0, None], pa.list_view(pa.int64()), [1, None]),
        (pd.Timestamp(1_000), pa.timestamp("us"), dt.datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
        (pd.Timestamp(1), pa.timestamp("ns"), pd.Timestamp(1)),
        (pd.Timedelta(1_000), pa.duration("us"), dt.timedelta(microseconds=1)),
        ((1,), STRUCT, {"x": 1}),
        ([("x", 1)], STRUCT, {"x": 1}),
        (("ab", "cd"), TEXTS, {"a": "ab", "b": "cd"}),
        (("b", "a"), TEXTS, {"a": "b", "b": "a"}),
        (Named("x", "y"), TEXTS, {"a": "x", "b": "y"}),
        ([(1.0,), None, (2,)], pa.list_(STRUCT), [{"x": 1}, None, {"x": 2}]),
        ({"a": (1,)}, pa.map_(pa.string(), STRUCT), [("a", {"x": 1})]),
        ([{"key": "a", "value": 1}], pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    ],
)
def test_a_value_that_its_type_holds_is_taken(
    value: object, kind: pa.DataType, held: object
) -> None:
    batch = as_arrow([{"a": None}, {"a": value}], pa.schema([("a", kind)]))
    assert batch.column(0).to_pylist() == [None, held]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([dt.date(2024, 1, 1), NOON], "does not fit the values before it"),
        ([NOON, NOON.replace(tzinfo=EAST)], "times with a zone and times without"),
        ([NOON.replace(tzinfo=EAST), NOON], "times with a zone and times without"),
    ],
)
def test_times_of_several_kinds_are_refused_where_no_type_is_declared(
    values: list[object], message: str
) -> None:
    with pytest.raises(BadRecord, match=message):
        as_arrow([{"a": value} for value in values])


@examples(200)
@given(st.lists(st.none() | st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from([1.0, -2.0])))
def test_columns_of_whole_numbers_hold_their_values_or_are_refused(values: list[object]) -> None:
    try:
        batch = as_arrow([{"a": value} for value in values], pa.schema([("a", pa.int8())]))
    except BadRecord:
        assert any(isinstance(value, float) and value != int(value) for value in values)
    else:
        assert batch.column(0).to_pylist() == values


LEAVES = st.sampled_from([None, 1, 2.0, 0.5])
MANY = st.none() | st.lists(LEAVES, max_size=3)
BY_POSITION = st.tuples(LEAVES, MANY)
BY_NAME = st.fixed_dictionaries({}, optional={"n": LEAVES, "many": MANY})
BY_PAIRS = st.tuples(st.tuples(st.just("n"), LEAVES), st.tuples(st.just("many"), MANY)).map(list)
NESTED = pa.list_(pa.struct([("n", pa.int8()), ("many", pa.list_(pa.int8()))]))


@examples(200)
@given(st.data(), st.sampled_from([BY_POSITION, BY_NAME, BY_PAIRS]))
def test_the_first_row_with_a_nested_value_that_would_change_is_named(
    data: st.DataObject, form: st.SearchStrategy[object]
) -> None:
    values = data.draw(st.lists(st.none() | st.lists(st.none() | form, max_size=3), max_size=5))
    changed = [index for index, value in enumerate(values) if "0.5" in repr(value)]
    try:
        as_arrow([{"a": value} for value in values], pa.schema([("a", NESTED)]))
    except BadRecord as refused:
        assert refused.where == f"row {changed[0]} of a batch"
    else:
        assert not changed

"""Rows that a declared type of columns would change are refused, not rounded."""

import datetime as dt
from decimal import Decimal

import numpy as np
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

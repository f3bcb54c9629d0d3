"""Records of any shape become columns, under one schema, or it is said which column cannot."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loops.both import both_forms
from tidegate import BadRecord, Row, Types
from tidegate.api.rows.column_rows import as_columns
from tidegate.api.rows.columns import Columns, fitted, one_schema
from tidegate.model.elements import RowBatch
from tidegate.typeinfo.types import TypeInformation

FORMS = both_forms()


@dataclass
class Point:
    x: int
    y: float


class Pair(NamedTuple):
    left: str
    right: int


@pytest.mark.parametrize(
    ("records", "columns"),
    [
        ([{"a": 1}, {"a": 2, "b": "x"}], {"a": [1, 2], "b": [None, "x"]}),
        ([Row(a=1, b="x")], {"a": [1], "b": ["x"]}),
        ([Row(1, "x")], {"f0": [1], "f1": ["x"]}),
        ([(1, "x"), (2, "y")], {"f0": [1, 2], "f1": ["x", "y"]}),
        ([Pair("a", 1)], {"left": ["a"], "right": [1]}),
        ([Point(1, 2.0)], {"x": [1], "y": [2.0]}),
        ([1, None, 3], {"value": [1, None, 3]}),
        (["a"], {"value": ["a"]}),
    ],
)
def test_the_shape_of_records_names_the_columns(
    records: list[object], columns: dict[str, list[object]]
) -> None:
    assert Columns(None).batch(records).to_pydict() == columns


@pytest.mark.parametrize(
    "records",
    [
        [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
        [(1, "x", True), (2, "y", False)],
        [Pair("a", 1), Pair("b", 2)],
        [Point(1, 2.0), Point(2, float("inf"))],
        [1, 2],
        ["a", "b"],
    ],
)
@pytest.mark.parametrize(
    "declared",
    [
        None,
        Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]),
        Types.TUPLE([Types.INT(), Types.STRING(), Types.BOOLEAN()]),
        Types.LONG(),
    ],
)
def test_columns_are_taken_as_their_rows_are(
    records: list[object], declared: TypeInformation | None
) -> None:
    columns, rows = Columns.of_type(declared), as_columns(RowBatch(records), FORMS[1])
    assert rows is not None
    assert made_or_refused(lambda: columns.rows(rows)) == made_or_refused(
        lambda: columns.batch(records)
    )


def made_or_refused(make: Callable[[], pa.RecordBatch]) -> pa.RecordBatch | str:
    try:
        return make()
    except BadRecord as error:
        return str(error)


def test_declared_types_give_the_columns_even_of_nothing() -> None:
    declared = Types.ROW_NAMED(["id", "price"], [Types.INT(), Types.BIG_DEC()])
    columns = Columns.of_type(declared)
    batch = columns.batch([Row(id=1, price=Decimal("1.5")), Row(2, Decimal(2))])
    assert batch.schema.types == [pa.int32(), pa.decimal128(38, 18)]
    assert batch["id"].to_pylist() == [1, 2]
    assert columns.table([]).schema == batch.schema


def test_a_type_without_columns_is_found_in_the_values() -> None:
    columns = Columns.of_type(Types.PICKLED_BYTE_ARRAY())
    assert columns.batch([dt.date(2024, 1, 2)]).schema.types == [pa.date32()]
    assert columns.table([]).schema == pa.schema([])


def test_rows_within_declared_columns_are_taken_apart() -> None:
    inner = Types.ROW_NAMED(["x"], [Types.LONG()])
    declared = Types.ROW_NAMED(
        ["one", "many", "by"],
        [inner, Types.LIST(inner), Types.MAP(Types.STRING(), inner)],
    )
    row = Row(one=Row(x=1), many=[Row(x=2), None], by={"k": Row(x=3)})
    assert Columns.of_type(declared).batch([row]).to_pylist(maps_as_pydicts="strict") == [
        {"one": {"x": 1}, "many": [{"x": 2}, None], "by": {"k": {"x": 3}}}
    ]


PAIR = Types.TUPLE([Types.STRING(), Types.STRING()])


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [
        (PAIR, ("ab", "cd"), {"f0": "ab", "f1": "cd"}),
        (Types.ROW_NAMED(["m"], [PAIR]), Row(m=("ab", "cd")), {"m": {"f0": "ab", "f1": "cd"}}),
        (Types.LIST(PAIR), [("a", "b"), None], [{"f0": "a", "f1": "b"}, None]),
        (Types.MAP(Types.STRING(), PAIR), {"k": ("a", "b")}, {"k": {"f0": "a", "f1": "b"}}),
    ],
)
def test_tuples_within_declared_columns_are_taken_by_position(
    kind: TypeInformation, value: object, held: object
) -> None:
    columns = Columns.of_type(Types.TUPLE([Types.LONG(), kind]))
    made = columns.batch([(1, value)]).to_pylist(maps_as_pydicts="strict")
    assert made == [{"f0": 1, "f1": held}]


def test_arrow_batches_stay_as_they_are() -> None:
    batch = pa.record_batch({"a": pa.array([1], pa.uint8())})
    assert Columns(None).batch(batch) == batch
    assert Columns(None).table([batch, batch]).schema == batch.schema


def test_numbers_become_the_wider_kind_and_lacking_columns_are_empty() -> None:
    columns = Columns(None)
    batches = [columns.batch([{"a": 1}]), columns.batch([{"a": 0.5, "b": "x"}])]
    table = columns.table(batches)
    assert table.to_pydict() == {"a": [1.0, 0.5], "b": [None, "x"]}
    assert table.schema.types == [pa.float64(), pa.string()]


@pytest.mark.parametrize(
    ("one", "other"), [(1, "x"), (dt.date(2024, 1, 2), "x"), ({"a": 1}, "x"), (True, 2)]
)
def test_a_column_of_two_kinds_is_named_with_both(one: object, other: object) -> None:
    columns = Columns(None)
    batches = [columns.batch([{"n": 1, "v": value}]) for value in (one, other)]
    with pytest.raises(BadRecord, match=r"column 'v' is .* in some records and .* in others"):
        columns.table(batches)
    with pytest.raises(BadRecord, match="column 'v'"):
        columns.batch([{"v": one}, {"v": other}])


def test_a_value_that_would_change_is_refused_with_its_column() -> None:
    large = pa.record_batch({"v": [2**60 + 1]})
    with pytest.raises(BadRecord, match="column 'v' is int64, which does not fit double"):
        fitted(large, pa.schema([("v", pa.float64())]))


def test_batches_that_do_not_fit_what_is_declared_are_refused() -> None:
    columns = Columns(pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())]))
    assert columns.batch(pa.record_batch({"a": pa.array([1], pa.int8())})).to_pydict() == {
        "a": [1],
        "b": [None],
    }
    with pytest.raises(BadRecord, match="lacks column 'a'"):
        columns.batch(pa.record_batch({"b": ["x"]}))
    with pytest.raises(BadRecord, match="columns that the schema does not: c"):
        columns.batch(pa.record_batch({"a": [1], "c": [1]}))
    with pytest.raises(BadRecord, match="3 fields, and 2 are declared"):
        columns.batch([(1, 2, 3)])


VALUES = st.one_of(st.none(), st.integers(-(2**31), 2**31), st.floats(allow_nan=False, width=32))


@given(chunks=st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=4))
def test_however_records_are_cut_the_table_holds_the_same(chunks: list[list[Any]]) -> None:
    columns = Columns(None)
    cut = columns.table([columns.batch([{"v": v} for v in chunk]) for chunk in chunks])
    assert cut["v"].to_pylist() == [value for chunk in chunks for value in chunk]
    assert one_schema([cut.schema]) == cut.schema

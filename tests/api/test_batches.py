"""Rows as columns and columns as rows."""

import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.row import Row
from tests.loops.both import both_forms
from tests.properties import examples
from tidegate.api.rows.batches import as_arrow, as_rows, batch_as_arrow, dict_rows, shown
from tidegate.api.rows.column_rows import ColumnRows, as_columns
from tidegate.errors import BadRecord, UnsupportedKey
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.model.nullable import kind_of

FORMS = both_forms()
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - Arrow timestamps without a zone

COLUMNS = {
    "integer": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "text": st.text(),
    "bytes": st.binary(),
    "date": st.dates(datetime.date(1900, 1, 1)),
    "moment": st.integers(-(10**9), 10**9).map(lambda s: EPOCH + datetime.timedelta(seconds=s)),
    "decimal": st.decimals(-1000, 1000, places=2).map(Decimal),
    "list": st.lists(st.integers(-5, 5)),
}
ROW = st.fixed_dictionaries({name: values | st.none() for name, values in COLUMNS.items()})


@examples(40)
@given(rows=st.lists(ROW, min_size=1, max_size=20))
def test_rows_come_back_from_columns_as_they_went_in(rows: list[dict[str, object]]) -> None:
    assert as_rows(ArrowBatch(as_arrow(rows))).values == rows


def test_keys_and_key_groups_and_timestamps_come_along() -> None:
    batch = pa.record_batch({"k": ["a", "b"]})
    keyed = ArrowBatch(batch, np.array([5, 6]), "k", np.array([1, 2], np.int16))
    rows = as_rows(keyed)
    assert rows.values == [{"k": "a"}, {"k": "b"}]
    assert (rows.timestamps_ms, rows.keys, rows.key_groups) == ([5, 6], ["a", "b"], [1, 2])


ARROW_COLUMNS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=4),
    pa.large_string(): st.text(max_size=4),
    pa.date32(): st.dates(datetime.date(1900, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(
        datetime.datetime(1900, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
        datetime.datetime(2100, 1, 1),  # noqa: DTZ001
        timezones=st.just(datetime.UTC),
    ),
    pa.list_(pa.int64()): st.lists(st.integers(-5, 5), max_size=2),
}


@st.composite
def arrow_batches(draw: st.DrawFn) -> pa.RecordBatch:
    """A piece of a batch of any columns, with and without nulls; names may be there twice."""
    rows = draw(st.integers(1, 9))
    kinds = draw(st.lists(st.sampled_from(list(ARROW_COLUMNS)), max_size=4))
    columns: list[pa.Array] = []
    for kind in kinds:
        values = ARROW_COLUMNS[kind]
        field = values | st.none() if draw(st.booleans()) else values
        columns.append(pa.array(draw(st.lists(field, min_size=rows, max_size=rows)), kind))
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=len(kinds), max_size=len(kinds)))
    batch = pa.RecordBatch.from_arrays(columns, names)
    return batch.slice(draw(st.integers(0, rows)))


@examples(300)
@given(arrow_batches())
def test_arrow_rows_are_the_dicts_that_arrow_makes(batch: pa.RecordBatch) -> None:
    expected = batch.to_pylist()
    # NaN is not equal to itself, and 1 is equal to True.
    assert repr(dict_rows(batch)) == repr(expected)
    assert repr(as_rows(ArrowBatch(batch)).values) == repr(expected)


def test_arrow_rows_of_plain_columns_stay_columns() -> None:
    plain = pa.record_batch({"k": pa.array([1, 2], pa.int32()), "t": ["a", "b"]})
    rows = as_rows(ArrowBatch(plain, None, "k", np.array([0, 1], np.int16)))
    assert isinstance(rows, ColumnRows) and rows.keys == [1, 2]
    assert [kind_of(each).kind for each in rows.columns] == ["i", "O"]


def test_arrow_rows_with_nulls_stay_columns_where_no_key_is_null() -> None:
    batch = pa.record_batch({"k": [1, 2], "t": ["a", None], "v": pa.array([None, 2], pa.int8())})
    groups = np.array([0, 1], np.int16)
    rows = as_rows(ArrowBatch(batch, None, "k", groups))
    assert isinstance(rows, ColumnRows) and rows.has_nulls and rows.keys == [1, 2]
    assert rows.values == [{"k": 1, "t": "a", "v": None}, {"k": 2, "t": None, "v": 2}]
    rows = as_rows(ArrowBatch(batch, None, "t", groups))
    assert not isinstance(rows, ColumnRows) and rows.keys == ["a", None]


class Pair(NamedTuple):
    a: int
    b: str


@dataclass
class Sale:
    a: int
    b: str


@dataclass
class Told:
    """Tells its fields itself."""

    a: int
    b: str
    names = ("a", "b")

    def as_dict(self) -> dict[str, object]:
        return {"told": self.a}


SCHEMAS = (
    None,
    pa.schema({"a": pa.int64(), "b": pa.string()}),
    pa.schema({"b": pa.large_string(), "c": pa.float64(), "a": pa.decimal128(30, 2)}),
    pa.schema({"a": pa.int8(), "b": pa.string()}),
    pa.schema({"a": pa.int64()}),
)


@examples(200)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1) | st.none(),
            st.text() | st.sampled_from(["\ud800", None]),
        )
    ),
    st.sampled_from([Pair, Sale, Told, lambda a, b: {"b": b, "a": a}]),
    st.sampled_from(SCHEMAS),
)
def test_columns_become_arrow_as_their_rows_do(
    fields: list[tuple[int | None, str | None]],
    made: Callable[[Any, Any], object],
    schema: pa.Schema | None,
) -> None:
    values = [made(*each) for each in fields]
    columns = as_columns(RowBatch(values), FORMS[1]) if values else None
    batch = columns or RowBatch(values)
    try:
        expected: object = as_arrow(values, schema)
    except BadRecord as error:
        expected = str(error)
    try:
        found: object = batch_as_arrow(batch, schema)
    except BadRecord as error:
        found = str(error)
    assert found == expected


def test_a_row_batch_is_given_back_as_it_is() -> None:
    batch = RowBatch([1])
    assert as_rows(batch) is batch


def test_rows_with_names_become_columns() -> None:
    assert as_arrow([Row(a=1, b="x")]).to_pylist() == [{"a": 1, "b": "x"}]


class Lazy(Mapping[str, int]):
    def __getitem__(self, name: str) -> int:
        return {"a": 1}[name]

    def __iter__(self):
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_any_mapping_becomes_columns() -> None:
    assert as_arrow([Lazy()]).to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("row", [1, "a", None, (1,), Row(1, 2), dict])
def test_what_has_no_names_is_refused_with_its_row(row: object) -> None:
    with pytest.raises(BadRecord, match="no named fields") as caught:
        as_arrow([{"a": 1}, row])
    assert caught.value.where.startswith("row 1 of a batch: ")


@given(good=st.integers(0, 20), bad=st.integers(0, 20))
def test_the_first_value_that_does_not_fit_is_named(good: int, bad: int) -> None:
    rows = [{"n": n} for n in range(good)] + [{"n": "x"}] + [{"n": 1}] * bad
    with pytest.raises(BadRecord, match="column 'n' holds 'x', which does not fit int64") as caught:
        as_arrow(rows, pa.schema([("n", pa.int64())]))
    assert caught.value.where == f"row {good} of a batch"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        ("x" * 300, "'" + "x" * 198 + "…"),
        (Unprintable(), "<Unprintable whose repr raises RuntimeError>"),
    ],
)
def test_a_value_is_shown_shortened_and_never_raises(value: object, text: str) -> None:
    assert shown(value) == text


def test_instants_of_an_hour_that_comes_twice_are_two_keys() -> None:
    """In autumn, where clocks are put back; Python compares times of one zone by their clocks."""
    first_us = 1_603_584_000_000_000
    hours = pa.array([first_us, first_us + 3_600_000_000], pa.timestamp("us", "Europe/Berlin"))
    rows = as_rows(
        ArrowBatch(
            pa.record_batch({"hour": hours}),
            key_column="hour",
            key_groups=np.array([0, 0], np.int16),
        )
    )
    assert len(set(rows.keys or ())) == 2


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_nan_in_a_column_of_keys_is_no_key_of_rows(kind: pa.DataType) -> None:
    def keyed(*keys: float) -> ArrowBatch:
        batch = pa.record_batch({"k": pa.array(keys, kind)})
        return ArrowBatch(batch, key_column="k", key_groups=np.zeros(len(keys), np.int16))

    assert list(as_rows(keyed(1.5, -0.0)).keys or ()) == [1.5, 0.0]
    with pytest.raises(UnsupportedKey, match="can't be a key: it equals no key") as refused:
        as_rows(keyed(1.5, math.nan))
    assert refused.value.where == "key column 'k'"

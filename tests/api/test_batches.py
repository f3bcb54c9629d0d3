"""Rows as columns and columns as rows."""

import datetime
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.row import Row
from tests.properties import examples
from tidegate.api.rows.batches import as_arrow, as_rows, shown
from tidegate.errors import BadRecord
from tidegate.model.elements import ArrowBatch, RowBatch

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
    assert as_rows(keyed) == RowBatch([{"k": "a"}, {"k": "b"}], [5, 6], ["a", "b"], [1, 2])


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

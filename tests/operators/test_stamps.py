"""Timestamps by a function of each record and by a column, of rows and of Arrow batches."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.world import arrow
from tidegate import BadRecord, GraphError, Row, TimestampAssigner, UserCodeFailed
from tidegate.api.rows.column_rows import ColumnRows, as_columns
from tidegate.model.elements import ArrowBatch, RowBatch
from tidegate.operators.event_time.event_time import greatest_timestamp
from tidegate.operators.event_time.stamps import stamp_by

NAIVE = datetime.fromisoformat("1970-01-01T00:00:01")
Named = namedtuple("Named", ["t", "n"])


@dataclass(slots=True)
class Reading:
    t: int
    value: float


class Second(TimestampAssigner[tuple[str, int]]):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


def stamps(assigner: object, *values: object) -> list[int]:
    return stamp_by(assigner, "times")(RowBatch(list(values))).timestamps_ms


def column_stamps(column: pa.Array) -> list[int]:
    batch = ArrowBatch(pa.RecordBatch.from_arrays([column], ["t"]))
    found = stamp_by("t", "times")(batch).timestamps_ms
    assert found.dtype == "int64"
    return found.tolist()


# --- by a function ---


@pytest.mark.parametrize("assigner", [Second(), lambda value, before: value[1]])
def test_a_function_and_an_object_do_the_same(assigner: object) -> None:
    assert stamps(assigner, ("a", 5), ("b", -9)) == [5, -9]


@pytest.mark.parametrize(
    ("assigner", "columns"),
    [
        (lambda value, before: value * 2 + before, True),
        (lambda value, before: value, True),
        (lambda value, before: int(value), False),
        (lambda value, before: value * 2**62, False),
    ],
)
@pytest.mark.parametrize("before", [None, [7, 8]])
def test_a_function_over_columns_gives_the_same_times(
    assigner: Callable[[int, int], int], columns: bool, before: list[int] | None
) -> None:
    rows = RowBatch([1, 0], before)
    given = as_columns(rows)
    expected = of_row_or_error(stamp_by(assigner, "times", trace=False), rows)
    assert of_row_or_error(stamp_by(assigner, "times"), given) == expected
    if columns:
        assert isinstance(stamp_by(assigner, "times")(given), ColumnRows)


def of_row_or_error(stamp: Callable[[RowBatch], RowBatch], batch: RowBatch) -> object:
    try:
        stamped = stamp(batch)
    except UserCodeFailed as failed:
        return str(failed)
    return stamped.values, stamped.timestamps_ms


def test_arrow_rows_are_given_as_dicts() -> None:
    stamped = stamp_by(lambda row, before: row["t"], "times")(arrow({"t": [7, 3]}))
    assert stamped.timestamps_ms.tolist() == [7, 3]
    assert greatest_timestamp(stamped) == 7


def test_a_function_that_raises_is_named_with_its_row() -> None:
    with pytest.raises(UserCodeFailed, match="TypeError") as caught:
        stamps(Second(), ("a", 1), None)
    assert caught.value.where == "operator 'times', at the row None"


@pytest.mark.parametrize("wrong", [None, 1.0, "5", 2**63, NAIVE])
def test_what_is_no_number_of_milliseconds_is_told_with_its_row(wrong: object) -> None:
    with pytest.raises(UserCodeFailed, match=r"gave .* not a number of milliseconds") as caught:
        stamps(lambda value, before: value, 1, wrong, 3)
    assert caught.value.where == f"operator 'times', at the row {wrong!r}"


def test_a_function_cannot_end_the_batch() -> None:
    def stops(value: int, before: int) -> int:
        if value == 2:
            raise StopIteration
        return value

    with pytest.raises(UserCodeFailed, match="StopIteration") as caught:
        stamps(stops, 1, 2, 3)
    assert caught.value.where.endswith("at the row 2")


# --- by a column, of rows ---


@pytest.mark.parametrize(
    "row", [{"t": 5, "n": 1}, Row(t=5, n=1), Named(5, 1), Reading(5, 0.5)], ids=type
)
def test_a_record_with_named_fields_has_the_column(row: object) -> None:
    assert stamps("t", row, row) == [5, 5]


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        (NAIVE, 1_000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime.fromisoformat("1969-12-31T23:59:59.999999"), -1),
        (date(1970, 1, 3), 2 * 86_400_000),
        (17, 17),
    ],
)
def test_times_of_rows_become_milliseconds(time: object, ms: int) -> None:
    assert stamps("t", {"t": time}) == [ms]


def test_whole_numbers_of_columns_are_times_as_they_are() -> None:
    rows = RowBatch([Row(t=5, u=None), Row(t=-9, u=7)])
    columns = as_columns(rows)
    assert columns is not None
    stamped = stamp_by("t", "times")(columns)
    assert isinstance(stamped, ColumnRows) and stamped.timestamps_ms == [5, -9]
    assert stamped.values == rows.values
    for batch in (rows, columns):
        with pytest.raises(BadRecord, match="holds None, which is not a time"):
            stamp_by("u", "times")(batch)


def test_a_column_that_no_row_has_is_told_with_those_there_are() -> None:
    with pytest.raises(GraphError, match=r"no column 't'.*; there are a, b") as caught:
        stamps("t", {"t": 1}, {"a": 1, "b": 2})
    assert caught.value.where == "operator 'times', at the row {'a': 1, 'b': 2}"


@pytest.mark.parametrize(
    ("row", "names"), [(Row(a=1), "there are a"), (Reading(1, 2.0), "there are t, value")]
)
def test_records_of_other_kinds_tell_their_columns_too(row: object, names: str) -> None:
    with pytest.raises(GraphError, match=names):
        stamps("time", row)


@pytest.mark.parametrize("row", [5, ("a", 1), Row(1, 2)], ids=repr)
def test_a_record_without_names_has_no_column(row: object) -> None:
    with pytest.raises(GraphError, match="the record has no named columns"):
        stamps("time", row)


@pytest.mark.parametrize("field", [None, "2020-01-01", 1.5])
def test_a_field_that_is_no_time_is_told_with_its_row(field: object) -> None:
    with pytest.raises(BadRecord, match=r"the column 't' holds .* not a time") as caught:
        stamps("t", {"t": 1}, {"t": field})
    assert caught.value.where == f"operator 'times', at the row {{'t': {field!r}}}"


# --- by a column, of Arrow batches ---


@pytest.mark.parametrize(
    ("kind", "value", "ms"),
    [
        (pa.int64(), -5, -5),
        (pa.int32(), 5, 5),
        (pa.uint32(), 2**32 - 1, 2**32 - 1),
        (pa.timestamp("s"), 3, 3_000),
        (pa.timestamp("ms"), 3, 3),
        (pa.timestamp("us"), -1, -1),
        (pa.timestamp("ns", "Europe/Berlin"), 2_999_999, 2),
        (pa.date32(), 2, 2 * 86_400_000),
        (pa.date64(), 86_400_000, 86_400_000),
    ],
    ids=str,
)
def test_columns_of_numbers_and_of_times_become_milliseconds(
    kind: pa.DataType, value: int, ms: int
) -> None:
    width = pa.int32() if kind == pa.date32() else pa.int64()
    column = pa.array([value], width)
    column = column.cast(kind) if pa.types.is_integer(kind) else column.view(kind)
    assert column_stamps(column) == [ms]


@given(times=st.lists(st.datetimes(), min_size=1))
def test_rows_and_columns_have_the_same_times(times: list[datetime]) -> None:
    column = pa.array(times, pa.timestamp("us"))
    assert column_stamps(column) == stamps("t", *({"t": time} for time in times))


def test_a_piece_of_a_batch_has_its_own_times() -> None:
    assert column_stamps(pa.array([1, 2, 3, 4]).slice(1, 2)) == [2, 3]


def test_an_unknown_column_is_told_with_those_there_are() -> None:
    with pytest.raises(GraphError, match=r"no column 'time'.*; there are t, n") as caught:
        stamp_by("time", "times")(arrow({"t": [1], "n": [2]}))
    assert caught.value.where == "operator 'times'"


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.uint64(), pa.bool_()], ids=str)
def test_a_column_that_is_no_time_is_told_with_its_type(kind: pa.DataType) -> None:
    with pytest.raises(GraphError, match=f"holds {kind}, which is not a time"):
        column_stamps(pa.array([1]).cast(kind))


def test_a_null_is_no_time_and_is_told_with_its_row() -> None:
    with pytest.raises(BadRecord, match="holds a null") as caught:
        stamp_by("t", "times")(arrow({"t": [1, None, 3], "n": [7, 8, 9]}))
    assert caught.value.where == "operator 'times', at the row {'t': None, 'n': 8}"

"""Rows as columns are the rows that they were made from, whatever is done with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.api.rows.batches import take
from tidegate.api.rows.column_rows import ColumnRows, fields_of_type, joined
from tidegate.model.elements import RowBatch
from tidegate.transport import codec
from tidegate.typeinfo.types import Types

pytestmark = pytest.mark.hypothesis

longs = st.integers(-(2**63), 2**63 - 1)
tables = st.lists(
    st.tuples(longs, st.floats(allow_nan=False), st.booleans()), min_size=1, max_size=9
)


def columns_of(rows: list[tuple[int, float, bool]], *, keyed: bool = False) -> ColumnRows:
    columns = [
        np.array([row[index] for row in rows], kind)
        for index, kind in enumerate((np.int64, np.float64, np.bool_))
    ]
    stamps = np.arange(len(rows), dtype=np.int64)
    if not keyed:
        return ColumnRows(columns, is_tuple=True, stamps=stamps)
    groups = (np.arange(len(rows)) % 128).astype(np.int16)
    return ColumnRows(columns, is_tuple=True, stamps=stamps, key_column=0, groups=groups)


def plain(batch: RowBatch) -> RowBatch:
    return RowBatch(batch.values, batch.timestamps_ms, batch.keys, batch.key_groups)


@given(tables, st.booleans())
def test_rows_are_made_of_columns(rows: list[tuple[int, float, bool]], keyed: bool) -> None:
    batch = columns_of(rows, keyed=keyed)
    assert batch.values == rows
    assert [tuple(map(type, row)) for row in batch.values] == [(int, float, bool)] * len(rows)
    assert batch.keys == ([row[0] for row in rows] if keyed else None)
    assert batch.values is batch.values


@given(tables, st.data())
def test_parts_are_those_of_the_rows(
    rows: list[tuple[int, float, bool]], data: st.DataObject
) -> None:
    batch = columns_of(rows, keyed=True)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    assert plain(batch.piece(start, stop)) == plain(batch).piece(start, stop) or start == stop
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True))
    if len(chosen) < len(rows):
        assert plain(batch.take(np.array(chosen))) == take(plain(batch), chosen)


@given(tables, tables)
def test_joined_rows_follow_each_other(
    first: list[tuple[int, float, bool]], second: list[tuple[int, float, bool]]
) -> None:
    both = joined([columns_of(first, keyed=True), columns_of(second, keyed=True)])
    assert both.values == first + second
    assert both.keys == [row[0] for row in first + second]


@given(tables, st.booleans())
def test_columns_come_back_from_the_wire(rows: list[tuple[int, float, bool]], keyed: bool) -> None:
    sent = columns_of(rows, keyed=keyed)
    data = memoryview(b"".join(codec.encode(sent)))
    codec.check_batch(data)
    got = codec.decode(data)
    assert isinstance(got, ColumnRows) and got.shape == sent.shape
    assert plain(got) == plain(sent)


def test_a_key_is_the_object_in_its_row() -> None:
    batch = columns_of([(2**40, 1.0, True)], keyed=True)
    assert batch.keys is not None
    assert batch.values[0][0] is batch.keys[0]  # type: ignore[index]


def test_columns_of_another_shape_are_not_joined() -> None:
    one = ColumnRows([np.arange(3)], is_tuple=False)
    with pytest.raises(AssertionError, match="one shape"):
        joined([one, ColumnRows([np.arange(3)], is_tuple=True)])


def test_types_whose_rows_columns_give_as_they_are() -> None:
    pair = ColumnRows([np.arange(2), np.arange(2) * 0.5], is_tuple=True)
    assert pair.fields == fields_of_type(Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
    assert ColumnRows([np.arange(2) > 0], is_tuple=False).fields == fields_of_type(Types.BOOLEAN())
    assert pair.fields != fields_of_type(Types.TUPLE([Types.LONG(), Types.LONG()]))
    assert fields_of_type(Types.TUPLE([Types.LONG(), Types.STRING()])) is None
    assert fields_of_type(Types.ROW([Types.LONG()])) is None

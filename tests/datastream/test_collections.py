"""What a program hands in as values or as a table becomes a stream, or is refused by its kind."""

import itertools
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.datastream.fakes import environment
from tidegate import DataStream, GraphError, StreamExecutionEnvironment, Types
from tidegate.connectors.tables import TableSource, TableSplit
from tidegate.datastream.steps import ends
from tidegate.model.elements import ArrowBatch
from tidegate.model.ids import CheckpointId

pytestmark = pytest.mark.slow

SALES: dict[str, list[Any]] = {"shop": ["x", "y", "x"], "amount": [3, 4, 5]}
ROWS = [{"shop": "x", "amount": 3}, {"shop": "y", "amount": 4}, {"shop": "x", "amount": 5}]
TABLES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(SALES),
    "polars": lambda: pl.DataFrame(SALES),
    "arrow": lambda: pa.table(SALES),
    "record_batch": lambda: pa.record_batch(SALES),
    "slice": lambda: pa.concat_tables([pa.table(SALES), pa.table(SALES)]).slice(3),
}


def taken(stream: DataStream[Any]) -> list[Any]:
    return stream.execute_and_collect(limit=100)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_collection_may_be_a_table(table: Callable[[], Any]) -> None:
    env = StreamExecutionEnvironment.local()
    assert taken(env.from_collection(table())) == ROWS
    names = env.from_collection(table()).key_by("shop").map(lambda row: row["shop"])
    assert taken(names) == ["x", "y", "x"]


def test_each_library_has_its_call_and_comes_back_as_it_was() -> None:
    env = StreamExecutionEnvironment.local()
    assert env.from_pandas(pd.DataFrame(SALES)).to_pandas().equals(pd.DataFrame(SALES))
    assert env.from_polars(pl.DataFrame(SALES)).to_polars().equals(pl.DataFrame(SALES))
    assert env.from_arrow(pa.table(SALES)).to_arrow().equals(pa.table(SALES))
    assert taken(env.from_arrow(pa.table(SALES).slice(0, 0))) == []


def test_the_rows_of_a_table_are_brought_to_a_declared_type() -> None:
    env = StreamExecutionEnvironment.local()
    row = Types.ROW_NAMED(["shop", "amount"], [Types.STRING(), Types.DOUBLE()])
    rows = taken(env.from_collection(pd.DataFrame(SALES), row))
    assert [(row.shop, row.amount) for row in rows] == [("x", 3.0), ("y", 4.0), ("x", 5.0)]


@pytest.mark.parametrize(
    "column", [np.array([1, 2]), pa.array([1, 2]), pa.chunked_array([[1], [2]]), pd.Series([1, 2])]
)
def test_a_column_is_its_values_in_python(column: Any) -> None:
    env = StreamExecutionEnvironment.local()
    values = taken(env.from_collection(column).map(lambda value: (type(value), value)))
    assert values == [(int, 1), (int, 2)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"a": 1}, "a mapping, of which only the keys would be taken"),
        ("abc", "a text, of which each character would be a record"),
        (5, "was given an int"),
    ],
)
def test_what_is_no_collection_is_refused(given: Any, told: str) -> None:
    with pytest.raises(GraphError, match=told):
        environment().from_collection(given)


def test_an_iterator_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "ENDLESS", 1_000)
    assert ends.values_of(iter(range(1_000))) == list(range(1_000))
    with pytest.raises(GraphError, match="count has given 1,000 values and does not end"):
        environment().from_collection(itertools.count())


@pytest.mark.parametrize("call", ["from_arrow", "from_pandas", "from_polars"])
def test_what_is_no_table_is_refused(call: str) -> None:
    with pytest.raises(GraphError, match=f"{call} takes a table or data frame, not list"):
        getattr(environment(), call)([1])


def test_columns_of_two_types_are_refused_while_the_program_is_built() -> None:
    with pytest.raises(GraphError, match="does not become Arrow columns"):
        environment().from_pandas(pd.DataFrame({"a": [1, "x"]}))


def test_a_reader_goes_on_from_the_row_it_kept() -> None:
    source = pickle.loads(pickle.dumps(TableSource(pa.table({"n": range(1_000)}).slice(990))))
    context: Any = SimpleNamespace(arrow_rows=4)
    first = source.reader(context)
    first.add_splits([TableSplit()])
    assert numbers(first.poll()) == [990, 991, 992, 993]
    (kept,) = first.snapshot(CheckpointId(1))
    second = source.reader(context)
    second.add_splits([kept])
    second.no_more_splits()
    assert numbers(second.poll()) == [994, 995, 996, 997]
    assert not second.finished
    assert numbers(second.poll()) == [998, 999]
    assert second.finished and second.snapshot(CheckpointId(2)) == ()


def test_only_the_rows_of_a_slice_travel() -> None:
    whole = pa.table({"n": range(100_000)})
    assert len(pickle.dumps(TableSource(whole.slice(5, 10)))) < 10_000


def numbers(batch: ArrowBatch | None) -> list[int]:
    assert batch is not None
    return batch.batch.column("n").to_pylist()

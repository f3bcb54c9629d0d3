"""A state as a table, for whoever reads tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tidegate import (
    ConfigError,
    MapStateDescriptor,
    SavepointWriter,
    Types,
    ValueStateDescriptor,
    read_state,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> str:
    writer = SavepointWriter.new_savepoint(max_parallelism=16)
    writer.put_state("counts", ValueStateDescriptor("count", Types.LONG()), {"a": 1, "b": 2})
    maps = MapStateDescriptor("map", Types.STRING(), Types.LONG())
    writer.put_state("counts", maps, {"a": {"x": 1}})
    writer.put_state("counts", ValueStateDescriptor("any"), {"a": 1, "b": "c"})
    return writer.write(tmp_path / "savepoint")


def test_a_table_is_arrow_pandas_polars_batches_or_rows(path: str) -> None:
    table = read_state(path, "counts", "count")
    expected = {"a": 1, "b": 2}
    arrow, pandas, polars = table.to_arrow(), table.to_pandas(), table.to_polars()
    assert dict(zip(arrow["key"].to_pylist(), arrow["value"].to_pylist(), strict=True)) == expected
    assert dict(zip(pandas["key"], pandas["value"], strict=True)) == expected
    assert dict(zip(polars["key"], polars["value"], strict=True)) == expected
    assert {row.key: row.value for row in table.rows()} == expected
    assert sum(map(len, table.batches())) == 2
    assert arrow.schema == table.schema
    assert len(read_state(path, "counts", "map").to_polars()) == 1


def test_a_table_may_be_of_one_key_or_of_nothing(path: str) -> None:
    assert read_state(path, "counts", "count", key="a").to_arrow()["value"].to_pylist() == [1]
    empty = read_state(path, "counts", "count", key="z").to_arrow()
    assert len(empty) == 0 and empty.schema == read_state(path, "counts", "count").schema
    assert len(read_state(path, "counts", "count", key_groups=[]).to_arrow()) == 0


def test_undeclared_values_are_pickles_where_that_is_asked_for(path: str) -> None:
    table = read_state(path, "counts", "any", value_type=Types.PICKLED_BYTE_ARRAY())
    assert table.schema.field("value").type == pa.binary()
    one = read_state(path, "counts", "any", key="a", value_type=Types.LONG())
    assert one.to_arrow()["value"].to_pylist() == [1]


def test_what_is_not_there_is_refused_at_once(path: str) -> None:
    with pytest.raises(ConfigError, match="no operator 'count'"):
        read_state(path, "count", "count")
    with pytest.raises(ConfigError, match="no state 'cuont'") as refused:
        read_state(path, "counts", "cuont")
    assert "'count' may be meant" in refused.value.remedy

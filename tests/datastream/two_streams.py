"""Programs over two inputs, run on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate import (
    StreamExecutionEnvironment,
    WatermarkStrategy,
)
from tidegate.connectors.collection import CollectionSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate import DataStream


def local(parallelism: int = 1) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.local(parallelism)


def collected(stream: DataStream[Any]) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return list(rows)


def at(env: StreamExecutionEnvironment, rows: Sequence[tuple[Any, ...]]) -> DataStream[Any]:
    """Rows in this order, whose last field is their event time."""
    by_field = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(last)
    return env.from_source(CollectionSource(rows), by_field, "rows").force_non_parallel()


def last(row: Any, _: int) -> int:
    return row[-1]


def first(row: Any) -> Any:
    return row[0]

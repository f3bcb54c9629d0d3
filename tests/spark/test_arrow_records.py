"""Rows of Arrow batches as records, and back."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidegate import (
    DataStream,
    KeyedProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tidegate.aggregates import Aggregate, Collect, Count, First, Sum
from tidegate.connectors import CollectSink
from tidegate.model.elements import ArrowBatch
from tidegate.spark.batch.job import in_any_order
from tidegate.spark.batch.shuffle import ShuffleReader, ShuffleWriter

TIMES = np.array([5_000, 3_000, 3_000, 4_000])
GROUPS = np.array([1, 2, 1, 3], np.int16)
NOW = datetime.datetime(2026, 10, 25, 0, 30, tzinfo=datetime.UTC)  # an hour that comes twice

NUMBERS: dict[str, pa.Array] = {
    "int8": pa.array([1, None, -3, 4], pa.int8()),
    "uint64": pa.array([1, 2, None, (1 << 64) - 1], pa.uint64()),
    "float32": pa.array([0.1, float("nan"), None, -0.0], pa.float32()),
    "double": pa.array([0.1, float("inf"), None, -0.0]),
    "bool": pa.array([True, None, False, True]),
    "date": pa.array([0, 1, None, 1 << 30], pa.int32()).view(pa.date32()),
    "nanoseconds": pa.array([0, None, 1, 1 << 62]).view(pa.timestamp("ns")),
    "far": pa.array([0, None, 1, 1 << 62]).view(pa.timestamp("us", "Europe/Berlin")),
    "of day": pa.array([0, None, 1, 2]).view(pa.time64("us")),
}
TEXTS: dict[str, pa.Array] = {
    "text": pa.array(["a", None, "", "ä"]),
    "long": pa.array(["a", None, "", "ä"], pa.large_string()),
    "bytes": pa.array([b"a", None, b"", b"\0"]),
    "fixed": pa.array([b"ab", None, b"cd", b"\0\0"], pa.binary(2)),
    "decimal": pa.array([Decimal("1.50"), None, Decimal(0), Decimal(-1)], pa.decimal128(9, 2)),
    "nothing": pa.nulls(4),
    "time": pa.array([NOW, None, NOW, NOW], pa.timestamp("ms", "Europe/Berlin")),
}
WITHIN: dict[str, pa.Array] = {
    "list": pa.array([[1], None, [], [2, None]]),
    "large": pa.array([["a"], None, [], ["b"]], pa.large_list(pa.string())),
    "pair": pa.array([[1, 2], None, [3, 4], [5, None]], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1, "b": [0.5]}, None, {"a": None, "b": None}, {"a": 2, "b": []}]),
    "map": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int64())),
}
DICTIONARIES: dict[str, pa.Array] = {
    "texts": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "dates": pa.array([1, None, 2, 1], pa.int32()).view(pa.date32()).dictionary_encode(),
    "ranks": pa.array([1, None, 2, 1], pa.dictionary(pa.int8(), pa.int64(), ordered=True)),
}
OTHERS: dict[str, pa.Array] = {
    "times": pa.array([[NOW], None, [], [NOW]], pa.list_(pa.timestamp("ns", "UTC"))),
    "twice": pa.StructArray.from_arrays([pa.array([1, 2, 3, 4])] * 2, ["a", "a"]),
    "dictionaries": pa.array(
        [["a"], None, [], ["b"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))
    ),
}


def through_the_shuffle(given: ArrowBatch) -> list[Any]:
    """What a reader gets, once Spark has sorted."""
    writer = ShuffleWriter(0, 0)
    writer.arrow(given, edge=0, target=0)
    writer.said([], [0])
    [rows] = writer.take()
    table = pa.Table.from_batches([rows])
    [in_order] = (
        table.sort_by([("time", "ascending"), ("place", "ascending")]).combine_chunks().to_batches()
    )
    words = rows.slice(len(rows) - 1)
    reader = ShuffleReader()
    list(reader.read(words))
    return [came for came in reader.read(in_order) if came.batch is not None]


@pytest.mark.parametrize(
    "columns", [NUMBERS, NUMBERS | TEXTS, WITHIN, DICTIONARIES, NUMBERS | TEXTS | OTHERS]
)
def test_rows_come_in_the_order_of_their_times_with_all_that_they_had(
    columns: dict[str, pa.Array],
) -> None:
    batch = pa.record_batch({"key": pa.array([7, 8, 7, 9]), **columns})
    given = ArrowBatch(batch, TIMES, "key", GROUPS)
    came = through_the_shuffle(given)
    order = [1, 2, 3, 0]
    found = pa.concat_batches([each.batch.batch for each in came])
    assert found.schema == batch.schema
    for name, expected in zip(batch.schema.names, batch.take(pa.array(order)).columns, strict=True):
        column = found.column(name)
        if pa.types.is_dictionary(column.type):
            column, expected = column.dictionary_decode(), expected.dictionary_decode()
        assert str(column) == str(expected) if name == "float32" else column.equals(expected), name
    assert [time for each in came for time in each.batch.timestamps_ms] == TIMES[order].tolist()
    assert [at for each in came for at in each.batch.key_groups] == GROUPS[order].tolist()
    assert {each.batch.key_column for each in came} == {"key"}
    assert came[-1].time_ms == 5_000
    assert len(came) == (3 if "times" in columns else 1)


def test_rows_of_a_dictionary_do_not_each_bring_all_of_it_along() -> None:
    texts = pa.array([f"text {n}" for n in range(5_000)])
    column = pa.DictionaryArray.from_arrays(np.arange(200, dtype=np.int32), texts)
    batch = pa.record_batch({"key": pa.array(range(200)), "text": column})
    writer = ShuffleWriter(0, 0)
    writer.arrow(ArrowBatch(batch, np.arange(200), "key", GROUPS.repeat(50)), edge=0, target=0)
    assert writer.waiting_bytes < 20_000


def test_a_dictionary_of_all_senders_may_have_more_than_each_could_number() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    texts = pa.array([f"text {n}" for n in range(300)])
    writer, reader = ShuffleWriter(0, 0), ShuffleReader()
    for start in range(0, 300, 100):
        part = texts.slice(start, 100)
        batch = pa.record_batch({"text": part.cast(kind)})
        stamps = np.arange(start, start + 100)
        writer.arrow(ArrowBatch(batch, stamps, None, None), edge=0, target=0)
    writer.said([], [0])
    [rows] = writer.take()
    came = [each.batch for each in reader.read(rows) if each.batch is not None]
    assert {each.batch.schema.field("text").type for each in came} == {kind}
    assert [text for each in came for text in each.batch["text"].to_pylist()] == texts.to_pylist()
    assert [int(at) for each in came for at in each.timestamps_ms] == list(range(300))


def timed_table(env: StreamExecutionEnvironment) -> DataStream[Any]:
    table = pa.table(
        {"user": [f"u{n % 3}" for n in range(60)], "at": [n * 7 % 60 for n in range(60)]}
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Time.seconds(1))
    return env.from_arrow(table).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner("at")
    )


class Seen(KeyedProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value["user"], value["at"]


@pytest.mark.slow
def test_a_keyed_step_gets_columns_in_the_order_of_their_times(spark: SparkSession) -> None:
    env = StreamExecutionEnvironment.on_spark(spark, 2).set_runtime_mode(RuntimeExecutionMode.BATCH)
    with timed_table(env).key_by("user").process(Seen()).execute_and_collect() as results:
        found = list(results)
    for user in ("u0", "u1", "u2"):
        times = [at for name, at in found if name == user]
        assert times == sorted(times) and len(times) == 20


def test_aggregates_of_windows_ask_for_the_order_only_where_they_show_it() -> None:
    def asked(*aggregates: Aggregate) -> bool:
        env = StreamExecutionEnvironment.local(2).set_runtime_mode(RuntimeExecutionMode.BATCH)
        windows = (
            timed_table(env).key_by("user").window(TumblingEventTimeWindows.of(Time.seconds(1)))
        )
        windows.aggregate_batches(*aggregates).sink_to(CollectSink("found"))
        graph = env.get_job_graph("by hand")
        sender = graph.topology.vertices[-2].id
        [edge] = graph.topology.outputs(sender)
        return edge not in in_any_order(graph, sender)

    assert not asked(Count(), Sum("at"), First("at"))
    assert asked(Count(), Collect("at"))

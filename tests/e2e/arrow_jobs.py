"""The same counts over Arrow batches. Slots import this module by its name."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.e2e.jobs import KEYS
from tidegate import (
    BatchContext,
    ColumnStateDescriptor,
    Count,
    DataStream,
    KeyedBatchFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Sum,
    WatermarkStrategy,
)
from tidegate.connectors import FileSource, NumberSequenceSource

KEYED_SCHEMA = pa.schema([("number", pa.int64()), ("key", pa.int64())])
COUNTED_SCHEMA = pa.schema([*KEYED_SCHEMA, ("count", pa.int64())])
COUNT = ColumnStateDescriptor("count", pa.int64())


def with_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = batch.column(0)
    keys = pa.array(numbers.to_numpy() % KEYS)
    return pa.RecordBatch.from_arrays([numbers, keys], schema=KEYED_SCHEMA)


def is_even(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.equal(pc.bit_wise_and(batch.column("number"), 1), 0)


class RunningColumnCount(KeyedBatchFunction):
    """How many numbers of each key came so far, a row a number."""

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> pa.RecordBatch:
        rows = ctx.key_index
        counts = ctx.column_state(COUNT)
        order = np.argsort(rows, kind="stable")
        grouped = rows[order]
        begins = np.flatnonzero(np.diff(grouped, prepend=-1))
        within = np.arange(len(rows)) - np.repeat(begins, np.diff(begins, append=len(rows)))
        count = counts.get(rows)
        count[order] += within + 1
        counts.put(rows[order], count[order])
        return pa.RecordBatch.from_arrays(
            [batch.column("number"), batch.column("key"), pa.array(count)], schema=COUNTED_SCHEMA
        )


def column_counts(
    env: StreamExecutionEnvironment,
    source: NumberSequenceSource | FileSource,
    *,
    even: bool = False,
) -> DataStream[dict[str, int]]:
    """Numbers in Arrow batches, counted by key in a column; even: only those."""
    keyed = env.from_source(source, source_name="columns").uid("columns").map_batches(with_key)
    if even:
        keyed = keyed.filter_batches(is_even)
    counted = keyed.key_by("key").process_batches(RunningColumnCount(), COUNTED_SCHEMA)
    return counted.uid("column counts")


def running_columns(env: StreamExecutionEnvironment, source: FileSource) -> DataStream[Any]:
    """Numbers in Arrow batches, counted by key by a declared aggregate."""
    keyed = env.from_source(source, source_name="columns").uid("columns").map_batches(with_key)
    return keyed.key_by("key").running(Count()).uid("running")


SIZE_MS, SLIDE_MS = 400, 100
WINDOWED_SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("count", pa.int64()),
        ("number_sum", pa.int64()),
    ]
)


def window_counts(env: StreamExecutionEnvironment, source: FileSource) -> DataStream[Any]:
    """Ascending numbers by key and sliding window; the number is the event time."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("number")
    return (
        env.from_source(source, source_name="numbers")
        .uid("numbers")
        .set_parallelism(1)
        .map_batches(with_key)
        .set_parallelism(1)
        .assign_timestamps_and_watermarks(strategy)
        .uid("times")
        .set_parallelism(1)
        .key_by("key")
        .window(SlidingEventTimeWindows(SIZE_MS, SLIDE_MS))
        .aggregate_batches(Count(), Sum("number"))
        .uid("window counts")
    )


def expected_window_counts(total: int) -> list[tuple[int, ...]]:
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number in range(total):
        last = number // SLIDE_MS * SLIDE_MS
        for start in range(last, number - SIZE_MS, -SLIDE_MS):
            found[number % KEYS, start].append(number)
    return sorted(
        (key, start, start + SIZE_MS, len(numbers), sum(numbers))
        for (key, start), numbers in found.items()
    )

"""The same counts over Arrow batches. Slots import this module by its name."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.e2e.jobs import KEYS
from tidegate import (
    BatchContext,
    ColumnStateDescriptor,
    DataStream,
    KeyedBatchFunction,
    StreamExecutionEnvironment,
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

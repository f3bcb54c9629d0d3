"""W2 on Tidegate: sum per key and window of 10 s, disordered by up to 1 s, to a sink that counts.

The same work as in peers/: record i = 0..N-1 has event time i ms, key (i * 2654435761 mod 2^32)
mod K and value i, and the records come shuffled in blocks of 1000. Time is taken from when a source
has passed on a tenth of its share to the last output, and the last line printed is the result.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.workload import (
    BLOCK,
    KEYED,
    MASK,
    MULT,
    PAIR,
    TRIPLE,
    CountingSink,
    CountingWriter,
    Run,
    Workload,
    keyed,
)
from tidegate import (
    AggregateFunction,
    Duration,
    MapFunction,
    StreamExecutionEnvironment,
    Sum,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidegate.connectors import NumberSequenceSource
from tidegate.model.elements import RowBatch

SHUF_A, SHUF_B = 617, 331
WITHIN = (np.arange(BLOCK) * SHUF_A + SHUF_B) % BLOCK
PLACES = WITHIN.tolist()


def batch_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """Arrow batches all the way, the windows by declarative aggregates."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    env.from_source(
        NumberSequenceSource(0, run.records - 1, arrow=True),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    ).map_batches(Shuffled(run), KEYED).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner("value")
    ).key_by("key").window(TumblingEventTimeWindows.of(Time.seconds(10))).aggregate_batches(
        Sum("value")
    ).sink_to(sink(run))


def record_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """Record by record: the windows by an aggregate function and a window function."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    env.from_source(
        NumberSequenceSource(0, run.records - 1), WatermarkStrategy.no_watermarks(), "numbers"
    ).map(ShuffledRecord(run), PAIR).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda record, _: record[1])
    ).key_by(lambda record: record[0], Types.LONG()).window(
        TumblingEventTimeWindows.of(Time.seconds(10))
    ).aggregate(
        Total(), lambda key, window, totals: [(window.start, key, *totals)], Types.LONG(), TRIPLE
    ).sink_to(sink(run))


def traced_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """Record by record, with functions that Tidegate evaluates over columns."""
    readers, keys, share = run.args.parallelism, run.args.keys, run.records // run.args.parallelism
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    numbers = env.from_sequence(0, run.records - 1)
    places = numbers.map(lambda n: n % share * readers + n // share, Types.LONG())
    shuffled = places.map(
        lambda at: at - at % BLOCK + (at % BLOCK * SHUF_A + SHUF_B) % BLOCK, Types.LONG()
    )
    shuffled.map(
        lambda record: ((record * MULT & MASK) % keys, record), PAIR
    ).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda record, _: record[1])
    ).key_by(lambda record: record[0], Types.LONG()).window(
        TumblingEventTimeWindows.of(Time.seconds(10))
    ).aggregate(
        Total(), lambda key, window, totals: [(window.start, key, *totals)], Types.LONG(), TRIPLE
    ).sink_to(CountingSink(run.stats, partial(WarmSums, run=run)))


class Total(AggregateFunction):
    """The sum of the values."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[int, int], accumulator: int) -> int:
        return accumulator + value[1]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Measured(MapFunction):
    """The records in their order; measures when its share begins to count.

    Number x is the (x mod share)-th of reader x / share: the readers interleave over the stream.
    """

    def __init__(self, run: Run) -> None:
        self._folder, self._warm = run.stats, run.warm
        self._readers, self._keys = run.args.parallelism, run.args.keys
        self._share = run.records // self._readers

    def open(self, runtime_context) -> None:
        index = runtime_context.get_index_of_this_subtask()
        self._path = Path(self._folder) / f"source-{index}.json"
        self._passed = self._warm_at_ns = self._warm_processor_ns = self._counted_from = 0

    def warm(self) -> None:
        """From here on records count."""
        self._counted_from = self._passed
        self._warm_at_ns, self._warm_processor_ns = time.monotonic_ns(), time.process_time_ns()

    def close(self) -> None:
        """Leave the measurements."""
        measured = {
            "counted": self._passed - self._counted_from,
            "warm_at_ns": self._warm_at_ns,
            "warm_processor_ns": self._warm_processor_ns,
            "pid": os.getpid(),
        }
        self._path.write_text(json.dumps(measured))


class ShuffledRecord(Measured):
    """Makes shuffled records one at a time."""

    def map(self, number: int) -> tuple[int, int]:
        """The record at a reader's number."""
        self._passed += 1
        if self._passed == self._warm:
            self.warm()
        reader, at = divmod(number, self._share)
        position = at * self._readers + reader
        within = position % BLOCK
        record = position - within + PLACES[within]
        return (record * MULT & MASK) % self._keys, record


class Shuffled(Measured):
    """Makes shuffled records a batch at a time."""

    def map(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of one reader's numbers, which follow each other."""
        numbers = batch.column(0).to_numpy()
        self._passed += len(numbers)
        if not self._warm_at_ns and self._passed >= self._warm:
            self.warm()
        reader = int(numbers[0]) // self._share
        positions = (numbers - reader * self._share) * self._readers + reader
        blocks = positions // BLOCK * BLOCK
        return keyed(blocks + WITHIN.take(positions - blocks), self._keys)


def sink(run: Run) -> CountingSink:
    """Where the last output is noted."""
    return CountingSink(run.stats, partial(AllSums, verify=run.args.verify))


class AllSums(CountingWriter):
    """Keeps all outputs, for a check of sums."""

    def __init__(self, path: Path, *, verify: bool) -> None:
        super().__init__(path, verify)
        self._final: list[list[int]] = []

    def keep(self, batch) -> None:
        if isinstance(batch, RowBatch):
            self._final += [list(row) for row in batch.values]
            return
        rows = batch.batch.to_pylist()
        self._final += [[row["window_start"], row["key"], row["value_sum"]] for row in rows]

    def measured(self) -> dict[str, object]:
        return {"final": self._final}


class WarmSums(AllSums):
    """Measures when it begins to count, since no function of the program can: by the windows."""

    def __init__(self, path: Path, *, run: Run) -> None:
        super().__init__(path, verify=run.args.verify)
        self._readers, self._records = run.args.parallelism, run.records
        self._warm_ms = run.warm * self._readers
        self._warm: dict[str, int] = {"counted": 0, "warm_at_ns": 0, "warm_processor_ns": 0}

    def write(self, batch) -> None:
        super().write(batch)
        start_ms = batch.values[0][0]
        if not self._warm["warm_at_ns"] and start_ms >= self._warm_ms:
            self._warm = {
                "counted": (self._records - start_ms) // self._readers,
                "warm_at_ns": self.last_at_ns,
                "warm_processor_ns": self._last_processor_ns,
            }

    def measured(self) -> dict[str, object]:
        return super().measured() | self._warm


W2 = Workload(
    "w2",
    __doc__ or "",
    {"batches": batch_job, "records": record_job, "traced": traced_job},
    keys=1_000,
    checkpoint_ms=1000,
)

if __name__ == "__main__":
    sys.exit(W2.main())

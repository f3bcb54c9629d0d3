"""W1 on Tidegate: running count and sum per key, an output per record, to a sink that counts.

The same work as in peers/: numbers i = 0..N-1, key = (i * 2654435761 mod 2^32) mod K, value = i.
Time is taken at the sink, from the end of its warm-up (a tenth of its share) to the last output,
and the last line printed is the result. Run as a program of its own, so that nothing is left over
from the run before.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.workload import (
    KEYED,
    MASK,
    MULT,
    PAIR,
    TEXT_PAIR,
    TEXT_TRIPLE,
    TRIPLE,
    Counted,
    CountingSink,
    CountingWriter,
    Numbered,
    Run,
    Workload,
    keyed,
)
from tidegate import (
    ColumnStateDescriptor,
    Count,
    KeyedBatchFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Sum,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.connectors import NumberSequenceSource

COUNTED = pa.schema([("key", pa.int64()), ("count", pa.int64()), ("sum", pa.int64())])


def record_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """The program as it is written for PyFlink."""
    keyed_job(env, run, RunningCount())


def list_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """The same with a function that returns its results in a list."""
    keyed_job(env, run, ListedCount())


def keyed_job(env: StreamExecutionEnvironment, run: Run, count: KeyedProcessFunction) -> None:
    keys = run.args.keys
    env.from_sequence(0, run.records - 1).map(
        lambda i: ((i * MULT & MASK) % keys, i), output_type=PAIR
    ).key_by(lambda pair: pair[0], key_type=Types.LONG()).process(
        count, output_type=TRIPLE
    ).sink_to(sink(run))


class RunningCount(KeyedProcessFunction):
    """Count and sum so far of the record's key."""

    def open(self, runtime_context) -> None:
        self.acc = runtime_context.get_state(ValueStateDescriptor("acc", PAIR))

    def process_element(self, value, ctx):
        acc = self.acc.value()
        if acc is None:
            count, total = 1, value[1]
        else:
            count, total = acc[0] + 1, acc[1] + value[1]
        self.acc.update((count, total))
        yield value[0], count, total


class ListedCount(RunningCount):
    """The same in a list. The body stands again: a call more would be measured too."""

    def process_element(self, value, ctx):
        acc = self.acc.value()
        if acc is None:
            count, total = 1, value[1]
        else:
            count, total = acc[0] + 1, acc[1] + value[1]
        self.acc.update((count, total))
        return [(value[0], count, total)]


def text_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """The same with texts as keys."""
    keys = run.args.keys
    env.from_sequence(0, run.records - 1).map(
        lambda i: (f"user-{(i * MULT & MASK) % keys}", i), output_type=TEXT_PAIR
    ).key_by(lambda pair: pair[0], key_type=Types.STRING()).process(
        RunningCount(), output_type=TEXT_TRIPLE
    ).sink_to(sink(run, lambda row: (int(row[0].removeprefix("user-")), *row[1:])))


def dict_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """The same with dicts of no declared type as records."""
    keys = run.args.keys
    env.from_sequence(0, run.records - 1).map(
        lambda i: {"key": (i * MULT & MASK) % keys, "value": i}
    ).key_by(lambda row: row["key"], key_type=Types.LONG()).process(CountOfDicts()).sink_to(
        sink(run, lambda row: (row["key"], row["count"], row["sum"]))
    )


def dataclass_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """The same with dataclasses as records."""
    keys = run.args.keys
    env.from_sequence(0, run.records - 1).map(
        lambda i: Numbered((i * MULT & MASK) % keys, i), output_type=Numbered
    ).key_by(lambda row: row.key, key_type=Types.LONG()).process(
        CountOfDataclasses(), output_type=Counted
    ).sink_to(sink(run, lambda row: (row.key, row.count, row.total)))


class CountOfDicts(RunningCount):
    """The same of dicts."""

    def process_element(self, value, ctx):
        acc = self.acc.value()
        if acc is None:
            count, total = 1, value["value"]
        else:
            count, total = acc[0] + 1, acc[1] + value["value"]
        self.acc.update((count, total))
        yield {"key": value["key"], "count": count, "sum": total}


class CountOfDataclasses(RunningCount):
    """The same of dataclasses."""

    def process_element(self, value, ctx):
        acc = self.acc.value()
        if acc is None:
            count, total = 1, value.value
        else:
            count, total = acc[0] + 1, acc[1] + value.value
        self.acc.update((count, total))
        yield Counted(value.key, count, total)


def reduce_job(env: StreamExecutionEnvironment, run: Run) -> None:
    keys = run.args.keys
    env.from_sequence(0, run.records - 1).map(
        lambda i: ((i * MULT & MASK) % keys, 1, i), output_type=TRIPLE
    ).key_by(lambda row: row[0], key_type=Types.LONG()).reduce(
        lambda old, new: (old[0], old[1] + new[1], old[2] + new[2])
    ).sink_to(sink(run))


def batch_job(env: StreamExecutionEnvironment, run: Run) -> None:
    keys = run.args.keys
    numbers = env.from_source(
        NumberSequenceSource(0, run.records - 1, arrow=True),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    )
    numbers.map_batches(lambda batch: keyed(batch.column(0).to_numpy(), keys), KEYED).key_by(
        "key"
    ).process_batches(RunningCountOfBatches(), COUNTED).sink_to(sink(run))


def declared_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """Declared aggregates over records: with a key that is a field, columns from end to end."""
    keys = run.args.keys
    env.from_sequence(0, run.records - 1).map(
        lambda i: ((i * MULT & MASK) % keys, i), output_type=PAIR
    ).key_by(lambda pair: pair[0], key_type=Types.LONG()).running(Count(), Sum("f1")).sink_to(
        sink(run)
    )


def running_job(env: StreamExecutionEnvironment, run: Run) -> None:
    """Declared aggregates over Arrow batches."""
    keys = run.args.keys
    numbers = env.from_source(
        NumberSequenceSource(0, run.records - 1, arrow=True),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    )
    numbers.map_batches(lambda batch: keyed(batch.column(0).to_numpy(), keys), KEYED).key_by(
        "key"
    ).running(Count(), Sum("value")).sink_to(sink(run))


class RunningCountOfBatches(KeyedBatchFunction):
    """Count and sum so far, vectorised: the rows of a batch come out grouped by key."""

    def process_batch(self, batch: pa.RecordBatch, ctx) -> pa.RecordBatch:
        """One output a record; in a key the order is that of the input."""
        counts = ctx.column_state(ColumnStateDescriptor("count", pa.int64()))
        sums = ctx.column_state(ColumnStateDescriptor("sum", pa.int64()))
        index = ctx.key_index
        # NumPy sorts 16-bit numbers by radix, several times faster than wider ones.
        narrow = index.astype(np.uint16) if ctx.keys_total <= 1 << 16 else index
        order = np.argsort(narrow, kind="stable")
        index = index[order]
        firsts = np.flatnonzero(np.concatenate(([True], index[1:] != index[:-1])))
        lengths = np.diff(np.append(firsts, len(index)))
        seen = index[firsts]
        values = batch.column(1).to_numpy()[order]
        totals = np.cumsum(values)
        before = totals[firsts] - values[firsts]
        count = np.arange(1, len(index) + 1) + np.repeat(counts.get(seen) - firsts, lengths)
        total = totals + np.repeat(sums.get(seen) - before, lengths)
        lasts = firsts + lengths - 1
        counts.put(seen, count[lasts])
        sums.put(seen, total[lasts])
        key = batch.column(0).to_numpy()[order]
        return pa.record_batch([pa.array(key), pa.array(count), pa.array(total)], COUNTED)


def plain(row: tuple[int, int, int]) -> tuple[int, int, int]:
    """A result that is a tuple of numbers."""
    return row


def sink(run: Run, as_numbers: Callable[[Any], tuple[int, int, int]] = plain) -> CountingSink:
    """Where the time is taken. as_numbers: key, count and sum of a result."""
    writer = partial(LatestOfKeys, warm=run.warm, verify=run.args.verify, as_numbers=as_numbers)
    return CountingSink(run.stats, writer)


class LatestOfKeys(CountingWriter):
    """Keeps the last output of each key, and the sum of all counts."""

    def __init__(
        self,
        path: Path,
        *,
        warm: int,
        verify: bool,
        as_numbers: Callable[[Any], tuple[int, ...]],
    ) -> None:
        super().__init__(path, verify)
        self._warm = warm
        self._as_numbers = as_numbers
        self._counted_from = self._warm_at_ns = self._warm_processor_ns = 0
        self._checksum = 0
        self._final: dict[int, tuple[int, int]] = {}

    def write(self, batch) -> None:
        super().write(batch)
        if not self._warm_at_ns and self.outputs >= self._warm:
            self._warm_at_ns, self._counted_from = self.last_at_ns, self.outputs
            self._warm_processor_ns = time.process_time_ns()

    def keep(self, batch) -> None:
        if isinstance(getattr(batch, "batch", None), pa.RecordBatch):
            rows = zip(*(column.to_pylist() for column in batch.batch.columns), strict=True)
        else:
            rows = map(self._as_numbers, batch.values)
        for key, *_, count, total in rows:
            self._checksum += count
            if count > self._final.get(key, (0, 0))[0]:
                self._final[key] = (count, total)

    def measured(self) -> dict[str, object]:
        """When it was warm, and what came then."""
        return {
            "counted": self.outputs - self._counted_from,
            "warm_at_ns": self._warm_at_ns,
            "warm_processor_ns": self._warm_processor_ns,
            "checksum": self._checksum,
            "final": [[key, *state] for key, state in self._final.items()],
        }


W1 = Workload(
    "w1",
    __doc__ or "",
    {
        "records": record_job,
        "listed": list_job,
        "text": text_job,
        "dicts": dict_job,
        "dataclasses": dataclass_job,
        "reduce": reduce_job,
        "declared": declared_job,
        "batches": batch_job,
        "running": running_job,
    },
    keys=10_000,
    checkpoint_ms=500,
)

if __name__ == "__main__":
    sys.exit(W1.main())

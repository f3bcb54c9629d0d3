"""A batch on Spark beside Spark's own.

Count and sum of each key, over Parquet files. By a function in Python that is given one row after
the other: as stages of Tidegate, and by `groupBy().applyInPandas` with the same loop, each with a
result for each row. By declared aggregates, with a row for each key at the end: Tidegate's, from
files and from a DataFrame, and Spark's native `groupBy().agg()`. Each run has a session of its own
with two cores; seconds are those of the job alone. Guards: `BESIDE`. Beside them stands the memory
of the largest of Spark's Python workers, which does not hold the rows of a key; to see that, or
more rows:

    python -m benchmarks.batch_on_spark process --rows 20_000_000 --keys 1
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.beside_spark import BesideSpark
from benchmarks.measure import Contender, interleaved

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

CORES = 2
FILES = 8
PARALLELISM = 8
LIMIT_S = 600


@dataclass(frozen=True)
class Input:
    """Rows in Parquet files, with so many keys. of: who reads them."""

    of: tuple[str, ...]
    rows: int
    keys: int


BY_FUNCTION = Input(("process", "applyInPandas"), 10_000_000, 100_000)
BY_AGGREGATES = Input(
    ("declared", "declared, of a DataFrame", "groupBy().agg()"), 50_000_000, 1_000_000
)
BESIDE = BesideSpark(
    f"Batch: {BY_FUNCTION.rows:,} rows in Parquet with {BY_FUNCTION.keys:,} keys by a function, "
    f"{BY_AGGREGATES.rows:,} with {BY_AGGREGATES.keys:,} by aggregates",
    "batch-on-spark.jsonl",
    {
        "process": ("applyInPandas", 3.0),
        "declared": ("groupBy().agg()", 0.7),
        "declared, of a DataFrame": ("groupBy().agg()", 0.7),
    },
)


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; whether the floors hold."""
    program = (sys.executable, "-m", "benchmarks.batch_on_spark")
    contenders: list[Contender] = []
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        for number, each in enumerate((BY_FUNCTION, BY_AGGREGATES)):
            chosen = [name for name in each.of if only in name]
            if not chosen:
                continue
            rows, at = int(each.rows * scale), Path(folder, str(number))
            write_rows(at, rows, int(each.keys * scale))
            given = ("--rows", str(rows), "--folder", str(at))
            contenders += [
                Contender(
                    name,
                    (*program, name, *given),
                    rounds_max=2 if name == "applyInPandas" else None,
                    limit_s=LIMIT_S * max(1, scale),
                )
                for name in chosen
            ]
        results = interleaved(contenders, rounds, console)
    return BESIDE.report(console, results, rounds, only, scale)


def write_rows(folder: Path, rows: int, keys: int) -> None:
    folder.mkdir(exist_ok=True)
    for file in range(FILES):
        draw, count = np.random.default_rng(file), rows // FILES
        columns = {"key": draw.integers(0, keys, count), "value": draw.integers(0, 1_000, count)}
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")


class Taken:
    """Seconds of a job, and those of processors in all processes: the driver, Spark and workers.

    worker_mb: the memory of the largest worker, looked at ten times a second.
    """

    seconds = processor_seconds = worker_mb = 0.0

    def __enter__(self) -> None:
        self._done = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()
        self.processor_seconds, self.seconds = -processor_seconds(), -time.monotonic()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.monotonic()
        self.processor_seconds += processor_seconds()
        self._done.set()
        self._looking.join()

    def _look(self) -> None:
        while not self._done.wait(0.1):
            for each in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "java" not in each.name():
                        self.worker_mb = max(self.worker_mb, each.memory_info().rss / 1e6)


def processor_seconds() -> float:
    """Seconds that this process and those below it have had; workers live on behind a job."""
    own = psutil.Process()
    return sum(sum(each.cpu_times()[:4]) for each in (own, *own.children(recursive=True)))


def tidegate(folder: str, parallelism: int, taken: Taken) -> None:
    from tidegate import (
        KeyedProcessFunction,
        RuntimeExecutionMode,
        StreamExecutionEnvironment,
        Types,
        ValueStateDescriptor,
        WatermarkStrategy,
    )
    from tidegate.connectors import FileSource

    class Totals(KeyedProcessFunction):
        def open(self, runtime_context) -> None:
            self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
            self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

        def process_element(self, value, ctx):
            count = (self.count.value() or 0) + 1
            total = (self.total.value() or 0) + value[1]
            self.count.update(count)
            self.total.update(total)
            yield value[0], count, total

    env = StreamExecutionEnvironment.on_spark(parallelism=parallelism)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.spark.range(1).count()
    source = FileSource.parquet(folder, columns=["key", "value"])
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
    pairs = rows.map(lambda row: (row["key"], row["value"]), pair)
    pairs.key_by(lambda row: row[0]).process(Totals()).sink_to(Nowhere())
    with taken:
        env.execute("totals")


class Nowhere:
    """A sink that drops all."""

    def writer(self, context, restored):
        return self

    def committer(self) -> None: ...

    def write(self, batch) -> None: ...

    def prepare_commit(self, *, end_of_input):
        from tidegate.api.sink import Prepared

        return Prepared()

    def snapshot(self, checkpoint):
        return ()

    def close(self) -> None: ...


def declared(folder: str, parallelism: int, taken: Taken, *, of_a_frame: bool = False) -> None:
    from tidegate import (
        Count,
        GlobalWindows,
        RuntimeExecutionMode,
        StreamExecutionEnvironment,
        Sum,
        WatermarkStrategy,
    )
    from tidegate.connectors import FileSource

    env = StreamExecutionEnvironment.on_spark(parallelism=parallelism)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.spark.range(1).count()
    if of_a_frame:
        rows = env.from_spark(env.spark.read.parquet(folder))
    else:
        source = FileSource.parquet(folder, columns=["key", "value"])
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
    windows = GlobalWindows.create_with_end_of_stream_trigger()
    totals = rows.key_by("key").window(windows).aggregate_batches(Count(), Sum("value"))
    totals.sink_to(Nowhere())
    with taken:
        env.execute("totals")


def session(parallelism: int) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(parallelism))
        .getOrCreate()
    )


def native(folder: str, parallelism: int, taken: Taken) -> None:
    from pyspark.sql import functions as sql

    spark = session(parallelism)
    spark.range(1).count()
    rows = spark.read.parquet(folder).groupBy("key")
    made = rows.agg(sql.count(sql.lit(1)).alias("count"), sql.sum("value").alias("total"))
    with taken:
        made.write.format("noop").mode("overwrite").save()


def apply_in_pandas(folder: str, parallelism: int, taken: Taken) -> None:
    import pandas as pd

    spark = session(parallelism)

    def totals(rows: pd.DataFrame) -> pd.DataFrame:
        total = 0
        found = []
        for count, (key, value) in enumerate(zip(rows["key"], rows["value"], strict=True), 1):
            total += value
            found.append((key, count, total))
        return pd.DataFrame(found, columns=["key", "count", "total"])

    spark.range(1).count()
    made = (
        spark.read.parquet(folder)
        .groupBy("key")
        .applyInPandas(totals, "key bigint, count bigint, total bigint")
    )
    with taken:
        made.write.format("noop").mode("overwrite").save()


RUNS = {
    "process": tidegate,
    "applyInPandas": apply_in_pandas,
    "declared": declared,
    "declared, of a DataFrame": partial(declared, of_a_frame=True),
    "groupBy().agg()": native,
}


def run() -> None:
    """Run one of them once, and print its result line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=RUNS)
    parser.add_argument("--rows", type=int, default=BY_FUNCTION.rows)
    parser.add_argument("--keys", type=int, default=BY_FUNCTION.keys)
    parser.add_argument("--parallelism", type=int, default=PARALLELISM)
    parser.add_argument("--folder", help="with the rows, if they are written already")
    args = parser.parse_args()
    taken = Taken()
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        if args.folder is None:
            write_rows(Path(made), args.rows, args.keys)
        RUNS[args.name](args.folder or made, args.parallelism, taken)
    result = {
        "system": args.name,
        "records_per_s": args.rows / taken.seconds,
        "seconds": taken.seconds,
        "processor_ns": 1e9 * taken.processor_seconds / args.rows,
        "worker_mb": taken.worker_mb,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    run()

"""A batch on Spark beside Spark's own: python -m benchmarks.batch_on_spark.

Count and sum of each key, over Parquet files. By a function in Python that is given one row after
the other: as stages of Tidegate, and by `groupBy().applyInPandas` with the same loop, each with a
result for each row. By declared aggregates, with a row for each key at the end: Tidegate's, from
files and from a DataFrame, and Spark's native `groupBy().agg()`. Each run has a process and a
session of its own with two cores; seconds are those of the job alone, and contenders take turns.
Beside them stands the memory of the largest of Spark's Python workers: `--keys 1` shows that it
does not hold the rows of a key.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
FILES = 8
LIMIT_S = 3_600
CONTENDERS = ("tidegate", "applyInPandas", "declared", "declared of a frame", "native")
RATIOS = (
    ("tidegate", "applyInPandas"),
    ("declared", "native"),
    ("declared of a frame", "native"),
)


def write_rows(folder: Path, rows: int, keys: int) -> None:
    folder.mkdir(parents=True)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--parallelism", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="with the rows, if they are written already")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--only", choices=CONTENDERS, help="run one once, and print its seconds")
    args = parser.parse_args()
    if args.only:
        runs = (tidegate, apply_in_pandas, declared, partial(declared, of_a_frame=True), native)
        run = dict(zip(CONTENDERS, runs, strict=True))[args.only]
        taken = Taken()
        run(args.folder, args.parallelism, taken)
        print(f"took {taken.seconds:.2f} {taken.processor_seconds:.2f} {taken.worker_mb:.0f}")
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        folder = args.folder or f"{made}/rows"
        if not args.folder:
            write_rows(Path(folder), args.rows, args.keys)
        taken: dict[str, list[tuple[float, float]]] = {each: [] for each in args.contenders}
        for number in range(args.rounds):
            for contender in args.contenders:
                load = os.getloadavg()[0]
                seconds, of_processors, mb = alone(contender, folder, args.parallelism)
                taken[contender].append((seconds, of_processors))
                print(
                    f"round {number + 1}  {contender:20} {seconds:8.1f} s  {of_processors:8.1f} "
                    f"processor s, a worker {mb:6,.0f} MB  (load before {load:.1f})",
                    flush=True,
                )
    print(f"{args.rows:,} rows, {args.keys:,} keys; seconds, and seconds of processors")
    for own, other in RATIOS:
        if own in taken and other in taken:
            for at in range(2):
                ours, theirs = (
                    statistics.median(each[at] for each in taken[name]) for name in (own, other)
                )
                print(f"{own} {ours:.1f} s, {other} {theirs:.1f} s: {theirs / ours:.2f}×")


def alone(contender: str, folder: str, parallelism: int) -> tuple[float, float, float]:
    asked = ["--only", contender, "--folder", folder, "--parallelism", str(parallelism)]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.batch_on_spark", *asked],
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    seconds, of_processors, worker_mb = map(float, ran.stdout.split("took ")[1].split())
    return seconds, of_processors, worker_mb


if __name__ == "__main__":
    main()

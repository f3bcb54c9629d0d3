"""Micro-batches beside Spark's own stateful function.

W1 under Structured Streaming, a running count and sum of each key, an output for each row: Arrow
steps of Tidegate in `foreachBatch`, and `transformWithStateInPandas` over the same Parquet files,
one file a trigger. Each run has a session of its own with two cores. Figures are the medians of the
batches behind the first two. Guards: `BESIDE`.

    python -m benchmarks.micro_batches tidegate --keys 1_000_000
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.beside_spark import BesideSpark
from benchmarks.measure import Contender, interleaved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console

CORES = 2
WARM_UP = 2
ROWS = 1_000_000
BATCHES = 6
LIMIT_S = 900
SCHEMA = "key bigint, value bigint"
RESULT = "key bigint, value bigint, count bigint, total bigint"
SIZES = {10_000: None, 100_000: 1}
"""Keys, and how often they are run at most: with many, Spark's own needs minutes."""


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run all, print the table, keep the result; whether the floor holds."""
    rows = int(ROWS * scale)
    program = (sys.executable, "-m", "benchmarks.micro_batches")
    contenders = [
        Contender(
            named(name, keys),
            (*program, name, "--rows", str(rows), "--keys", str(keys)),
            rounds_max=rounds_max,
            limit_s=LIMIT_S * max(1, scale),
        )
        for keys, rounds_max in SIZES.items()
        for name in CONTENDERS
    ]
    results = interleaved([one for one in contenders if only in one.name], rounds, console)
    return BESIDE.report(console, results, rounds, only, scale)


def named(contender: str, keys: int) -> str:
    return f"{contender}, {keys:,} keys"


def write_rows(folder: Path, batches: int, rows: int, keys: int) -> None:
    folder.mkdir(parents=True)
    for file in range(batches):
        draw = np.random.default_rng(file)
        columns = {"key": draw.integers(0, keys, rows), "value": draw.integers(0, 1_000, rows)}
        pq.write_table(pa.table(columns), folder / f"{file:04}.parquet")


def session(parallelism: int) -> SparkSession:
    from tidegate import StreamExecutionEnvironment

    spark = StreamExecutionEnvironment.on_spark(parallelism=CORES).spark
    spark.conf.set("spark.sql.shuffle.partitions", str(parallelism))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    return spark


def tidegate(rows: DataFrame, folder: str, parallelism: int) -> StreamingQuery:
    from tidegate import Count, DataStream, MicroBatches, StreamExecutionEnvironment, Sum
    from tidegate.api.sink import Prepared

    class Nowhere:
        def writer(self, context: object, restored: object) -> Nowhere:
            return self

        def committer(self) -> None: ...

        def write(self, batch: object) -> None: ...

        def prepare_commit(self, *, end_of_input: bool) -> Prepared:
            return Prepared()

        def snapshot(self, checkpoint: object) -> tuple[bytes, ...]:
            return ()

        def close(self) -> None: ...

    def totals(env: StreamExecutionEnvironment, stream: DataStream) -> None:
        running = stream.key_by("key").running(Count(), Sum("value").alias("total"))
        running.uid("totals").sink_to(Nowhere()).uid("nowhere")

    batches = MicroBatches(totals, f"{folder}/state", parallelism=parallelism)
    return rows.writeStream.foreachBatch(batches).option(*_checkpoints(folder)).start()


def transform_with_state(rows: DataFrame, folder: str, parallelism: int) -> StreamingQuery:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle) -> None:
            self.state = handle.getValueState("totals", "count bigint, total bigint")

        def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
            count, total = self.state.get() or (0, 0)
            for part in rows:
                values = part["value"].to_numpy()
                totals = total + np.cumsum(values)
                counts = np.arange(count + 1, count + len(values) + 1)
                count, total = int(counts[-1]), int(totals[-1])
                columns = {"key": key[0], "value": values, "count": counts, "total": totals}
                yield pd.DataFrame(columns)
            self.state.update((count, total))

        def close(self) -> None: ...

    made = rows.groupBy("key").transformWithStateInPandas(Totals(), RESULT, "Append", "None")
    return made.writeStream.format("noop").option(*_checkpoints(folder)).start()


def _checkpoints(folder: str) -> tuple[str, str]:
    return "checkpointLocation", f"{folder}/checkpoints"


CONTENDERS: dict[str, Callable[[DataFrame, str, int], StreamingQuery]] = {
    "tidegate": tidegate,
    "transformWithStateInPandas": transform_with_state,
}
BESIDE = BesideSpark(
    f"Micro-batches of {ROWS:,} rows",
    "micro-batches.jsonl",
    {named("tidegate", keys): (named("transformWithStateInPandas", keys), 5.0) for keys in SIZES},
)


def run() -> None:
    """Run one of them once, and print its result line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=CONTENDERS)
    parser.add_argument("--rows", type=int, default=ROWS, help="of a batch")
    parser.add_argument("--keys", type=int, default=min(SIZES))
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--parallelism", type=int, default=CORES)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        write_rows(Path(folder, "rows"), args.batches, args.rows, args.keys)
        seconds = batch_seconds(args.name, folder, args.batches, args.parallelism)
    result = {"system": args.name, "records_per_s": args.rows / seconds, "seconds": seconds}
    print(json.dumps(result))


def batch_seconds(contender: str, folder: str, batches: int, parallelism: int) -> float:
    """The median of the batches' seconds."""
    spark = session(parallelism)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    query = CONTENDERS[contender](rows.parquet(f"{folder}/rows"), folder, parallelism)
    query.processAllAvailable()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    query.stop()
    assert len(progress) == batches, f"{len(progress)} batches of {batches} have rows"
    return statistics.median(each["batchDuration"] / 1_000 for each in progress[WARM_UP:])


if __name__ == "__main__":
    run()

"""Micro-batches beside Spark's own stateful function: python -m benchmarks.micro_batches.

W1 under Structured Streaming, a running count and sum of each key, an output for each row: Arrow
steps of Tidegate in `foreachBatch`, and `transformWithStateInPandas` over the same Parquet files,
one file a trigger. Each run has a process and a session of its own with two cores; contenders take
turns. Figures are the medians of the batches behind the first two.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CORES = 2
WARM_UP = 2
LIMIT_S = 3_600
SCHEMA = "key bigint, value bigint"
RESULT = "key bigint, value bigint, count bigint, total bigint"


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


def run(contender: str, rows_in: str, batches: int, parallelism: int) -> float:
    """The median of the batches' seconds."""
    spark = session(parallelism)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(rows_in)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        query = CONTENDERS[contender](rows, folder, parallelism)
        query.processAllAvailable()
        took = [each["batchDuration"] / 1_000 for each in query.recentProgress]
        seen = [each["numInputRows"] for each in query.recentProgress]
        query.stop()
    with_rows = [s for s, count in zip(took, seen, strict=True) if count]
    assert len(with_rows) == batches, f"{len(with_rows)} batches of {batches} have rows"
    return statistics.median(with_rows[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a batch")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--parallelism", type=int, default=CORES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="with the rows, if they are written already")
    parser.add_argument("--only", choices=list(CONTENDERS), help="run one once")
    args = parser.parse_args()
    if args.only:
        print(f"seconds {run(args.only, args.folder, args.batches, args.parallelism):.3f}")
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        folder = f"{made}/rows"
        write_rows(Path(folder), args.batches, args.rows, args.keys)
        seconds: dict[str, list[float]] = {each: [] for each in CONTENDERS}
        for number in range(args.rounds):
            for contender in CONTENDERS:
                took = alone(contender, folder, args.batches, args.parallelism)
                seconds[contender].append(took)
                print(f"round {number + 1}  {contender:28} {took:8.2f} s a batch", flush=True)
    own, other = (statistics.median(seconds[each]) for each in CONTENDERS)
    print(
        f"batches of {args.rows:,} rows, {args.keys:,} keys: {own:.2f} s and {other:.2f} s, "
        f"{other / own:.2f}×"
    )


def alone(contender: str, folder: str, batches: int, parallelism: int) -> float:
    asked = ["--only", contender, "--folder", folder]
    asked += ["--batches", str(batches), "--parallelism", str(parallelism)]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.micro_batches", *asked],
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return float(ran.stdout.split("seconds ")[1])


if __name__ == "__main__":
    main()

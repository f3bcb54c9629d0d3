"""The job as Spark's own Structured Streaming, in three forms, with state in RocksDB.

RocksDB writes a changelog, its quicker setting.

python: a count per key with `applyInPandasWithState`, micro-batches as quick as they come. jvm: the
same count as an aggregation that no Python takes part in, which is Spark's best case. real-time:
that aggregation in Spark's real-time mode. Its sink commits nothing: records are seen at once, and
after a failure some twice. Runs until it is ended.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.kafka_latency import PARTITIONS

SHUFFLES = 2
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BATCH = "5 seconds"
"""Of the real-time mode: how long a batch lasts, whose end is its checkpoint. Spark's least."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["python", "jvm", "real-time"], required=True)
    parser.add_argument("--jars", required=True, help="folder of Spark's Kafka connector")
    for name in ("servers", "source", "sink", "folder"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    spark = session(args)
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.servers)
        .option("subscribe", args.source)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.split(F.col("value").cast("string"), ",").alias("pair"))
        .select(F.col("pair")[0].alias("key"), F.col("pair")[1].cast("long").alias("stamp"))
    )
    counted = counted_in_python(records) if args.mode == "python" else counted_in_jvm(records)
    writer = (
        counted.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", args.servers)
        .option("topic", args.sink)
        .option("checkpointLocation", str(Path(args.folder) / "checkpoint"))
        .outputMode("update")
    )
    if args.mode == "real-time":
        writer = writer.trigger(realTime=BATCH)
    writer.start().awaitTermination()
    return 0


def session(args: argparse.Namespace) -> SparkSession:
    """Two cores; in the real-time mode as many as there are tasks, as all of them run at once."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    tasks = PARTITIONS + SHUFFLES if args.mode == "real-time" else 2
    jars = ",".join(str(path) for path in sorted(Path(args.jars).glob("*.jar")))
    session = (
        SparkSession.builder.master(f"local[{tasks}]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(Path(args.folder) / "local"))
        .config("spark.sql.shuffle.partitions", SHUFFLES)
        .config("spark.sql.streaming.stateStore.providerClass", PROVIDER)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def counted_in_jvm(records: DataFrame) -> DataFrame:
    """One output a key and batch, with the newest stamp."""
    counts = records.groupBy("key").agg(F.count("*").alias("count"), F.max("stamp").alias("stamp"))
    return counts.select(F.concat_ws(",", "key", "count", "stamp").alias("value"))


def counted_in_python(records: DataFrame) -> DataFrame:
    """One output a record."""
    return records.groupBy("key").applyInPandasWithState(
        count, "value string", "count long", "update", GroupStateTimeout.NoTimeout
    )


def count(
    key: tuple[str], frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Counts of a key's records."""
    (before,) = state.get if state.exists else (0,)
    for frame in frames:
        values = [
            f"{key[0]},{before + number},{stamp}" for number, stamp in enumerate(frame["stamp"], 1)
        ]
        before += len(frame)
        yield pd.DataFrame({"value": values})
    state.update((before,))


if __name__ == "__main__":
    sys.exit(main())

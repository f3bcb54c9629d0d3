"""Ten million entries of state as a Spark DataFrame: how fast they are read, and one key of them.

A value state of longs by longs in two subtasks, as blocks (memory, canonical savepoints) and as
RocksDB's files. Guards: a million entries a second on two cores, one key by push-down within a
second, in a session that is warm.

Beside it the same table out of Parquet, which Spark reads by itself: what the way through Python
costs. Sketch: of an entry 40 ns are MessagePack, 70 ns its dict, 60 ns Arrow; RocksDB's scan adds
600 ns; Spark takes Arrow batches in at 20 to 50 ns a row.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.measure import keep, whole
from benchmarks.savepoint_tidegate import World
from flinkformat import metadata
from flinkformat.snapshots import CheckpointMetadata, OperatorState
from tidegate import SavepointWriter, Types, ValueStateDescriptor, register_state_source
from tidegate.model.elements import CheckpointOptions, SnapshotKind
from tidegate.model.ids import CheckpointId
from tidegate.typeinfo.key_hash import KeyHasher

ENTRIES, BATCH, GROUPS = 10_000_000, 65_536, 128
RATE_FLOOR, KEY_CEILING_S = 1e6, 1.0
COUNT = ValueStateDescriptor("count", Types.LONG())
UID = "counts"


def main(console: Console, rounds: int, only: str, scale: float) -> bool:
    """Run, print the table, keep the result; whether the floors hold."""
    entries = int(ENTRIES * scale)
    folder = Path(tempfile.mkdtemp(prefix="tidegate-state-read-"))
    figures: dict[str, dict[str, float]] = {}
    try:
        with console.status("filling"):
            sources = prepared(folder, entries, only)
        spark = session()
        for name, frame in sources(spark):
            with console.status(name):
                figures[name] = measured(frame, entries, rounds)
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("", "M entries/s", "one key, ms", title=f"{entries:,} entries of state in Spark")
    for name, each in figures.items():
        table.add_row(name, f"{each['rate'] / 1e6:.2f}", f"{each['key s'] * 1000:,.0f}")
    console.print(table)
    ours = [each for name, each in figures.items() if name != "parquet"]
    held = all(each["rate"] >= RATE_FLOOR and each["key s"] <= KEY_CEILING_S for each in ours)
    if whole(only, scale):
        keep("state-read.jsonl", {"held": held, "figures": figures})
    return held


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "2g").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register_state_source(spark)
    return spark


def prepared(
    folder: Path, entries: int, only: str
) -> Callable[[SparkSession], Iterator[tuple[str, DataFrame]]]:
    if only in "blocks":
        writer = SavepointWriter.new_savepoint(max_parallelism=GROUPS, parallelism=2)
        writer.put_state(UID, COUNT, batches(entries)).write(folder / "blocks")
    if only in "rocksdb":
        in_rocksdb(folder, entries)
    with pq.ParquetWriter(folder / "table.parquet", SCHEMA) as parquet:
        for batch in batches(entries):
            parquet.write_batch(batch)

    def frames(spark: SparkSession) -> Iterator[tuple[str, DataFrame]]:
        yield "parquet", spark.read.parquet(str(folder / "table.parquet"))
        for name in ("blocks", "rocksdb"):
            if only in name:
                read = spark.read.format("tidegate.state").option("operator", UID)
                yield name, read.option("state", "count").load(str(folder / name))

    return frames


SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])


def batches(entries: int) -> Iterator[pa.RecordBatch]:
    """Keys with themselves as values."""
    for start in range(0, entries, BATCH):
        keys = pa.array(np.arange(start, min(start + BATCH, entries)))
        yield pa.record_batch([keys, keys], schema=SCHEMA)


def in_rocksdb(folder: Path, entries: int) -> None:
    """A native savepoint of one subtask with state on disk."""
    world = World(folder, on_disk=True)
    backend = world.backend()
    hasher, cell = KeyHasher(Types.LONG(), GROUPS), backend.cell
    update = backend.keyed_state(COUNT).update
    for start in range(0, entries, BATCH):
        keys = range(start, min(start + BATCH, entries))
        for cell.key, cell.group in zip(keys, hasher.key_groups(keys).tolist(), strict=True):
            update(cell.key)
    target = str(folder / "rocksdb")
    state, _ = world.snapshot(backend, 1, CheckpointOptions(SnapshotKind.SAVEPOINT, target=target))
    backend.close()
    operator = OperatorState(
        operator_id=backend.scope.operator,
        parallelism=1,
        max_parallelism=GROUPS,
        uid=UID,
        subtasks={0: state},
    )
    whole = CheckpointMetadata(checkpoint_id=CheckpointId(1), operators=(operator,))
    world.storage.files.write_metadata(target, metadata.encode(whole))


def measured(frame: DataFrame, entries: int, rounds: int) -> dict[str, float]:
    """Entries a second, and seconds for one key; medians behind a first go."""

    def all_of_them() -> None:
        [row] = frame.selectExpr("count(*) as n", "sum(value) as s").collect()
        assert (row.n, row.s) == (entries, entries * (entries - 1) // 2)

    def one_key() -> None:
        [row] = frame.where("key = 77").collect()
        assert row.value == 77

    return {
        "rate": entries / median_s(all_of_them, rounds),
        "key s": median_s(one_key, rounds),
    }


def median_s(call: Callable[[], None], rounds: int) -> float:
    """Seconds of a call; the first is not counted."""
    call()
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)

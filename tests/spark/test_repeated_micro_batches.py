"""Micro-batches that Spark runs again, and what is left of the tries before."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.e2e.files import committed_rows
from tests.e2e.journal import Latch
from tests.spark.micro_programs import RefusingOnce
from tidegate import (
    DataStream,
    JobFailed,
    KeyedProcessFunction,
    MicroBatches,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from tidegate.connectors import FileSink
from tidegate.errors import StorageFailed
from tidegate.snapshots.folders import files_of, read_snapshot
from tidegate.storage.state_files import StateFiles

pytestmark = pytest.mark.slow

ROWS, KEYS = 9, 3


class Sums:
    """How often each key has come, after each row, in files and in a sink that may refuse."""

    def __init__(self, folder: Path) -> None:
        self.refused = Latch(folder / "refused")
        self.out = folder / "out"
        self.beside = folder / "beside"

    def __call__(self, env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        pairs = rows.map(lambda row: (row["id"] % KEYS, 1)).uid("pairs")
        keyed = pairs.key_by(lambda pair: pair[0])
        sums = keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")
        schema = pa.schema([("key", pa.int64()), ("count", pa.int64())])
        lines = sums.map(lambda pair: {"key": pair[0], "count": pair[1]}).uid("lines")
        lines.sink_to(FileSink.parquet(self.out, schema)).uid("files")
        sums.sink_to(RefusingOnce(self.refused, self.beside)).uid("beside")

    def check_found(self, batches: int) -> None:
        """Each row of so many batches has been counted once."""
        found = sorted((row["key"], row["count"]) for row in committed_rows(self.out))
        each = batches * ROWS // KEYS
        assert found == [(key, count) for key in range(KEYS) for count in range(1, each + 1)]
        assert sum(int(file.read_text()) for file in self.beside.iterdir()) == batches * ROWS


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_micro_batch_whose_commit_was_refused_commits_when_it_is_repeated(
    spark: SparkSession, tmp_path: Path, parallelism: int
) -> None:
    program = Sums(tmp_path)
    batches = MicroBatches(program, tmp_path / "state", parallelism=parallelism)
    batches(spark.range(ROWS), 0)
    program.refused.set()
    with pytest.raises(JobFailed, match="the table is locked") as refused:
        batches(spark.range(ROWS), 1)
    assert refused.value.remedy == "Run it again: it commits the rest."
    batches(spark.range(ROWS), 1)
    program.check_found(2)
    batches(spark.range(ROWS), 2)
    program.check_found(3)


IN_ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
    "state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
"""State of Spark's that has to be written in each batch."""


@pytest.mark.parametrize("fails", ["in its commit", "behind it"])
def test_a_repeated_micro_batch_lets_steps_of_spark_before_it_keep_their_state(
    spark: SparkSession, tmp_path: Path, fails: str
) -> None:
    program, latch = Sums(tmp_path), Latch(tmp_path / "latch")
    batches = MicroBatches(program, tmp_path / "state", parallelism=2)

    def each(frame: DataFrame, batch: int) -> None:
        batches(frame, batch)
        if latch.is_set and latch.take():
            raise ValueError("the driver dies here")

    def run(batch: int) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        ids = range(batch * ROWS, (batch + 1) * ROWS)
        pq.write_table(pa.table({"id": [*ids, *ids]}), tmp_path / "in" / f"{batch}.parquet")
        session = spark.newSession()
        for key, value in IN_ROCKSDB.items():
            session.conf.set(key, value)
        once = session.readStream.schema("id bigint").parquet(str(tmp_path / "in"))
        writer = once.dropDuplicates(["id"]).writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", str(tmp_path / "spark"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(100), "the query ends with its input"

    run(0)
    (program.refused if fails == "in its commit" else latch).set()
    with pytest.raises(StreamingQueryException):
        run(1)
    run(2)
    program.check_found(3)


def hidden(folder: Path) -> list[str]:
    """Parts of a file sink that are not committed."""
    return sorted(file.name for file in folder.rglob(".*inprogress"))


def test_a_metadata_that_stands_although_its_write_failed_is_committed_by_the_next_try(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Sums(tmp_path)
    batches = MicroBatches(program, tmp_path / "state", parallelism=2)
    write = StateFiles.write_metadata

    def unanswered(self: StateFiles, location: str, data: bytes) -> str:
        write(self, location, data)
        raise StorageFailed("the connection broke before the answer", where=location)

    with monkeypatch.context() as patch:
        patch.setattr(StateFiles, "write_metadata", unanswered)
        with pytest.raises(JobFailed, match="the connection broke"):
            batches(spark.range(ROWS), 0)
    batches(spark.range(ROWS), 0)
    batches(spark.range(ROWS), 1)
    program.check_found(2)


def test_a_try_whose_metadata_was_not_written_leaves_no_parts_behind_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Sums(tmp_path)
    batches = MicroBatches(program, tmp_path / "state", parallelism=2)

    def full(self: StateFiles, location: str, data: bytes) -> str:
        raise StorageFailed("the disk is full", where=location)

    with monkeypatch.context() as patch:
        patch.setattr(StateFiles, "write_metadata", full)
        with pytest.raises(JobFailed, match="the disk is full"):
            batches(spark.range(ROWS), 0)
    assert hidden(program.out)
    batches(spark.range(ROWS), 0)
    program.check_found(1)
    assert not hidden(program.out)


def test_rows_that_a_killed_try_had_written_into_files_are_deleted_behind_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    state, latch = tmp_path / "state", Latch(tmp_path / "refused")
    other = spark.range(ROWS)

    def program(env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        # Two steps that read both frames: only one of these can be read in place.
        others = env.from_spark(other, folder=str(state)).uid("other")
        ids, more = (each.map(lambda row: row["id"]) for each in (rows, others))
        both = ids.uid("ids").union(more.uid("more"))
        for name, key in (("odd", lambda n: n % 2), ("third", lambda n: n % 3)):
            last = both.key_by(key).reduce(lambda a, b: b).uid(name)
            last.sink_to(RefusingOnce(latch, tmp_path / "beside")).uid(f"beside {name}")

    batches = MicroBatches(program, state, parallelism=2)
    latch.set()
    with pytest.raises(JobFailed, match="the table is locked"):
        batches(other, 0)
    [noted] = state.glob("*/chk-1/try-*")
    left = state / f"tidegate-batch-{noted.name.removeprefix('try-')}"
    assert not left.exists()
    left.mkdir()
    (left / "part.parquet").touch()
    batches(other, 0)
    assert not left.exists()


def test_a_driver_that_was_taken_for_dead_may_complete_beside_its_successor(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Sums(tmp_path)
    own_files = {"execution.checkpointing.data-inline-threshold": "0 b"}

    def driver() -> MicroBatches:
        return MicroBatches(program, tmp_path / "state", parallelism=2, configuration=own_files)

    driver()(spark.range(ROWS), 0)
    stands_still, began, write = threading.Event(), threading.Event(), StateFiles.write_metadata
    first = iter((True,))

    def late(self: StateFiles, location: str, data: bytes) -> str:
        if next(first, False):
            stands_still.set()
            assert began.wait(60), "its successor begins"
            return write(self, location, data)
        began.set()
        former.join(60)
        return write(self, location, data)

    former = threading.Thread(target=lambda: driver()(spark.range(ROWS), 1))
    with monkeypatch.context() as patch:
        patch.setattr(StateFiles, "write_metadata", late)
        former.start()
        assert stands_still.wait(60), "its tasks have ended"
        with pytest.raises(JobFailed, match="_metadata exists"):
            driver()(spark.range(ROWS), 1)
    assert not former.is_alive()
    driver()(spark.range(ROWS), 1)
    driver()(spark.range(ROWS), 2)
    program.check_found(3)


class DyingOnce(KeyedProcessFunction[int, int]):
    """Has a count of each key in state; its worker dies behind its share while a latch is set."""

    def __init__(self, latch: Latch) -> None:
        self.latch = latch

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        yield value

    def close(self) -> None:
        if self.latch.is_set and self.latch.take():
            os.kill(os.getpid(), signal.SIGKILL)


def dying_program(latch: Latch) -> Callable[[StreamExecutionEnvironment, DataStream[Any]], None]:
    def program(env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        ids = rows.map(lambda row: row["id"]).uid("ids")
        ids.key_by(lambda n: n).process(DyingOnce(latch)).uid("count").print().uid("print")

    return program


def test_files_of_a_task_that_was_run_again_are_deleted_behind_its_micro_batch(
    tmp_path: Path,
) -> None:
    """In a program of its own, whose session runs a task again."""
    script = tmp_path / "again.py"
    script.write_text(AGAIN)
    ran = subprocess.run(
        [sys.executable, script, tmp_path],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode == 0, ran.stderr
    assert not (tmp_path / "latch").exists(), "a worker has died"
    named: set[Path] = set()
    for checkpoint in (tmp_path / "state").glob("*/chk-*"):
        location, read = read_snapshot(str(checkpoint))
        named.update(map(Path, files_of(location, read)))
    shared = set((tmp_path / "state").glob("*/shared/*"))
    assert shared, "state is on disk"
    assert shared <= named, "each file belongs to a checkpoint"


AGAIN = """
import sys
from pathlib import Path
from tests.e2e.journal import Latch
from tests.spark.test_repeated_micro_batches import dying_program
from tidegate import MicroBatches
from tidegate.spark.session import session_for

folder = Path(sys.argv[1])
spark = session_for(None, None)
latch = Latch(folder / "latch")
batches = MicroBatches(
    dying_program(latch),
    folder / "state",
    parallelism=1,
    configuration={"state.backend.type": "rocksdb"},
)
for number in range(2):
    if number:
        latch.set()
    batches(spark.range(20_000), number)
"""

"""DataFrames that a batch reads in place: what a stream reads from files, without the files."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.e2e.files import committed_rows
from tests.e2e.watch import until
from tests.spark.every_type import everything
from tidegate import (
    DataStream,
    Duration,
    JobCanceled,
    JobFailed,
    JobStatus,
    KeyedCoProcessFunction,
    ProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidegate.connectors import FileSink
from tidegate.errors import JobSuspended
from tidegate.spark.frames import spark_type

pytestmark = pytest.mark.slow

NOWHERE = "/dev/null/no folder"
"""Files that a DataFrame were written to below would be an error."""


def batch(spark: SparkSession, parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.on_spark(spark, parallelism)
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


@pytest.mark.feature("F310")
def test_every_type_is_as_it_is_in_a_stream_that_reads_files(spark: SparkSession) -> None:
    frame = everything(spark)
    in_place = batch(spark, 3).from_spark(frame, folder=NOWHERE).to_arrow()
    staged = StreamExecutionEnvironment.local(1).from_spark(frame).to_arrow()
    kinds = [
        {field.name: spark_type(field.type) for field in table.schema}
        for table in (in_place, staged)
    ]
    assert kinds[0] == kinds[1]
    for name in staged.column_names:
        found, expected = (table.sort_by("id")[name] for table in (in_place, staged))
        if pa.types.is_timestamp(found.type):  # Python has no times that far away
            found, expected = found.cast(pa.int64()), expected.cast(pa.int64())
        assert found.to_pylist() == expected.to_pylist(), name


@pytest.mark.parametrize("names", [("a.b", "b.a"), ("c`d", "d"), ("a", "A")])
def test_columns_may_have_any_names(spark: SparkSession, names: tuple[str, str]) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", "true")
    first, second = (name.replace("`", "``") for name in names)
    frame = session.sql(f"select 1 as `{first}`, 2 as `{second}`")
    with batch(session, 1).from_spark(frame, folder=NOWHERE).execute_and_collect() as rows:
        assert list(rows) == [{names[0]: 1, names[1]: 2}]


class WithSubtask(ProcessFunction[Any, tuple[int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(
        self, value: Any, ctx: ProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        yield value["id"], self.subtask


def by_subtask(rows: DataStream[Any]) -> list[set[int]]:
    found: dict[int, set[int]] = {}
    with rows.process(WithSubtask()).execute_and_collect() as results:
        for number, subtask in results:
            assert number not in found.setdefault(subtask, set())
            found[subtask].add(number)
    return [found.get(subtask, set()) for subtask in range(max(found, default=-1) + 1)]


@pytest.mark.feature("F310")
def test_a_partition_is_a_subtask_and_more_of_them_share_one(spark: SparkSession) -> None:
    def numbers(partitions: int) -> DataFrame:
        return spark.range(0, 60, 1, partitions)

    three = [set(range(20)), set(range(20, 40)), set(range(40, 60))]
    assert by_subtask(batch(spark, 3).from_spark(numbers(3))) == three
    assert by_subtask(batch(spark, 3).from_spark(numbers(6))) == three
    assert by_subtask(batch(spark, 5).from_spark(numbers(3))) == three
    assert by_subtask(batch(spark, 1).from_spark(numbers(3))) == [set(range(60))]
    middle = numbers(3).where("id >= 20 and id < 40")
    assert by_subtask(batch(spark, 3).from_spark(middle)) == [set(), three[1]]
    for nothing in (numbers(3).limit(0), numbers(3).where("id < 0")):
        assert by_subtask(batch(spark, 3).from_spark(nothing)) == []


class Both(KeyedCoProcessFunction[Any, Any, tuple[str, int]]):
    def process_element1(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        yield "left", value["id"]

    def process_element2(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        yield "right", value["id"]


def frames_that_meet(env: StreamExecutionEnvironment, spark: SparkSession) -> DataStream[Any]:
    """Two sources with several readers each, some in common, and one with a reader."""
    first = env.from_spark(spark.range(0, 300, 1, 2)).uid("first")
    second = env.from_spark(spark.range(1_000, 1_200, 1, 7)).uid("second")
    third = env.from_spark(spark.range(5_000, 5_050, 1, 5)).uid("third")
    met = first.key_by("id").connect(second.key_by("id")).process(Both())
    sums = first.union(third).map(lambda row: (row["id"] % 7, row["id"]))
    least = second.rebalance().map(lambda row: row["id"]).filter(lambda n: n < 1_010)
    reduced = sums.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return met.union(reduced.map(str), least.map(str))


@pytest.mark.feature("F310")
def test_sources_that_share_readers_find_what_a_local_job_finds(spark: SparkSession) -> None:
    def found(env: StreamExecutionEnvironment) -> list[Any]:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        with frames_that_meet(env, spark).execute_and_collect() as results:
            return sorted(results, key=repr)

    expected = found(StreamExecutionEnvironment.local(1))
    assert found(batch(spark, 3)) == expected
    assert found(batch(spark, 1)) == expected


@pytest.mark.feature("F310")
def test_event_time_is_of_a_column_and_a_frame_that_is_cached_stays_so(spark: SparkSession) -> None:
    frame = spark.range(0, 1_000, 1, 4).cache()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
    timed = strategy.with_timestamp_assigner(lambda row, _: row["id"])
    numbers = batch(spark, 3).from_spark(frame, timed).map(lambda row: row["id"], Types.LONG())
    windows = TumblingEventTimeWindows.of(Time.milliseconds(100))
    sums = numbers.key_by(lambda number: number % 2).window(windows).reduce(lambda a, b: a + b)
    with sums.execute_and_collect() as results:
        found = sorted(results)
    try:
        assert frame.is_cached
    finally:
        frame.unpersist()
    starts = range(0, 1_000, 100)
    assert found == sorted(
        sum(range(start + k, start + 100, 2)) for start in starts for k in (0, 1)
    )


class DiesOnce:
    """Kills its worker at a number, the first time. latch: a file that says it has been."""

    def __init__(self, latch: Path) -> None:
        self.latch = latch

    def __call__(self, row: tuple[int, int]) -> dict[str, int]:
        if row[0] == 1_100 and not self.latch.exists():
            self.latch.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"number": row[0], "subtask": row[1]}


@pytest.mark.feature("F310")
def test_a_task_that_spark_runs_again_is_the_same_subtask_and_doubles_nothing(
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
    assert (tmp_path / "died").exists()
    rows = committed_rows(tmp_path / "out")
    assert sorted(row["number"] for row in rows) == list(range(3_000))
    assert {row["number"] // 1_000 - row["subtask"] for row in rows} == {0}


AGAIN = """
import sys
from pathlib import Path
import pyarrow as pa
from tests.spark.test_in_place import DiesOnce, WithSubtask
from tidegate import RuntimeExecutionMode, StreamExecutionEnvironment
from tidegate.connectors import FileSink
from tidegate.spark.session import session_for

folder = Path(sys.argv[1])
spark = session_for(None, None)
env = StreamExecutionEnvironment.on_spark(spark, 3)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
rows = env.from_spark(spark.range(0, 3_000, 1, 3)).process(WithSubtask())
schema = pa.schema([("number", pa.int64()), ("subtask", pa.int64())])
rows.map(DiesOnce(folder / "died")).sink_to(FileSink.parquet(folder / "out", schema))
env.execute("again")
"""


def test_a_query_that_fails_is_told_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    env = batch(spark, 2)
    frame = spark.range(0, 30, 1, 3).selectExpr("if(id = 7, raise_error('boom'), id) as id")
    env.from_spark(frame).sink_to(FileSink.parquet(tmp_path))
    with pytest.raises(JobFailed, match="boom"):
        env.execute("boom")
    assert committed_rows(tmp_path) == []


def test_a_batch_that_is_cancelled_ends_the_query(spark: SparkSession) -> None:
    naps = "java_method('java.lang.Thread', 'sleep', cast(100 as bigint)) as x"
    env = batch(spark, 2)
    env.from_spark(spark.range(0, 1_200, 1, 2).selectExpr(naps)).print()
    client = env.execute_async("a minute")
    tracker = spark.sparkContext.statusTracker()
    until(tracker.getActiveJobsIds, "Spark reads the frame", 30)
    assert client.get_job_status().result(0) is JobStatus.RUNNING
    client.cancel().result(timeout=100)
    with pytest.raises(JobCanceled):
        client.get_job_execution_result().result(5)
    until(lambda: not tracker.getActiveJobsIds(), "Spark has ended the query", 10)


def sums(env: StreamExecutionEnvironment, frame: DataFrame, uid: str, out: Path) -> None:
    pairs = env.from_spark(frame).uid(uid).map(lambda row: (row["id"] % 3, row["id"]))
    pairs = pairs.uid("pairs")
    reduced = pairs.key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")
    schema = pa.schema([("key", pa.int64()), ("total", pa.int64())])
    lines = reduced.map(lambda p: {"key": p[0], "total": p[1]}).uid("lines")
    lines.sink_to(FileSink.parquet(out, schema)).uid("files")


@pytest.mark.feature("F310")
def test_jobs_go_on_with_other_frames_and_a_frame_that_is_read_is_not_read_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, second = spark.range(0, 30, 1, 2), spark.range(30, 60, 1, 5)
    env = batch(spark, 2).end_with_savepoint(tmp_path / "savepoints")
    sums(env, first, "frame", tmp_path / "first")
    savepoint = env.execute("first").get_savepoint()
    assert savepoint is not None
    env = batch(spark, 3)
    env.configure({"execution.state-recovery.path": savepoint})
    sums(env, second, "frame", tmp_path / "batch")
    env.execute("a batch goes on")
    last = {row["key"]: row["total"] for row in committed_rows(tmp_path / "batch")}
    assert last == {key: sum(range(key, 60, 3)) for key in range(3)}
    stream = StreamExecutionEnvironment.local(1)
    stream.configure({"execution.state-recovery.path": savepoint})
    sums(stream, second, "frame", tmp_path / "refused")
    with pytest.raises(JobSuspended, match="read its DataFrame to the end"):
        stream.execute("a stream of the same uid")
    stream = StreamExecutionEnvironment.local(1)
    stream.configure(
        {
            "execution.state-recovery.path": savepoint,
            "execution.state-recovery.ignore-unclaimed-state": "true",
        }
    )
    sums(stream, second, "live frame", tmp_path / "stream")
    stream.execute("a stream of another uid")
    greatest: dict[int, int] = {}
    for row in committed_rows(tmp_path / "stream"):
        greatest[row["key"]] = max(row["total"], greatest.get(row["key"], 0))
    assert greatest == last


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_frame_that_spark_finds_to_be_empty_has_no_rows(
    spark: SparkSession, parallelism: int
) -> None:
    for frame in (spark.range(9).where("false"), spark.range(9).limit(0)):
        rows = batch(spark, parallelism).from_spark(frame).map(lambda row: row["id"])
        with rows.key_by(lambda n: n).reduce(max).execute_and_collect() as results:
            assert list(results) == []

"""Spark's DataFrames in and out: each value as it was, each row once, whatever is killed."""

import datetime as dt
import os
import re
import signal
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql import types as t

from tests.e2e.driver import started
from tests.e2e.files import committed_rows
from tests.e2e.frame_driver import ROWS, FrameOrders
from tests.e2e.runtimes import Jobs, failure_of
from tests.e2e.watch import kill_slot, until, wait_completed
from tests.spark.every_type import everything
from tidegate import (
    ConfigError,
    GraphError,
    JobCanceled,
    JobFailed,
    Types,
)
from tidegate.connectors import FileSink
from tidegate.spark.frames import StagedFrame, hadoop_path, spark_type

INT96_KEY = "spark.sql.parquet.outputTimestampType"


def as_texts(frame: DataFrame) -> list[str]:
    """The rows, as Spark writes them: Python has no times that far away."""
    texts = frame.select([functions.col(name).cast("string") for name in frame.columns])
    return sorted(map(str, texts.collect()))


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["spark", "local"])
def test_every_type_arrives_and_comes_back_as_it_was(
    runtime: str, spark: SparkSession, jobs: Jobs, local_jobs: Jobs
) -> None:
    env = (jobs if runtime == "spark" else local_jobs).env(2)
    frame = everything(spark)
    before = spark.conf.get(INT96_KEY)
    out = env.from_spark(frame).to_spark(spark=spark)
    assert out.schema.simpleString() == frame.schema.simpleString()
    assert as_texts(out) == as_texts(frame)
    assert spark.conf.get(INT96_KEY) == before, "the session's settings are as they were"


@pytest.mark.slow
def test_arrow_sees_the_types_and_functions_of_rows_see_dicts(
    spark: SparkSession, local_jobs: Jobs
) -> None:
    frame = everything(spark)
    table = local_jobs.env(1).from_spark(frame).to_arrow()
    types = [spark_type(field.type).simpleString() for field in table.schema]
    assert types == [kind for _, kind in frame.dtypes]
    rows = local_jobs.env(1).from_spark(frame)
    (row,) = rows.filter(lambda row: row["id"] == 3).execute_and_collect(limit=1)
    assert row["price"] == Decimal("3.00") and row["some"] is None
    assert row["long_ago"] == dt.datetime(1, 1, 1, 1, 2, 3, 456789, dt.UTC)
    assert row["no_zone"] == dt.datetime(2024, 3, 31, 2, 30)  # noqa: DTZ001  # it has none
    assert row["nested"] == {"x": 3, "y": [{"z": "3"}]}
    assert row["by_name"] == {"k3": [3]}


@pytest.mark.slow
def test_the_frame_is_written_though_slots_take_all_cores(spark: SparkSession, jobs: Jobs) -> None:
    env = jobs.env(4)
    frame = spark.range(0, 1_000, 1, 8).selectExpr("id", "id % 7 as key")
    sums = (
        env.from_spark(frame)
        .key_by("key")
        .reduce(lambda one, other: {"id": one["id"] + other["id"], "key": one["key"]})
    )
    expected = Counter[int]()
    last: dict[int, int] = {}
    for number in range(1_000):
        expected[number % 7] += number
    for row in sums.to_arrow().to_pylist():
        last[row["key"]] = max(row["id"], last.get(row["key"], 0))
    assert last == expected


UNFIT = """
    1 as fine, parse_json('1') as loose, interval '1' day as days,
    array(interval '1' year) as years, map('k', named_struct('v', interval '2' hour)) as deep
"""


def test_types_that_would_change_are_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(ConfigError) as refused:
        StagedFrame(spark.sql(f"select {UNFIT}"), None)
    what = refused.value.what
    for name in ("'loose' (variant", "'days' (interval day", "'years.element'", "'deep.value.v'"):
        assert name in what, what
    assert "'fine'" not in what and "to_json" in what


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("select 1 as a, 2 as A", "several columns named 'a'"),
        ("select array(named_struct('b', 1, 'B', 2)) as a", "columns named 'a.element.b'"),
        ("select 1 as a, struct() as s", "'s' (struct<>: leave it out"),
    ],
)
def test_columns_that_files_cannot_hold_are_refused(
    query: str, problem: str, spark: SparkSession, local_jobs: Jobs
) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        local_jobs.env(1).from_spark(spark.sql(query))


def test_what_is_no_finite_frame_is_refused(spark: SparkSession, local_jobs: Jobs) -> None:
    env = local_jobs.env(1)
    with pytest.raises(ConfigError, match="not a Spark DataFrame but a dict"):
        env.from_spark({"a": 1})
    with pytest.raises(ConfigError, match="streaming DataFrame never ends"):
        env.from_spark(spark.readStream.format("rate").load())
    with pytest.raises(ConfigError, match="no columns"):
        env.from_spark(spark.range(1).select())


@pytest.mark.slow
def test_a_query_that_fails_says_why_and_leaves_nothing(spark: SparkSession, jobs: Jobs) -> None:
    env = jobs.checkpointed(1, 100)
    frame = spark.range(3).selectExpr("raise_error('boom') as x")
    env.from_spark(frame).print()
    error = failure_of(jobs.start(env, "boom"))
    assert error is not None and "boom" in str(error) and "Spark could not write" in str(error)
    assert not list(jobs.checkpoints.glob("*/staged"))


@pytest.mark.slow
def test_a_job_that_is_cancelled_ends_the_query(spark: SparkSession, jobs: Jobs) -> None:
    env = jobs.env(1)
    # Spark looks for a kill where it reads files or a shuffle, not in a range: one without an end
    # would be written on, behind a job that is over, until the disk is full.
    naps = "java_method('java.lang.Thread', 'sleep', cast(100 as bigint)) as x"
    env.from_spark(spark.range(0, 600, 1, 2).selectExpr(naps)).print()
    client = jobs.start(env, "half a minute")
    tracker = spark.sparkContext.statusTracker()
    until(tracker.getActiveJobsIds, "Spark writes the frame", 30)
    client.cancel().result(timeout=100)
    assert isinstance(failure_of(client), JobCanceled)
    until(lambda: not tracker.getActiveJobsIds(), "Spark has ended the query", 10)


@pytest.mark.slow
def test_a_killed_worker_reads_on_in_the_same_files(spark: SparkSession, jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 100)
    frame = spark.range(0, 4_000, 1, 80).selectExpr("id", "rand() as chance")
    out = jobs.folder / "out"
    env.from_spark(frame).map(paused).sink_to(FileSink.parquet(str(out)))
    client = jobs.start(env, "killed")
    wait_completed(client, 2)
    kill_slot(client, 0)
    assert failure_of(client, 120) is None
    assert sorted(row["id"] for row in committed_rows(out)) == list(range(4_000))
    assert not list(jobs.checkpoints.glob("*/staged"))


def paused(row: dict[str, Any]) -> dict[str, Any]:
    """Long enough for some checkpoints to come while the job runs."""
    import time

    time.sleep(0.001)
    return row


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_killed_driver_is_followed_by_one_that_reads_what_the_first_wrote(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    first = started(FrameOrders(str(tmp_path)), log)
    try:
        until(lambda: committed_rows(tmp_path / "out"), "committed rows", 150)
        family = psutil.Process(first.pid).children(recursive=True)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        psutil.wait_procs(family, timeout=30)
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()
    before = committed_rows(tmp_path / "out")
    assert 0 < len(before) < ROWS, log.read_text()
    (staged,) = tmp_path.glob("checkpoints/*/staged/1/*")
    second = started(FrameOrders(str(tmp_path), resume=True), log)
    assert second.wait(150) == 0, log.read_text()
    rows = committed_rows(tmp_path / "out")
    assert sorted(row["id"] for row in rows) == list(range(ROWS)), "each row once"
    # The numbers are drawn by chance: had the second run asked Spark again, they would differ.
    chances = {row["id"]: row["chance"] for row in before}
    assert chances.items() <= {row["id"]: row["chance"] for row in rows}.items()
    assert log.read_text().count("writing what a source reads") == 1
    assert not staged.exists() and not list(tmp_path.glob("checkpoints/*/staged"))


# --- out ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stream_becomes_a_frame_of_its_declared_type(spark: SparkSession, jobs: Jobs) -> None:
    declared = Types.ROW_NAMED(["n", "word"], [Types.INT(), Types.STRING()])
    env = jobs.checkpointed(2, 100)
    words = env.from_sequence(1, 1_000).map(lambda n: (n, f"w{n % 3}"), declared)
    frame = words.to_spark()
    assert frame.schema.simpleString() == "struct<n:int,word:string>"
    counts = {row["word"]: row["count"] for row in frame.groupBy("word").count().collect()}
    assert counts == Counter(f"w{n % 3}" for n in range(1, 1_001))


@pytest.mark.slow
def test_a_frame_of_nothing_has_the_declared_columns(spark: SparkSession, local_jobs: Jobs) -> None:
    schemas: list[object] = [
        "a bigint, b array<decimal(9,2)>",
        t.StructType.fromDDL("a bigint, b array<decimal(9,2)>"),
        pa.schema([("a", pa.int64()), ("b", pa.list_(pa.decimal128(9, 2)))]),
    ]
    for schema in schemas:
        nothing = local_jobs.env(1).from_collection([1]).filter(lambda n: n > 1)
        frame = nothing.to_spark(schema, spark=spark)
        assert frame.schema.simpleString() == "struct<a:bigint,b:array<decimal(9,2)>>"
        assert frame.collect() == []
    undeclared = local_jobs.env(1).from_collection([1]).filter(lambda n: n > 1)
    assert undeclared.to_spark(spark=spark).schema == t.StructType()


@pytest.mark.slow
def test_found_columns_are_brought_under_one_type(spark: SparkSession, local_jobs: Jobs) -> None:
    env = local_jobs.checkpointed(2, 50)
    rows = env.from_sequence(0, 99).map(lambda n: {"v": n if n < 50 else n / 2})
    frame = rows.to_spark(spark=spark)
    assert frame.schema.simpleString() == "struct<v:double>"
    expected = sorted(n if n < 50 else n / 2 for n in range(100))
    assert sorted(row["v"] for row in frame.collect()) == expected


@pytest.mark.slow
def test_decimals_keep_their_width_or_have_sparks_own(
    spark: SparkSession, local_jobs: Jobs
) -> None:
    prices = spark.createDataFrame([(Decimal("12.50"),)], "price decimal(10,2)")
    passed = local_jobs.env(1).from_spark(prices).to_spark(spark=spark)
    assert passed.schema.simpleString() == "struct<price:decimal(10,2)>"
    rows = local_jobs.env(1).from_spark(prices).map(lambda row: {"price": row["price"]})
    found = rows.to_spark(spark=spark)
    assert found.schema == spark.createDataFrame([(Decimal("12.50"),)], ["price"]).schema
    assert found.collect() == passed.collect() == prices.collect()


def test_what_cannot_become_a_frame_is_refused_early(
    spark: SparkSession, local_jobs: Jobs, tmp_path: Path
) -> None:
    numbers = local_jobs.env(1).from_sequence(1, 3)
    with pytest.raises(GraphError, match="'d' \\(duration"):
        numbers.to_spark(pa.schema([("d", pa.duration("s"))]), spark=spark)
    with pytest.raises(ConfigError, match="variant"):
        numbers.to_spark("v variant", spark=spark)
    with pytest.raises(ConfigError, match="The schema has several columns named 'a'"):
        numbers.to_spark("a bigint, A bigint")
    with pytest.raises(ConfigError, match="The schema has several columns named 'a'"):
        numbers.to_spark(pa.schema([("a", pa.int64()), ("a", pa.int64())]))
    twice = pa.list_(pa.struct([("b", pa.int64()), ("B", pa.string())]))
    with pytest.raises(ConfigError, match=r"The schema has several columns named 's\.element\.b'"):
        numbers.to_spark(pa.schema([("s", twice)]))
    with pytest.raises(GraphError, match=r"'d' \(duration.*'d' \(time64"):
        numbers.to_spark(pa.schema([("d", pa.duration("s")), ("d", pa.time64("us"))]), spark=spark)
    with pytest.raises(ConfigError, match="not a schema of Spark"):
        numbers.to_spark("v nonsense", spark=spark)
    with pytest.raises(ConfigError, match="int is not a schema"):
        numbers.to_spark(7, spark=spark)
    with pytest.raises(GraphError, match="'endless' has no end"):
        local_jobs.env(1).generate(lambda n: n).name("endless").to_spark(spark=spark)
    with pytest.raises(ConfigError, match="no Spark session"):
        numbers.to_spark(spark="session")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "part-1.parquet").write_bytes(b"somebody's")
    with pytest.raises(ConfigError, match="holds other files"):
        numbers.to_spark(spark=spark, folder=str(tmp_path / "full"))
    resumed = local_jobs.env(1, **{"execution.state-recovery.path": "latest"})
    with pytest.raises(ConfigError, match="needs the folder of its output"):
        resumed.from_sequence(1, 3).to_spark(spark=spark)


def test_a_value_that_does_not_fit_names_its_column(spark: SparkSession, local_jobs: Jobs) -> None:
    numbers = local_jobs.env(1).from_collection([{"v": 1}, {"v": "x"}])
    with pytest.raises(JobFailed, match="column 'v' holds 'x', which does not fit int64"):
        numbers.to_spark("v bigint", spark=spark)


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_table_over_the_sinks_folder_sees_committed_rows_only(
    spark: SparkSession, jobs: Jobs
) -> None:
    folder = jobs.folder / "table"
    folder.mkdir()
    spark.sql(
        f"create table numbers (id bigint) using parquet location '{hadoop_path(str(folder))}'"
    )
    try:
        for first in (0, 500):
            env = jobs.checkpointed(2, 100)
            rows = env.from_sequence(first, first + 499).map(lambda n: {"id": n})
            rows.sink_to(FileSink.parquet(str(folder), pa.schema([("id", pa.int64())])))
            env.execute(f"into a table from {first}")
            (folder / ".part-torn.parquet.inprogress").write_bytes(b"torn")
            spark.sql("refresh table numbers")
            found = sorted(row["id"] for row in spark.table("numbers").collect())
            assert found == list(range(first + 500))
    finally:
        spark.sql("drop table numbers")


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("/data/out", "file:///data/out"),
        ("s3://bucket/out", "s3a://bucket/out"),
        ("gs://bucket/out", "gs://bucket/out"),
    ],
)
def test_spark_is_given_a_path_with_its_scheme(folder: str, path: str) -> None:
    assert hadoop_path(folder) == path

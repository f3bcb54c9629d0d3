"""Bounded jobs as stages of Spark find what they find as a stream on this machine."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.e2e.files import committed_files, committed_rows, hidden_files, write_numbers
from tests.e2e.journal import Latch
from tests.e2e.watch import until
from tests.spark.batch_programs import two_streams_in_one_order_of_time, with_limits
from tests.spark.batch_sinks import Table
from tidegate import (
    ConfigError,
    Duration,
    GraphError,
    JobCanceled,
    JobFailed,
    JobStatus,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.connectors import FileSink, FileSource
from tidegate.errors import CommitFailed
from tidegate.snapshots.folders import read_snapshot

pytestmark = pytest.mark.slow

NUMBER = pa.schema([("number", pa.int64())])


def in_batch(env: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def test_records_of_two_streams_come_in_one_order_of_their_times(spark: SparkSession) -> None:
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 3))
    with two_streams_in_one_order_of_time(env).execute_and_collect() as results:
        assert sorted(results, key=repr) == sorted(with_limits(), key=repr)


def fails_at_77(number: int) -> int:
    if number == 77:
        raise ValueError("no sevens")
    return number


@pytest.mark.parametrize("place", ["before the shuffle", "behind it"])
def test_a_failure_of_a_function_is_told_with_its_row_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path, place: str
) -> None:
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 2))
    numbers = env.from_sequence(1, 100)
    if place == "before the shuffle":
        numbers = numbers.map(fails_at_77).key_by(lambda n: n % 3).reduce(max)
    else:
        numbers = numbers.key_by(lambda n: n).reduce(max).map(fails_at_77)
    numbers.map(lambda n: {"number": n}).sink_to(FileSink.parquet(tmp_path, NUMBER))
    with pytest.raises(JobFailed, match="ValueError: no sevens") as failed:
        env.execute("sevens")
    assert "Map" in failed.value.where and "77" in str(failed.value)
    assert "fails_at_77" in failed.value.cause_text
    assert not committed_files(tmp_path) and not hidden_files(tmp_path)


class ClosesBadly(MapFunction[int, int]):
    """Cannot flush what it holds."""

    def map(self, value: int) -> int:
        return value

    def close(self) -> None:
        raise OSError("flush failed")


def test_a_failing_close_fails_the_batch_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 2))
    numbers = env.from_sequence(1, 9).map(ClosesBadly()).map(lambda n: {"number": n})
    numbers.sink_to(FileSink.parquet(tmp_path, NUMBER))
    with pytest.raises(JobFailed, match="OSError: flush failed"):
        env.execute("flush")
    assert not committed_files(tmp_path)


def test_files_hold_each_row_once_and_nothing_else_lies_about(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_numbers(tmp_path / "in", 4, 1_000)
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 3))
    source = FileSource.parquet(tmp_path / "in")
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    doubled = rows.rebalance().map(lambda row: {"number": 2 * row["number"]})
    doubled.sink_to(FileSink.parquet(tmp_path / "out", NUMBER))
    result = env.execute("doubled")
    found = sorted(row["number"] for row in committed_rows(tmp_path / "out"))
    assert found == list(range(0, 8_000, 2))
    assert not hidden_files(tmp_path / "out")
    summary = result.get_summary()
    assert summary is not None and (summary.rows.read, summary.rows.written) == (4_000, 4_000)


KILLED_ONCE = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from tidegate import *
from tidegate.connectors import FileSink

folder = Path(sys.argv[1])
NUMBER = pa.schema([("number", pa.int64())])

def die(once):
    if not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def dies_once(pair):
    if pair[0] == 3:
        die(folder / "died")
    return pair

def dies_late(number):
    if number == 600_000:
        die(folder / "died late")
    return {"number": number}

env = StreamExecutionEnvironment.on_spark(parallelism=2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
pairs = env.from_sequence(1, 1_000).map(lambda n: (n % 7, n)).key_by(lambda pair: pair[0])
sums = pairs.reduce(lambda a, b: (a[0], a[1] + b[1])).map(dies_once)
rows = sums.map(lambda pair: {"number": pair[1]})
rows.sink_to(FileSink.parquet(folder / "out", NUMBER))
many = env.from_sequence(1, 600_000).map(dies_late)
many.sink_to(FileSink.parquet(folder / "many", NUMBER))
env.execute("dies once")
"""


@pytest.mark.feature("F302")
def test_a_killed_worker_costs_a_task_doubles_nothing_and_leaves_no_file(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED_ONCE)
    ran = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "died").exists() and (tmp_path / "died late").exists()
    assert len(committed_rows(tmp_path / "many")) == 600_000
    assert not hidden_files(tmp_path / "many"), "the first attempt had begun a file"
    found = sorted(row["number"] for row in committed_rows(tmp_path / "out"))
    assert found == sorted(sum(range(1, 1_001)[n - 1 :: 7]) for n in range(1, 8))


def test_a_batch_can_be_cancelled_and_takes_no_checkpoints(spark: SparkSession) -> None:
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 2))
    env.from_sequence(1, 10_000).map(slow).print()
    client = env.execute_async("slow")
    until(lambda: client.get_job_status().result(0) is JobStatus.RUNNING, "it runs")
    with pytest.raises(ConfigError, match="batch cannot take a savepoint"):
        client.trigger_savepoint().result(5)
    client.cancel().result(60)
    assert client.get_job_status().result(0) is JobStatus.CANCELED
    with pytest.raises(JobCanceled):
        client.get_job_execution_result().result(5)


def slow(number: int) -> int:
    time.sleep(0.05)
    return number


def test_dataframes_go_in_and_come_out(spark: SparkSession) -> None:
    orders = spark.range(1_000).selectExpr("id", "id % 7 as shop", "id / 4.0D as amount")
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 2))
    rows = env.from_spark(orders).map(lambda row: (row["shop"], row["amount"]))
    sums = rows.key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    frame = sums.map(lambda pair: {"shop": pair[0], "amount": pair[1]}).to_spark(
        "shop bigint, amount double"
    )
    expected = orders.groupBy("shop").sum("amount").collect()
    assert sorted(map(tuple, frame.collect())) == sorted(map(tuple, expected))


def test_what_stages_cannot_run_is_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 2))
    windows = TumblingProcessingTimeWindows.of(Time.seconds(1))
    env.from_sequence(1, 10).key_by(lambda n: n % 2).window(windows).reduce(max).print()
    with pytest.raises(GraphError, match="processing time have no place in a batch"):
        env.execute()
    latest = {"execution.state-recovery.path": "latest"}
    claimed = {
        "execution.state-recovery.path": str(tmp_path),
        "execution.state-recovery.claim-mode": "CLAIM",
    }
    for settings in (latest, claimed):
        env = in_batch(StreamExecutionEnvironment.on_spark(spark, 2))
        env.configure(settings)
        env.from_sequence(1, 10).print()
        with pytest.raises(ConfigError, match="cannot go on from its newest, nor make a snapshot"):
            env.execute()


class Tails(KeyedProcessFunction[int, tuple[int, int, int]]):
    """How many numbers of its key have come, and a timer a while behind the last one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), value, count
        if value >= BEHIND - 40:
            ctx.timer_service().register_event_time_timer(value + 100)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[int, int, int]]:
        yield ctx.get_current_key(), -timestamp, self.count.value() or 0


BEHIND = 4_000
"""Numbers below are history, those from there on come live."""


WINDOW = 300


def counted(env: StreamExecutionEnvironment, folder: Path, out: Path, *, live: bool) -> None:
    source = FileSource.parquet(str(folder))
    if live:
        source = source.monitor_continuously(Duration.of_millis(20))
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers = rows.map(lambda row: row["number"], Types.LONG()).uid("plain")
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
    if live:  # a reader that has no file any more holds nobody back
        strategy = strategy.with_idleness(Duration.of_millis(200))
    timed = numbers.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda number, _: number)
    ).uid("timed")
    keyed = timed.key_by(lambda number: number % 10)
    tails = keyed.process(Tails()).uid("tails").map(lambda row: ("tail", *row))
    windows = TumblingEventTimeWindows.of(Time.milliseconds(WINDOW))
    sums = keyed.window(windows).reduce(lambda a, b: a + b).uid("sums")
    found = tails.union(sums.map(lambda total: ("sum", total, 0, 0)))
    lines = found.map(lambda row: {"what": row[0], "a": row[1], "b": row[2], "c": row[3]})
    columns = [("what", pa.string()), *((name, pa.int64()) for name in "abc")]
    lines.uid("lines").sink_to(FileSink.parquet(out, pa.schema(columns))).uid("files")


def lines_in(out: Path, what: str) -> list[tuple[int, ...]]:
    return sorted(
        (row["a"], row["b"], row["c"]) for row in committed_rows(out) if row["what"] == what
    )


def fired_sums(until_ms: int) -> list[tuple[int, ...]]:
    """Sums of the windows that end before, by plain Python."""
    starts = range(0, until_ms - WINDOW + 1, WINDOW)
    return sorted(
        (sum(n for n in range(start, start + WINDOW) if n % 10 == key), 0, 0)
        for start in starts
        for key in range(10)
    )


@pytest.mark.feature("F303")
def test_a_live_job_goes_on_where_a_batch_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    history, out, later = tmp_path / "in", tmp_path / "out", tmp_path / "later"
    write_numbers(history, 4, BEHIND // 4)
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 3))
    env.end_with_savepoint(tmp_path / "savepoints")
    counted(env, history, out, live=False)
    savepoint = env.execute("history").get_savepoint()
    assert savepoint is not None
    assert [b for _, b, _ in lines_in(out, "tail")].count(BEHIND - 1) == 1
    assert all(b >= 0 for _, b, _ in lines_in(out, "tail")), "no timer is due yet"
    # Event time is where the reader is that has come least far, as in a stream.
    assert 0 < len(lines_in(out, "sum")) <= len(fired_sums(BEHIND - 6))
    live = StreamExecutionEnvironment.local(2).enable_checkpointing(50)
    live.configure({"execution.state-recovery.path": savepoint})
    counted(live, history, out, live=True)
    client = live.execute_async("live")
    write_numbers(later, 8, BEHIND // 4)
    for file in sorted(later.glob("*.parquet"))[4:]:
        file.rename(history / f"new {file.name}")
    expected = fired_sums(2 * BEHIND - 6)
    until(lambda: len(lines_in(out, "sum")) >= len(expected), "all windows have fired")
    client.cancel().result(60)
    tails = lines_in(out, "tail")
    assert lines_in(out, "sum") == expected
    assert sorted(b for _, b, _ in tails if b >= 0) == list(range(2 * BEHIND))
    assert {key: max(c for k, b, c in tails if k == key and b >= 0) for key in range(10)} == (
        dict.fromkeys(range(10), 2 * BEHIND // 10)
    )
    fired = [-b - 100 for _, b, _ in tails if b < 0]
    assert sorted(fired)[:40] == list(range(BEHIND - 40, BEHIND)), "timers of the batch, each once"


@pytest.mark.feature("F303")
def test_batches_go_on_where_one_has_ended_at_any_parallelism(
    spark: SparkSession, tmp_path: Path
) -> None:
    history, out, later = tmp_path / "in", tmp_path / "out", tmp_path / "later"
    write_numbers(history, 2, 1_000)
    write_numbers(later, 6, 1_000)
    files, savepoint = sorted(later.glob("*.parquet")), None
    for number, parallelism in enumerate((2, 3, 1)):
        env = in_batch(StreamExecutionEnvironment.on_spark(spark, parallelism))
        if savepoint is not None:
            env.configure({"execution.state-recovery.path": savepoint})
            for file in files[2 * number : 2 * number + 2]:
                file.rename(history / f"{number} {file.name}")
        is_last = number == 2
        if not is_last:
            env.end_with_savepoint(tmp_path / "savepoints")
        counted(env, history, out, live=False)
        savepoint = env.execute(f"batch {number}").get_savepoint()
        assert (savepoint is None) is is_last
    tails = lines_in(out, "tail")
    assert sorted(b for _, b, _ in tails if b >= 0) == list(range(6_000))
    assert {key: max(c for k, b, c in tails if k == key and b >= 0) for key in range(10)} == (
        dict.fromkeys(range(10), 600)
    )
    assert lines_in(out, "sum") == fired_sums(6_000)
    fired = sorted(-b - 100 for _, b, _ in tails if b < 0)
    assert fired == list(range(BEHIND - 40, 6_000)), "timers of each batch, each once"


class Refusing(Table):
    """A sink whose commits are refused."""

    def commit(self, committables: Sequence[bytes]) -> None:
        raise CommitFailed("the table is locked")


@pytest.mark.parametrize("stage", ["before the savepoint is whole", "behind it"])
def test_a_savepoint_stays_where_it_holds_what_could_not_be_committed(
    spark: SparkSession, tmp_path: Path, stage: str
) -> None:
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 2)).end_with_savepoint(tmp_path)
    numbers = env.from_sequence(1, 100).key_by(lambda n: n % 3).reduce(max)
    if stage == "before the savepoint is whole":
        numbers = numbers.map(fails_at_77)
    numbers.sink_to(Refusing())
    with pytest.raises(JobFailed, match=r"the table is locked|no sevens") as failed:
        env.execute("refused")
    kept = list(tmp_path.iterdir())
    assert len(list(tmp_path.rglob("_metadata"))) == len(kept) == (stage == "behind it")
    told = [f"in {path}: a job that starts from there commits it" for path in kept]
    assert all(each in str(failed.value) for each in told)


def test_who_has_no_savepoint_is_told_what_a_failed_commit_means(spark: SparkSession) -> None:
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 1))
    env.from_sequence(1, 10).sink_to(Refusing())
    with pytest.raises(JobFailed, match="remove what is there before you run the batch again"):
        env.execute("refused")


def test_what_is_prepared_stays_where_a_commit_has_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 1))
    numbers = env.from_sequence(1, 10)
    numbers.sink_to(Refusing())
    numbers.map(lambda n: {"number": n}).sink_to(FileSink.parquet(tmp_path, NUMBER))
    with pytest.raises(JobFailed, match="the table is locked"):
        env.execute("refused")
    assert len(hidden_files(tmp_path)) + len(committed_files(tmp_path)) == 1


class Hanging(Refusing):
    """A sink whose commits do not return. held: set once the first is asked for, until released."""

    def __init__(self, held: Latch) -> None:
        self.held = held

    def commit(self, committables: Sequence[bytes]) -> None:
        self.held.set()
        self.held.wait()


def test_a_batch_whose_commit_does_not_return_can_be_cancelled(
    spark: SparkSession, tmp_path: Path
) -> None:
    held = Latch(tmp_path / "held")
    env = in_batch(StreamExecutionEnvironment.on_spark(spark, 1))
    env.from_sequence(1, 10).sink_to(Hanging(held))
    client = env.execute_async("hanging")
    until(lambda: held.is_set, "the sink commits")
    client.cancel().result(30)
    assert client.get_job_status().result(0) is JobStatus.CANCELED
    held.release()


def test_results_of_one_batch_are_not_given_by_the_next_once_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: list[list[int]] = []
    savepoint = ""
    for batch in (1, 2):
        env = in_batch(StreamExecutionEnvironment.on_spark(spark, 1))
        if savepoint:
            env.configure({"execution.state-recovery.path": savepoint})
        env.end_with_savepoint(tmp_path / "savepoints")
        write_numbers(tmp_path / "in", batch, MANY)
        source = FileSource.parquet(tmp_path / "in")
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        stream = rows.map(lambda row: row["number"]).uid("plain")
        with stream.execute_and_collect("numbers") as results:
            found.append(sorted(results))
        savepoint = newest(tmp_path / "savepoints")
        assert read_snapshot(savepoint)[1].checkpoint_id == batch
    assert found == [list(range(MANY)), list(range(MANY, 2 * MANY))]


MANY = 40_000
"""More rows than a sink of results sends ahead of who takes them."""


def newest(folder: Path) -> str:
    return str(max(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns))

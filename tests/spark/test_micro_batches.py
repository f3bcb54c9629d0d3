"""A program under Structured Streaming: micro-batches go on from each other, each result once."""

import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.e2e.files import committed_rows
from tests.e2e.journal import Latch
from tests.e2e.restores import RESTORE_PATH
from tests.spark.hooks import Offsets
from tests.spark.micro_programs import (
    BATCHES,
    Program,
    check_found,
    run_query,
    write_batch,
)
from tidegate import (
    ConfigError,
    DataStream,
    MicroBatches,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from tidegate.connectors import FileSink
from tidegate.datastream.process.outside import SETTINGS_VARIABLE
from tidegate.snapshots.folders import files_of, read_snapshot

pytestmark = pytest.mark.slow

KEYS, FEW = 20_000, 200
ON_DISK = {
    "state.backend.type": "rocksdb",
    "execution.state-recovery.from-local": True,
}


def checkpoints(state: Path) -> list[Path]:
    """Folders of the checkpoints of a query, oldest first."""
    return sorted(state.glob("*/chk-*"), key=lambda folder: int(folder.name[4:]))


def files_named_by(checkpoint: Path) -> set[Path]:
    """All files that a checkpoint needs, its metadata too."""
    location, read = read_snapshot(str(checkpoint))
    return {checkpoint / "_metadata", *map(Path, files_of(location, read))}


def size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


class Tallies:
    """How often each number has come, after each of its rows. fails: latch for one failure."""

    def __init__(self, folder: Path) -> None:
        self.fails = Latch(folder / "fails")
        self.out = folder / "out"

    def __call__(self, env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        counts = self.counts(rows.map(lambda row: row["number"]).uid("numbers"))
        schema = pa.schema([("number", pa.int64()), ("count", pa.int64())])
        lines = counts.map(self.line).uid("lines")
        lines.sink_to(FileSink.parquet(self.out, schema)).uid("files")

    def counts(self, numbers: DataStream[int]) -> DataStream[tuple[int, int]]:
        keyed = numbers.map(lambda number: (number, 1)).key_by(lambda pair: pair[0])
        return keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("counts")

    def line(self, count: tuple[int, int]) -> dict[str, int]:
        if self.fails.is_set and self.fails.take():
            raise ValueError("told to fail once")
        return {"number": count[0], "count": count[1]}

    def found(self) -> list[tuple[int, int]]:
        return sorted((row["number"], row["count"]) for row in committed_rows(self.out))


def write_rows(folder: Path, batch: int, rows: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"number": range(rows)}), folder / "in" / f"{batch}.parquet")


@pytest.mark.feature("F304")
def test_micro_batches_go_on_from_each_other_and_a_repeated_one_counts_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    program = Program(tmp_path)
    for number in range(2):
        write_batch(tmp_path / "in", number)
    run_query(spark, tmp_path, program)
    check_found(program, 2)
    write_batch(tmp_path / "in", 2)
    program.fails.set()
    with pytest.raises(StreamingQueryException, match="told to fail once"):
        run_query(spark, tmp_path, program)
    check_found(program, 2)
    run_query(spark, tmp_path, program, parallelism=3)
    check_found(program, 3)
    for number in range(3, BATCHES):
        write_batch(tmp_path / "in", number)
    program.refused.set()
    # Its snapshot is complete and its files stand; the sink beside has not committed.
    with pytest.raises(StreamingQueryException, match="the table is locked"):
        run_query(spark, tmp_path, program)
    run_query(spark, tmp_path, program)
    check_found(program, BATCHES)
    kept = checkpoints(tmp_path / "state")
    assert [each.name for each in kept] == [f"chk-{BATCHES - 1}", f"chk-{BATCHES}"]


def test_a_micro_batch_without_the_state_before_it_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = MicroBatches(Program(tmp_path), tmp_path / "state")
    with pytest.raises(ConfigError, match="no state of micro-batch 6, so 7 cannot go on"):
        batches(spark.range(3).withColumnRenamed("id", "number"), 7)


def test_micro_batches_have_the_settings_of_the_process_that_has_made_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        raise ValueError(f"seen: {env.get_parallelism()}")

    monkeypatch.setenv(SETTINGS_VARIABLE, '{"parallelism.default": "7"}')
    sent = cloudpickle.dumps(MicroBatches(program, tmp_path / "state"))
    monkeypatch.delenv(SETTINGS_VARIABLE)
    batches = pickle.loads(sent)  # as the server of Spark Connect does
    with pytest.raises(ValueError, match="seen: 7"):
        batches(spark.range(3).withColumnRenamed("id", "number"), 0)


def test_a_micro_batch_long_before_the_newest_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No query tells its id here, as through Spark Connect: its batches tell it."""
    program = Tallies(tmp_path)
    frame = spark.range(3).withColumnRenamed("id", "number")
    batches = MicroBatches(program, tmp_path / "state", parallelism=1)
    for number in range(2):
        batches(frame, number)
    counted = program.found()
    for again in (batches, MicroBatches(program, tmp_path / "state", parallelism=1)):
        with pytest.raises(ConfigError, match="is that of micro-batch 1, and the micro-batch is 0"):
            again(frame, 0)
        again(frame, 1)
    assert program.found() == counted


def test_a_program_that_sets_another_mode_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def program(env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
        rows.print()

    with pytest.raises(ConfigError, match="its program has set STREAMING"):
        MicroBatches(program, tmp_path / "state", parallelism=1)(spark.range(3), 0)


def test_a_master_hook_hears_the_numbers_of_the_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    tallies, hook = Tallies(tmp_path), Offsets()

    def program(env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        env.add_master_hook(hook)
        tallies(env, rows)

    for batch in range(2):
        write_rows(tmp_path, batch, FEW)
    run_query(spark, tmp_path, program)
    assert hook.triggered == [1, 2]


def test_a_new_query_over_the_state_of_another_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    program = Tallies(tmp_path)
    write_rows(tmp_path, 0, FEW)
    run_query(spark, tmp_path, program)
    (tmp_path / "spark").rename(tmp_path / "former")
    with pytest.raises(StreamingQueryException, match="This state is that of query"):
        run_query(spark, tmp_path, program)
    assert program.found() == [(number, 1) for number in range(FEW)]
    shutil.rmtree(tmp_path / "spark")
    (tmp_path / "former").rename(tmp_path / "spark")
    run_query(spark, tmp_path, program)


def test_what_was_committed_may_be_moved_on_between_two_micro_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    program = Tallies(tmp_path)
    for batch in range(2):
        write_rows(tmp_path, batch, FEW)
        run_query(spark, tmp_path, program)
        assert program.found() == [(number, batch + 1) for number in range(FEW)]
        shutil.rmtree(program.out)


@pytest.mark.feature("F304")
def test_a_micro_batch_writes_what_changed_and_a_live_job_goes_on_from_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    program = Tallies(tmp_path)
    write_rows(tmp_path, 0, KEYS)
    run_query(spark, tmp_path, program, **ON_DISK)
    [first] = checkpoints(tmp_path / "state")
    whole = size(files_named_by(first))
    for batch in (1, 2):
        write_rows(tmp_path, batch, FEW)
        if batch == 2:
            program.fails.set()
            with pytest.raises(StreamingQueryException, match="told to fail once"):
                run_query(spark, tmp_path, program, **ON_DISK)
        run_query(spark, tmp_path, program, **ON_DISK)
        before, newest = checkpoints(tmp_path / "state")[-2:]
        new = files_named_by(newest) - files_named_by(before)
        assert size(new) < whole / 10, "most of the state is named again"
    kept = {file for folder in (before, newest) for file in files_named_by(folder)}
    left = {file for file in newest.parent.rglob("*") if file.is_file()} - kept
    others = {file.name for file in left if not file.name.startswith("try-")}
    assert others == {"committed"}, "nothing is left of the try that failed"
    expected = [(n, count) for n in range(KEYS) for count in range(1, 4 if n < FEW else 2)]
    assert program.found() == expected
    env = StreamExecutionEnvironment.local(
        1,
        configuration={
            RESTORE_PATH: str(newest),
            "execution.state-recovery.ignore-unclaimed-state": True,
            "state.backend.type": "rocksdb",
        },
    )
    live = program.counts(env.from_collection([0, FEW, KEYS]))
    assert sorted(live.execute_and_collect()) == [(0, 4), (FEW, 2), (KEYS, 1)]

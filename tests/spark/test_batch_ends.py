"""Ends of a batch on Spark: the user's code in its driver that exits, hangs or raises."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.e2e.files import hidden_files, visible_files
from tests.e2e.journal import Latch
from tests.e2e.watch import until
from tests.spark.batch_sinks import Table
from tidegate import (
    ConfigError,
    Configuration,
    JobCanceled,
    JobFailed,
    JobStatus,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)
from tidegate.api.coordinator import CoordinatorContext
from tidegate.checkpoint.completed import CompletedCheckpoint
from tidegate.config import execution
from tidegate.connectors import FileSink
from tidegate.graph.job_graph import JobGraph
from tidegate.graph.runtime import load_runtime
from tidegate.model.ids import JobId
from tidegate.spark.batch import job as job_module
from tidegate.spark.batch.final_snapshot import FinalSavepoint, FinalSnapshot
from tidegate.spark.batch.job import StagedInputs

pytestmark = pytest.mark.slow


def batch(spark: SparkSession) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.on_spark(spark, 1)
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def test_a_savepoint_at_the_end_needs_a_folder(spark: SparkSession) -> None:
    env = batch(spark).end_with_savepoint("")
    env.from_sequence(1, 10).print()
    with pytest.raises(ConfigError, match="has no name"):
        env.execute("nowhere")


class NoTable:
    """A source whose enumerator leaves the program."""

    bounded = True
    produced_type = None

    def enumerator(self, context: CoordinatorContext, restored: bytes | None) -> object:
        sys.exit("no such table")

    def reader(self, context: object) -> object:
        raise AssertionError("nothing is read")


def test_code_in_the_driver_that_exits_fails_the_batch(spark: SparkSession) -> None:
    env = batch(spark)
    env.from_source(NoTable(), WatermarkStrategy.no_watermarks(), "table").print()
    client = env.execute_async("exits")
    with pytest.raises(JobFailed, match="no such table"):
        client.get_job_execution_result().result(60)
    assert client.get_job_status().result(0) is JobStatus.FAILED


class ExitsLate(Table):
    def clean_up(self, jobs: Collection[JobId]) -> None:
        sys.exit("no table")


def test_a_clean_up_that_exits_fails_nothing(spark: SparkSession) -> None:
    env = batch(spark)
    env.from_sequence(1, 10).sink_to(ExitsLate())
    client = env.execute_async("exits")
    client.get_job_execution_result().result(60)
    assert client.get_job_status().result(0) is JobStatus.FINISHED


def test_what_a_batch_has_committed_may_be_moved_on_before_the_next_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, savepoint = tmp_path / "out", ""
    for number in (1, 2):
        env = batch(spark).end_with_savepoint(tmp_path / "savepoints")
        if savepoint:
            env.configure(
                {
                    "execution.state-recovery.path": savepoint,
                    "execution.state-recovery.ignore-unclaimed-state": "true",
                }
            )
        rows = env.from_collection([{"n": number}]).uid(f"source {number}")
        rows.sink_to(FileSink.json(out)).uid("files")
        savepoint = env.execute("batch after batch").get_savepoint() or ""
        [file] = visible_files(out)
        assert file.read_text() == f'{{"n":{number}}}\n'
        file.unlink()
    assert (tmp_path / "savepoints").exists() and not hidden_files(out)


class CleansUpForEver(Table):
    def __init__(self, held: Latch) -> None:
        self.held = held

    def clean_up(self, jobs: Collection[JobId]) -> None:
        self.held.set()
        self.held.wait()


class ClosesBehindItsCommit(Table):
    """Its commit does not return, and until it does its close does not either."""

    def __init__(self, held: Latch) -> None:
        self.held = held

    def commit(self, committables: Sequence[bytes]) -> None:
        self.held.set()
        self.held.wait()

    def close(self) -> None:
        self.held.wait()


@pytest.mark.parametrize(
    ("sink", "status"),
    [
        (CleansUpForEver, JobStatus.FINISHED),  # it has committed all
        (ClosesBehindItsCommit, JobStatus.CANCELED),
    ],
)
def test_a_batch_whose_sink_hangs_in_the_driver_can_be_cancelled(
    spark: SparkSession, tmp_path: Path, sink: type[CleansUpForEver], status: JobStatus
) -> None:
    held = Latch(tmp_path / "held")
    env = batch(spark)
    env.from_sequence(1, 10).sink_to(sink(held))
    client = env.execute_async("hangs")
    until(lambda: held.is_set, "the sink hangs")
    client.cancel().result(30)
    assert client.get_job_status().result(0) is status and held.is_set
    held.release()


class SlowMetadata(FinalSavepoint):
    held: Latch

    def complete(self, *states: Any, again: bool) -> None:
        self.held.set()
        self.held.wait()
        super().complete(*states, again=again)


def test_a_savepoint_that_hangs_ends_with_the_job_and_is_whole_once_it_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nobody knows whether it will be there, so nothing is deleted that it names."""
    held = SlowMetadata.held = Latch(tmp_path / "held")

    def ending(graph: JobGraph, job: JobId, before: CompletedCheckpoint | None) -> FinalSnapshot:
        return SlowMetadata(graph, job, str(tmp_path / "savepoints"), before)

    make_runtime, settings = load_runtime("spark"), Configuration()
    settings.set(execution.RUNTIME_MODE, RuntimeExecutionMode.BATCH)
    env = StreamExecutionEnvironment(
        lambda configuration: make_runtime(configuration, spark=spark, ending=ending),
        settings,
        session=lambda _: spark,
    )
    out = tmp_path / "out"
    env.from_sequence(1, 10).map(lambda n: {"n": n}).sink_to(FileSink.json(out))
    client = env.execute_async("hangs")
    until(lambda: held.is_set, "the metadata is written")
    client.cancel().result(30)
    with pytest.raises(JobCanceled):
        client.get_job_execution_result().result(5)
    held.release()
    until(lambda: len(list(tmp_path.rglob("_metadata"))) == 1, "the metadata is there")
    assert hidden_files(out) and not visible_files(out)


def test_a_cancelled_batch_deletes_its_output_though_its_input_cannot_be_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleting, reading = Latch(tmp_path / "deleting"), Latch(tmp_path / "reading")

    def hangs(inputs: StagedInputs) -> None:
        deleting.set()
        deleting.wait()

    def waits(n: int) -> dict[str, int]:
        if n == 50_000:
            reading.set()
            reading.wait()
        return {"n": n}

    monkeypatch.setattr(StagedInputs, "delete", hangs)
    monkeypatch.setattr(job_module, "_CLEAN_UP_S", 0)
    out = tmp_path / "out"
    env = batch(spark)
    env.from_sequence(1, 50_000).map(waits).sink_to(FileSink.json(out))
    client = env.execute_async("is cancelled")
    until(lambda: reading.is_set and bool(hidden_files(out)), "a part is begun")
    client.cancel()
    reading.release()
    until(lambda: deleting.is_set, "its input is deleted")
    with pytest.raises(JobCanceled):
        client.get_job_execution_result().result(30)
    assert not hidden_files(out)
    deleting.release()


class Raises(Table):
    """Its commit raises what is no error of ours."""

    def commit(self, committables: Sequence[bytes]) -> None:
        raise LookupError("no such table")


def test_whatever_a_committer_raises_is_told_with_its_sink_and_where_the_output_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = batch(spark).end_with_savepoint(tmp_path)
    env.from_sequence(1, 10).sink_to(Raises()).name("to the table")
    with pytest.raises(JobFailed, match="LookupError: no such table") as failed:
        env.execute("raises")
    [savepoint] = tmp_path.iterdir()
    assert f"in {savepoint}: a job that starts from there commits it" in str(failed.value)
    assert "to the table" in failed.value.where and "in commit" in str(failed.value)


def test_who_cancels_a_batch_while_it_commits_is_told_where_the_output_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    held = Latch(tmp_path / "held")
    env = batch(spark).end_with_savepoint(tmp_path / "savepoints")
    env.from_sequence(1, 10).sink_to(ClosesBehindItsCommit(held))
    client = env.execute_async("hangs")
    until(lambda: held.is_set, "the sink commits")
    client.cancel().result(30)
    held.release()
    [savepoint] = (tmp_path / "savepoints").iterdir()
    with pytest.raises(JobCanceled, match=f"in {savepoint}: a job that starts from there"):
        client.get_job_execution_result().result(5)


class ClosesBadly(Table):
    """Its close fails once it has committed."""

    def __init__(self, committed: Latch) -> None:
        self.committed = committed

    def commit(self, committables: Sequence[bytes]) -> None:
        self.committed.set()

    def close(self) -> None:
        if self.committed.is_set:
            raise OSError("the connection is gone")


def test_a_batch_whose_committer_cannot_be_closed_has_committed_all_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    committed = Latch(tmp_path / "committed")
    env = batch(spark)
    env.from_sequence(1, 10).sink_to(ClosesBadly(committed))
    client = env.execute_async("closes badly")
    client.get_job_execution_result().result(60)
    assert committed.is_set and client.get_job_status().result(0) is JobStatus.FINISHED

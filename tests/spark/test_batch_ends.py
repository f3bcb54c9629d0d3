"""Ends of a batch on Spark: the user's code in its driver that exits, that hangs, and that raises."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate import (
    JobFailed,
    JobStatus,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)
from tidegate.api.coordinator import CoordinatorContext
from tidegate.api.sink import Prepared, WriterContext
from tidegate.model.ids import JobId

pytestmark = pytest.mark.slow


def batch(spark: SparkSession) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.on_spark(spark, 1)
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


class Table:
    """A sink whose commits, and whatever else a test replaces, do nothing."""

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "Table":
        return self

    def committer(self) -> "Table":
        return self

    def write(self, batch: object) -> None: ...

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared((b"rows",))

    def snapshot(self, checkpoint: int) -> Sequence[bytes]:
        return ()

    def commit(self, committables: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...

    def clean_up(self, job: JobId) -> None: ...


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
    def clean_up(self, job: JobId) -> None:
        sys.exit("no table")


def test_a_clean_up_that_exits_fails_nothing(spark: SparkSession) -> None:
    env = batch(spark)
    env.from_sequence(1, 10).sink_to(ExitsLate())
    client = env.execute_async("exits")
    client.get_job_execution_result().result(60)
    assert client.get_job_status().result(0) is JobStatus.FINISHED

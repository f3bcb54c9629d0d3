"""The user's callbacks in the driver of a batch: hooks, enrichers and listeners, as of a stream."""

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.e2e.watch import until
from tests.spark.hooks import Offsets
from tidegate import (
    FailureContext,
    FailureEnricher,
    JobExecutionStatusEvent,
    JobFailed,
    JobStatus,
    JobStatusChangedListener,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    TidegateError,
)

pytestmark = pytest.mark.slow


def batch(spark: SparkSession) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.on_spark(spark, 1)
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


class Changes(JobStatusChangedListener):
    def __init__(self) -> None:
        self.seen: list[JobStatus] = []

    def on_event(self, event: JobExecutionStatusEvent) -> None:
        self.seen.append(event.new_status)


def test_listeners_hear_of_a_batch(spark: SparkSession) -> None:
    env, changes = batch(spark), Changes()
    env.register_job_listener(changes)
    env.from_sequence(1, 10).filter(lambda n: n > 10).print()
    env.execute()
    assert changes.seen == [JobStatus.RUNNING, JobStatus.FINISHED]


class Stuck(JobStatusChangedListener):
    """Does not return before it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.came = threading.Event()

    def on_event(self, event: JobExecutionStatusEvent) -> None:
        self.came.set()
        self.go.wait()


def test_a_listener_that_does_not_return_keeps_no_batch_and_no_other_listener(
    spark: SparkSession,
) -> None:
    env, changes, stuck = batch(spark), Changes(), Stuck()
    env.register_job_listener(stuck)
    env.register_job_listener(changes)
    env.from_sequence(1, 10).filter(lambda n: n > 10).print()
    client = env.execute_async()
    until(lambda: JobStatus.FINISHED in changes.seen, "the other listener to hear of the end")
    assert stuck.came.is_set()
    stuck.go.set()
    client.get_job_execution_result().result(60)
    assert changes.seen == [JobStatus.RUNNING, JobStatus.FINISHED]


class BlamesData(FailureEnricher):
    def get_output_keys(self) -> set[str]:
        return {"blame"}

    def process_failure(self, cause: TidegateError, context: FailureContext) -> Mapping[str, str]:
        return {"blame": f"{context.job_name}: {'data' if 'sevens' in str(cause) else 'world'}"}


def fails_at_7(number: int) -> int:
    if number == 7:
        raise ValueError("no sevens")
    return number


def test_a_failure_of_a_batch_is_labelled(spark: SparkSession) -> None:
    env = batch(spark)
    env.add_failure_enricher(BlamesData())
    env.from_sequence(1, 10).map(fails_at_7).print()
    client = env.execute_async("labelled")
    with pytest.raises(JobFailed, match="no sevens"):
        client.get_job_execution_result().result(60)
    (failure,) = client.view().failures_labelled("blame", "labelled: data")
    assert "Map" in failure.task


def test_a_master_hook_is_part_of_the_savepoint_that_a_batch_ends_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    def program(env: StreamExecutionEnvironment, hook: Offsets) -> StreamExecutionEnvironment:
        env.add_master_hook(hook)
        sums = env.from_sequence(1, 10).uid("n").key_by(lambda n: n % 2).reduce(max).uid("max")
        sums.filter(lambda n: n > 10).uid("none").print().uid("print")
        return env

    before, after = Offsets(), Offsets()
    env = program(batch(spark).end_with_savepoint(str(tmp_path)), before)
    savepoint = env.execute().get_savepoint()
    assert savepoint is not None and before.heard == ["reset", "closed"]
    live = StreamExecutionEnvironment.local(1)
    live.configure({"execution.state-recovery.path": savepoint})
    program(live, after).execute()
    assert after.heard[0] == "as of the batch"

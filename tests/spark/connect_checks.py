"""What must hold of jobs through Spark Connect; each check runs in a process of its own.

``python -m tests.spark.connect_checks NAME URL FOLDER``: a process is a client of Connect or has a
SparkContext, and the other tests have one.
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.e2e import kills
from tests.e2e.bad_input import check_clear
from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.runtimes import Jobs, failure_of
from tests.e2e.watch import until, wait_completed
from tests.spark.batch_programs import PROGRAMS
from tests.spark.connect_server import CORES, processes_of
from tests.spark.micro_programs import Program, check_found, run_query, write_batch
from tidegate import (
    ConfigError,
    JobCanceled,
    JobClient,
    JobFailed,
    JobStatus,
    JobSuspended,
    MicroBatches,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)

Check = Callable[[SparkSession, Path], None]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def jobs_of(spark: SparkSession, folder: Path) -> Jobs:
    return Jobs(
        lambda parallelism, settings: StreamExecutionEnvironment.on_spark(
            spark, parallelism, configuration=settings
        ),
        folder,
    )


def in_batch(spark: SparkSession, parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.on_spark(spark, parallelism)
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


@check
def two_killed_slots_lose_and_double_nothing(spark: SparkSession, folder: Path) -> None:
    kills.check_two_kills(jobs_of(spark, folder))


IN_BATCH = (
    "reduced_numbers",
    "previous_by_time",
    "joined_in_windows",
    "side_outputs_and_unions",
    "nothing_at_all",
)


@check
def a_batch_finds_what_it_finds_here(spark: SparkSession, folder: Path) -> None:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    for name in IN_BATCH:
        with PROGRAMS[name](in_batch(spark, 3)).execute_and_collect() as results:
            found = sorted(results, key=repr)
        local = StreamExecutionEnvironment.local(1).set_runtime_mode(RuntimeExecutionMode.BATCH)
        with PROGRAMS[name](local).execute_and_collect() as results:
            assert found == sorted(results, key=repr), name
    assert spark.conf.get("spark.sql.adaptive.enabled") == before == "true"


def endless(jobs: Jobs, **settings: object) -> JobClient:
    """A job that runs until it is ended, and has completed a checkpoint."""
    env = jobs.checkpointed(2, 100, **settings)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    wait_completed(client, 1)
    return client


def slow(number: int) -> int:
    time.sleep(0.05)
    return number


@check
def a_cancelled_job_leaves_nothing_on_the_server(spark: SparkSession, folder: Path) -> None:
    client = endless(jobs_of(spark, folder))
    client.cancel().result(60)
    assert client.get_job_status().result(0) is JobStatus.CANCELED
    assert spark.interruptAll() == []
    env = in_batch(spark, 2)
    env.from_sequence(1, 10_000).map(slow).print()
    client = env.execute_async("slow")
    until(lambda: client.get_job_status().result(0) is JobStatus.RUNNING, "it runs")
    client.cancel().result(60)
    assert client.get_job_status().result(0) is JobStatus.CANCELED
    assert spark.interruptAll() == []


@check
def a_job_whose_queries_are_interrupted_is_cancelled(spark: SparkSession, folder: Path) -> None:
    client = endless(jobs_of(spark, folder))
    spark.interruptAll()
    error = failure_of(client)
    assert isinstance(error, JobCanceled) and "from outside" in error.what, error


@check
def a_driver_that_executors_cannot_dial_is_told(spark: SparkSession, folder: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    jobs = jobs_of(spark, folder)
    told = {
        "tidegate.net.driver-address": address,
        "tidegate.net.driver-bind-address": "127.0.0.1",
    }
    env = jobs.checkpointed(2, 100, **told)
    running_counts(env, None, 1_000).sink_to(LedgerSink(folder / "out"))
    error = failure_of(jobs.start(env, "counts"))
    # At once, though it may be restarted a thousand times.
    assert isinstance(error, JobFailed), error
    assert f"cannot reach the driver at {address}: [Errno 111] Connection refused" in error.what
    assert "set tidegate.net.driver-address" in error.remedy
    assert "spark-submit --deploy-mode cluster" in error.remedy


@check
def more_slots_than_cores_are_refused(spark: SparkSession, folder: Path) -> None:
    env = StreamExecutionEnvironment.on_spark(spark, CORES + 1)
    env.from_sequence(1, 10).rebalance().print()
    with pytest.raises(ConfigError) as refused:
        env.execute("too wide")
    check_clear(refused.value, f"{CORES + 1} slots", f"{CORES} cores")


@check
def dataframes_go_in_and_come_out(spark: SparkSession, folder: Path) -> None:
    orders = spark.range(1_000).selectExpr("id", "id % 7 as shop", "id / 4.0D as amount")
    expected = sorted(map(tuple, orders.groupBy("shop").sum("amount").collect()))
    env = in_batch(spark, 2)
    rows = env.from_spark(orders, folder=str(folder / "staged"))
    pairs = rows.map(lambda row: (row["shop"], row["amount"])).key_by(lambda row: row[0])
    sums = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]))
    frame = sums.map(lambda pair: {"shop": pair[0], "amount": pair[1]}).to_spark(
        "shop bigint, amount double", folder=str(folder / "summed")
    )
    assert sorted(map(tuple, frame.collect())) == expected


@check
def tasks_import_files_that_a_program_brings(spark: SparkSession, folder: Path) -> None:
    package = folder / "packages" / "connect_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("answer = 40")
    (folder / "connect_module.py").write_text("answer = 2")
    for mode in RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH:
        env = StreamExecutionEnvironment.on_spark(spark, 2).set_runtime_mode(mode)
        for name in ("packages", "connect_module.py"):
            env.add_python_file(str(folder / name))
        with env.from_sequence(1, 3).map(answer).execute_and_collect() as found:
            assert sorted(found) == [43, 44, 45]


def answer(number: int) -> int:
    import connect_module  # pyright: ignore[reportMissingImports]
    import connect_package  # pyright: ignore[reportMissingImports]

    return number + int(connect_module.answer + connect_package.answer)


@check
def a_stopped_session_is_refused(spark: SparkSession, folder: Path) -> None:
    other = SparkSession.builder.remote(sys.argv[2]).create()
    env = StreamExecutionEnvironment.on_spark(other, 1)
    env.from_sequence(1, 3).print()
    other.stop()
    with pytest.raises(ConfigError, match="has been stopped"):
        env.execute()


@check
def a_job_whose_server_dies_says_so(spark: SparkSession, folder: Path) -> None:
    once = {
        "restart-strategy.fixed-delay.attempts": 1,
        "tidegate.slots.start-timeout": "30 s",
    }
    env = in_batch(spark, 2)
    env.from_sequence(1, 3).print()
    env.execute()  # so that the server's first steps are behind it
    client = endless(jobs_of(spark, folder), **once)
    for process in processes_of(int(os.environ["CONNECT_SERVER"])):
        process.kill()
    error = failure_of(client)
    assert isinstance(error, JobSuspended), "it has checkpoints to go on from"
    assert "Connect's server does not answer" in str(error)
    print("held a_job_whose_server_dies_says_so", flush=True)
    os._exit(0)  # PySpark's own client tries for ten minutes to tell the server of its end


@check
def what_is_shipped_is_found(spark: SparkSession, folder: Path) -> None:
    for mode in RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH:
        env = StreamExecutionEnvironment.on_spark(spark, 2).set_runtime_mode(mode)
        env.configure({"tidegate.spark.ship": True})
        sums = env.from_sequence(1, 100).key_by(lambda n: n % 3).reduce(lambda a, b: a + b)
        with sums.execute_and_collect() as found:
            assert {1650, 1683, 1717} <= set(found)


@check
def a_python_without_tidegate_is_told(spark: SparkSession, folder: Path) -> None:
    env = StreamExecutionEnvironment.on_spark(spark, 1)
    env.from_sequence(1, 3).print()
    with pytest.raises(JobFailed, match="the executors' Python has no tidegate"):
        env.execute()


@check
def micro_batches_go_on_from_each_other(spark: SparkSession, folder: Path) -> None:
    program = Program(folder)
    for number in range(2):
        write_batch(folder / "in", number)
    run_query(spark, folder, program)
    check_found(program, 2)
    write_batch(folder / "in", 2)
    program.fails.set()
    with pytest.raises(StreamingQueryException, match="told to fail once"):
        run_query(spark, folder, program)
    run_query(spark, folder, program, parallelism=3)
    check_found(program, 3)


@check
def micro_batches_refuse_a_relative_folder(spark: SparkSession, folder: Path) -> None:
    write_batch(folder / "in", 0)
    os.chdir(folder)
    stream = spark.readStream.schema("number bigint").parquet(str(folder / "in"))
    writer = stream.writeStream.foreachBatch(MicroBatches(Program(folder), "state"))
    writer = writer.option("checkpointLocation", str(folder / "spark")).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="The folder of the state is relative"):
        writer.start().awaitTermination(100)
    assert not (folder / "state").exists()


if __name__ == "__main__":
    name, url, place = sys.argv[1:]
    session = SparkSession.builder.remote(url).getOrCreate()
    CHECKS[name](session, Path(place))
    session.stop()
    print("held", name)

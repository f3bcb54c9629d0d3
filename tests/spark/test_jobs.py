"""Jobs on Spark give what plain Python gives, and survive what befalls them."""

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import structlog
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from tests.e2e import drivers, kills, restores
from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.programs import all_expected, all_found, build_all
from tests.e2e.runtimes import WITHOUT_CHECKPOINTS, Jobs, failure_of, finished
from tests.e2e.watch import pids, view, wait_completed, wait_running
from tests.spark.conftest import CORES
from tidegate import JobCanceled
from tidegate.spark.access.access import tell_of_plain_rpc
from tidegate.spark.access.classic import ClassicAccess


@pytest.mark.parametrize("links", ["auto", "on"], ids=["plain links", "encrypted links"])
def test_programs_give_what_plain_python_gives(links: str, jobs: Jobs) -> None:
    env = jobs.checkpointed(2, 100, **{"tidegate.security.internal": links})
    build_all(env, jobs.folder / "out")
    finished(jobs.start(env, "programs"))
    assert all_found(jobs.folder / "out") == all_expected()


class Conf:
    """What a Spark session was built with."""

    def __init__(self, **conf: str) -> None:
        self._conf = conf
        self.sparkContext = self

    def getConf(self) -> dict[str, str]:
        return self._conf


@pytest.mark.parametrize("key", [None, "spark.network.crypto.enabled", "spark.ssl.rpc.enabled"])
def test_it_is_told_where_spark_carries_our_keys_in_the_clear(key: str | None) -> None:
    session = Conf() if key is None else Conf(**{key: "true"})
    with capture_logs() as logs:
        access = ClassicAccess(session)  # type: ignore[arg-type]
        tell_of_plain_rpc(access, structlog.get_logger())
    assert len(logs) == (1 if key is None else 0)


def test_collected_rows_come_once_while_the_job_runs(jobs: Jobs) -> None:
    stream = running_counts(jobs.checkpointed(2, 100), 2_000, 2_000)
    with stream.execute_and_collect("collected") as rows:
        collected = sorted(row["number"] for row in rows)
    assert collected == list(range(2_000))


@pytest.mark.feature("F069")
def test_a_checkpoint_is_triggered_across_processes(jobs: Jobs) -> None:
    env = jobs.env(2, **WITHOUT_CHECKPOINTS)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    assert os.getpid() not in pids(wait_running(client)) and len(pids(view(client))) == 2
    done = client.trigger_checkpoint().result(timeout=100)
    found = view(client).checkpoints.find(done.checkpoint)
    assert found is not None and found.acknowledged == found.subtasks == 4


@pytest.mark.feature("F128", "F189", "F287")
def test_two_killed_workers_lose_and_double_nothing(jobs: Jobs) -> None:
    kills.check_two_kills(jobs)


def test_slots_that_live_host_the_subtasks_of_killed_ones(jobs: Jobs) -> None:
    kills.check_kills_on_survivors(jobs)


def test_a_worker_killed_during_a_checkpoint_leaves_none_behind(jobs: Jobs) -> None:
    kills.check_kill_during_checkpoint(jobs)


@pytest.mark.feature("F282")
def test_a_killed_reader_of_columns_loses_and_doubles_nothing(jobs: Jobs) -> None:
    kills.check_kill_over_columns(jobs)


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.feature("F188")
def test_a_killed_driver_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    drivers.check_killed_driver(tmp_path, spark=True)


@pytest.mark.feature("F205")
def test_a_failover_before_the_first_checkpoint_starts_empty(jobs: Jobs) -> None:
    kills.check_kill_before_first_checkpoint(jobs)


@pytest.mark.feature("F030", "F196", "F198")
def test_a_job_goes_on_at_another_parallelism_and_on_another_runtime(
    jobs: Jobs, local_jobs: Jobs
) -> None:
    restores.check_rescaled([(jobs, 2), (local_jobs, 1), (jobs, 3)])


def test_a_job_whose_spark_jobs_are_cancelled_is_cancelled(jobs: Jobs, spark: SparkSession) -> None:
    env = jobs.checkpointed(2, 100)
    running_counts(env, None, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    wait_completed(client, 1)
    spark.sparkContext.cancelAllJobs()
    error = failure_of(client)
    assert isinstance(error, JobCanceled) and "from outside" in error.what


def test_a_worker_that_spark_uses_again_has_nothing_of_ours(
    jobs: Jobs, spark: SparkSession
) -> None:
    fresh = of_workers(spark)
    env = jobs.checkpointed(2, 100)
    running_counts(env, 500, 1_000).sink_to(LedgerSink(jobs.folder / "out"))
    client = jobs.start(env, "counts")
    slots = pids(wait_running(client))
    finished(client)
    used = of_workers(spark)
    assert slots & set(used), "none of the workers was used again"
    assert {seen for seen, _ in used.values()} == {seen for seen, _ in fresh.values()}
    # What the daemon has frozen may have gone since.
    assert max(frozen for _, frozen in used.values()) <= max(f for _, f in fresh.values())


def of_workers(spark: SparkSession) -> dict[int, tuple[str, int]]:
    """By pid what a job could leave in a worker: threads, signal handlers, a collector at rest.

    The number is of objects that the collector does not look at.
    """

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        handlers = [str(signal.getsignal(each)) for each in (signal.SIGTERM, signal.SIGHUP)]
        threads = sorted(thread.name for thread in threading.enumerate())
        seen, frozen = str((threads, handlers, gc.isenabled())), gc.get_freeze_count()
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "seen": [seen], "frozen": [frozen]})

    schema = "pid long, seen string, frozen long"
    rows = spark.range(0, CORES, 1, CORES).mapInArrow(look, schema)
    return {row["pid"]: (row["seen"], row["frozen"]) for row in rows.collect()}

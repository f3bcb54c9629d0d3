"""Jobs on real Spark: one session in this process, its workers processes of their own.

Its daemon is the one that sessions of Tidegate's own have; programs that tests start on Spark have
sessions of their own with Spark's.
"""

import os
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest
from pyspark.sql import SparkSession

from tests.e2e.runtimes import Jobs
from tests.e2e.watch import until
from tidegate import StreamExecutionEnvironment
from tidegate.spark.daemon import MODULE, SPARKS_MODULE

CORES = 4


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("tidegate tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", MODULE)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path) -> Iterator[Jobs]:
    """Makes environments on the session; after the test nothing of its jobs is left in it."""
    jobs = Jobs(
        lambda parallelism, settings: StreamExecutionEnvironment.on_spark(
            spark, parallelism, configuration=settings
        ),
        tmp_path,
    )
    yield jobs
    jobs.end_all()
    check_session_is_idle(spark)


def check_session_is_idle(spark: SparkSession) -> None:
    """No Spark job of ours runs any more, and no worker that Spark keeps listens for anybody."""
    tracker = spark.sparkContext.statusTracker()
    until(lambda: not tracker.getActiveJobsIds(), "Spark has no job of ours any more", 10)
    until(lambda: not listening_workers(), "no worker listens any more", 10)


def listening_workers() -> list[int]:
    """Spark's Python workers that hold a listening socket."""
    found: list[int] = []
    for process in psutil.Process().children(recursive=True):
        try:
            parent = process.parent()
            if parent is None or not is_worker(process) or not is_worker(parent):
                continue  # the daemon that forks workers listens for as long as the session lives
            if any(each.status == psutil.CONN_LISTEN for each in process.net_connections()):
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def is_worker(process: psutil.Process) -> bool:
    return not {MODULE, SPARKS_MODULE}.isdisjoint(process.cmdline())


@pytest.fixture
def local_jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Makes environments on this machine, over the same folder as ``jobs``."""
    jobs = Jobs(
        lambda parallelism, settings: StreamExecutionEnvironment.local(
            parallelism, configuration=settings
        ),
        tmp_path,
    )
    yield jobs
    jobs.end_all()


THERE = ("pyspark", "py4j", "numpy", "pandas", "pyarrow", "pytz", "dateutil", "six.py", "tzdata")


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has what PySpark's Arrow functions need, and nothing of ours."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    [packages] = (folder / "lib").glob("python*/site-packages")
    assert pyspark.__file__ is not None
    have = Path(pyspark.__file__).parents[1]
    for name in (*THERE, "numpy.libs", "pandas.libs"):
        if (have / name).exists():
            (packages / name).symlink_to(have / name)
    for known in have.glob("pyarrow-*.dist-info"):  # slots tell its version
        (packages / known.name).symlink_to(known)
    return folder / "bin" / "python"

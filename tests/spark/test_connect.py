"""Jobs through Spark Connect, with a server and clients in processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.watch import until
from tests.house.source import ROOT
from tests.spark.connect_server import ConnectServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

END_S = 250.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    server = ConnectServer(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


def check_holds(name: str, server: ConnectServer, folder: Path) -> None:
    """Runs a check of tests/spark/connect_checks.py."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_checks", name, server.url, str(folder)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "CONNECT_SERVER": str(server.process.pid),
            "XDG_CACHE_HOME": str(folder / "cache"),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    assert f"held {name}" in done.stdout, done.stdout + done.stderr


@pytest.mark.feature("F307")
@pytest.mark.parametrize(
    "name",
    [
        "two_killed_slots_lose_and_double_nothing",
        "a_batch_finds_what_it_finds_here",
        "a_cancelled_job_leaves_nothing_on_the_server",
        "a_driver_that_executors_cannot_dial_is_told",
    ],
)
def test_streams_and_batches_hold_what_they_hold_in_a_classic_session(
    name: str, server: ConnectServer, tmp_path: Path
) -> None:
    check_holds(name, server, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "a_job_whose_queries_are_interrupted_is_cancelled",
        "more_slots_than_cores_are_refused",
        "dataframes_go_in_and_come_out",
        "tasks_import_files_that_a_program_brings",
        "a_stopped_session_is_refused",
        "micro_batches_go_on_from_each_other",
        "micro_batches_refuse_a_relative_folder",
    ],
)
def test_what_goes_with_jobs_works(name: str, server: ConnectServer, tmp_path: Path) -> None:
    check_holds(name, server, tmp_path)


def test_a_job_whose_server_dies_says_so(tmp_path: Path) -> None:
    server = ConnectServer(tmp_path)
    try:
        check_holds("a_job_whose_server_dies_says_so", server, tmp_path)
    finally:
        server.stop()


def test_executors_that_have_pyspark_alone_get_the_rest_or_say_what_is_missing(
    tmp_path: Path, bare: Path
) -> None:
    server = ConnectServer(tmp_path, bare)
    try:
        for name in ("a_python_without_tidegate_is_told", "what_is_shipped_is_found"):
            check_holds(name, server, tmp_path)
    finally:
        server.stop()


PROGRAM = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate import StreamExecutionEnvironment

folder = Path(sys.argv[1])
spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
settings = {"execution.checkpointing.dir": str(folder / "checkpoints")}
env = StreamExecutionEnvironment.on_spark(spark, 1, configuration=settings)
env.enable_checkpointing(3_600_000)


def count(n):
    (folder / "called").touch()
    return n


env.generate(lambda n: n, rate=100).map(count).print()
env.execute("numbers")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["a server", "this process"])
def test_a_program_that_is_told_to_stop_takes_a_last_checkpoint(
    number: int, where: str, server: ConnectServer, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    log, url = tmp_path / "log", server.url if where == "a server" else "local[2]"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(tmp_path / "job.py"), str(tmp_path), url],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_TESTING": "1",  # a server in this process takes any port that is free
            },
            # Whoever runs the tests may ignore Ctrl-C, and a program inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        called = (tmp_path / "called").exists
        until(lambda: called() or process.poll() is not None, "the job runs", END_S)
        assert called(), log.read_text()
        os.kill(process.pid, number)
        process.wait(END_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    told = log.read_text()
    assert "job 'numbers' was suspended" in told and "Checkpoint 1 is kept" in told, told

"""A program on Spark that is told to stop: its slots are there for a last checkpoint."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.watch import until
from tests.house.source import ROOT

END_S = 200.0

PROGRAM = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate import StreamExecutionEnvironment

folder = Path(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
settings = {"execution.checkpointing.dir": str(folder / "checkpoints")}
env = StreamExecutionEnvironment.on_spark(spark, 1, configuration=settings)
env.enable_checkpointing(3_600_000)


def count(n):
    (folder / "called").touch()
    return n


env.generate(lambda n: n, rate=100).map(count).print()
env.execute("numbers")
"""

PYTHON = (sys.executable,)
SUBMIT = (str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]")


@pytest.mark.parametrize(
    ("command", "number", "whole_group", "status"),
    [
        (PYTHON, signal.SIGINT, True, -signal.SIGINT),
        (PYTHON, signal.SIGTERM, True, 143),
        (SUBMIT, signal.SIGTERM, False, 143),
    ],
    ids=["ctrl-c", "sigterm", "sigterm to spark-submit"],
)
def test_a_program_that_is_told_to_stop_takes_a_last_checkpoint(
    command: tuple[str, ...], number: int, whole_group: bool, status: int, tmp_path: Path
) -> None:
    """From a terminal or ``timeout`` the JVM hears of it too; ``spark-submit`` is the JVM."""
    (tmp_path / "job.py").write_text(PROGRAM)
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(tmp_path / "job.py"), str(tmp_path)],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "src"),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            },
            # Whoever runs the tests may ignore Ctrl-C, and a program inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        called = (tmp_path / "called").exists
        until(lambda: called() or process.poll() is not None, "the job runs", END_S)
        assert called(), log.read_text()
        (os.killpg if whole_group else os.kill)(process.pid, number)
        assert process.wait(END_S) == status, log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    told = log.read_text()
    assert "job 'numbers' was suspended" in told and "Checkpoint 1 is kept" in told, told

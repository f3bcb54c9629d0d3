"""A batch whose tasks run in two executors, where one does not see what the other keeps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

END_S = 270.0
ROWS = 300

PROGRAM = f"""
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from tidegate import StreamExecutionEnvironment

folder = Path(sys.argv[1])


def noted(n):
    with (folder / "noted").open("a") as file:
        file.write(f"{{n}}\\n")
    return n


spark = SparkSession.builder.master("local-cluster[2,1,1024]").getOrCreate()
env = StreamExecutionEnvironment.on_spark(spark, 1)
env.configure({{"execution.runtime-mode": "BATCH"}})
numbers = env.from_sequence(1, {ROWS}).map(noted)
by_tens = numbers.key_by(lambda n: n % 10).reduce(lambda a, b: a + b)
by_sevens = numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b)
with by_tens.union(by_sevens).execute_and_collect("kept") as found:
    print(len(list(found)))
"""


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_step_that_several_read_is_computed_once(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    noted = sorted(map(int, (tmp_path / "noted").read_text().split()))
    assert noted == list(range(1, ROWS + 1))
    assert done.stdout.split() == [str(10 + 7)]

"""Micro-batches that Spark runs again, and what is left of the tries before."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.e2e.files import committed_rows
from tests.e2e.journal import Latch
from tests.spark.micro_programs import RefusingOnce
from tidegate import DataStream, JobFailed, MicroBatches, StreamExecutionEnvironment
from tidegate.connectors import FileSink

pytestmark = pytest.mark.slow

ROWS, KEYS = 9, 3


class Sums:
    """How often each key has come, after each row, in files and in a sink that may refuse."""

    def __init__(self, folder: Path) -> None:
        self.refused = Latch(folder / "refused")
        self.out = folder / "out"
        self.beside = folder / "beside"

    def __call__(self, env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        pairs = rows.map(lambda row: (row["id"] % KEYS, 1)).uid("pairs")
        keyed = pairs.key_by(lambda pair: pair[0])
        sums = keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")
        schema = pa.schema([("key", pa.int64()), ("count", pa.int64())])
        lines = sums.map(lambda pair: {"key": pair[0], "count": pair[1]}).uid("lines")
        lines.sink_to(FileSink.parquet(self.out, schema)).uid("files")
        sums.sink_to(RefusingOnce(self.refused, self.beside)).uid("beside")

    def check_found(self, batches: int) -> None:
        """Each row of so many batches has been counted once."""
        found = sorted((row["key"], row["count"]) for row in committed_rows(self.out))
        each = batches * ROWS // KEYS
        assert found == [(key, count) for key in range(KEYS) for count in range(1, each + 1)]
        assert sum(int(file.read_text()) for file in self.beside.iterdir()) == batches * ROWS


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_micro_batch_whose_commit_was_refused_commits_when_it_is_repeated(
    spark: SparkSession, tmp_path: Path, parallelism: int
) -> None:
    program = Sums(tmp_path)
    batches = MicroBatches(program, tmp_path / "state", parallelism=parallelism)
    batches(spark.range(ROWS), 0)
    program.refused.set()
    with pytest.raises(JobFailed, match="the table is locked"):
        batches(spark.range(ROWS), 1)
    batches(spark.range(ROWS), 1)
    program.check_found(2)
    batches(spark.range(ROWS), 2)
    program.check_found(3)

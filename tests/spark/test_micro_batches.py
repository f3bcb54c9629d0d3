"""A program under Structured Streaming: micro-batches go on from each other, each result once."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.micro_programs import (
    BATCHES,
    Program,
    check_found,
    run_query,
    write_batch,
)
from tidegate import ConfigError, MicroBatches

pytestmark = pytest.mark.slow


@pytest.mark.feature("F304")
def test_micro_batches_go_on_from_each_other_and_a_repeated_one_counts_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    program = Program(tmp_path)
    for number in range(2):
        write_batch(tmp_path / "in", number)
    run_query(spark, tmp_path, program)
    check_found(program, 2)
    write_batch(tmp_path / "in", 2)
    program.fails.set()
    with pytest.raises(StreamingQueryException, match="told to fail once"):
        run_query(spark, tmp_path, program)
    check_found(program, 2)
    run_query(spark, tmp_path, program, parallelism=3)
    check_found(program, 3)
    for number in range(3, BATCHES):
        write_batch(tmp_path / "in", number)
    program.refused.set()
    # Its snapshot is complete and its files stand; the sink beside has not committed.
    with pytest.raises(StreamingQueryException, match="the table is locked"):
        run_query(spark, tmp_path, program)
    run_query(spark, tmp_path, program)
    check_found(program, BATCHES)
    folders = sorted(each.name for each in (tmp_path / "state").iterdir())
    assert folders == [f"batch-{BATCHES - 2}", f"batch-{BATCHES - 1}"]


def test_a_micro_batch_without_the_state_before_it_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = MicroBatches(Program(tmp_path), tmp_path / "state")
    with pytest.raises(ConfigError, match="no state of micro-batch 6, so 7 cannot go on"):
        batches(spark.range(3).withColumnRenamed("id", "number"), 7)

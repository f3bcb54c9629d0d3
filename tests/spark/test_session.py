"""The master of sessions on this machine, and what is said of Spark's errors."""

import pytest
from pyspark.sql import DataFrame

from tidegate import ConfigError
from tidegate.spark.session import check_can_shuffle, local_master, lost


@pytest.mark.parametrize(
    ("slots", "master"), [(8, "local[8,1]"), (1, "local[2,1]"), (None, "local[2,4]")]
)
def test_slots_have_a_thread_each_and_tasks_a_core(slots: int | None, master: str) -> None:
    assert local_master(slots, cores=2) == master


def test_a_jvm_that_lacks_memory_is_told_with_what_to_do() -> None:
    text = """An error occurred while calling o86.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.util.collection.unsafe.sort.UnsafeExternalSorter.insertRecord(X.java:527)
Caused by: java.lang.OutOfMemoryError: Java heap space"""
    error = lost("Spark could not run the job", text)
    assert "Java heap space" in error.what
    assert "spark.driver.memory" in error.remedy


def test_other_errors_have_no_remedy_that_is_not_theirs() -> None:
    assert not lost("Spark could not run the job", "Caused by: java.io.IOException: gone").remedy


def test_a_pyspark_that_cannot_shuffle_to_chosen_tasks_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_can_shuffle()
    monkeypatch.delattr(DataFrame, "repartitionById")  # as in 4.0
    with pytest.raises(ConfigError, match=r"needs PySpark 4\.1 or newer, and this is") as raised:
        check_can_shuffle()
    assert "ALL_EXCHANGES_PIPELINED" in raised.value.remedy

"""What is said of slots that do not come is what Spark knows."""

import asyncio
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from tests.e2e.watch import until
from tests.spark.conftest import CORES
from tidegate.spark.access.asking import ANSWERED_WITHIN_S, Question
from tidegate.spark.access.classic import ClassicAccess
from tidegate.spark.access.waiting import Waiting, WaitingAfar

TAG = "test-waiting"


@pytest.mark.parametrize(
    ("waiting", "told"),
    [
        (Waiting(2, 0, executors=0, others=0, cores=None), "no executor has registered"),
        (
            Waiting(3, 1, executors=2, others=3, cores=None),
            "2 of 3 slots wait for a core: Spark has 2 executor(s), and runs 3 task(s) of other",
        ),
        (Waiting(2, 1, executors=None, others=1, cores=2), "Spark has 2 cores, and runs 1 task"),
        (
            Waiting(2, 0, executors=None, others=1, cores=4),
            "Spark has 3 free cores, and has not started the tasks of 2 of 2 slots yet",
        ),
        (Waiting(2, 2, executors=1, others=0, cores=None), "each slot has its core: Python work"),
        (WaitingAfar(3, 1, cores=4), "tasks of 2 of 3 slots run: they wait for a core of 4, or"),
        (WaitingAfar(3, 3, cores=None), "each slot has its core: Python work"),
    ],
)
def test_it_says_whether_executors_cores_or_workers_are_waited_for(
    waiting: Waiting | WaitingAfar, told: str
) -> None:
    assert told in str(waiting)


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({}, None),
        ({"spark.executor.cores": "2"}, 6),
        ({"spark.executor.cores": "5", "spark.task.cpus": "2"}, 6),
    ],
)
def test_cores_of_a_cluster_are_those_of_its_executors_where_they_are_set(
    conf: dict[str, str], cores: int | None
) -> None:
    context = SimpleNamespace(getConf=lambda: SimpleNamespace(get=conf.get))
    session: Any = SimpleNamespace(sparkContext=context)
    assert ClassicAccess(session).cores_of_executors(3) == cores


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local[*]", 3), ("local[*,4]", 3), ("local[7,4]", 7), ("local", 1), ("yarn", None)],
)
def test_all_cores_of_a_local_master_are_those_that_its_jvm_sees(
    master: str, cores: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)  # as beside a JVM that is pinned to a few
    runtime = SimpleNamespace(availableProcessors=lambda: 3)
    lang = SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime))
    jvm = SimpleNamespace(java=SimpleNamespace(lang=lang))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, _jvm=jvm))
    assert ClassicAccess(session).cores == cores


@contextmanager
def running(spark: SparkSession, end: Path, *, tag: str | None) -> Generator[None]:
    """A Spark job with one task, which runs until the block is left."""

    def wait(rows: Iterable[int]) -> Iterable[int]:
        while not end.exists():
            time.sleep(0.05)
        return rows

    def run() -> None:
        if tag is not None:
            spark.sparkContext.addJobTag(tag)
        spark.sparkContext.parallelize([1], 1).mapPartitions(wait).collect()

    thread = InheritableThread(target=run, session=spark)
    thread.start()
    try:
        yield
    finally:
        end.touch()
        thread.join()


def test_spark_tells_tasks_of_slots_from_others(spark: SparkSession, tmp_path: Path) -> None:
    end = tmp_path / "end"
    with running(spark, end, tag=TAG), running(spark, end, tag=None):
        expected = Waiting(3, given=1, executors=None, others=1, cores=CORES)
        # A task counts as running a moment before its job counts as one of the tag, and the two
        # tasks do not begin at once.
        access = ClassicAccess(spark)
        until(lambda: access.look(TAG, 3) == expected, "Spark tells the tasks apart", 60)
        assert access.look(TAG, 3) == expected, "both run until the block is left"


def test_spark_is_not_asked_again_before_it_has_answered() -> None:
    answered, asked = threading.Event(), list[str]()

    def slowly() -> str:
        asked.append("slowly")
        assert answered.wait(ANSWERED_WITHIN_S)
        return "no cores"

    question = Question(within_s=0.01)
    assert asyncio.run(question.asked(slowly)) == ""
    assert asyncio.run(question.asked(slowly)) == "" and asked == ["slowly"]
    answered.set()
    until(lambda: question.answer, "the question is answered")
    assert question.answer == "no cores"


def test_what_was_known_is_said_once_spark_is_gone() -> None:
    def gone() -> str:
        raise OSError("Spark's JVM does not answer")

    question = Question()
    assert asyncio.run(question.asked(lambda: "no cores")) == "no cores"
    assert asyncio.run(question.asked(gone)) == "no cores"

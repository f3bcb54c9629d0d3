"""The master of sessions on this machine, and what is said of Spark's errors."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidegate import ConfigError
from tidegate.errors import NodeUnfit
from tidegate.spark.access.access import tries_of
from tidegate.spark.session import (
    check_can_shuffle,
    gone,
    has_gone,
    local_master,
    lost,
    session_for,
)


@pytest.mark.parametrize(
    ("slots", "master"), [(8, "local[8,1]"), (1, "local[2,1]"), (None, "local[2,4]")]
)
def test_slots_have_a_thread_each_and_tasks_a_core(slots: int | None, master: str) -> None:
    assert local_master(slots, cores=2) == master


@pytest.mark.parametrize(
    ("master", "tries"),
    [("local", 1), ("local[4]", 1), ("local[*,3]", 3), ("local-cluster[2,1,1024]", 7), ("yarn", 7)],
)
def test_how_often_spark_runs_a_task_is_known_from_its_master_or_its_setting(
    master: str, tries: int
) -> None:
    access: Any = SimpleNamespace(master=master, setting={"spark.task.maxFailures": "7"}.get)
    assert tries_of(access) == tries


def test_a_jvm_that_lacks_memory_is_told_with_what_to_do() -> None:
    text = """An error occurred while calling o86.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.util.collection.unsafe.sort.UnsafeExternalSorter.insertRecord(X.java:527)
Caused by: java.lang.OutOfMemoryError: Java heap space"""
    error = lost("Spark could not run the job", text)
    assert "Java heap space" in error.what
    assert "spark.driver.memory" in error.remedy


def test_the_end_of_a_session_is_told_as_that_and_speaks_of_memory() -> None:
    access: Any = SimpleNamespace(gone=lambda error: isinstance(error, OSError))
    assert has_gone(access, RuntimeError("Job 3 cancelled because SparkContext was shut down"))
    assert has_gone(access, RuntimeError("StatusCode.UNAVAILABLE: failed to connect"))
    assert has_gone(access, ConnectionRefusedError())
    assert not has_gone(access, RuntimeError("Job aborted due to stage failure"))
    assert "memory" in gone("Run it again.").remedy


def test_a_worker_that_dies_each_time_is_told_with_where_to_look() -> None:
    text = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
\torg.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner.run(X.scala:7)
Caused by: java.io.EOFException"""
    error = lost("Spark could not run the job", text)
    assert "the Python of a task died" in error.what and "EOF" not in error.what
    assert "executor's log" in error.remedy


def test_other_errors_have_no_remedy_that_is_not_theirs() -> None:
    assert not lost("Spark could not run the job", "Caused by: java.io.IOException: gone").remedy


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("ModuleNotFoundError: No module named 'tidegate'", "has no tidegate", "--ship"),
        (
            "ModuleNotFoundError: No module named 'tidegate.slot.process'",
            "tidegate in another version than this: No module named 'tidegate.slot.process'",
            "Install the driver's version",
        ),
        (
            "ImportError: cannot import name 'SlotTask' from 'tidegate.spark.slot_task' (/x.py)",
            "cannot import name 'SlotTask' from 'tidegate.spark.slot_task'",
            "Install the driver's version",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9",
            "the executors' Python is another one than this",
            "minor version",
        ),
        (
            "RuntimeError: node n1 has Python 3.11, and the shipped packages are for Python 3.12: "
            "set spark.pyspark.python",
            "node n1 has Python 3.11, and the shipped packages are for Python 3.12: set",
            "",
        ),
        (
            "ImportError: libc.so.6: version `GLIBC_2.34' not found (required by loop.so)",
            "C library is older than what a package needs: ImportError: libc.so.6",
            "spark.archives",
        ),
    ],
)
def test_a_node_whose_python_does_not_fit_is_told_from_a_lost_slot(
    text: str, what: str, remedy: str
) -> None:
    job = f"Job aborted due to stage failure:\n  {text}\n\tat x.Y\nJVM stacktrace:\nother"
    error = lost("Spark ended the slot's task", job)
    assert isinstance(error, NodeUnfit)
    assert what in error.what and remedy in error.remedy


@pytest.mark.parametrize(
    "text", ["ModuleNotFoundError: No module named 'tidegates'", "ImportError: other"]
)
def test_an_error_of_other_modules_is_a_lost_slot(text: str) -> None:
    error = lost("Spark ended the slot's task", text)
    assert not isinstance(error, NodeUnfit) and text in error.what


def test_a_pyspark_that_cannot_shuffle_to_chosen_tasks_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_can_shuffle()
    monkeypatch.delattr(DataFrame, "repartitionById")  # as in 4.0
    with pytest.raises(ConfigError, match=r"needs PySpark 4\.1 or newer, and this is") as raised:
        check_can_shuffle()
    assert "ALL_EXCHANGES_PIPELINED" in raised.value.remedy


class Builder:
    """Writes down what a session would be built with, and what its Python was by then."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.python: str | None = None

    def master(self, master: str) -> "Builder":
        return self.config("spark.master", master)

    def appName(self, name: str) -> "Builder":
        return self.config("spark.app.name", name)

    def config(self, key: str, value: str) -> "Builder":
        self.settings[key] = value
        return self

    def getOrCreate(self) -> Any:
        self.python = os.environ.get("PYSPARK_PYTHON")
        conf = SimpleNamespace(get=self.settings.get)
        context = SimpleNamespace(_jsc=1, getConf=lambda: conf)
        return SimpleNamespace(sparkContext=context, conf=conf)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    builder = Builder()
    monkeypatch.setattr(SparkSession, "builder", builder)
    return builder


def test_a_session_of_ours_is_on_this_machine_and_has_this_python(builder: Builder) -> None:
    session_for(None, slots=100)
    assert builder.settings["spark.master"] == "local[100,1]"
    assert builder.python == builder.settings["spark.pyspark.python"] == sys.executable
    assert "PYSPARK_PYTHON" not in os.environ, "a later session may be one on a cluster"


def test_the_python_that_the_environment_names_stays_named(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages org.example:some:1 pyspark-shell")
    session_for(None, slots=1)
    assert builder.settings["spark.pyspark.python"] == builder.python == "/opt/python"
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYSPARK_GATEWAY_PORT", "40123"),
        ("PYSPARK_SUBMIT_ARGS", "--master spark://master:7077 pyspark-shell"),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.master=yarn pyspark-shell"),
        ("SPARK_REMOTE", "sc://spark.example"),
    ],
)
def test_nothing_that_spark_submit_or_the_environment_say_is_overruled(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    session_for(None, slots=100)
    assert builder.settings == {} and builder.python is None


@pytest.mark.parametrize(
    "key",
    [
        "spark.speculation",
        "spark.python.worker.killOnIdleTimeout",
        "spark.sql.execution.pyspark.udf.killOnIdleTimeout",
    ],
)
def test_a_session_that_would_double_or_kill_slots_is_refused(builder: Builder, key: str) -> None:
    builder.settings[key] = "true"
    with pytest.raises(ConfigError, match=f"{key} is true") as refused:
        session_for(None, slots=1)
    assert f"Set {key}=false" in refused.value.remedy

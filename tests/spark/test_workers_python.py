"""Which Python Spark's workers on this machine run."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.spark.access.classic import ClassicAccess


class Context(SimpleNamespace):
    """One is another one than the next, as SparkContexts are."""

    __hash__ = object.__hash__


def session(master: str, **conf: str) -> Any:
    """A session as far as its workers' Python goes."""
    context = Context(
        master=master, pythonExec="python3", getConf=lambda: SimpleNamespace(get=conf.get)
    )
    return SimpleNamespace(sparkContext=context)


def test_workers_on_this_machine_run_the_drivers_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark = session("local[2]")
    with ClassicAccess(spark).python():
        assert spark.sparkContext.pythonExec == sys.executable
    assert spark.sparkContext.pythonExec == "python3"


def test_a_job_leaves_the_python_of_another_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark = session("local[2]")
    first, second = (ClassicAccess(spark).python() for _ in range(2))
    with second:
        with first:
            pass
        assert spark.sparkContext.pythonExec == sys.executable
    assert spark.sparkContext.pythonExec == "python3"


@pytest.mark.parametrize("master", ["local[2]", "spark://somewhere:7077"])
def test_the_setting_says_which_python_in_a_session_of_the_programs_own(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark = session(master, **{"spark.pyspark.python": "/opt/python"})
    with ClassicAccess(spark).python():
        assert spark.sparkContext.pythonExec == "/opt/python"
    assert spark.sparkContext.pythonExec == "python3"


@pytest.mark.parametrize(
    ("master", "conf", "variable"),
    [
        ("local[2]", {}, "/opt/python"),
        ("local[2]", {"spark.pyspark.python": "/opt/other"}, "/opt/python"),
        ("spark://somewhere:7077", {}, None),
    ],
)
def test_a_python_that_pyspark_knows_of_stays(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], variable: str | None
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    spark = session(master, **conf)
    with ClassicAccess(spark).python():
        assert spark.sparkContext.pythonExec == "python3"

"""Which Python Spark's workers on this machine run."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.spark.session import workers_python


def session(master: str, **conf: str) -> Any:
    """A session as far as its workers' Python goes."""
    context = SimpleNamespace(
        master=master, pythonExec="python3", getConf=lambda: SimpleNamespace(get=conf.get)
    )
    return SimpleNamespace(sparkContext=context)


def test_workers_on_this_machine_run_the_drivers_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark = session("local[2]")
    with workers_python(spark):
        assert spark.sparkContext.pythonExec == sys.executable
    assert spark.sparkContext.pythonExec == "python3"


@pytest.mark.parametrize(
    ("master", "conf", "variable"),
    [
        ("local[2]", {}, "/opt/python"),
        ("local[2]", {"spark.pyspark.python": "/opt/python"}, None),
        ("spark://somewhere:7077", {}, None),
    ],
)
def test_a_python_that_was_chosen_stays(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], variable: str | None
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    spark = session(master, **conf)
    with workers_python(spark):
        assert spark.sparkContext.pythonExec == "python3"

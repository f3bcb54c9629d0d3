"""A session that was stopped is refused before a job is built on it."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate.errors import ConfigError
from tidegate.spark.session import session_for


class Stopped(SparkSession):
    """A session as it is after ``stop()``."""

    def __init__(self) -> None:
        pass

    @property
    def sparkContext(self) -> Any:
        return SimpleNamespace(_jsc=None)


def test_a_stopped_session_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="the SparkSession has been stopped") as refused:
        session_for(Stopped(), slots=1)
    assert "Build a new session" in refused.value.remedy

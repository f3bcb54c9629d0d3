"""Bad input on Spark is one clear error, soon, with nothing hung and nothing lost."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.e2e import bad_input
from tests.e2e.bad_input import check_clear, soon
from tests.e2e.runtimes import Jobs
from tests.spark.conftest import CORES
from tidegate import ConfigError


@pytest.mark.parametrize(
    "check",
    [
        bad_input.check_missing_path,
        bad_input.check_unreadable_later_file,
        bad_input.check_malformed_row_fails,
        bad_input.check_unpicklable_function,
        bad_input.check_unstable_key,
        bad_input.check_folder_that_cannot_be_written,
        bad_input.check_second_execute,
    ],
)
def test_bad_input_is_told_as_locally(jobs: Jobs, check: object) -> None:
    assert callable(check)
    check(jobs)


def test_an_exception_of_a_function_arrives_with_its_traceback(jobs: Jobs) -> None:
    bad_input.check_user_exception(jobs, 2)


def test_more_slots_than_cores_are_refused(jobs: Jobs) -> None:
    env = jobs.env(CORES + 1)
    env.from_sequence(1, 10).rebalance().print()
    with soon(), pytest.raises(ConfigError) as refused:
        jobs.start(env, "too wide")
    check_clear(refused.value, f"{CORES + 1} slots", f"{CORES} cores")


@pytest.fixture
def speculation(spark: SparkSession) -> Iterator[None]:
    """The session says that it was built with speculation; to build such a one takes too long."""
    conf = spark.sparkContext._conf
    conf.set("spark.speculation", "True")
    yield
    conf.set("spark.speculation", "false")


@pytest.mark.usefixtures("speculation")
def test_a_session_with_speculation_is_refused(jobs: Jobs) -> None:
    env = jobs.env(1)
    env.from_sequence(1, 10).print()
    with soon(), pytest.raises(ConfigError) as refused:
        jobs.start(env, "twice at once")
    check_clear(refused.value, "spark.speculation")

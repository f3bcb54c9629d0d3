import pytest

from tests.e2e.replayed import check_step_fails_again
from tests.e2e.runtimes import Jobs


@pytest.mark.slow
@pytest.mark.feature("F300")
def test_a_step_that_failed_on_spark_fails_again_here(jobs: Jobs) -> None:
    check_step_fails_again(jobs, "keyed")

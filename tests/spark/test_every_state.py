"""State of every kind follows a job on Spark from one parallelism to another."""

import pytest

from tests.e2e.rescales import check_rescaled_with_every_state
from tests.e2e.runtimes import Jobs


@pytest.mark.feature("F030", "F198", "F241", "F259", "F263", "F280")
def test_a_job_rescaled_four_times_gives_what_one_gives_that_was_never_touched(jobs: Jobs) -> None:
    check_rescaled_with_every_state(jobs)

"""Random slots killed again and again; `make chaos` does it for longer, and on Spark."""

from random import Random

import pytest

from tests.e2e.chaos import AT_LEAST_ONCE, MODES, survive
from tests.e2e.runtimes import Jobs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(m, marks=pytest.mark.feature("F130") if AT_LEAST_ONCE in MODES[m] else ())
        for m in MODES
    ],
)
def test_a_job_comes_through_kills_at_any_moment(jobs: Jobs, mode: str) -> None:
    seed = Random().randrange(2**32)
    print(f"seed {seed}")
    survived = survive(jobs, 4, Random(seed), mode)
    assert survived.kills == 4 and 1 <= survived.restarts <= 4

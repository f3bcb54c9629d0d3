"""Windows in jobs whose slots are killed."""

import pytest

from tests.e2e import window_jobs
from tests.e2e.runtimes import Jobs

pytestmark = pytest.mark.slow


def test_killed_slots_lose_and_double_no_window(jobs: Jobs) -> None:
    window_jobs.check_kills(jobs)

"""Jobs on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.runtimes import Jobs
from tidegate import StreamExecutionEnvironment


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(
        lambda parallelism, settings: StreamExecutionEnvironment.local(
            parallelism, configuration=settings
        ),
        tmp_path,
    )
    yield jobs
    jobs.end_all()

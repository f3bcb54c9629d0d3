"""Jobs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.runtimes import Jobs
from tidegate import StreamExecutionEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.browser import Browser


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


@pytest.fixture
def browser() -> Iterator[Browser]:
    from tests.e2e.browser import Browser

    with Browser() as browser:
        yield browser

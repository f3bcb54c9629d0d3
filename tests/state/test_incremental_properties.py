"""Incremental checkpoints whatever happens: the real files, registry and coordinator together.

Subtasks with files that are added and merged, as a database does it, snapshot, upload and restore
in the world of the coordinator's own property test: storage that answers late and fails, declined
and given-up checkpoints, failures, restarts, rescales. Each restore must give back the bytes of its
checkpoint, no file that a pointer needs may go, and at the end none may be left over.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.state.incremental_jobs import LEFT_BEHIND, MEMORY, SETTINGS_DRAWN, STEPS, Job
from tidegate.model.control import (
    JobStatus,
)
from tidegate.model.settings import CheckpointSettings

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.mark.feature("F250")
@examples(30)
@given(
    seed=st.integers(0, 1 << 32),
    settings=SETTINGS_DRAWN,
    status=st.sampled_from([JobStatus.FINISHED, JobStatus.CANCELED]),
    local=st.booleans(),
)
def test_whatever_happens_files_come_back_and_none_is_left_over(
    seed: int, settings: CheckpointSettings, status: JobStatus, local: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        job = Job(settings, Path(folder), local=local)
        # From a seed: in lists of numbers, as hypothesis draws them, few checkpoints complete.
        draw = random.Random(seed).randrange
        for _ in range(STEPS):
            job.step(draw(10_000))
            job.check()
        job.come_to_rest(status)
        job.local.close(over=True)
        assert list(Path(folder).rglob("*")) == []
    assert job.needed <= job.driver.files
    if not job.in_doubt:
        # What slots that were killed last have left waits for the sweep at the job's end.
        left = {job.driver.world.files[path] for path in job.driver.files - job.needed}
        assert left <= {LEFT_BEHIND}


@pytest.mark.slow
@pytest.mark.feature("F041", "F202")
def test_after_500_checkpoints_the_folders_hold_what_is_live_and_nothing_else(
    folder: Path,
) -> None:
    settings = CheckpointSettings(
        interval_ms=500, retained_max=2, timeout_ms=3_000, tolerable_failures=1_000_000
    )
    job = Job(settings, folder, local=True, certain=True)
    draw = random.Random(5).randrange
    while job.ended["completed"] < 500:
        job.advance(500)
        for _ in range(draw(60)):
            # Answers and uploads; now and then a request, a decline, a failure or a restart.
            job.step(24 * draw(10_000) + (draw(19) if draw(40) else 21 + draw(3)))
        job.log.clear()
    while job.down:
        job.settle()
        job.fail_or_restart(draw(10_000))
    for _ in range(2):
        job.settle()
        job.advance(3_000)
    job.settle()
    assert job.ended["failed"] > 100 and job.restored > 100 and job.epoch > 3
    assert len(job.store.pointers) == 2
    assert job.needed == job.driver.files
    copies = {path.parent.parent.name for path in folder.rglob("copies/*/*/CURRENT")}
    assert copies == {f"chk-{job.store.pointers[-1]}"}
    working = [path for path in folder.rglob("*.sst") if "copies" not in path.parts]
    assert working == []
    job.local.close(over=True)
    assert list(folder.rglob("*")) == []

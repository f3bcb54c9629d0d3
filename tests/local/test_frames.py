"""A source over files that are written once: over restarts, runs and parallelisms."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.files import committed_rows
from tests.e2e.frames import Numbers
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.runtimes import RETAIN, Jobs, failure_of, finished
from tests.e2e.watch import view, wait_completed
from tidegate import JobClient
from tidegate.connectors import FileSink
from tidegate.connectors.frames.frame_source import FrameSource

pytestmark = pytest.mark.slow

ROWS = 1_000
FILES = 50
NAME = "a frame"


def slowly(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.001)
    return row


def start(jobs: Jobs, parallelism: int, staged: Numbers, **settings: object) -> JobClient:
    env = jobs.checkpointed(parallelism, 50, **RETAIN, **settings)
    stream = env.from_source(FrameSource(staged), None, "frame").uid("frame")
    stream.map(slowly).uid("map").sink_to(FileSink.parquet(str(jobs.folder / "out"))).uid("out")
    return jobs.start(env, NAME)


def stop_in_the_middle(jobs: Jobs, client: JobClient) -> None:
    """Cancel the job after a few checkpoints, which it keeps."""
    wait_completed(client, 3)
    client.cancel().result(timeout=100)
    assert 0 < len(committed_rows(jobs.folder / "out")) < ROWS


def check_each_once(jobs: Jobs) -> None:
    assert sorted(row["n"] for row in committed_rows(jobs.folder / "out")) == list(range(ROWS))


@pytest.mark.parametrize(("before", "after"), [(1, 1), pytest.param(2, 3, marks=pytest.mark.slow)])
def test_a_run_that_goes_on_reads_what_the_first_has_written(
    jobs: Jobs, before: int, after: int
) -> None:
    first, second = Numbers(ROWS, files=FILES), Numbers(ROWS, files=FILES)
    stop_in_the_middle(jobs, start(jobs, before, first))
    assert first.written[0].is_dir(), "its checkpoint is kept, and so is what it reads"
    client = start(jobs, after, second, **{RESTORE_PATH: "latest"})
    finished(client)
    assert not second.written
    check_each_once(jobs)
    assert not first.written[0].parent.parent.exists()


@pytest.mark.slow
def test_another_job_goes_on_from_the_checkpoint_of_one(jobs: Jobs) -> None:
    first, second = Numbers(ROWS, files=FILES), Numbers(ROWS, files=FILES)
    client = start(jobs, 1, first)
    stop_in_the_middle(jobs, client)
    newest = view(client).checkpoints.latest_completed
    assert newest is not None
    finished(start(jobs, 1, second, **{RESTORE_PATH: newest.pointer}))
    assert not second.written
    check_each_once(jobs)
    assert first.written[0].is_dir(), "the first job's files are its user's to delete"


def test_files_that_are_gone_are_told_of(jobs: Jobs) -> None:
    first = Numbers(ROWS, files=FILES)
    stop_in_the_middle(jobs, start(jobs, 1, first))
    first.written[0].rename(jobs.folder / "elsewhere")
    client = start(jobs, 1, Numbers(ROWS), **{RESTORE_PATH: "latest"})
    error = str(failure_of(client))
    assert "for an earlier run are gone" in error and str(first.written[0]) in error


class FailsOnce:
    """Raises in the first attempt, at a row in the middle."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == ROWS // 2 and not self.mark.exists():
            self.mark.touch()
            raise ValueError("once")
        return row


def test_a_restart_reads_the_same_files(jobs: Jobs) -> None:
    staged = Numbers(ROWS, files=FILES)
    env = jobs.checkpointed(1, 50)
    failing = FailsOnce(jobs.folder / "failed")
    table = env.from_source(FrameSource(staged), None, "frame").map(failing).to_arrow()
    assert failing.mark.exists() and len(staged.written) == 1
    assert sorted(table["n"].to_pylist()) == list(range(ROWS))

"""After a job nothing of it is left: no socket, no open file, no temporary file.

That no thread and no process is left holds for every test (tests/conftest.py); what checkpoint
folders may hold is asked in test_restores.py.
"""

import gc
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.e2e.files import hidden_files
from tests.e2e.jobs import COUNT_SCHEMA, running_counts
from tests.e2e.journal import Latch
from tests.e2e.leftovers import check_left_over
from tests.e2e.probes import Breaking
from tests.e2e.runtimes import RETAIN, Jobs, failure_of
from tests.e2e.watch import kill_slot, until, view, wait_completed, wait_recovered
from tidegate import JobClient, MapFunction, RuntimeContext
from tidegate.connectors import FileSink
from tidegate.minicluster.forking import forking

pytestmark = pytest.mark.slow


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this process and of those that it starts."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def held() -> set[str]:
    """The files and sockets that this process holds open."""
    process = psutil.Process()
    files = {file.path for file in process.open_files()}
    return files | {f"{each.laddr} {each.raddr}" for each in process.net_connections("all")}


def finish(client: JobClient, broken: Latch) -> None:
    assert failure_of(client) is None


def cancel(client: JobClient, broken: Latch) -> None:
    wait_completed(client, 2)
    client.cancel().result(timeout=100)


def fail(client: JobClient, broken: Latch) -> None:
    wait_completed(client, 2)
    broken.set()
    assert failure_of(client) is not None


def kill_and_cancel(client: JobClient, broken: Latch) -> None:
    wait_completed(client, 2)
    kill_slot(client, 0)
    wait_recovered(client, 1)
    wait_completed(client, view(client).checkpoints.counts.completed + 1)
    cancel(client, broken)


@pytest.mark.parametrize(
    ("parallelism", "end"),
    [(1, finish), (1, cancel), (1, fail), (2, finish), (2, fail), (2, kill_and_cancel)],
)
def test_a_job_leaves_nothing_open_and_nothing_lying_about(
    jobs: Jobs, temporary: Path, parallelism: int, end: object
) -> None:
    assert callable(end)
    out, broken = jobs.folder / "out", Latch(jobs.folder / "broken")
    restarts = {"restart-strategy.type": "disable"} if end is fail else {}
    forking().prepare()  # the program has its fork server for as long as it lives
    before = held()
    env = jobs.checkpointed(parallelism, 100, **RETAIN, **restarts)
    counts = running_counts(env, 500 if end is finish else None, 2_000)
    counts.map(Breaking(broken)).sink_to(FileSink.parquet(str(out), COUNT_SCHEMA))
    client = jobs.start(env, "counts")
    end(client, broken)
    # Whoever has the result may look, or end, at once.
    assert not list(jobs.checkpoints.glob(".jobs/*/doors/*"))
    until(lambda: held() <= before, f"nothing more is open: {held() - before}")
    assert not list(temporary.iterdir())
    check_left_over(jobs.checkpoints, client.get_job_id())
    if end is finish:
        assert not hidden_files(out)


def test_a_subtask_that_cannot_be_opened_leaves_nothing_half_begun(jobs: Jobs) -> None:
    """What its sink has started is stopped before its first step; a warning would fail the test."""
    env = jobs.env(1)
    counts = running_counts(env, 10, None).map(NeverOpens())
    counts.sink_to(FileSink.parquet(str(jobs.folder / "out"), COUNT_SCHEMA))
    error = failure_of(jobs.start(env, "unopened"))
    gc.collect()
    assert "this never opens" in str(error)


class NeverOpens(MapFunction[object, object]):
    """Raises in ``open``."""

    def open(self, runtime_context: RuntimeContext) -> None:
        raise RuntimeError("this never opens")

    def map(self, value: object) -> object:
        return value

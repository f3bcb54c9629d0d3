"""Whose the snapshot is that a job starts from, and what is left of checkpoints at the end."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.probes import Breaking, BreakingOnce
from tests.e2e.restores import RESTORE_PATH, start_counts, stopped_with_checkpoint
from tests.e2e.runtimes import Jobs, failure_of, finished
from tests.e2e.savepoints import END_S, counting, wait_rows
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until, view, wait_completed
from tidegate import ClaimMode, JobClient

pytestmark = pytest.mark.slow

TOTAL = 4_000
CLAIM_MODE = "execution.state-recovery.claim-mode"
RETENTION = "execution.checkpointing.externalized-checkpoint-retention"
IN_FILES = {"execution.checkpointing.data-inline-threshold": "0 b"}


def savepoint(jobs: Jobs) -> str:
    client = counting(jobs, 1, TOTAL, 1_000, settings={**IN_FILES})
    wait_rows(client, 100)
    return client.stop_with_savepoint(False, jobs.folder / "savepoints").result(END_S)


def gone_on(
    jobs: Jobs, path: str, mode: str, failing: Latch, more: dict[str, object] | None = None
) -> JobClient:
    """A job that goes on from there, slowly, and fails once where it is told to."""
    settings = {RESTORE_PATH: path, CLAIM_MODE: mode, **IN_FILES, **(more or {})}
    env = jobs.checkpointed(1, 100, **settings)
    numbers = running_counts(env, TOTAL, 1_000).map(BreakingOnce(failing))
    numbers.sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    return jobs.start(env, "going on")


@pytest.mark.feature("F251", "F077")
def test_a_snapshot_that_is_not_claimed_is_its_owners_to_delete_after_the_first_checkpoint(
    jobs: Jobs,
) -> None:
    path, failing = savepoint(jobs), Latch(jobs.folder / "failing")
    client = gone_on(jobs, path, "NO_CLAIM", failing)
    wait_completed(client, 2)
    assert Path(path, "_metadata").is_file()
    shutil.rmtree(path)
    failing.set()
    finished(client)
    assert view(client).restarts == 1
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


@pytest.mark.feature("F251")
def test_a_claimed_savepoint_is_deleted_when_a_checkpoint_has_subsumed_it(jobs: Jobs) -> None:
    path, failing = savepoint(jobs), Latch(jobs.folder / "failing")
    client = gone_on(jobs, path, "CLAIM", failing)
    wait_completed(client, 2)
    until(lambda: not Path(path).exists(), "the claimed savepoint is deleted")
    failing.set()
    finished(client)
    assert view(client).restarts == 1
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


@pytest.mark.feature("F251")
@pytest.mark.parametrize("mode", ClaimMode)
def test_a_kept_checkpoint_of_another_job_is_deleted_only_where_it_is_claimed(
    jobs: Jobs, mode: ClaimMode
) -> None:
    before = stopped_with_checkpoint(start_counts(jobs, 1))
    assert before.pointer is not None
    failing = Latch(jobs.folder / "failing")
    client = gone_on(jobs, before.pointer, mode.name, failing)
    wait_completed(client, 2)
    claimed = mode is ClaimMode.CLAIM
    if claimed:
        until(lambda: not Path(str(before.pointer)).exists(), "the claimed checkpoint is deleted")
    client.cancel().result(END_S)
    assert Path(before.pointer).exists() == (not claimed)


POLICIES = {
    "NO_EXTERNALIZED_CHECKPOINTS": {"suspend"},
    "DELETE_ON_CANCELLATION": {"fail", "suspend"},
    "RETAIN_ON_CANCELLATION": {"cancel", "fail", "suspend"},
}


@pytest.mark.feature("F269")
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_left_of_checkpoints_is_up_to_the_policy_and_to_how_the_job_ends(
    jobs: Jobs, policy: str
) -> None:
    for end in ("finish", "cancel", "fail", "suspend"):
        broken = Latch(jobs.folder / "broken")
        settings = {RETENTION: policy, "restart-strategy.type": "disable"}
        env = jobs.checkpointed(1, 50, **settings)
        counts = running_counts(env, 300 if end == "finish" else None, 500)
        counts.map(Breaking(broken)).sink_to(LedgerSink(jobs.folder / "out"))
        client = jobs.start(env, f"{policy} {end}")
        wait_completed(client, 1)
        if end == "cancel":
            client.cancel().result(END_S)
        elif end == "suspend":
            client.suspend().result(END_S)
        elif end == "fail":
            broken.set()
        assert (failure_of(client) is None) == (end == "finish")
        broken.release()
        kept = list((jobs.checkpoints / client.get_job_id()).glob("chk-*/_metadata"))
        assert bool(kept) == (end in POLICIES[policy]), end


@pytest.mark.feature("F251")
def test_a_claimed_snapshot_is_deleted_without_the_files_that_it_names_elsewhere(
    jobs: Jobs,
) -> None:
    env = jobs.checkpointed(1, 100, **IN_FILES, **{"state.backend.type": "rocksdb"})
    running_counts(env, TOTAL, 1_000).sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    before = stopped_with_checkpoint(jobs.start(env, "counts"))
    assert before.pointer is not None
    job, copy = Path(before.pointer).parent, jobs.folder / "copy"
    shutil.copytree(before.pointer, copy)
    files = {path for path in job.rglob("*") if path.is_file()}
    failing = Latch(jobs.folder / "failing")
    client = gone_on(jobs, str(copy), "CLAIM", failing, {"state.backend.type": "rocksdb"})
    until(lambda: not copy.exists(), "the claimed snapshot is deleted")
    client.cancel().result(END_S)
    assert any(path.parent.name == "shared" for path in files)
    assert all(path.is_file() for path in files)

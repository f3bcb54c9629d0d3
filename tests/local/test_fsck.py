"""``tidegate fsck`` on the checkpoint folder of a real job: while it runs, and after it."""

from pathlib import Path

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.restores import RESTORE_PATH, stopped_with_checkpoint
from tests.e2e.runtimes import END_S, RETAIN, Jobs
from tests.e2e.watch import wait_completed
from tidegate import Fault, JobClient, RestoreRefused, Snapshot, fsck, inspect_snapshot
from tidegate.storage import paths

pytestmark = pytest.mark.slow


def start(jobs: Jobs, **settings: object) -> JobClient:
    kept = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.num-retained": 1,
        "execution.checkpointing.unaligned.enabled": True,
        "execution.checkpointing.data-inline-threshold": "0 b",
    }
    env = jobs.checkpointed(2, 50, **RETAIN, **kept, **settings)
    counts = running_counts(env, None, 20_000)
    counts.sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    return jobs.start(env, "counts")


def test_a_job_that_runs_is_healthy_and_loses_nothing(jobs: Jobs) -> None:
    client = start(jobs)
    wait_completed(client, 3)
    savepoint = client.trigger_savepoint(str(jobs.folder / "savepoints")).result(timeout=END_S)
    left = jobs.checkpoints / client.get_job_id() / "shared" / "1-0-0123456789abcdef"
    left.write_bytes(b"as if it was on its way")
    reports = [fsck(jobs.checkpoints, delete_orphans=True) for _ in range(3)]
    assert [report.findings for report in reports] == [(), (), ()]
    assert all(report.snapshots for report in reports)
    assert left.exists() and "the job lives" in str(reports[-1].notes)
    assert fsck(str(savepoint)).healthy

    pointer = stopped_with_checkpoint(client).pointer
    assert pointer is not None and not left.exists(), "the driver sweeps at the end"
    left.write_bytes(b"late")
    report = fsck(jobs.checkpoints, delete_orphans=True)
    assert [(each.fault, each.path) for each in report.findings] == [(Fault.ORPHAN, str(left))]
    assert report.healthy and not left.exists()
    assert [each.path for each in report.snapshots] == [pointer]
    [lost, *_] = (Path(pointer).parent / "shared").iterdir()
    lost.unlink()
    assert {(each.fault, each.path) for each in fsck(paths.parent(pointer)).findings} == {
        (Fault.MISSING, str(lost))
    }
    with pytest.raises(RestoreRefused, match=lost.name) as refused:
        start(jobs, **{RESTORE_PATH: pointer})
    assert refused.value.where == pointer and refused.value.remedy


def test_what_lies_in_the_files_of_a_database_and_in_its_log_counts_once(jobs: Jobs) -> None:
    logged = {
        "state.changelog.enabled": True,
        "state.changelog.storage": "filesystem",
        "state.changelog.periodic-materialize.interval": "200 ms",
    }
    client = start(jobs, **logged)
    wait_completed(client, 5)
    pointer = stopped_with_checkpoint(client).pointer
    assert pointer is not None and fsck(pointer).healthy
    snapshot = Snapshot.open(pointer)
    [operator] = [each for each in inspect_snapshot(pointer).operators if each.uid == "counts"]
    assert operator.backend == "changelog" and operator.states
    for state in operator.states:
        if state.skew is not None and state.kind != "timers":
            keys = [row.key for row in snapshot.rows("counts", state.name)]
            assert len(set(keys)) == len(keys) == state.entries > 1

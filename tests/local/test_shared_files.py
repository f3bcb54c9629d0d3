"""State on disk over restarts: shared files stay as long as they are used, copies are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flinkformat.handles import FileStateHandle, IncrementalRemoteKeyedStateHandle
from flinkformat.metadata import decode
from flinkformat.snapshots import FINISHED
from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.restores import RESTORE_PATH, SLOWLY, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, until, view, wait_completed, wait_recovered
from tidegate.storage.paths import name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate import JobClient
    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics

pytestmark = pytest.mark.slow

TOTAL = 20_000


def start_on_disk(jobs: Jobs, *, rate: float | None, **settings: object) -> JobClient:
    """Running counts over files that are never merged, each of them uploaded however small."""
    on_disk = {
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.localdir": str(jobs.folder / "local"),
        "state.backend.rocksdb.compaction.style": "NONE",
        "execution.checkpointing.data-inline-threshold": "0 b",
    }
    env = jobs.checkpointed(2, 200, **RETAIN, **on_disk, **settings)
    running_counts(env, TOTAL, rate).sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    return jobs.start(env, "on disk")


def handles_of(checkpoint: CheckpointStatistics) -> Iterator[IncrementalRemoteKeyedStateHandle]:
    assert checkpoint.pointer is not None
    data = (Path(checkpoint.pointer) / "_metadata").read_bytes()
    for operator in decode(data, lambda: pytest.fail("an id is missing")).operators:
        for state in operator.subtasks.values():
            if state is not FINISHED and state.managed_keyed is not None:
                assert isinstance(state.managed_keyed, IncrementalRemoteKeyedStateHandle)
                yield state.managed_keyed


@pytest.mark.feature("F041", "F202")
def test_shared_files_survive_a_restart_and_two_more_checkpoints(jobs: Jobs) -> None:
    client = start_on_disk(jobs, rate=SLOWLY)
    wait_completed(client, 3)
    kill_slot(client, 1)
    wait_recovered(client, 1)
    wait_completed(client, view(client).checkpoints.counts.completed + 2)
    last = stopped_with_checkpoint(client)
    handles = list(handles_of(last))
    assert len(handles) == 2
    files = [file.handle for handle in handles for file in handle.shared_state]
    assert all(isinstance(file, FileStateHandle) for file in files)
    named = {name(file.physical_id): file.state_size for file in files}
    # Names tell the attempt: some are from before the restart, some from after it.
    assert {file.split("-")[1] for file in named} == {"0", "1"}
    assert last.pointer is not None
    shared = Path(last.pointer).parent / "shared"
    assert {file.name: file.stat().st_size for file in shared.iterdir()} == named

    finished(start_on_disk(jobs, rate=None, **{RESTORE_PATH: last.pointer}))
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


@pytest.mark.feature("F257")
def test_a_restart_on_the_same_machine_reads_the_local_copy(jobs: Jobs) -> None:
    client = start_on_disk(jobs, rate=8_000, **{"execution.state-recovery.from-local": True})
    wait_completed(client, 3)
    shared = jobs.checkpoints / client.get_job_id() / "shared"
    shared.rename(jobs.folder / "put away")
    kill_slot(client, 1)
    wait_recovered(client, 1)
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)
    local = jobs.folder / "local"
    until(lambda: not list(local.rglob("*")), f"nothing is left below {local}")

"""Jobs whose changes of state are logged: what they give is what others give, after kills too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flinkformat.handles import ChangelogStateBackendHandle
from flinkformat.metadata import decode
from flinkformat.snapshots import FINISHED
from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.restores import RESTORE_PATH, SLOWLY, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.savepoints import counting, wait_rows
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, view, wait_completed, wait_recovered
from tidegate import SavepointFormatType, StreamExecutionEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics

pytestmark = pytest.mark.slow

TOTAL = 10_000
LOGGED: dict[str, object] = {
    "state.changelog.enabled": True,
    "state.changelog.periodic-materialize.interval": "300 ms",
    "state.changelog.dstl.dfs.preemptive-persist-threshold": "1 kb",
    "execution.checkpointing.data-inline-threshold": "0 b",
}


class Logged(Jobs):
    """The same with a changelog, over either backend."""

    def __init__(self, jobs: Jobs, backend: str) -> None:
        super().__init__(jobs.make, jobs.folder)
        self._inner = jobs
        self._settings: dict[str, object] = {
            **LOGGED,
            "state.backend.type": backend,
            "state.backend.rocksdb.localdir": str(jobs.folder / "local"),
        }

    def env(self, parallelism: int = 1, **settings: object) -> StreamExecutionEnvironment:
        return self._inner.env(parallelism, **{**self._settings, **settings})


@pytest.fixture(params=["hashmap", "rocksdb"])
def logged(jobs: Jobs, request: pytest.FixtureRequest) -> Logged:
    return Logged(jobs, request.param)


def handles_of(checkpoint: CheckpointStatistics) -> Iterator[ChangelogStateBackendHandle]:
    assert checkpoint.pointer is not None
    data = (Path(checkpoint.pointer) / "_metadata").read_bytes()
    for operator in decode(data, lambda: pytest.fail("an id is missing")).operators:
        for state in operator.subtasks.values():
            if state is not FINISHED and state.managed_keyed is not None:
                assert isinstance(state.managed_keyed, ChangelogStateBackendHandle)
                yield state.managed_keyed


def test_a_job_whose_slot_is_killed_goes_on_exactly_and_leaves_no_file(logged: Logged) -> None:
    env = logged.checkpointed(2, 200, **RETAIN)
    running_counts(env, TOTAL, SLOWLY).sink_to(LedgerSink(logged.folder / "out")).uid("ledger")
    client = logged.start(env, "killed")
    wait_completed(client, 4)
    kill_slot(client, 1)
    wait_recovered(client, 1)
    wait_completed(client, view(client).checkpoints.counts.completed + 4)
    last = stopped_with_checkpoint(client)
    assert last.pointer is not None
    handles = list(handles_of(last))
    assert len(handles) == 2
    assert all(handle.materialization_id > 0 for handle in handles)
    shared = Path(last.pointer).parent / "shared"
    named = {
        Path(stream.physical_id).name
        for handle in handles
        for part in handle.non_materialized
        for stream in (each.handle for each in getattr(part, "handles", ()))
    }
    assert named <= {file.name for file in shared.iterdir()}

    again = logged.checkpointed(2, 200, **{RESTORE_PATH: last.pointer})
    running_counts(again, TOTAL, None).sink_to(LedgerSink(logged.folder / "out")).uid("ledger")
    finished(logged.start(again, "goes on"))
    check_each_counted_once(ledger_rows(logged.folder / "out"), TOTAL)


def test_the_log_is_switched_on_and_off_between_runs(jobs: Jobs) -> None:
    """By retained checkpoints, at other parallelisms, and by a savepoint to the other backend."""
    plain: dict[str, object] = {
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.localdir": str(jobs.folder / "local"),
    }
    saved: str | None = None
    for parallelism, settings in ((1, plain), (2, plain | LOGGED), (1, plain)):
        client = counting(
            jobs,
            parallelism,
            TOTAL,
            3_000,
            start_from=saved,
            settings=settings | RETAIN,
            interval_ms=100,
        )
        wait_completed(client, 2)
        saved = stopped_with_checkpoint(client).pointer
    client = counting(jobs, 2, TOTAL, 3_000, start_from=saved, settings=plain | LOGGED)
    wait_rows(client, 300)
    saved = client.stop_with_savepoint(
        False,
        savepoint_directory=str(jobs.folder / "savepoints"),
        format=SavepointFormatType.CANONICAL,
    ).result(60)
    last = counting(
        jobs,
        2,
        TOTAL,
        None,
        start_from=saved,
        settings=plain | LOGGED | {"state.backend.type": "hashmap"},
        interval_ms=100,
    )
    finished(last)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)

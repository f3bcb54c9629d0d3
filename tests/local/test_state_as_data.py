"""State of a job that was stopped: read, repaired, and gone on with."""

from collections import Counter

import pytest

from flinkformat.handles import ChangelogStateBackendHandle
from flinkformat.snapshots import SubtaskState
from tests.e2e.jobs import KEYS, key_of
from tests.e2e.ledger import ledger_rows
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.savepoints import END_S, counting, wait_rows
from tests.e2e.watch import wait_completed
from tidegate import SavepointFormatType, SavepointWriter, Snapshot, read_state

pytestmark = pytest.mark.slow

LOGGED: dict[str, object] = {
    "state.changelog.enabled": True,
    "state.changelog.periodic-materialize.interval": "200 ms",
    "state.changelog.dstl.dfs.preemptive-persist-threshold": "1 kb",
    **RETAIN,
}
TOTAL = 2_000
BAD = 3


@pytest.mark.feature("F254")
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_key_is_repaired_in_the_savepoint_of_a_stopped_job(jobs: Jobs, backend: str) -> None:
    settings: dict[str, object] = {"state.backend.type": backend}
    client = counting(jobs, 2, TOTAL, 1_000, settings=settings)
    wait_rows(client, TOTAL // 10)
    format = SavepointFormatType.NATIVE
    stop = client.stop_with_savepoint(False, jobs.folder / "savepoints", format=format)
    path = stop.result(END_S)
    came = Counter(row["key"] for row in ledger_rows(jobs.folder / "out"))
    held = read_state(path, "counts", "count").to_arrow()
    counts = dict(zip(held["key"].to_pylist(), held["value"].to_pylist(), strict=True))
    assert counts == came

    writer = SavepointWriter.from_existing(path).put_state("counts", "count", {BAD: 1_000_000})
    repaired = writer.write(jobs.folder / "repaired")

    out = jobs.folder / "after"
    client = counting(
        jobs, 3, TOTAL, None, start_from=repaired, out=out, interval_ms=100, settings=settings
    )
    finished(client)
    highest = {
        key: max(row["count"] for row in ledger_rows(out) if row["key"] == key)
        for key in range(KEYS)
    }
    whole = Counter(map(key_of, range(TOTAL)))
    assert highest.pop(BAD) == 1_000_000 + whole[BAD] - came[BAD]
    assert highest == {key: count for key, count in whole.items() if key != BAD}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_retained_checkpoint_with_a_changelog_is_read_and_amended(
    jobs: Jobs, backend: str
) -> None:
    settings: dict[str, object] = {"state.backend.type": backend, **LOGGED}
    client = counting(jobs, 2, None, 1_000, interval_ms=100, settings=settings)
    wait_completed(client, 6)
    client.cancel().result(END_S)
    newest = max(jobs.checkpoints.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
    [operator] = (each for each in Snapshot.open(newest).metadata.operators if each.uid == "counts")
    kept = [each for each in operator.subtasks.values() if isinstance(each, SubtaskState)]
    assert all(isinstance(each.managed_keyed, ChangelogStateBackendHandle) for each in kept)
    counts = {row.key: row.value for row in read_state(newest, "counts", "count").rows()}
    # Numbers go to the keys in turn, and subtasks have read their shares of them.
    assert len(counts) == KEYS and sum(counts.values()) > 200
    writer = SavepointWriter.from_existing(newest).put_state("counts", "count", {BAD: -1})
    amended = writer.write(jobs.folder / "amended")
    found = {row.key: row.value for row in read_state(amended, "counts", "count").rows()}
    assert found == {**counts, BAD: -1}

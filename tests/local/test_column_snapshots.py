"""Checkpoints of state in columns, looked into from outside."""

import pytest

from tests.e2e.arrow_jobs import column_counts
from tests.e2e.jobs import KEYS
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import view, wait_completed
from tidegate import Snapshot, fsck, inspect_snapshot
from tidegate.connectors import NumberSequenceSource

pytestmark = pytest.mark.slow

MANY = 1 << 40


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_columns_are_counted_checked_and_read(jobs: Jobs, backend: str) -> None:
    settings = {"state.backend.type": backend, "tidegate.local.in-process": "true"}
    env = jobs.checkpointed(2, 100, **settings)
    counted = column_counts(env, NumberSequenceSource(0, MANY, arrow=True))
    counted.filter_batches(lambda batch: [False] * batch.num_rows).print()
    client = jobs.start(env, "columns")
    wait_completed(client, 3)
    client.cancel().result(60)
    kept = view(client).checkpoints.latest_completed
    assert kept is not None and kept.pointer is not None

    [state] = [
        state
        for operator in inspect_snapshot(kept.pointer).operators
        for state in operator.states or ()
        if state.name == "count"
    ]
    assert state.entries == KEYS and state.size_bytes
    assert sum(group.entries for group in state.key_groups) == KEYS
    assert fsck(kept.pointer).healthy
    rows = list(Snapshot.open(kept.pointer).rows("column counts", "count"))
    assert {row.key for row in rows} == set(range(KEYS))
    assert all(row.value > 0 for row in rows)

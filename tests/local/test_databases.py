"""Jobs into a database: a table that is upserted is right though slots are killed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.jobs import KEYS, Counted, running_counts
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.watch import kill_slot, wait_completed, wait_recovered
from tidegate import Row, Types
from tidegate.connectors import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink

pytestmark = pytest.mark.slow

COUNT = Types.ROW_NAMED(["key", "count"], [Types.LONG(), Types.LONG()])
UPSERT = """
    INSERT INTO counts VALUES (?, ?, 1)
    ON CONFLICT (key) DO UPDATE SET count = excluded.count, writes = writes + 1
"""


def rows_of(path: Path, sql: str) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).fetchall()


def row_of(counted: Counted) -> Row:
    return Row(key=counted["key"], count=counted["count"])


@pytest.mark.feature("F288")
def test_a_table_has_one_row_a_key_with_its_last_count_though_slots_are_killed(jobs: Jobs) -> None:
    total, path = 4_000, jobs.folder / "counts.db"
    rows_of(path, "CREATE TABLE counts (key INTEGER PRIMARY KEY, count INTEGER, writes INTEGER)")
    url = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{path}")
    execution = JdbcExecutionOptions.builder().with_batch_size(20).build()
    env = jobs.checkpointed(2, 300)
    counts = running_counts(env, total, 1_500).map(row_of, COUNT)
    counts.add_sink(JdbcSink.sink(UPSERT, COUNT, url.build(), execution)).uid("table")
    client = jobs.start(env, "counts")
    for restart in (1, 2):
        wait_completed(client, restart)
        kill_slot(client, restart % 2)
        wait_recovered(client, restart)
    finished(client)
    found = rows_of(path, "SELECT * FROM counts ORDER BY key")
    assert [row[:2] for row in found] == [
        (key, len(range(key, total, KEYS))) for key in range(KEYS)
    ]
    assert all(writes >= count for _, count, writes in found), "a count was never written"

"""What must hold when slots are killed; asked of every runtime."""

import os
import signal
from collections.abc import Callable
from typing import Any

from tests.e2e.arrow_jobs import (
    COUNTED_SCHEMA,
    WINDOWED_SCHEMA,
    column_counts,
    expected_window_counts,
    running_columns,
    window_counts,
)
from tests.e2e.files import committed_rows, hidden_files, write_numbers
from tests.e2e.jobs import COUNT_SCHEMA, running_counts
from tests.e2e.journal import Journal
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.probes import Probe, SlowSnapshotCount
from tests.e2e.runtimes import Jobs, finish_by_checkpoints, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import (
    kill_slot,
    pids,
    runs,
    view,
    wait_completed,
    wait_for,
    wait_recovered,
    wait_running,
)
from tidegate import DataStream, JobClient, StreamExecutionEnvironment
from tidegate.checkpoint.coordinator.statistics import CheckpointStatus
from tidegate.connectors import FileSink, FileSource
from tidegate.jobmaster.view import JobView, SubtaskView

RECOVERY_S = 10.0
"""What a recovery may take here, where the machine is shared; benchmarks hold the real figure."""


def check_two_kills(jobs: Jobs, **settings: object) -> None:
    """Two slots are killed in turn; each time the other stays, and nothing is lost or doubled."""
    total, out = 6_000, jobs.folder / "out"
    env = jobs.checkpointed(2, 200, **settings)
    running_counts(env, total, 1_500).sink_to(FileSink.parquet(str(out), COUNT_SCHEMA))
    client = jobs.start(env, "counts")
    before = pids(wait_completed(client, 2))
    killed = [kill_slot(client, 0)]
    between = pids(wait_recovered(client, 1))
    assert before - between == {killed[0]}, "a slot that was not killed has lost its process"
    completed = view(client).checkpoints.counts.completed
    wait_completed(client, completed + 1)
    killed.append(kill_slot(client, 1))
    after = pids(wait_recovered(client, 2))
    assert between - after == {killed[1]}, "a slot that was not killed has lost its process"
    finished(client)
    counts = view(client).checkpoints.counts
    assert counts.restored == view(client).restarts == 2
    rows = committed_rows(out)
    check_each_counted_once(rows, total)
    check_recovered_soon(view(client), rows)
    assert not hidden_files(out)


def check_kills_on_survivors(jobs: Jobs, **settings: object) -> None:
    """A slot that lives hosts the subtasks of a killed one until there is another, and may die too.

    Slots are killed until guests are seen: on a busy machine another may be there as soon.
    """
    total, out = 12_000, jobs.folder / "out"
    on = {"tidegate.recovery.on-survivors": True}
    env = jobs.checkpointed(2, 200, **on, **settings)
    running_counts(env, total, 1_500).sink_to(FileSink.parquet(str(out), COUNT_SCHEMA))
    client = jobs.start(env, "counts")
    kills = 0
    seen = wait_completed(client, 2)
    while not guests(seen):
        before, killed = pids(seen), kill_slot(client, 0)
        kills += 1
        seen = wait_after(client, kills)
    (survivor,) = before - {killed}
    hosts = {slot.id for slot in seen.slots if slot.pid == survivor}
    assert {guest.slot for guest in guests(seen)} == hosts
    seen = wait_for(client, at_home, "a slot of its own for each subtask")
    assert seen.restarts == len(seen.failures) == kills, "their return is no failure"
    assert survivor in pids(seen), "a slot that was not killed has lost its process"
    kill_slot(client, 0)
    seen = wait_after(client, kills + 1)
    for pid in pids(seen):
        os.kill(pid, signal.SIGKILL)
    wait_after(client, kills + 2)
    wait_for(client, at_home, "a slot of its own for each subtask, once more")
    finished(client)
    check_each_counted_once(committed_rows(out), total)
    assert not hidden_files(out)


def wait_after(client: JobClient, restarts: int) -> JobView:
    """Wait until the job runs after so many restarts: with guests, or on all slots."""
    return wait_for(
        client,
        lambda seen: seen.restarts >= restarts and runs(seen) and (guests(seen) or at_home(seen)),
        f"running after restart {restarts}, with guests or on all slots",
    )


def guests(seen: JobView) -> list[SubtaskView]:
    """Subtasks in slots of others."""
    return [one for vertex in seen.vertices for one in vertex.subtasks if one.guest]


def at_home(seen: JobView) -> bool:
    """Whether each subtask runs in a slot of its own."""
    return runs(seen) and len(seen.slots) == seen.slots_wanted and not guests(seen)


def check_recovered_soon(seen: JobView, rows: list[dict[str, int]]) -> None:
    """The first record after each failure came soon after it."""
    for failure in seen.failures:
        back_ms = min(row["emitted_ms"] for row in rows if row["emitted_ms"] > failure.wall_ms + 1)
        assert back_ms - failure.wall_ms < RECOVERY_S * 1000


def check_kill_during_checkpoint(jobs: Jobs) -> None:
    """A slot is killed while a checkpoint is under way: it counts for nothing."""
    total, out = 4_000, jobs.folder / "out"
    env = jobs.checkpointed(2, 100)
    running_counts(env, total, 1_000, SlowSnapshotCount(0.15)).sink_to(LedgerSink(out))
    client = jobs.start(env, "counts")
    for restart in (1, 2):
        wait_completed(client, restart)
        seen = wait_for(
            client, lambda seen: seen.checkpoints.counts.in_progress, "a checkpoint under way"
        )
        under_way = seen.checkpoints.history[0]
        kill_slot(client, restart)
        seen = wait_recovered(client, restart)
        given_up = seen.checkpoints.find(under_way.checkpoint)
        assert given_up is not None
        if given_up.status is CheckpointStatus.FAILED:
            assert given_up.pointer is None
    finished(client)
    check_each_counted_once(ledger_rows(out), total)


def check_kill_over_columns(jobs: Jobs) -> None:
    """Arrow batches from files, state in columns: a reader is killed with parts in its hands."""
    _check_kill_over(jobs, column_counts)


def check_kill_over_running_aggregates(jobs: Jobs, **settings: object) -> None:
    """The same, with declared aggregates that run."""
    _check_kill_over(jobs, running_columns, **settings)


def _check_kill_over(
    jobs: Jobs,
    counts: Callable[[StreamExecutionEnvironment, FileSource], DataStream[Any]],
    **settings: object,
) -> None:
    folder, out = jobs.folder / "in", jobs.folder / "out"
    write_numbers(folder, files=24, rows_each=200)
    source = FileSource.parquet(str(folder)).arrow().rate(1_200)
    env = jobs.checkpointed(2, 200, **settings)
    counts(env, source).sink_to(FileSink.parquet(str(out), COUNTED_SCHEMA))
    client = jobs.start(env, "columns")
    wait_completed(client, 2)
    kill_slot(client, 0)
    wait_recovered(client, 1)
    wait_completed(client, view(client).checkpoints.counts.completed + 1)
    kill_slot(client, 1)
    finished(client)
    check_each_counted_once(committed_rows(out), 24 * 200)


def check_kill_over_windows(jobs: Jobs) -> None:
    """Counts by sliding window: slots are killed between the firings of windows that overlap."""
    total, folder, out = 4_800, jobs.folder / "in", jobs.folder / "out"
    write_numbers(folder, files=1, rows_each=total)
    source = FileSource.parquet(str(folder)).arrow().rate(1_200)
    env = jobs.checkpointed(2, 200)
    window_counts(env, source).sink_to(FileSink.parquet(str(out), WINDOWED_SCHEMA))
    client = jobs.start(env, "windows")
    wait_completed(client, 2)
    kill_slot(client, 0)
    wait_recovered(client, 1)
    wait_completed(client, view(client).checkpoints.counts.completed + 1)
    kill_slot(client, 1)
    finished(client)
    rows = sorted(tuple(row.values()) for row in committed_rows(out))
    assert rows == expected_window_counts(total)


def check_kill_before_first_checkpoint(jobs: Jobs) -> None:
    """Without a checkpoint a failover starts with nothing, and from the first record."""
    total, out, journal = 2_000, jobs.folder / "out", Journal(jobs.folder / "journal")
    env = jobs.checkpointed(2, 3_600_000)
    counts = running_counts(env, total, 2_000).map(Probe(journal, "probe"))
    counts.sink_to(LedgerSink(out))
    client = jobs.start(env, "counts")
    wait_running(client)
    kill_slot(client, 0)
    seen = wait_recovered(client, 1)
    assert seen.restored is None and seen.checkpoints.counts.restored == 0
    finish_by_checkpoints(client)
    check_each_counted_once(ledger_rows(out), total)
    assert all(note["restored"] == [] for note in journal.notes("open"))
    assert {row["attempt"] for row in ledger_rows(out)} == {1}, "rows of the killed attempt"

"""Checkpoints of state in memory that are smaller: compressed, or only what changed."""

from pathlib import Path

import pytest

from tests.e2e.ledger import ledger_rows
from tests.e2e.leftovers import check_left_over
from tests.e2e.restores import HISTORY, RESTORE_PATH, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.texts import check_texts, texts
from tests.e2e.watch import completed, kill_slot, until, view, wait_recovered
from tidegate import JobClient
from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics

pytestmark = pytest.mark.slow

INCREMENTAL = {"execution.checkpointing.incremental": True}
COMPRESSED = "execution.checkpointing.snapshot-compression"
RATE = 1_200


def start(jobs: Jobs, parallelism: int, rate: float | None, **settings: object) -> JobClient:
    env = jobs.checkpointed(parallelism, 100, **RETAIN, **HISTORY, **settings)
    texts(env, jobs.folder / "out", rate)
    return jobs.start(env, "texts")


def small(client: JobClient) -> list[CheckpointStatistics]:
    """Checkpoints that wrote little of much state."""
    done = completed(view(client))
    return [each for each in done if each.checkpointed_size * 10 < each.state_size > 200_000]


def test_only_key_groups_that_changed_are_written_and_all_come_back(jobs: Jobs) -> None:
    client = start(jobs, 2, RATE, **INCREMENTAL)
    until(lambda: len(small(client)) >= 2, "checkpoints of one changed key group")
    kill_slot(client, 0)
    wait_recovered(client, 1)
    before = len(small(client))
    until(lambda: len(small(client)) >= before + 2, "small checkpoints after the restart")
    left = stopped_with_checkpoint(client, 1)
    shared = Path(left.pointer or "").parent / "shared"
    assert 0 < len(list(shared.iterdir())) < 10
    check_left_over(jobs.checkpoints, client.get_job_id())
    finished(start(jobs, 3, None, **{RESTORE_PATH: left.pointer}))
    check_texts(ledger_rows(jobs.folder / "out"))


@pytest.mark.feature("F262")
@pytest.mark.parametrize("compressed", [True, False])
def test_snapshots_are_restored_whatever_is_set(jobs: Jobs, compressed: bool) -> None:
    client = start(jobs, 1, RATE, **{COMPRESSED: compressed})
    until(lambda: len(completed(view(client))) > 8, "all keys in a checkpoint")
    left = stopped_with_checkpoint(client, 1)
    assert (left.state_size < 200_000) == compressed
    after = {RESTORE_PATH: left.pointer, COMPRESSED: not compressed}
    finished(start(jobs, 2, None, **after))
    check_texts(ledger_rows(jobs.folder / "out"))

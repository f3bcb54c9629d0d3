"""What must hold when a job goes on from a checkpoint; asked of every runtime."""

from collections.abc import Sequence
from pathlib import Path

from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import view, wait_completed
from tidegate import JobClient
from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics

RESTORE_PATH = "execution.state-recovery.path"
TOTAL = 40_000
SLOWLY = 2_000
HISTORY = {"web.checkpoints.history": 10_000}


def start_counts(
    jobs: Jobs,
    parallelism: int,
    *,
    rate: float | None = SLOWLY,
    pointer: str | None = None,
    out: str = "out",
) -> JobClient:
    """Running counts into a ledger, from a checkpoint where one is named."""
    restore = {} if pointer is None else {RESTORE_PATH: pointer}
    env = jobs.checkpointed(parallelism, 150, **RETAIN, **HISTORY, **restore)
    running_counts(env, TOTAL, rate).sink_to(LedgerSink(jobs.folder / out)).uid("ledger")
    return jobs.start(env, f"counts at {parallelism}")


def stopped_with_checkpoint(client: JobClient, checkpoints: int = 2) -> CheckpointStatistics:
    """Cancel a job after so many checkpoints; the newest one, which it has left."""
    wait_completed(client, checkpoints)
    client.cancel().result(timeout=100)
    newest = view(client).checkpoints.latest_completed
    assert newest is not None and newest.pointer is not None
    assert (Path(newest.pointer) / "_metadata").is_file()
    return newest


def check_rescaled(steps: Sequence[tuple[Jobs, int]]) -> None:
    """One stream counted by several jobs, each going on from what the one before has left.

    steps: where each runs, all over one folder, and its parallelism; the last one finishes.
    """
    before: CheckpointStatistics | None = None
    for step, (jobs, parallelism) in enumerate(steps, 1):
        client = start_counts(
            jobs,
            parallelism,
            rate=SLOWLY if step < len(steps) else None,
            pointer=before.pointer if before else None,
        )
        wait_completed(client, 1)
        if before is not None:
            check_goes_on(client, before)
        if step < len(steps):
            before = stopped_with_checkpoint(client)
    finished(client)
    check_each_counted_once(ledger_rows(steps[0][0].folder / "out"), TOTAL)


def check_goes_on(client: JobClient, before: CheckpointStatistics) -> None:
    """The job says from what it was restored, and its checkpoints' numbers go on from there."""
    seen = view(client)
    restored = seen.checkpoints.latest_restored
    assert restored is not None
    assert (restored.checkpoint, restored.pointer) == (before.checkpoint, before.pointer)
    assert restored.savepoint, "an unclaimed snapshot counts as one, as in Flink"
    assert restored.restored_ms >= before.trigger_ms
    assert seen.checkpoints.counts.restored == 1
    first = seen.checkpoints.history[-1]
    assert first.checkpoint == before.checkpoint + 1

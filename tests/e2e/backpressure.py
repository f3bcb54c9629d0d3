"""A job whose last step is slow, so that all channels in front of it fill up."""

import time
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.jobs import Counted, running_counts
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.restores import RESTORE_PATH, check_goes_on, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import (
    completed,
    kill_slot,
    view,
    wait_completed,
    wait_for,
    wait_recovered,
)
from tidegate import JobClient, StreamExecutionEnvironment
from tidegate.checkpoint.statistics import CheckpointStatistics

UNALIGNED = {
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.data-inline-threshold": "0 b",
    "web.checkpoints.history": 10_000,
}
ALIGNMENT_TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"
TOTAL = 20_000


@dataclass(frozen=True)
class Slow:
    """Passes values on; each takes its time while the latch is set."""

    latch: Latch
    row_s: float

    def __call__(self, value: Counted) -> Counted:
        if self.latch.is_set:
            time.sleep(self.row_s)
        return value


def slow_counts(
    env: StreamExecutionEnvironment,
    folder: Path,
    *,
    rows: int | None,
    rate: float | None,
    row_s: float,
) -> Latch:
    """Running counts that a slow step behind a rebalance writes down; the latch is set."""
    latch = Latch(folder / "slow")
    latch.set()
    counts = running_counts(env, rows, rate).rebalance()
    counts.map(Slow(latch, row_s)).uid("slow").sink_to(LedgerSink(folder / "out")).uid("ledger")
    return latch


def start_slow(
    jobs: Jobs, parallelism: int, *, pointer: str | None = None, **settings: object
) -> tuple[JobClient, Latch]:
    """A job of so many numbers, all slow until its latch is released."""
    restore = {} if pointer is None else {RESTORE_PATH: pointer}
    env = jobs.checkpointed(parallelism, 200, **{**UNALIGNED, **RETAIN, **restore, **settings})
    latch = slow_counts(env, jobs.folder, rows=TOTAL, rate=None, row_s=0.005)
    return jobs.start(env, f"slow at {parallelism}"), latch


def wait_persisted(client: JobClient, count: int = 1) -> CheckpointStatistics:
    """Wait for so many completed checkpoints with in-flight data; the newest."""

    def found() -> list[CheckpointStatistics]:
        return [each for each in completed(view(client)) if each.persisted_bytes]

    wait_for(client, lambda _: len(found()) >= count, f"{count} checkpoints with in-flight data")
    newest = found()[-1]
    assert newest.unaligned
    return newest


def check_killed_under_backpressure(jobs: Jobs, **settings: object) -> None:
    """Slots are killed while all channels are full: nothing is lost, nothing doubled."""
    client, latch = start_slow(jobs, 2, **settings)
    for restart in (1, 2):
        wait_persisted(client, restart)
        kill_slot(client, restart)
        seen = wait_recovered(client, restart)
        restored = seen.checkpoints.latest_restored
        assert restored is not None and restored.checkpoint == seen.restored
    wait_persisted(client, len([c for c in completed(view(client)) if c.persisted_bytes]) + 1)
    latch.release()
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


def check_rescaled_under_backpressure(jobs: Jobs, parallelisms: tuple[int, ...]) -> None:
    """From an unaligned checkpoint to other parallelisms, with in-flight data each time."""
    before: CheckpointStatistics | None = None
    for parallelism in parallelisms:
        client, latch = start_slow(jobs, parallelism, pointer=before.pointer if before else None)
        if before is not None:
            wait_completed(client, 1)
            check_goes_on(client, before)
        wait_persisted(client)
        if parallelism != parallelisms[-1]:
            before = stopped_with_checkpoint(client)
            assert before.persisted_bytes, "the last checkpoint has in-flight data too"
    latch.release()
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), TOTAL)


def durations_ms(jobs: Jobs, count: int, row_s: float, **settings: object) -> list[int]:
    """How long checkpoints take under backpressure: the first ``count``, or what they took so far.

    Those under way count once they have taken half a minute.
    """
    env = jobs.checkpointed(2, 200, **{**UNALIGNED, **settings})
    slow_counts(env, jobs.folder, rows=None, rate=None, row_s=row_s)
    client = jobs.start(env, "measured")
    seen = wait_for(
        client,
        lambda seen: (
            len(completed(seen)) >= count
            or any(each.duration_ms > 30_000 for each in seen.checkpoints.history)
        ),
        "checkpoints under backpressure",
        timeout_s=90,
    )
    found = [each.duration_ms for each in reversed(seen.checkpoints.history)]
    client.cancel().result(timeout=60)
    return found[:count]

"""A job whose last step is slow, so that all channels in front of it fill up."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tests.e2e.jobs import Counted, RunningCount, key_of, running_counts, same
from tests.e2e.journal import Latch
from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.restores import RESTORE_PATH, check_goes_on, stopped_with_checkpoint
from tests.e2e.runtimes import RETAIN, Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import (
    completed,
    kill_slot,
    runs,
    view,
    wait_completed,
    wait_for,
    wait_recovered,
)
from tidegate import DataStream, JobClient, StreamExecutionEnvironment, Types
from tidegate.checkpoint.coordinator.statistics import CheckpointStatistics
from tidegate.jobmaster.view import JobView
from tidegate.model.control import SubtaskFigures

UNALIGNED = {
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.data-inline-threshold": "0 b",
    "web.checkpoints.history": 10_000,
}
ALIGNMENT_TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"
TOTAL = 20_000

T = TypeVar("T")


@dataclass(frozen=True)
class Slow(Generic[T]):
    """Passes values on; each takes its time while the latch is set."""

    latch: Latch
    row_s: float

    def __call__(self, value: T) -> T:
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
    return written_slowly(running_counts(env, rows, rate), folder, row_s)


def written_slowly(counts: DataStream[Counted], folder: Path, row_s: float) -> Latch:
    """Have a slow step behind a rebalance write counts down; the latch is set."""
    latch = Latch(folder / "slow")
    latch.set()
    counts.rebalance().map(Slow(latch, row_s)).uid("slow").sink_to(LedgerSink(folder / "out")).uid(
        "ledger"
    )
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


DEBLOAT_KEYS = "taskmanager.network.memory.buffer-debloat."
TARGET_MS = 200
DEBLOATED = {
    f"{DEBLOAT_KEYS}enabled": "true",
    f"{DEBLOAT_KEYS}target": TARGET_MS,
    f"{DEBLOAT_KEYS}period": 50,
    f"{DEBLOAT_KEYS}samples": 10,
}
ALIGNED = {
    "execution.checkpointing.unaligned.enabled": "false",
    "tidegate.batch.rows": 512,
    "heartbeat.interval": 100,
}


def slow_figures(seen: JobView) -> list[SubtaskFigures]:
    """Figures of the subtasks of the slow step."""
    return [subtask.figures for subtask in seen.vertices[-1].subtasks]


def is_debloated(seen: JobView) -> bool:
    """Whether the batches in front of the slow step are small, and take about the target time."""
    return runs(seen) and all(
        figures.buffer_rows is not None
        and figures.buffer_rows < 256
        and figures.in_flight_ms is not None
        and TARGET_MS / 3 < figures.in_flight_ms < TARGET_MS * 2
        for figures in slow_figures(seen)
    )


def debloated_durations_ms(jobs: Jobs, count: int, row_s: float) -> list[int]:
    """How long checkpoints take that begin once the batches are debloated."""
    env = jobs.checkpointed(2, 200, **{**UNALIGNED, **ALIGNED, **DEBLOATED})
    slow_counts(env, jobs.folder, rows=None, rate=None, row_s=row_s)
    client = jobs.start(env, "debloated")
    sizes: list[int] = []

    def fallen(seen: JobView) -> bool:
        sizes.extend(figures.buffer_rows or 0 for figures in slow_figures(seen))
        return is_debloated(seen)

    seen = wait_for(client, fallen, "small batches in flight for the target time")
    assert max(sizes) > 2 * max(sizes[-2:]), "the size has fallen"
    known = max((each.checkpoint for each in seen.checkpoints.history), default=0)

    def newer(seen: JobView) -> list[CheckpointStatistics]:
        return [each for each in completed(seen) if each.checkpoint > known]

    seen = wait_for(client, lambda seen: len(newer(seen)) >= count, "debloated checkpoints")
    client.cancel().result(timeout=60)
    return [each.duration_ms for each in newer(seen)]


def check_killed_while_debloated(jobs: Jobs, total: int) -> None:
    """A slot is killed while batches are debloated: nothing is lost, nothing doubled."""
    env = jobs.checkpointed(2, 200, **{**UNALIGNED, **ALIGNED, **DEBLOATED})
    latch = slow_counts(env, jobs.folder, rows=total, rate=None, row_s=0.0005)
    client = jobs.start(env, "debloated and killed")
    wait_for(
        client,
        lambda seen: is_debloated(seen) and completed(seen),
        "small batches, and a checkpoint",
    )
    kill_slot(client, 1)
    wait_recovered(client, 1)
    wait_for(client, is_debloated, "small batches again")
    latch.release()
    finished(client)
    check_each_counted_once(ledger_rows(jobs.folder / "out"), total)


def start_skewed(jobs: Jobs, **settings: object) -> JobClient:
    """Counts over two inputs, of which one is paced and the other comes through a slow step."""
    latch = Latch(jobs.folder / "slow")
    latch.set()
    env = jobs.checkpointed(2, 200, **{"tidegate.batch.rows": 64, **settings})
    flood = env.generate(same, None, None, Types.LONG()).uid("flood").rebalance()
    slow = flood.map(Slow[int](latch, 0.001)).uid("slow")
    both = env.generate(same, None, 500, Types.LONG()).uid("paced").union(slow)
    counts = both.key_by(key_of, key_type=Types.LONG()).process(RunningCount()).uid("counts")
    counts.sink_to(LedgerSink(jobs.folder / "out")).uid("ledger")
    return jobs.start(env, "skewed")

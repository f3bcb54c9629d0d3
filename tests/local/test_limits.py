"""Bounds: a sink that waits makes the source wait, and memory stays where it was."""

import time
from collections.abc import Callable

import psutil
import pytest

from tests.e2e.jobs import same
from tests.e2e.journal import Latch
from tests.e2e.limits import LateSink, SlowSink, last_counts
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import pids, until, view, wait_for
from tidegate import JobClient, Types

pytestmark = pytest.mark.slow

SMALL = {
    "tidegate.batch.rows": 64,
    "tidegate.net.credit": 2,
    "heartbeat.interval": "50 ms",
}
HELD_ROWS_MAX = 3_000
"""Rows under way from two sources to two sinks, in batches of 64: in each of four channels some
that are gathered, sent and received, and what each subtask works on."""

STEADY_MB = 40
SLOT_MB = 600


def emitted_and_taken(client: JobClient) -> tuple[int, int]:
    """Rows that the source has emitted, and that the sink has taken."""
    source, sink = view(client).vertices[0], view(client).vertices[-1]
    return (
        sum(subtask.figures.rows_out for subtask in source.subtasks),
        sum(subtask.figures.rows_in for subtask in sink.subtasks),
    )


def memory_mb(client: JobClient) -> dict[int, float]:
    """Resident memory of each slot's process."""
    return {pid: psutil.Process(pid).memory_info().rss / 2**20 for pid in pids(view(client))}


def stands_still(look: Callable[[], object]) -> bool:
    """Whether it gives the same for half a second."""
    seen = look()
    time.sleep(0.5)
    return look() == seen


def test_a_sink_that_stands_still_makes_the_source_stand_still(jobs: Jobs) -> None:
    held = Latch(jobs.folder / "held")
    held.set()
    env = jobs.env(2, **SMALL)
    env.generate(same, None, None, Types.LONG()).rebalance().sink_to(LateSink(held))
    client = jobs.start(env, "held")
    wait_for(client, lambda _: emitted_and_taken(client)[0] > 0, "rows are emitted")
    until(lambda: stands_still(lambda: emitted_and_taken(client)), "the source stands still")
    emitted, taken = emitted_and_taken(client)
    assert 0 < emitted - taken <= emitted <= HELD_ROWS_MAX
    held.release()
    wait_for(client, lambda _: emitted_and_taken(client)[1] > 20_000, "rows flow again")


def test_a_slow_sink_keeps_memory_flat(jobs: Jobs) -> None:
    """The source could emit a hundred times as much as the sink takes."""
    env = jobs.checkpointed(2, 200, **SMALL)
    rows = env.generate(lambda number: f"{number:0500}", None, None, Types.STRING())
    rows.rebalance().sink_to(SlowSink(seconds_a_batch=0.02))
    client = jobs.start(env, "slow")
    wait_for(client, lambda _: emitted_and_taken(client)[1] > 5_000, "the job is warm")
    before = memory_mb(client)
    began = emitted_and_taken(client)[1]
    wait_for(client, lambda _: emitted_and_taken(client)[1] > began + 15_000, "more rows")
    after = memory_mb(client)
    grown = {pid: after[pid] - before[pid] for pid in before}
    assert max(grown.values()) < STEADY_MB, grown
    emitted, taken = emitted_and_taken(client)
    skew = 2_000  # the figures of two slots are of different moments
    assert emitted - taken <= HELD_ROWS_MAX + skew
    assert view(client).checkpoints.counts.completed > 0


def test_a_slot_holds_a_million_keys_in_less_than_600_mb(jobs: Jobs) -> None:
    """While all of them are rewritten again and again, checkpoints included."""
    keys = 1_000_000
    env = jobs.checkpointed(2, 500, **{"heartbeat.interval": "100 ms"})
    # One source: of two, the one on a starved core would bring its half of the keys late.
    last_counts(env.generate(same, None, None, Types.LONG()).set_parallelism(1), keys)
    client = jobs.start(env, "a million keys")
    peaks: dict[int, float] = {}

    def counted(rows: int) -> bool:
        for pid, used in memory_mb(client).items():
            peaks[pid] = max(used, peaks.get(pid, 0.0))
        return sum(subtask.figures.rows_in for subtask in view(client).vertices[1].subtasks) >= rows

    wait_for(client, lambda _: counted(2 * keys), "all keys are in state", timeout_s=90)
    completed = view(client).checkpoints.counts.completed
    wait_for(
        client,
        lambda seen: counted(3 * keys) and seen.checkpoints.counts.completed > completed + 1,
        "checkpoints of a million keys",
        timeout_s=90,
    )
    newest = view(client).checkpoints.latest_completed
    assert newest is not None and newest.state_size > 5 * keys
    assert max(peaks.values()) < SLOT_MB, peaks

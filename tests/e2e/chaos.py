"""Random slots of a running job killed, again and again; asked of every runtime."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING

from tests.e2e.backpressure import slow_counts
from tests.e2e.ledger import ledger_rows
from tests.e2e.runtimes import finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, pids, runs, view, wait_for, wait_running

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.e2e.runtimes import Jobs
    from tidegate import JobClient

MODES: dict[str, dict[str, object]] = {
    "aligned": {},
    "unaligned": {"execution.checkpointing.unaligned.enabled": "true"},
    "aligned for 50 ms": {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": "50 ms",
    },
}
"""The ways of exactly-once checkpoints; kills are spread over them."""

ROW_S = 0.002
"""What a row costs as long as slots are killed, so that channels are full."""

ROWS_A_KILL = 8_000
PAUSE_MAX_S = 1.2
SMALL = {"tidegate.batch.rows": 64, "tidegate.net.credit": 2}
"""Little in flight, so that aligned checkpoints come through between the kills as well."""

AGAIN_AT_ONCE = 0.15
"""Share of the kills that do not wait until the job runs again after the one before."""


@dataclass(frozen=True)
class Survived:
    """What a job has come through. recoveries_s: from a kill until all subtasks ran again."""

    rows: int
    kills: int
    restarts: int
    checkpoints: int
    recoveries_s: tuple[float, ...]


def survive(
    jobs: Jobs,
    kills: int,
    chance: Random,
    mode: str,
    killed: Callable[[int], None] = lambda _: None,
) -> Survived:
    """A job under so many kills; then its output is held against what must have come out.

    killed: called after each kill with its number. The job is slow, and has more to do than it can
    while slots are killed; once that is over it is quick.
    """
    attempts = {"restart-strategy.fixed-delay.attempts": 10_000}
    env = jobs.checkpointed(2, 100, **MODES[mode], **SMALL, **attempts)
    total = ROWS_A_KILL * (kills + 2)
    slow = slow_counts(env, jobs.folder, rows=total, rate=None, row_s=ROW_S)
    client = jobs.start(env, f"chaos, {mode}")
    wait_running(client)
    recoveries: list[float] = []
    for number in range(1, kills + 1):
        sleep(chance.uniform(0, PAUSE_MAX_S))
        wait_for(client, lambda seen: seen.slots, "there is a slot to kill")
        pid = kill_slot(client, chance.randrange(2))
        began = monotonic()
        killed(number)
        if chance.random() > AGAIN_AT_ONCE:
            wait_without(client, pid)
            recoveries.append(monotonic() - began)
    wait_running(client)
    slow.release()
    finished(client, timeout_s=120)
    rows = ledger_rows(jobs.folder / "out")
    check_each_counted_once(rows, total)
    seen = view(client)
    return Survived(
        len(rows), kills, seen.restarts, seen.checkpoints.counts.completed, tuple(recoveries)
    )


def wait_without(client: JobClient, pid: int) -> None:
    """Wait until the job runs, and not in that process: one that is lost may still be listed."""
    wait_for(
        client,
        lambda seen: runs(seen) and pid not in pids(seen),
        f"running again without process {pid}",
    )

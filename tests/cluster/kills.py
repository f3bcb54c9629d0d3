"""What is killed on a cluster while a job runs, how long the job takes to recover, and who writes.

A recovery is measured from outside: from the kill to the first row that a later attempt has
counted and whose file was committed. Whoever was replaced must not write any more by then.
"""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from threading import Timer
from time import sleep
from typing import TYPE_CHECKING, Final

import psutil

from tests.cluster.job import now_ms
from tests.cluster.network import Namespaces, end
from tests.cluster.standalone import DRIVER, HALVES, START_S, WORKERS
from tests.e2e.files import hidden_files, json_rows
from tests.e2e.ledger import ledger_rows
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.cluster.job import ClusterJob

GONE_S: Final = 30.0
"""How long a slot whose driver is gone may go on before it ends; its lease is 10 s."""

CUT_S: Final = 30.0
SETTLED_MS: Final = 3_000
"""How long after the workers' return an executor of theirs may still be taken from the job."""

END_S: Final = 120.0

BATCH_PAUSE_S: Final = (3.0, 8.0)
"""Between two kills in one batch, of which each step takes about as long."""


def kill_slot(job: ClusterJob, chance: Random) -> float:
    """SIGKILL for the Python process of a slot; what the recovery took, in seconds."""
    return recovered(job, lambda: os.kill(chance.choice(job.slots()).pid, signal.SIGKILL))


def kill_executor(job: ClusterJob, chance: Random) -> float:
    """SIGKILL for the JVM that hosts a slot."""
    return recovered(job, lambda: end([executor_of(chance.choice(job.slots()).pid)]))


def executor_of(slot: int) -> psutil.Process:
    """The JVM above the daemon above the slot."""
    daemon = psutil.Process(slot).parent()
    executor = None if daemon is None else daemon.parent()
    assert executor is not None, "it was an orphan"
    return executor


def kill_worker(job: ClusterJob, chance: Random) -> float:
    """SIGKILL for all on the host of a slot; then the worker comes back, as a service does."""
    return _kill_worker(job, chance.choice(sorted(set(job.on_worker().values()))))


def _kill_worker(job: ClusterJob, worker: str) -> float:
    took_s = recovered(job, lambda: job.cluster.kill_worker(worker))
    job.cluster.start_worker(worker)
    job.cluster.wait_for_workers(*WORKERS)
    return took_s


def kill_master(job: ClusterJob, chance: Random) -> float:
    """SIGKILL for the master, which comes back; the longest time without a row, in seconds.

    The job needs no master. Spark's, as it recovers, may take a worker for a new one that registers
    by itself meanwhile, and replaces an executor that it had; then the job recovers too.
    """
    at_ms = now_ms()
    job.cluster.kill_master()
    job.cluster.start_master()
    job.cluster.wait_for_workers(*WORKERS)
    job.wait_rows(now_ms() + SETTLED_MS)
    times = sorted(row["emitted_ms"] for row in job.rows() if row["emitted_ms"] > at_ms - 1_000)
    return max(later - earlier for earlier, later in pairwise(times)) / 1_000


def kill_driver(job: ClusterJob, chance: Random) -> float:
    """SIGKILL for the driver; the next goes on. From when that has its session to the first row."""
    before, at_ms = {slot.pid for slot in job.slots()}, now_ms()
    job.kill_driver()
    job.start(latest=True)
    first = job.wait_rows(at_ms)
    check_replaced_is_silent(job, before)
    check_gone(before)
    until(lambda: len(job.cluster.network.processes(DRIVER)) == 2, "the first driver's JVM is gone")
    started_ms = max(note["wall_ms"] for note in job.journal.notes("session"))
    return (first["emitted_ms"] - started_ms) / 1_000


def cut_towards(job: ClusterJob, chance: Random) -> float:
    """Loses all that goes to the host of a slot for a while."""
    return _cut(job, chance, towards=True, away=False)


def cut_away(job: ClusterJob, chance: Random) -> float:
    """Loses all that comes from the host of a slot for a while."""
    return _cut(job, chance, towards=False, away=True)


def cut_off(job: ClusterJob, chance: Random) -> float:
    """Loses all that goes to the host of a slot, and comes from it, for a while."""
    return _cut(job, chance, towards=True, away=True)


def _cut(job: ClusterJob, chance: Random, *, towards: bool, away: bool) -> float:
    network = spaces_of(job)
    worker = chance.choice(sorted(set(job.on_worker().values())))
    return _without(
        job,
        lambda: network.cut(worker, towards=towards, away=away),
        lambda: network.mend(worker),
    )


def cut_in_half(job: ClusterJob, chance: Random) -> float:
    """Loses all between the halves of the network for a while: one has master and driver."""
    network = spaces_of(job)
    while all(HALVES[worker] == HALVES[DRIVER] for worker in job.on_worker().values()):
        _kill_worker(job, next(iter(job.on_worker().values())))  # or nobody would miss the other
    return _without(job, network.cut_in_half, network.mend_halves)


def _without(job: ClusterJob, cut: Callable[[], None], mend: Callable[[], None]) -> float:
    """Cuts, and mends once the time is over, however long the recovery takes."""
    timer = Timer(CUT_S, mend)
    try:
        return recovered(job, lambda: (cut(), timer.start()))
    finally:
        if timer.is_alive():
            timer.join()
        job.cluster.wait_for_workers(*WORKERS)


def spaces_of(job: ClusterJob) -> Namespaces:
    """The network of a cluster whose hosts are namespaces."""
    network = job.cluster.network
    assert isinstance(network, Namespaces), "links of the loopback device cannot be cut"
    return network


def kill_executors(job: ClusterJob, chance: Random, kills: int) -> int:
    """SIGKILL for executors of a batch, with all that their tasks have shuffled.

    The result is how many came before its end.
    """
    until(lambda: job.is_over or job.journal.notes("session"), "the batch's session", START_S)
    for done in range(kills):
        sleep(chance.uniform(*BATCH_PAUSE_S))
        running = [each for worker in WORKERS for each in job.cluster.executors(worker)]
        if job.is_over or not running:
            return done
        end([chance.choice(running)])
    return kills


KINDS: Final[dict[str, Callable[[ClusterJob, Random], float]]] = {
    "slot": kill_slot,
    "executor": kill_executor,
    "worker": kill_worker,
    "driver": kill_driver,
    "master": kill_master,
}
CUTS: Final[dict[str, Callable[[ClusterJob, Random], float]]] = {
    "link, to the host": cut_towards,
    "link, from the host": cut_away,
    "link, both ways": cut_off,
    "half of the network": cut_in_half,
}
"""Of the network; only where hosts are namespaces."""


def recovered(job: ClusterJob, kill: Callable[[], object]) -> float:
    """Kills, and waits until a later attempt counts on all slots; how long that took."""
    attempt, before = job.attempt(), {slot.pid for slot in job.slots()}
    at_ms = now_ms()
    kill()
    first = job.wait_rows(at_ms, above=attempt)
    check_replaced_is_silent(job, before)
    return (first["emitted_ms"] - at_ms) / 1_000


def check_replaced_is_silent(job: ClusterJob, before: set[int]) -> None:
    """No slot that was replaced has written after the first write of one that replaced any."""
    after = {slot.pid for slot in job.slots()}
    notes = [note for note in job.journal.notes() if note["event"] != "session"]
    firsts = [note["wall_ms"] for note in notes if note["pid"] in after - before]
    assert firsts, "the slot that was killed was not replaced"
    late = [
        note for note in notes if note["pid"] in before - after and note["wall_ms"] > min(firsts)
    ]
    assert not late, f"written by slots that were replaced: {late}"


def check_gone(slots: set[int]) -> None:
    """Slots without a driver end by themselves."""
    until(
        lambda: not any(map(psutil.pid_exists, slots)), "the first driver's slots are gone", GONE_S
    )


def check_files(job: ClusterJob) -> None:
    """A batch's files have each row once, and no part is left of tasks that were run again."""
    folder = job.folder / "files"
    check_each_counted_once(json_rows(folder), job.total)
    assert not hidden_files(folder)


def check_nothing_lost(job: ClusterJob, within_s: float = END_S) -> int:
    """Lets the job come to its end: each number is counted once. How many rows there are."""
    job.hurry()
    job.wait_end(within_s)
    rows = ledger_rows(job.folder / "out")
    check_each_counted_once(rows, job.total)
    return len(rows)

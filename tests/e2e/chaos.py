"""Slots and drivers of a running job killed at random, again and again; asked of every runtime."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING

import psutil

from tests.e2e.backpressure import written_slowly
from tests.e2e.driver import Orders
from tests.e2e.drivers import ORPHANS_S, START_S, driver
from tests.e2e.files import committed_files, committed_rows
from tests.e2e.jobs import counted, same
from tests.e2e.ledger import ledger_rows
from tests.e2e.runtimes import finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, pids, runs, until, view, wait_for, wait_running
from tidegate import AsyncDataStream, AsyncFunction, Time, Types

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from random import Random

    from tests.e2e.runtimes import Jobs
    from tidegate import DataStream, JobClient, StreamExecutionEnvironment

AT_LEAST_ONCE = "execution.checkpointing.mode"

MODES: dict[str, dict[str, object]] = {
    "aligned": {},
    "unaligned": {"execution.checkpointing.unaligned.enabled": "true"},
    "aligned for 50 ms": {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": "50 ms",
    },
    "RocksDB": {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
    },
    "changelog": {
        "state.backend.type": "rocksdb",
        "state.changelog.enabled": "true",
        "state.changelog.periodic-materialize.interval": "1 s",
    },
    "at least once": {AT_LEAST_ONCE: "AT_LEAST_ONCE"},
    "two sources": {},
    "looked up": {"execution.checkpointing.unaligned.enabled": "true"},
}
"""The ways to take checkpoints and to keep state, and other shapes of the job; kills are spread."""


def one_source(env: StreamExecutionEnvironment, rows: int) -> DataStream[int]:
    return env.generate(same, rows, None, Types.LONG()).uid("numbers")


def two_sources(env: StreamExecutionEnvironment, rows: int) -> DataStream[int]:
    """Even numbers from one, odd ones from the other."""
    even = env.generate(twice, (rows + 1) // 2, None, Types.LONG()).uid("even")
    return even.union(env.generate(twice_and_one, rows // 2, None, Types.LONG()).uid("odd"))


def looked_up(env: StreamExecutionEnvironment, rows: int) -> DataStream[int]:
    """Each number goes through an asynchronous call, of which many are under way."""
    looked = AsyncDataStream.unordered_wait(
        one_source(env, rows), LookUp(), Time.minutes(10), capacity=100
    )
    return looked.uid("lookups")


def twice(number: int) -> int:
    return 2 * number


def twice_and_one(number: int) -> int:
    return 2 * number + 1


class LookUp(AsyncFunction[int, int]):
    """Gives the number after a moment, which is another for each."""

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(value * 37 % 11 / 2_000)
        return [value]


SHAPES = {"two sources": two_sources, "looked up": looked_up}
"""Of the job, by mode; one source in the others."""

ROW_S = 0.002
"""What a row costs as long as slots are killed, so that channels are full."""

ROWS_A_KILL = 4_000
PAUSE_MAX_S = 1.2
SMALL = {"tidegate.batch.rows": 64, "tidegate.net.credit": 2}
"""Little in flight, so that aligned checkpoints come through between the kills as well."""

RATE_OF_DRIVERS = 4_000.0
RATE_OF_THE_LAST = 1_000_000.0
"""Nobody kills it, and it has to bring about what the others have left."""

ROWS_A_DRIVER = 40_000
"""More than a driver brings about before it is killed, so that none finds the job over."""

END_OF_DRIVER_S = 600.0
END_OF_JOB_S = 1_800.0
"""Generous: a machine that has other things to do as well is no fault of the job's."""

AGAIN_AT_ONCE = 0.15
"""Share of the kills that do not wait until the job runs again after the one before."""


@dataclass(frozen=True)
class Survived:
    """What a job has come through.

    rows, lost, doubled: of its output. recoveries_s: from a kill until all subtasks ran again.
    """

    rows: int
    lost: int
    doubled: int
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
    numbers = SHAPES.get(mode, one_source)(env, total)
    slow = written_slowly(counted(numbers), jobs.folder, ROW_S)
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
    finished(client, timeout_s=END_OF_JOB_S)
    rows = ledger_rows(jobs.folder / "out")
    lost, doubled = missing_and_repeated((row["number"] for row in rows), total)
    if AT_LEAST_ONCE in MODES[mode]:
        assert not lost, f"lost {lost} of {total}"
    else:
        check_each_counted_once(rows, total)
    seen = view(client)
    return Survived(
        len(rows),
        lost,
        doubled,
        kills,
        seen.restarts,
        seen.checkpoints.counts.completed,
        tuple(recoveries),
    )


def wait_without(client: JobClient, pid: int) -> None:
    """Wait until the job runs, and not in that process: one that is lost may still be listed."""
    wait_for(
        client,
        lambda seen: runs(seen) and pid not in pids(seen),
        f"running again without process {pid}",
    )


def missing_and_repeated(numbers: Iterable[int], total: int) -> tuple[int, int]:
    """How many of the numbers up to the total are not there, and how many come once too often."""
    times = Counter(numbers)
    return sum(number not in times for number in range(total)), times.total() - len(times)


def survive_driver_kills(
    folder: Path, kills: int, chance: Random, killed: Callable[[int], None] = lambda _: None
) -> Survived:
    """A job whose drivers are killed; the next one goes on from the latest checkpoint each time."""
    orders = Orders(str(folder), rows=(kills + 1) * ROWS_A_DRIVER, rate=RATE_OF_DRIVERS)
    log, recoveries = folder / "driver.log", list[float]()
    for number in range(1, kills + 1):
        before, began = len(committed_files(folder / "out")), monotonic()
        with driver(replace(orders, resume=number > 1), log) as process:
            until(partial(more_than, folder, before, process), "committed files", START_S)
            recoveries.append(monotonic() - began)
            sleep(chance.uniform(0, PAUSE_MAX_S))
            assert process.poll() is None, "the job was over before its driver was killed"
            family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            _, alive = psutil.wait_procs(family, timeout=ORPHANS_S)
            assert not alive, f"processes that outlive their driver: {alive}"
        killed(number)
    with driver(replace(orders, resume=True, rate=RATE_OF_THE_LAST), log) as process:
        assert process.wait(END_OF_DRIVER_S) == 0, log.read_text()
    rows = committed_rows(folder / "out")
    lost, doubled = missing_and_repeated((row["number"] for row in rows), orders.rows)
    check_each_counted_once(rows, orders.rows)
    return Survived(len(rows), lost, doubled, kills, kills, 0, tuple(recoveries))


def more_than(folder: Path, before: int, process: subprocess.Popen[bytes]) -> bool:
    """True once more files are committed; fails where the driver has ended."""
    assert process.poll() is None, (folder / "driver.log").read_text()
    return len(committed_files(folder / "out")) > before

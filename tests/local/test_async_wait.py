"""Calls in flight when a slot is killed or a job is stopped: each record counts once."""

import os
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.ledger import LedgerSink, ledger_rows
from tests.e2e.lookups import counted_lookups
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.verify import check_each_counted_once
from tests.e2e.watch import kill_slot, until, view, wait_completed, wait_recovered
from tidegate import AsyncDataStream, JobClient, StreamExecutionEnvironment, Time
from tidegate.slot.loop.beside import SWITCH_S

pytestmark = pytest.mark.slow

ROWS, HANGING = 20, range(12, 20)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_killed_slot_loses_and_doubles_no_call(jobs: Jobs, ordered: bool) -> None:
    total, out = 3_000, jobs.folder / "out"
    env = jobs.checkpointed(2, 200)
    counted_lookups(env, total, 800, ordered=ordered).sink_to(LedgerSink(out))
    client = jobs.start(env, "lookups")
    wait_completed(client, 2)
    kill_slot(client, 0)
    wait_recovered(client, 1)
    finished(client)
    assert view(client).restarts == 1
    check_each_counted_once(ledger_rows(out), total)


def asked(number: int, folder: Path) -> int:
    """The number; for the last ones once a test lets the calls go."""
    with (folder / "calls").open("a") as calls:
        calls.write(f"{number}\n")
    while number in HANGING and not (folder / "go").exists():
        time.sleep(0.01)
    return number


def asked_until_told(number: int, folder: Path) -> int:
    """The number, once a test lets the calls go."""
    with (folder / "calls").open("a") as calls:
        calls.write(f"{number}\n")
    while not (folder / "go").exists():
        time.sleep(0.01)
    return number


def calls(folder: Path) -> Counter[int]:
    """How often each number was asked for."""
    made = folder / "calls"
    return Counter(map(int, made.read_text().split())) if made.exists() else Counter()


def start_asking(jobs: Jobs) -> JobClient:
    """A job whose last calls hang on threads, as soon as all of them do."""
    env = jobs.checkpointed(2, 100)
    numbers = env.from_collection(range(ROWS)).uid("numbers")
    ask = partial(asked, folder=jobs.folder)
    found = AsyncDataStream.unordered_wait(numbers, ask, Time.hours(1)).uid("asked")
    found.rebalance().sink_to(LedgerSink(jobs.folder / "out")).uid("out")
    client = jobs.start(env, "asking")
    until(lambda: calls(jobs.folder).total() == ROWS, "each number is asked for")
    return client


def test_checkpoints_pass_calls_that_hang_and_a_kill_repeats_those_alone(jobs: Jobs) -> None:
    client = start_asking(jobs)
    wait_completed(client, view(client).checkpoints.counts.completed + 3)
    kill_slot(client, 0)
    wait_recovered(client, 1)
    until(lambda: calls(jobs.folder).total() == ROWS + len(HANGING), "they are asked for again")
    (jobs.folder / "go").touch()
    finished(client)
    assert calls(jobs.folder) == {n: 2 if n in HANGING else 1 for n in range(ROWS)}
    assert sorted(ledger_rows(jobs.folder / "out")) == list(range(ROWS))


def test_a_stop_with_savepoint_leaves_calls_that_hang_to_the_savepoint(jobs: Jobs) -> None:
    client = start_asking(jobs)
    client.stop_with_savepoint(False, jobs.folder / "savepoints").result(timeout=60)
    finished(client)
    left = set(range(ROWS)) - set(HANGING)
    assert set(ledger_rows(jobs.folder / "out")) == left
    (jobs.folder / "go").touch()


@pytest.mark.parametrize("capacity", [4, 1_000])
def test_a_stop_with_savepoint_leaves_calls_too_where_the_input_has_not_ended(
    jobs: Jobs, capacity: int
) -> None:
    """With all places taken the source is held back when the stop comes."""
    numbers = jobs.checkpointed(1, 100).generate(lambda number: number, rate=100).uid("numbers")
    hang = partial(asked_until_told, folder=jobs.folder)
    found = AsyncDataStream.ordered_wait(numbers, hang, Time.hours(1), capacity=capacity)
    found.uid("asked").sink_to(LedgerSink(jobs.folder / "out")).uid("out")
    client = jobs.start(numbers.get_execution_environment(), "asking")
    until(lambda: calls(jobs.folder).total() >= 4, "calls hang")
    wait_completed(client, view(client).checkpoints.counts.completed + 2)
    path = client.stop_with_savepoint(False, jobs.folder / "savepoints").result(timeout=60)
    finished(client)
    assert Path(path, "_metadata").exists()
    (jobs.folder / "go").touch()


def test_a_stop_that_drains_waits_for_calls(jobs: Jobs) -> None:
    client = start_asking(jobs)
    stopped = client.stop_with_savepoint(True, jobs.folder / "savepoints")
    assert not stopped.done()
    (jobs.folder / "go").touch()
    stopped.result(timeout=60)
    finished(client)
    assert sorted(ledger_rows(jobs.folder / "out")) == list(range(ROWS))


def elsewhere(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_work_that_holds_the_interpreter_is_done_in_a_process_of_its_own() -> None:
    numbers = StreamExecutionEnvironment.local().from_collection(range(3))
    stream = AsyncDataStream.ordered_wait(
        numbers, elsewhere, Time.minutes(1), executor="process", workers=1
    )
    with stream.execute_and_collect() as rows:
        found: list[Any] = list(rows)
    assert [number for number, _ in found] == [0, 1, 2]
    assert len({pid for _, pid in found} | {os.getpid()}) == 2


def test_threads_of_a_slot_pass_the_interpreter_on_soon() -> None:
    """Else each step of a checkpoint waits 5 ms for each call that computes."""
    env = StreamExecutionEnvironment.local(1)
    intervals = env.from_collection([0]).map(lambda _: sys.getswitchinterval())
    assert intervals.execute_and_collect(limit=1) == [SWITCH_S]

"""Batches that go as far as the test lets them, so that it can look at them meanwhile."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.rest import SERVED
from tests.e2e.runtimes import Jobs
from tests.e2e.watch import PATIENCE_S
from tidegate import RuntimeExecutionMode, StreamExecutionEnvironment

ROWS = 400
HELD_AT = (150, 350)
"""Rows at which the two tasks of the first step wait; each has read some before."""


def waits_for(go: Path) -> Callable[[int], tuple[int, int]]:
    """A function that says at which row it is, and waits at two rows until there is a file."""

    def pair(number: int) -> tuple[int, int]:
        if number in HELD_AT:
            print(f"printed at {number}")
            logging.getLogger("shop").warning("logged at %s", number)
            # So long that a task which is never let go is Spark's to end.
            until = time.monotonic() + PATIENCE_S
            while not go.exists() and time.monotonic() < until:
                time.sleep(0.01)
        time.sleep(0.001)
        return number % 7, number

    return pair


def add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0], one[1] + other[1]


def in_batch(jobs: Jobs, **settings: object) -> StreamExecutionEnvironment:
    """An environment for a batch that is served, with records in the test's folder."""
    given = {**SERVED, "execution.checkpointing.dir": str(jobs.checkpoints), **settings}
    return jobs.env(2, **given).set_runtime_mode(RuntimeExecutionMode.BATCH)


def sums(
    env: StreamExecutionEnvironment, pair: Callable[[int], tuple[int, int]]
) -> StreamExecutionEnvironment:
    """Sums by key, which the second step prints."""
    env.from_sequence(1, ROWS).map(pair).key_by(lambda pair: pair[0]).reduce(add).print()
    return env


def by_name(found: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of two vertices the one that reads, and the other."""
    reads, other = sorted(found, key=lambda each: not each["name"].startswith("Source"))
    return reads, other


DIES_ONCE = """
import json, os, signal, sys, time
from pathlib import Path
from tidegate import *

folder = Path(sys.argv[1])

def dies_once(number):
    if number == 350 and not (folder / "died").exists():
        # Nobody knows of a task that dies before it could say that it is there.
        while not (folder / "seen").exists():
            time.sleep(0.01)
        (folder / "died").touch()
        print("about to die")
        os.kill(os.getpid(), signal.SIGKILL)
    return number % 7, number

env = StreamExecutionEnvironment.on_spark(parallelism=2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
pairs = env.from_sequence(1, 400).map(dies_once).key_by(lambda pair: pair[0])
pairs.reduce(lambda a, b: (a[0], a[1] + b[1])).filter(lambda pair: False).print()
client = env.execute_async("dies once")
until = time.monotonic() + 100
while client.view().vertices[0].subtasks[1].slot is None and time.monotonic() < until:
    time.sleep(0.01)
(folder / "seen").touch()
summary = client.get_job_execution_result().result().get_summary()
view = client.view()
[reads] = [v for v in view.vertices if v.name.startswith("Source")]
print(json.dumps({
    "read": summary.rows.read,
    "status": view.status.value,
    "attempts": [s.attempt for s in reads.subtasks],
    "states": [s.state.value for s in reads.subtasks],
    "failures": [[f.kind, f.task, f.error] for f in view.failures],
}))
"""

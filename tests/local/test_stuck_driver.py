"""A driver that stands still: its slots go on with it, or end, and the job goes on after it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.e2e.watch import until

pytestmark = pytest.mark.slow

LIMIT_S = 120.0

PROGRAM = """
import json, sys, time
from tidegate import Configuration, StreamExecutionEnvironment

env = StreamExecutionEnvironment.local(2, configuration=Configuration.from_dict({
    "execution.checkpointing.interval": "100 ms",
    "heartbeat.interval": "100 ms",
    "heartbeat.timeout": "1 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "100 ms",
}))
numbers = env.generate(lambda n: n, rate=100)
numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).filter(lambda n: False).print()
client = env.execute_async("numbers")
result = client.get_job_execution_result()

def until(holds):
    while not holds(client.view()):
        assert not result.done(), result.exception()
        time.sleep(0.05)

def tell(what):
    print(json.dumps(what), flush=True)

def completes(more):
    count = client.view().checkpoints.counts.completed
    until(lambda view: view.checkpoints.counts.completed >= count + more)
"""

HOLDS = """
def hold():
    size, took_s = 10**8, 0
    while took_s < 3:  # one call in C, for longer than the timeout
        began_s = time.monotonic()
        sum(range(size))
        took_s = time.monotonic() - began_s
        size *= 2

hold()
completes(2)
hold()
completes(2)
view = client.view()
tell([view.status.value, view.restarts, [failure.error for failure in view.failures]])
client.cancel().result(60)
"""

WAITS = """
completes(2)
tell([slot.pid for slot in client.view().slots])
sys.stdin.readline()
until(lambda view: view.restarts >= 1)
completes(2)
tell(client.view().failures[0].error)
client.cancel().result(60)
"""

UNREAD = """
import os
completes(1)
os.set_blocking(2, False)
for size in (4096, 1):  # until not a byte more has room
    try:
        while True:
            os.write(2, b"." * size)
    except BlockingIOError:
        pass
os.set_blocking(2, True)
try:
    completes(10)
    tell(client.view().status.value)
except Exception as error:
    tell(repr(error))
os._exit(0)
"""


@contextmanager
def program(text: str, *, level: str = "warning") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + text],
        env={**os.environ, "PYTHONPATH": "src", "TIDEGATE_LOG_LEVEL": level},
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def told(process: subprocess.Popen[str]) -> object:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_a_program_that_holds_its_interpreter_for_longer_than_the_timeout_loses_no_slot() -> None:
    with program(HOLDS) as process:
        assert told(process) == ["RUNNING", 0, []]
        assert process.wait(LIMIT_S) == 0


def test_a_driver_goes_on_while_nobody_reads_its_standard_error() -> None:
    with program(UNREAD, level="info") as process:
        assert told(process) == "RUNNING"
        assert process.wait(LIMIT_S) == 0


def test_slots_of_a_stopped_driver_end_and_the_job_goes_on_when_it_does() -> None:
    with program(WAITS) as process:
        slots = told(process)
        assert isinstance(slots, list) and len(slots) == 2
        process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: not any(map(psutil.pid_exists, slots)), "the slots are gone", LIMIT_S)
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert told(process)
        assert process.wait(LIMIT_S) == 0

"""Kills slots of a running count and says how long it took until a sink had a record again.

The source is paced, restarts wait for nothing, a checkpoint is taken each second. Each kill is by
SIGKILL, once two checkpoints hold the state of all keys; the time ends with the first record that
any sink gets from the next attempt. The last line printed is the result.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate import (
    Configuration,
    KeyedProcessFunction,
    Prepared,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WriterContext,
)
from tidegate.model.elements import Batch
from tidegate.model.ids import CheckpointId

PARALLELISM = 2
CHECKPOINT_MS = 1_000
WAIT_S = 120.0


def main() -> int:
    """Run one job, and kill as often as was asked for."""
    args = arguments()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-recovery-"))
    try:
        result = measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    return 0


def arguments() -> argparse.Namespace:
    """Which runtime, how much state, how many kills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", choices=["spark", "spark-daemon", "local"], default="local")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=20_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--on-survivors", action="store_true", help="slots that live take over")
    return parser.parse_args()


def measure(args: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Milliseconds from each kill to the first record at a sink; raises where others died too."""
    stamps = folder / "stamps"
    keys = args.keys
    env = environment(args.runtime, folder / "checkpoints", on_survivors=args.on_survivors)
    numbers = env.generate(int, None, args.rate, Types.LONG())
    keyed = numbers.key_by(lambda number: number % keys, key_type=Types.LONG())
    keyed.process(RunningCount(), output_type=Types.LONG()).sink_to(StampingSink(stamps))
    client = env.execute_async("recovery")
    recoveries: list[int] = []
    try:
        for number in range(args.kills):
            wait(client, lambda: rows_in(client) >= keys, "the state of all keys")
            wait(client, lambda: at_home(client), "a slot of its own for each subtask")
            wait_checkpoints(client, 2)
            slots = {slot.pid for slot in client.view().slots}
            victim = sorted(slots)[number % len(slots)]
            seen = newest_attempt(stamps)
            killed_ms = time.time_ns() // 1_000_000
            os.kill(victim, signal.SIGKILL)
            wait(client, lambda seen=seen: newest_attempt(stamps) > seen, "a record after the kill")
            recoveries.append(first_stamp_ms(stamps, newest_attempt(stamps)) - killed_ms)
            left = slots - {slot.pid for slot in client.view().slots}
            assert left <= {victim}, f"slots that were not killed have gone: {left - {victim}}"
    finally:
        client.cancel().exception(timeout=WAIT_S)
    return {"system": f"tidegate-{args.runtime}", "keys": keys, "recovery_ms": recoveries}


def environment(
    runtime: str, checkpoints: Path, *, on_survivors: bool
) -> StreamExecutionEnvironment:
    """The environment of the chosen runtime, in a session of its own where that is Spark."""
    settings = Configuration()
    for key, value in {
        "execution.checkpointing.interval": CHECKPOINT_MS,
        "execution.checkpointing.dir": str(checkpoints),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 ms",
        "restart-strategy.fixed-delay.attempts": 1_000,
        "heartbeat.interval": "200 ms",
        "tidegate.recovery.on-survivors": on_survivors,
    }.items():
        settings.set(key, value)
    if runtime == "local":
        return StreamExecutionEnvironment.local(PARALLELISM, configuration=settings)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{PARALLELISM}]")
    if runtime == "spark-daemon":
        builder = builder.config("spark.python.daemon.module", "tidegate.spark.daemon")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return StreamExecutionEnvironment.on_spark(session, PARALLELISM, configuration=settings)


class RunningCount(KeyedProcessFunction):
    """How many numbers of each key came so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        return (count,)


class StampingSink:
    """Notes when each attempt of each subtask gets its first record; keeps none."""

    def __init__(self, stamps: Path) -> None:
        self._stamps = stamps

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "StampingWriter":
        return StampingWriter(self._stamps, context.attempt_name)

    def committer(self) -> None: ...


class StampingWriter:
    """Notes the first batch."""

    def __init__(self, stamps: Path, attempt_name: str) -> None:
        self._stamps = stamps
        self._attempt = int(attempt_name.split("-")[2])
        self._noted = False

    def write(self, batch: Batch) -> None:
        if not self._noted:
            self._noted = True
            with self._stamps.open("a") as file:
                file.write(f"{self._attempt} {time.time_ns() // 1_000_000}\n")

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared()

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None: ...


def stamps_in(file: Path) -> list[tuple[int, int]]:
    """Attempt and moment of each first record."""
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text().splitlines()]
    return [(int(attempt), int(ms)) for attempt, ms in lines]


def newest_attempt(file: Path) -> int:
    """The highest attempt that has had a record."""
    return max((attempt for attempt, _ in stamps_in(file)), default=-1)


def first_stamp_ms(file: Path, attempt: int) -> int:
    """When an attempt had its first record."""
    return min(ms for each, ms in stamps_in(file) if each == attempt)


def rows_in(client) -> int:
    """Records that the counting subtasks of this attempt have had, and those before them."""
    counting = client.view().vertices[1]
    restored = client.view().restored is not None
    return sys.maxsize if restored else sum(one.figures.rows_in for one in counting.subtasks)


def at_home(client) -> bool:
    """Whether all slots are here, and no subtask is the guest of another."""
    seen = client.view()
    guests = [one for vertex in seen.vertices for one in vertex.subtasks if one.guest]
    return len(seen.slots) == PARALLELISM and not guests


def wait_checkpoints(client, count: int) -> None:
    """Wait for so many more."""
    goal = client.view().checkpoints.counts.completed + count
    wait(client, lambda: client.view().checkpoints.counts.completed >= goal, "checkpoints")


def wait(client, condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds. Raises TimeoutError, or what the job failed with."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if client.get_job_execution_result().done():
            client.get_job_execution_result().result()
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_S:.0f} s for {what}")
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())

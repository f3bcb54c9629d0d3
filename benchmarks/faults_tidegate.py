"""One job with a function that takes long, and what somebody who watches it has to wait for.

source → map → key_by → window → sink, with a checkpoint each 500 ms. The last line printed is the
result: the longest time of each kind, in seconds.
"""

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.slow_functions import (
    STRETCH,
    EachRowAndTheEnd,
    Named,
    Newest,
    Slow,
    StampingSink,
    calls_noted,
)
from tidegate import (
    AsyncDataStream,
    Configuration,
    DataStream,
    StreamExecutionEnvironment,
    Time,
    TumblingProcessingTimeWindows,
    Types,
)
from tidegate.minicluster.forking import forking
from tidegate.model.control import ExecutionState

if TYPE_CHECKING:
    from tidegate.jobmaster.view import SubtaskView

WAIT_S = 120.0
ASK_EACH_S = 0.02
KEYS = 16
SHORT_S, LONG_S, FOR_EVER_S, HELD_S, ASYNC_S = 0.05, 5.0, 1e6, 20.0, 60.0
UNDER_WAY = 8
FIRST_SLOW = 20
"""The number of each subtask's first row that takes long, where those before it do not."""
STUCK_IN_C = ("stuck", "waits in C")

Figures = dict[str, float]


@dataclass
class Session:
    """A job that runs. status: what each question after its status took."""

    args: argparse.Namespace
    folder: Path
    sink: StampingSink
    client: object = None
    status: list[float] = field(default_factory=list)

    def watch(self, seconds: float) -> None:
        """Ask after the status for so long."""
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= end, "nothing")

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        """Ask after the status until it is reached. Raises TimeoutError, or the job's failure."""
        deadline = time.monotonic() + WAIT_S
        while not reached():
            began = time.monotonic()
            self.client.get_job_status().result(WAIT_S)
            self.status.append(time.monotonic() - began)
            if self.client.get_job_execution_result().done():
                self.client.get_job_execution_result().result()
            if began > deadline:
                raise TimeoutError(f"waited {WAIT_S:.0f} s for {what}")
            time.sleep(ASK_EACH_S)

    def running_ms(self) -> int:
        """When the last subtask was running, by the wall clock."""
        subtasks: list[SubtaskView] = []

        def running() -> bool:
            subtasks[:] = [one for vertex in self.client.view().vertices for one in vertex.subtasks]
            states = {subtask.state for subtask in subtasks}
            return states == {ExecutionState.RUNNING}

        self.wait(running, "the subtasks")
        return max(subtask.timestamps_ms[ExecutionState.RUNNING] for subtask in subtasks)

    @property
    def calls(self) -> Path:
        """Where calls are noted."""
        return self.folder / "calls"


def main() -> int:
    """Run one job, and measure."""
    args = arguments()
    folder = Path(tempfile.mkdtemp(prefix="tidegate-faults-"))
    try:
        figures = measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"system": f"tidegate-{args.runtime}", "figures": figures}))
    return 0


def arguments() -> argparse.Namespace:
    """Which work, done how, and where."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", choices=["spark", "local"], default="local")
    parser.add_argument("--work", choices=list(PROGRAMS), default="map")
    parser.add_argument("--function", default="sleeps")
    parser.add_argument("--parallelism", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long it is watched")
    parser.add_argument("--unaligned", action="store_true")
    parser.add_argument("--checkpoint-ms", type=int, default=500)
    return parser.parse_args()


def measure(args: argparse.Namespace, folder: Path) -> Figures:
    """Start the job, have it observed, cancel it."""
    for name in ("calls", "stamps"):
        (folder / name).mkdir()
    session = Session(args, folder, StampingSink(folder / "stamps"))
    env = environment(args, folder / "checkpoints")
    numbers = env.from_sequence(0, args.parallelism * STRETCH - 1)
    build, observe = PROGRAMS[args.work]
    worked = build(numbers, session).map(Named(), Types.TUPLE([Types.LONG(), Types.LONG()]))
    windows = worked.key_by(lambda row: row[0] % KEYS, key_type=Types.LONG()).window(
        TumblingProcessingTimeWindows.of(Time.seconds(1))
    )
    triple = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
    windows.trigger(EachRowAndTheEnd()).process(Newest(), triple).sink_to(session.sink)
    session.client = env.execute_async("slow functions")
    figures: Figures = {}
    try:
        figures = observe(session) | {
            "status, median": statistics.median(session.status),
            "status, p99": percentile(session.status, 0.99),
            "restarts": session.client.view().restarts,
        }
    finally:
        figures = cancelled(session) | figures
    return {name: round(value, 4) for name, value in figures.items()}


def environment(args: argparse.Namespace, checkpoints: Path) -> StreamExecutionEnvironment:
    """The environment of the chosen runtime, in a session of its own where that is Spark."""
    settings = Configuration()
    for key, value in {
        "execution.checkpointing.interval": args.checkpoint_ms,
        "execution.checkpointing.dir": str(checkpoints),
        "execution.checkpointing.unaligned.enabled": args.unaligned,
        "web.checkpoints.history": 1_000,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 ms",
    }.items():
        settings.set(key, value)
    if args.runtime == "local":
        return StreamExecutionEnvironment.local(args.parallelism, configuration=settings)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{args.parallelism}]")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return StreamExecutionEnvironment.on_spark(session, args.parallelism, configuration=settings)


# The programs


def one_map(numbers: DataStream, session: Session) -> DataStream:
    """A function of 50 ms, chained to its source."""
    return numbers.map(Slow(session.args.function, SHORT_S), Types.LONG())


def two_maps(numbers: DataStream, session: Session) -> DataStream:
    """Two of them in one chain."""
    return one_map(one_map(numbers, session), session)


def behind_key_by(numbers: DataStream, session: Session) -> DataStream:
    """The two behind an exchange by key."""
    return two_maps(numbers.key_by(lambda n: n % KEYS, key_type=Types.LONG()), session)


def behind_rebalance(numbers: DataStream, session: Session) -> DataStream:
    """The two behind an exchange in turn."""
    return two_maps(numbers.rebalance(), session)


def long_map(numbers: DataStream, session: Session) -> DataStream:
    return numbers.map(Slow(session.args.function, LONG_S), Types.LONG())


def stuck_map(numbers: DataStream, session: Session) -> DataStream:
    """A function that never returns."""
    return numbers.map(Slow(session.args.function, FOR_EVER_S, calls=session.calls), Types.LONG())


def held_map(numbers: DataStream, session: Session) -> DataStream:
    """A function of 50 ms, one call of which holds the interpreter for 20 s."""
    once = range(FIRST_SLOW, FIRST_SLOW + 1)
    slow = Slow(session.args.function, HELD_S, once, SHORT_S, session.calls)
    return numbers.map(slow, Types.LONG())


def calls_in_threads(numbers: DataStream, session: Session) -> DataStream:
    """Eight calls of a minute at once, behind some that are quick."""
    slow = Slow(session.args.function, ASYNC_S, range(FIRST_SLOW, STRETCH), 0, session.calls)
    capacity = UNDER_WAY // session.args.parallelism
    minutes = Time.minutes(5)
    return AsyncDataStream.unordered_wait(numbers, slow.map, minutes, capacity, Types.LONG())


# What is observed


def rows_and_checkpoints(session: Session) -> Figures:
    """While rows take their time: how long each thing keeps one waiting."""
    running_ms = session.running_ms()
    session.wait(lambda: bool(session.sink.arrived()), "the first row")
    session.watch(session.args.seconds)
    end_ns = time.time_ns()
    arrived = session.sink.arrived()
    late = [row.ns / 1e6 - row.window_ms for row in arrived if row.window_ms]
    figures = checkpoints(session) | {
        "first row": max(0.0, arrived[0].ns / 1e9 - running_ms / 1000),
        "gap between rows": longest_gap(session, end_ns),
    }
    return figures | ({"window late": max(late) / 1000} if late else {})


def longest_gap(session: Session, end_ns: int) -> float:
    """The longest time without a row of one of the subtasks that work, up to the end.

    Behind key_by without a row of any: which of them has rows is up to the keys.
    """
    gaps = [0.0]
    arrived = session.sink.arrived()
    subtasks = set(range(session.args.parallelism))
    for indexes in [subtasks] if session.args.work == "key-by" else [{one} for one in subtasks]:
        shown = [row.ns for row in arrived if row.index in indexes and not row.window_ms]
        moments = [shown[0] if shown else arrived[0].ns, *shown[1:], end_ns]
        gaps += [(after - before) / 1e9 for before, after in pairwise(moments)]
    return max(gaps)


def checkpoints(session: Session) -> Figures:
    """The longest of all checkpoints, one that is under way included; how many failed."""
    now_ms = time.time_ns() // 1_000_000
    view = session.client.view().checkpoints
    under_way = [
        now_ms - one.trigger_ms for one in view.history if one.status.name == "IN_PROGRESS"
    ]
    done = [one.duration_ms for one in view.history if one.status.name == "COMPLETED"]
    figures = {"failed checkpoints": view.counts.failed}
    return figures | ({"checkpoint": max(done + under_way) / 1000} if done + under_way else {})


def never_returns(session: Session) -> Figures:
    """Until every subtask is in its call, and a second more."""
    session.wait(
        lambda: len(calls_noted(session.calls)) == session.args.parallelism, "a call in each"
    )
    session.watch(1.0)
    return {}


def held_interpreter(session: Session) -> Figures:
    last = FIRST_SLOW + 5
    parallelism = session.args.parallelism
    session.wait(lambda: len(calls_noted(session.calls)) == parallelism, "the long call")
    began = time.monotonic()

    def named() -> bool:
        return any(
            slot.long_call is not None and "slow_functions.py" in slot.long_call.stack
            for slot in session.client.view().slots
        )

    session.wait(named, "the name of the call")
    named_s = time.monotonic() - began
    session.wait(
        lambda: (
            {row.number for row in session.sink.arrived()}
            >= {index * STRETCH + last for index in range(parallelism)}
        ),
        "rows behind the call",
    )
    completed = session.client.view().checkpoints.counts.completed
    session.wait(
        lambda: session.client.view().checkpoints.counts.completed > completed, "a checkpoint"
    )
    return {"call is named": named_s, "calls made": len(calls_noted(session.calls)) / parallelism}


def under_way(session: Session) -> Figures:
    """Checkpoints while calls are under way, and what a kill repeats."""
    slow = {
        index * STRETCH + FIRST_SLOW + each
        for index in range(session.args.parallelism)
        for each in range(UNDER_WAY // session.args.parallelism)
    }
    session.wait(lambda: len(calls_noted(session.calls)) == UNDER_WAY, "the calls")
    session.watch(session.args.seconds)
    figures = checkpoints(session)
    rows = {row.number for row in session.sink.arrived()}
    view = session.client.view()
    os.kill(view.slots[0].pid, signal.SIGKILL)
    session.wait(lambda: len(calls_noted(session.calls)) >= 2 * UNDER_WAY, "the calls again")
    session.watch(2.0)
    again = calls_noted(session.calls)
    doubled = [row for row in session.sink.arrived() if row.number in rows and not row.window_ms]
    return figures | {
        "calls lost": len([each for each in slow if again.count(each) < 2]),
        "other calls made": len(again) - 2 * UNDER_WAY,
        "rows doubled": len(doubled) - len(rows),
    }


def cancelled(session: Session) -> Figures:
    slots = [psutil.Process(slot.pid) for slot in session.client.view().slots]
    processes = [child for slot in slots for child in slot.children(recursive=True)]
    # Spark keeps a worker whose task has ended; a call in C can be ended with its process alone.
    if session.args.runtime == "local" or (session.args.work, session.args.function) == STUCK_IN_C:
        processes += slots
    began = time.monotonic()
    gone = session.client.cancel()
    while not session.client.get_job_status().result(WAIT_S).is_terminal:
        time.sleep(ASK_EACH_S / 2)
    cancel_s = time.monotonic() - began
    gone.result(WAIT_S)
    _, alive = psutil.wait_procs(processes, timeout=1)
    left = {process.pid for process in alive if runs(process)}
    if session.args.runtime == "local":
        left |= {child.pid for child in psutil.Process(forking().pid).children(recursive=True)}
    return {"cancel": cancel_s, "processes left": len(left)}


def runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def percentile(values: list[float], share: float) -> float:
    """The value that so large a share does not exceed."""
    return sorted(values)[min(len(values) - 1, math.ceil(len(values) * share) - 1)]


PROGRAMS: dict[str, tuple[Callable, Callable]] = {
    "map": (one_map, rows_and_checkpoints),
    "two-maps": (two_maps, rows_and_checkpoints),
    "key-by": (behind_key_by, rows_and_checkpoints),
    "rebalance": (behind_rebalance, rows_and_checkpoints),
    "long-map": (long_map, rows_and_checkpoints),
    "stuck": (stuck_map, never_returns),
    "held": (held_map, held_interpreter),
    "threads": (calls_in_threads, under_way),
}

if __name__ == "__main__":
    sys.exit(main())

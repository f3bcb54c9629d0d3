"""Programs of regions that fail apart from each other. Slots import this module by its name."""

import os
import signal
import time
from dataclasses import dataclass

from tests.e2e.jobs import Counted, RunningCount, key_of, same
from tests.e2e.journal import Latch
from tidegate import (
    CheckpointListener,
    DataStream,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)
from tidegate.connectors import FileSource
from tidegate.model.ids import CheckpointId


def pipeline(
    env: StreamExecutionEnvironment, name: str, rows: int | None, rate: float
) -> DataStream[Counted]:
    """Numbers at a rate, counted by key; one of several in a job."""
    numbers = env.generate(same, rows, rate, Types.LONG()).uid(f"{name} numbers").name(name)
    keyed = numbers.key_by(key_of, key_type=Types.LONG())
    return keyed.process(RunningCount()).uid(f"{name} counts").name(f"{name} counts")


class Stamp(MapFunction[dict[str, int], Counted]):
    """Says beside each number who read it, and when."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._who = {
            "subtask": runtime_context.get_index_of_this_subtask(),
            "attempt": runtime_context.get_attempt_number(),
            "pid": os.getpid(),
        }

    def map(self, value: dict[str, int]) -> Counted:
        return {"number": value["number"], "emitted_ms": time.time_ns() // 10**6, **self._who}


@dataclass
class DyingOnce(MapFunction[Counted, Counted], CheckpointListener):
    """Passes rows on. Once the latch is set, one subtask fails, a good way behind a checkpoint.

    rows: since a completed checkpoint. only: which subtask, None for any. killed: with its
    whole process.
    """

    latch: Latch
    rows: int
    only: int | None = None
    killed: bool = False

    def open(self, runtime_context: RuntimeContext) -> None:
        self._since = 0
        self._armed = False
        self._concerned = self.only in (None, runtime_context.get_index_of_this_subtask())

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        # Once it counts, it goes on: a slow machine may not come that far between two checkpoints.
        if not (self._armed and self.latch.is_set):
            self._since, self._armed = 0, self.latch.is_set

    def map(self, value: Counted) -> Counted:
        self._since += 1
        if self._armed and self._concerned and self._since >= self.rows:
            self._armed = False
            if self.latch.is_set and self.latch.take():
                if self.killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError(f"told to fail once, at {value!r}")
        return value


def strands(env: StreamExecutionEnvironment, source: FileSource) -> DataStream[Counted]:
    """Numbers from files, stamped: each subtask is a region, and all share one enumerator."""
    files = env.from_source(source, WatermarkStrategy.no_watermarks(), "files").uid("files")
    return files.map(Stamp()).uid("stamp")

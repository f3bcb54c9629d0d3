"""A program for micro-batches, and what it must have found."""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.e2e.files import committed_rows
from tests.e2e.journal import Latch
from tidegate import (
    DataStream,
    Duration,
    KeyedProcessFunction,
    MicroBatches,
    RuntimeContext,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.api.sink import Prepared, WriterContext
from tidegate.connectors import FileSink
from tidegate.errors import CommitFailed

BATCHES, ROWS, KEYS, WINDOW = 5, 400, 7, 150

LATE = 3
"""In the last batch but one comes a number whose window has fired in the batch before."""


def write_batch(folder: Path, number: int) -> None:
    numbers = list(range(number * ROWS, (number + 1) * ROWS))
    if number == BATCHES - 2:
        numbers.append(LATE)
    folder.mkdir(exist_ok=True)
    file = folder / f"{number}.parquet"
    pq.write_table(pa.table({"number": numbers}), file)
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first


class Counts(KeyedProcessFunction[int, tuple[str, int, int]]):
    """How many numbers of its key have come so far, and a timer far behind the last one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if value % 100 == 0:
            ctx.timer_service().register_event_time_timer(value + 2 * ROWS)
        yield "count", value, count

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[str, int, int]]:
        yield "timer", timestamp, 0


class FailingOnce:
    """Passes numbers on, and fails at one of them while a latch is set."""

    def __init__(self, latch: Latch, at: int) -> None:
        self.latch = latch
        self.at = at

    def __call__(self, row: dict[str, int]) -> int:
        if row["number"] == self.at and self.latch.is_set and self.latch.take():
            raise ValueError("told to fail once")
        return row["number"]


class RefusingOnce:
    """A sink beside, whose commit is refused while a latch is set; committed: gets a file for each.

    A commit may be repeated, as after any restore, so each has a name of its own.
    """

    def __init__(self, latch: Latch, committed: Path) -> None:
        self.latch = latch
        self.committed = committed

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> "RefusingOnce":
        self.seen = 0
        return self

    def committer(self) -> "RefusingOnce":
        return self

    def write(self, batch: Sequence[object]) -> None:
        self.seen += len(batch)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        return Prepared((f"{uuid.uuid4().hex} {self.seen}".encode(),) if self.seen else ())

    def snapshot(self, checkpoint: int) -> Sequence[bytes]:
        return ()

    def commit(self, committables: Sequence[bytes]) -> None:
        if self.latch.is_set and self.latch.take():
            raise CommitFailed("the table is locked")
        self.committed.mkdir(exist_ok=True)
        for each in committables:
            name, rows = each.decode().split()
            (self.committed / name).write_text(rows)

    def close(self) -> None: ...


class Program:
    """Counts, timers and sums of windows. fails, refused: latches for a failure of each kind."""

    def __init__(self, folder: Path) -> None:
        self.fails = Latch(folder / "fails")
        self.refused = Latch(folder / "refused")
        self.out = folder / "out"
        self.beside = folder / "beside"

    def __call__(self, env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        fails = FailingOnce(self.fails, at=2 * ROWS + 17)
        numbers = rows.map(fails, Types.LONG()).uid("plain")
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
        timed = numbers.assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(lambda number, _: number)
        ).uid("timed")
        keyed = timed.key_by(lambda number: number % KEYS)
        counts = keyed.process(Counts()).uid("counts")
        windows = TumblingEventTimeWindows.of(Time.milliseconds(WINDOW))
        sums = keyed.window(windows).reduce(lambda a, b: a + b).uid("sums")
        found = counts.union(sums.map(lambda total: ("sum", total, 0)).uid("told"))
        lines = found.map(lambda row: {"what": row[0], "a": row[1], "b": row[2]}).uid("lines")
        schema = pa.schema([("what", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
        lines.sink_to(FileSink.parquet(self.out, schema)).uid("files")
        sums.sink_to(RefusingOnce(self.refused, self.beside)).uid("beside")

    def found(self, what: str) -> list[tuple[int, int]]:
        return sorted((r["a"], r["b"]) for r in committed_rows(self.out) if r["what"] == what)


def run_query(
    spark: SparkSession,
    folder: Path,
    program: Callable[[StreamExecutionEnvironment, DataStream[Any]], None],
    parallelism: int = 2,
    **configuration: object,
) -> None:
    """Runs all that is there, a file a batch. Raises what ends it."""
    stream = spark.readStream.schema("number bigint").option("maxFilesPerTrigger", 1)
    batches = MicroBatches(
        program, folder / "state", parallelism=parallelism, configuration=configuration
    )
    query = (
        stream.parquet(str(folder / "in"))
        .writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(folder / "spark"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100), "the query ends with its input"


def check_found(program: Program, batches: int) -> None:
    """All that has been found once, as plain Python finds it."""
    total = batches * ROWS
    reached = total - 1 - 5 - 1  # the greatest time, less what may come late
    extra = [LATE] if batches > BATCHES - 2 else []
    counted = program.found("count")
    assert [number for number, _ in counted] == sorted([*range(total), *extra])
    for key in range(KEYS):
        counts = sorted(count for number, count in counted if number % KEYS == key)
        assert counts == list(range(1, len(counts) + 1))
    timers = [at for at, _ in program.found("timer")]
    assert timers == [n + 2 * ROWS for n in range(0, total, 100) if n + 2 * ROWS <= reached]
    starts = range(0, reached + 1 - WINDOW + 1, WINDOW)
    sums = sorted(
        sum(n for n in range(start, start + WINDOW) if n % KEYS == key)
        for start in starts
        for key in range(KEYS)
    )
    assert [total for total, _ in program.found("sum")] == sums, "each window once, none for LATE"
    assert sum(int(file.read_text()) for file in program.beside.iterdir()) == len(sums)

"""What is complete when a batch's tasks end, and who hears of it: nobody before its driver."""

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.e2e.files import committed_rows
from tests.e2e.restores import RESTORE_PATH
from tests.e2e.watch import until
from tidegate import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    MapFunction,
    MicroBatches,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WithPreCommitTopology,
)
from tidegate.api.rows.batches import as_rows
from tidegate.api.sink import Prepared, WriterContext
from tidegate.connectors import FileSink
from tidegate.functions import CheckpointListener
from tidegate.model.elements import Batch
from tidegate.model.ids import CheckpointId
from tidegate.storage.paths import COMMITTED

pytestmark = pytest.mark.slow


def batch(spark: SparkSession, **settings: str) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.on_spark(spark, 1, configuration=settings)
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


class Slow(AsyncFunction[dict[str, int], dict[str, int]]):
    async def async_invoke(self, value: dict[str, int]) -> list[dict[str, int]]:
        await asyncio.sleep(0.3)
        return [value]


def test_calls_under_way_as_the_rows_of_a_micro_batch_end_are_in_its_output(
    spark: SparkSession, tmp_path: Path
) -> None:
    def program(env: StreamExecutionEnvironment, rows: DataStream[Any]) -> None:
        called = AsyncDataStream.unordered_wait(rows, Slow(), Time.seconds(60), capacity=100)
        called.uid("slow").sink_to(FileSink.parquet(tmp_path / "out", schema)).uid("files")

    schema = pa.schema([("n", pa.int64())])
    batches = MicroBatches(program, tmp_path / "state", parallelism=1)
    for number in range(2):
        rows = [(10 * number + each,) for each in range(5)]
        batches(spark.createDataFrame(rows, "n long").coalesce(1), number)
        found = sorted(row["n"] for row in committed_rows(tmp_path / "out"))
        assert found == [10 * before + each for before in range(number + 1) for each in range(5)]


def test_results_of_calls_under_way_bring_event_time_as_far_as_they_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = batch(spark).end_with_savepoint(tmp_path / "savepoints")
    rows = env.from_collection([{"n": 1_000 * n} for n in range(3)]).uid("rows")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda row, _: row["n"]
    )
    called = AsyncDataStream.ordered_wait(rows, Slow(), Time.seconds(60), capacity=100).uid("slow")
    windows = (
        called.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda row: 0)
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
    )
    sums = windows.reduce(lambda one, other: one).uid("windows")
    schema = pa.schema([("n", pa.int64())])
    sums.sink_to(FileSink.parquet(tmp_path / "out", schema)).uid("files")
    env.execute("calls before watermarks")
    assert sorted(row["n"] for row in committed_rows(tmp_path / "out")) == [0, 1_000]


class Writer:
    """Makes a share of all its rows, and a file that says so."""

    def __init__(self, prepared: Path) -> None:
        self._prepared = prepared
        self._rows: list[int] = []

    def write(self, batch: Batch) -> None:
        self._rows += as_rows(batch).values

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        rows, self._rows = self._rows, []
        if rows:
            self._prepared.touch()
        return Prepared((json.dumps(rows).encode(),) if rows else ())

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None: ...


class Table(WithPreCommitTopology):
    """Commits each share as a file that names the process; slow ones once a share is prepared."""

    def __init__(self, folder: Path, *, slow: bool) -> None:
        self._folder, self._slow, self._prepared = folder, slow, folder / "prepared"

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> Writer:
        return Writer(self._prepared)

    def committer(self) -> "Table":
        return self

    def add_pre_commit_topology(self, committables: DataStream[Any]) -> DataStream[Any]:
        return committables

    def commit(self, committables: Sequence[bytes]) -> None:
        if self._slow:
            until(self._prepared.exists, f"{self._prepared} exists")
            time.sleep(1)  # the operator is cut meanwhile
        for each in committables:
            first = json.loads(each)[0]
            (self._folder / f"{first} by {os.getpid()}").touch()

    def close(self) -> None: ...


def test_the_output_of_a_batch_from_a_savepoint_is_committed_by_its_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its tasks commit what the savepoint held; meanwhile comes what the batch itself has made.

    The savepoint does not say that all is committed, as where its driver has died before.
    """
    table, saved = tmp_path / "table", None
    table.mkdir()
    for first in (10, 20, 30):
        start = {} if saved is None else {RESTORE_PATH: saved}
        env = batch(spark, **start, **{"execution.state-recovery.ignore-unclaimed-state": "true"})
        if first != 30:
            env.end_with_savepoint(tmp_path / f"saved-{first}")
        numbers = env.from_collection([first, first + 1]).uid(f"numbers {first}")
        numbers.sink_to(Table(table, slow=first == 30)).uid("table")
        (table / "prepared").unlink(missing_ok=True)
        saved = env.execute(f"batch {first}").get_savepoint()
        if saved is not None:
            Path(saved, COMMITTED).unlink()
    made = {file.name for file in table.glob("30 by *")}
    assert made == {f"30 by {os.getpid()}"}
    assert len(list(table.glob("20 by *"))) == 2


class Told(MapFunction[int, int], CheckpointListener):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def map(self, value: int) -> int:
        return value

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        (self._folder / "told").touch()


@pytest.mark.parametrize("with_savepoint", [False, True])
def test_functions_hear_of_no_complete_checkpoint_in_tasks(
    spark: SparkSession, tmp_path: Path, *, with_savepoint: bool
) -> None:
    env = batch(spark)
    if with_savepoint:
        env.end_with_savepoint(tmp_path / "saved")
    told = env.from_sequence(1, 10).map(Told(tmp_path))
    with told.execute_and_collect() as results:
        assert sorted(results) == list(range(1, 11))
    assert not (tmp_path / "told").exists()

"""Flink's own classes read the savepoint that a batch leaves behind."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import JavaGateway
from pyspark.sql import SparkSession

from tests.e2e.files import write_numbers
from tests.e2e.maven import flink_runtime
from tidegate import (
    KeyedProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.connectors import FileSource

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flink() -> Iterator[Any]:
    """A JVM with Flink's classes."""
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join(map(str, flink_runtime())),
        java_path=str(Path(os.environ["JAVA_HOME"]) / "bin/java")
        if "JAVA_HOME" in os.environ
        else "java",
        die_on_exit=True,
    )
    yield gateway.jvm
    gateway.shutdown()


class Counts(KeyedProcessFunction[int, tuple[int, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        ctx.timer_service().register_event_time_timer(value + 1_000_000)
        yield value, count


@pytest.mark.feature("F303")
def test_flinks_classes_read_the_metadata_of_a_batchs_savepoint(
    spark: SparkSession, tmp_path: Path, flink: Any
) -> None:
    write_numbers(tmp_path / "in", 4, 500)
    env = StreamExecutionEnvironment.on_spark(spark, 3)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).end_with_savepoint(tmp_path / "savepoints")
    source = FileSource.parquet(str(tmp_path / "in"))
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    timed = numbers.map(lambda row: row["number"], Types.LONG()).assign_timestamps_and_watermarks(
        times
    )
    keyed = timed.key_by(lambda number: number % 10, Types.LONG())
    keyed.process(Counts()).uid("counts").map(lambda pair: pair[1]).key_by(lambda n: 0).reduce(
        max
    ).print()
    keyed.window(TumblingEventTimeWindows.of(Time.hours(1))).reduce(max).uid("windows").print()
    path = env.execute("history").get_savepoint()
    assert path is not None
    metadata = read_by_flink(flink, path)
    named = [
        each for each in listed(metadata.getOperatorStates()) if each.getOperatorUid().isPresent()
    ]
    states = {state.getOperatorUid().get(): state for state in named}
    assert set(states) == {"numbers", "counts", "windows"}
    for state in states.values():
        assert (state.getParallelism(), state.getMaxParallelism()) == (3, 128)
        assert state.getNumberCollectedStates() == 3
    for uid in ("counts", "windows"):
        handles = [h for each in parts(states[uid]) for h in listed(each.getManagedKeyedState())]
        bounds = [handle.getKeyGroupRange() for handle in handles]
        covered = sorted((each.getStartKeyGroup(), each.getEndKeyGroup()) for each in bounds)
        assert covered == [(0, 42), (43, 85), (86, 127)]
        for handle in handles:
            assert bytes_of(handle) == handle.getStateSize() > 0
    assert (
        sum(len(listed(each.getManagedOperatorState())) for each in parts(states["numbers"])) == 3
    )


def parts(state: Any) -> list[Any]:
    """The states of subtasks."""
    return listed(state.getStates())


def bytes_of(handle: Any) -> int:
    """Bytes that Flink reads where the handle leads."""
    stream = handle.openInputStream()
    try:
        return len(stream.readAllBytes())
    finally:
        stream.close()


def listed(collection: Any) -> list[Any]:
    return list(collection.toArray())


def read_by_flink(flink: Any, path: str) -> Any:
    stream = flink.java.io.DataInputStream(flink.java.io.FileInputStream(f"{path}/_metadata"))
    try:
        loader = flink.java.lang.ClassLoader.getSystemClassLoader()
        checkpoints = flink.org.apache.flink.runtime.checkpoint.Checkpoints
        return checkpoints.loadCheckpointMetadata(stream, loader, path)
    finally:
        stream.close()

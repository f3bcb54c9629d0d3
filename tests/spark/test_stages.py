"""Stages of a batch without Spark: the tasks of each in turn, and the shuffle by Arrow."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.spark.batch_programs import (
    PROGRAMS,
    Program,
    two_streams_in_one_order_of_time,
    with_limits,
)
from tidegate import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    WatermarkStrategy,
)
from tidegate.connectors import CollectSink
from tidegate.graph.job_graph import JobGraph
from tidegate.model.ids import JobId, VertexId
from tidegate.spark.batch.coordinators import Coordinators
from tidegate.spark.batch.job import combiners, task_settings
from tidegate.spark.batch.shuffle import PLACE, WORDS, Said, Told, said_in
from tidegate.spark.batch.stage import Stage, run_task
from tidegate.spark.batch.telling import SparkTask

ROWS_AT_ONCE = 700


def graph_of(build: Program, **options: str) -> JobGraph:
    env = StreamExecutionEnvironment.local(3).set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.configure(options)
    build(env).sink_to(CollectSink("found"))
    return env.get_job_graph("by hand")


def rows_for(
    stage: Stage, index: int, made: Mapping[VertexId, pa.Table], fetch: int = 0
) -> Iterator[pa.RecordBatch]:
    """What Spark gives to a task, in batches. fetch: seed of the order in which rows came."""
    edges = [stage.topology.edges[edge] for edge in stage.inputs]
    if not edges:
        return iter([pa.record_batch({"id": [index]})])
    rows = pa.concat_tables(made[source] for source in dict.fromkeys(e.source for e in edges))
    wanted = pc.is_in(rows["edge"], pa.array([*stage.inputs, WORDS], pa.int32()))
    rows = rows.filter(wanted)
    target = rows["target"].to_numpy() % stage.parallelism
    rows = rows.filter(pa.array(target == index))
    fetched = rows.take(pa.array(np.random.default_rng(fetch).permutation(len(rows))))
    order = pc.sort_indices(
        fetched, [("time", "ascending", "at_start"), (PLACE, "ascending", "at_end")]
    )
    in_order = fetched.take(order).drop_columns(PLACE).combine_chunks()
    return iter(in_order.to_batches(max_chunksize=ROWS_AT_ONCE))


def stage_of(graph: JobGraph, vertex: VertexId, coordinators: Coordinators) -> Stage:
    return Stage(
        JobId("0" * 32),
        graph.topology,
        vertex,
        graph.plans[vertex],
        task_settings(graph),
        coordinators.events(vertex),
        combiners=combiners(graph, vertex),
    )


def run_by_hand(graph: JobGraph, fetch: int = 0) -> tuple[list[Any], list[Said]]:
    """The rows that were collected, and what the tasks said. fetch: as of `rows_for`."""
    coordinators = Coordinators(graph, {}, goes_on=False)
    coordinators.start()
    made: dict[VertexId, pa.Table] = {}
    for vertex in graph.topology.vertices:
        stage = stage_of(graph, vertex.id, coordinators)
        parts: list[pa.RecordBatch] = []
        for index in range(stage.parallelism):
            place = SparkTask(7 + index, 0)
            parts += run_task(stage, index, place, rows_for(stage, index, made, fetch))
        made[vertex.id] = pa.Table.from_batches(parts)
    said: dict[object, Said] = {}
    for vertex in graph.topology.vertices:
        if not graph.topology.outputs(vertex.id):
            for data in made[vertex.id]["data"]:
                said |= {each.task.subtask: each for each in said_in(data.as_py())}
    for each in said.values():
        for word in each.words:
            if isinstance(word, Told):
                coordinators.tell(each, word.operator, word.event)
    coordinators.close(None)
    return list(coordinators.results("found")), list(said.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_the_same_in_stages(name: str) -> None:
    env = StreamExecutionEnvironment.local(1).set_runtime_mode(RuntimeExecutionMode.BATCH)
    with PROGRAMS[name](env).execute_and_collect() as results:
        expected = sorted(results, key=repr)
    graph = graph_of(PROGRAMS[name])
    found, said = run_by_hand(graph)
    assert sorted(found, key=repr) == expected
    assert len(said) == sum(vertex.parallelism for vertex in graph.topology.vertices)
    assert all(each.failure is None and each.figures is not None for each in said)


def test_records_of_two_streams_are_one_sequence_in_stages() -> None:
    found, _ = run_by_hand(graph_of(two_streams_in_one_order_of_time))
    assert sorted(found, key=repr) == sorted(with_limits(), key=repr)


class Slower(AsyncFunction[Any, Any]):
    """The later its value came, the earlier it is given."""

    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep((-value % 5) / 1_000)
        return [value]


def sums_of_ten(env: StreamExecutionEnvironment) -> DataStream[Any]:
    numbers = AsyncDataStream.unordered_wait(
        env.from_sequence(1, 3_000), Slower(), Time.seconds(60), capacity=50
    )
    tens = numbers.key_by(lambda n: n % 7).count_window(10).reduce(lambda a, b: a + b)
    return tens.key_by(lambda total: total % 3).map(lambda total: (total % 3, total))


def sums_of_ten_by_time(env: StreamExecutionEnvironment) -> DataStream[Any]:
    """Many records have one time."""
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    timed = env.from_sequence(1, 3_000).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda n, _: n // 500)
    )
    tens = timed.key_by(lambda n: n % 7).count_window(10).reduce(lambda a, b: a + b)
    return tens.key_by(lambda total: total % 3).map(lambda total: (total % 3, total))


@pytest.mark.parametrize("program", [sums_of_ten, sums_of_ten_by_time])
def test_a_task_that_is_run_again_writes_the_same(program: Program) -> None:
    """Else a reader of the first and a reader of the second would not fit together."""
    first, again = (run_by_hand(graph_of(program), fetch)[0] for fetch in (1, 2))
    assert len(first) == 7 * (3_000 // 7 // 10)
    assert sorted(first) == sorted(again)


def test_a_task_passes_rows_of_a_key_on_before_it_has_taken_the_next() -> None:
    """Of a key with many rows no more is held than the part of them that Spark gave last."""
    one_key = graph_of(
        lambda env: env.from_sequence(1, 400_000).key_by(lambda n: 0).map(str).rebalance().map(len)
    )
    coordinators = Coordinators(one_key, {}, goes_on=False)
    coordinators.start()
    vertices = [vertex.id for vertex in one_key.topology.vertices]
    first, keyed = (stage_of(one_key, vertex, coordinators) for vertex in vertices[:2])
    rows: list[pa.RecordBatch] = []
    for index in range(first.parallelism):
        rows += run_task(first, index, SparkTask(index, 0), rows_for(first, index, {}))
    made = {first.vertex: pa.Table.from_batches(rows)}
    taken = 0

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for row in (batch.slice(at, 1) for batch in batches for at in range(len(batch))):
            taken += 1
            yield row

    unanswered = dict[int, list[int]]()
    for index in range(keyed.parallelism):
        taken, answered = 0, 0
        rows_in = counted(rows_for(keyed, index, made))
        for batch in run_task(keyed, index, SparkTask(9 + index, 0), rows_in):
            if len(batch):
                unanswered.setdefault(index, []).append(taken - answered)
                answered = taken
    [of_the_key] = [
        each for each in unanswered.values() if sum(each) > len(made[first.vertex]) // 2
    ]
    assert max(of_the_key) <= sum(of_the_key) // 3


def test_tasks_behind_one_that_has_failed_do_nothing_and_hand_the_failure_on() -> None:
    def fails(number: int) -> int:
        if number == 7:
            raise ValueError("no sevens")
        return number

    found, said = run_by_hand(
        graph_of(
            lambda env: env.from_sequence(1, 50).map(fails).key_by(lambda n: n % 3).reduce(max)
        )
    )
    failures = [each for each in said if each.failure is not None]
    assert not found
    assert [str(each.failure).count("no sevens") > 0 for each in failures] == [True]


def on_disk(folder: Path) -> dict[str, str]:
    return {"state.backend.type": "rocksdb", "state.backend.rocksdb.localdir": str(folder)}


def test_state_of_a_task_is_on_disk_where_the_program_says_so_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    sums = PROGRAMS["timers"]
    in_memory, _ = run_by_hand(graph_of(sums))
    found, said = run_by_hand(graph_of(sums, **on_disk(tmp_path)))
    assert sorted(found, key=repr) == sorted(in_memory, key=repr)
    assert all(each.failure is None for each in said)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    _, said = run_by_hand(graph_of(sums, **on_disk(tmp_path / "file")))
    failures = [str(each.failure) for each in said if each.failure is not None]
    assert failures and all("Cannot make local folders for state" in each for each in failures)

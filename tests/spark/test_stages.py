"""Stages of a batch without Spark: the tasks of each in turn, and the shuffle by Arrow."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    BroadcastProcessFunction,
    DataStream,
    JobFailed,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    Types,
    WatermarkStrategy,
)
from tidegate.connectors import CollectSink, FileSink
from tidegate.errors import StorageFailed, TidegateError, UserCodeFailed
from tidegate.graph.job_graph import JobGraph
from tidegate.model.ids import Attempt, Epoch, ExecutionId, JobId, SubtaskId, VertexId
from tidegate.spark.batch.coordinators import Coordinators
from tidegate.spark.batch.job import combiners, task_settings
from tidegate.spark.batch.shuffle import BATCH_BYTES, END, PLACE, WORDS, Said, Told, hear, said_in
from tidegate.spark.batch.stage import run_task
from tidegate.spark.batch.stage_plan import FramePartitions, Stage
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
    wanted = pc.is_in(rows["edge"], pa.array([*stage.inputs, WORDS, END], pa.int32()))
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
    coordinators.results.end(None)
    return list(coordinators.results.of("found")), list(said.values())


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


SIDE = OutputTag("side", Types.LONG())


class Thirds(ProcessFunction):
    """Gives each third number on, and all to a side output."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield SIDE, value
        if value % 3 == 0:
            yield value


class Sides(KeyedCoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield "main", value

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield "side", value


@pytest.mark.parametrize("timed", [False, True])
def test_records_of_two_outputs_come_in_one_order_however_long_batches_are(timed: bool) -> None:
    """Time decides how long they are, and so which output is written to next."""

    def program(env: StreamExecutionEnvironment) -> DataStream[Any]:
        numbers = env.from_sequence(1, 3_000).set_parallelism(1)
        if timed:
            numbers = numbers.assign_timestamps_and_watermarks(
                WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
                    lambda n, _: n // 1_000
                )
            )
        thirds = numbers.process(Thirds(), Types.LONG()).set_parallelism(1)
        side = thirds.get_side_output(SIDE).key_by(lambda n: 0)
        return thirds.key_by(lambda n: 0).connect(side).process(Sides()).set_parallelism(1)

    first, again = (
        run_by_hand(graph_of(program, **{"tidegate.batch.rows": rows}))[0] for rows in ("7", "900")
    )
    assert len(first) == 4_000
    assert first == again


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Ruled(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value, ctx.get_broadcast_state(RULES).get("factor")

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("factor", value)


class KeyedRuled(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    process_element = Ruled.process_element
    process_broadcast_element = Ruled.process_broadcast_element


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_what_is_broadcast_comes_before_all_else(
    parallelism: int, keyed: bool, timed: bool
) -> None:
    def program(env: StreamExecutionEnvironment) -> DataStream[Any]:
        env.set_parallelism(parallelism)
        numbers, rules = env.from_sequence(1, 30), env.from_collection([6, 7])
        if timed:
            numbers, rules = (
                each.assign_timestamps_and_watermarks(
                    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
                        lambda n, _: n
                    )
                )
                for each in (numbers, rules)
            )
        known = rules.broadcast(RULES)
        if keyed:
            return numbers.key_by(lambda n: n).connect(known).process(KeyedRuled())
        return numbers.connect(known).process(Ruled())

    found, _ = run_by_hand(graph_of(program))
    assert sorted(found) == [(n, 7) for n in range(1, 31)]


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

    given_on: list[list[tuple[int, int]]] = []
    for index in range(keyed.parallelism):
        taken = 0
        parts = run_task(
            keyed, index, SparkTask(9 + index, 0), counted(rows_for(keyed, index, made))
        )
        given_on.append([(taken, part.nbytes) for part in parts])
    taken_before, held = zip(*max(given_on, key=len), strict=True)
    assert taken_before[0] < taken_before[-1]
    assert max(held) < 2 * BATCH_BYTES < sum(held)


@pytest.mark.parametrize("failure", [ValueError, SystemExit])
def test_tasks_behind_one_that_has_failed_do_nothing_and_hand_the_failure_on(
    failure: type[BaseException],
) -> None:
    def fails(number: int) -> int:
        if number == 7:
            raise failure("no sevens")
        return number

    found, said = run_by_hand(
        graph_of(
            lambda env: env.from_sequence(1, 50).map(fails).key_by(lambda n: n % 3).reduce(max)
        )
    )
    failures = [each for each in said if each.failure is not None]
    assert not found
    assert [str(each.failure).count("no sevens") > 0 for each in failures] == [True]


def of_a_store_that_is_away() -> tuple[Stage, Iterator[pa.RecordBatch]]:
    """A step whose function cannot read, and the rows of one of its tasks."""

    def reads(number: int) -> int:
        raise StorageFailed("the store is away", where="s3://bucket")

    graph = graph_of(lambda env: env.from_sequence(1, 50).map(reads))
    coordinators = Coordinators(graph, {}, goes_on=False)
    coordinators.start()
    stage = stage_of(graph, graph.topology.vertices[0].id, coordinators)
    return stage, rows_for(stage, 0, {})


def test_a_task_that_the_world_has_failed_is_left_to_spark_while_it_tries_again() -> None:
    stage, rows = of_a_store_that_is_away()
    with pytest.raises(StorageFailed, match="the store is away"):
        list(run_task(stage, 0, SparkTask(7, 0, last=False), rows))


def test_the_last_try_of_a_task_that_the_world_has_failed_says_why() -> None:
    stage, rows = of_a_store_that_is_away()
    [*_, last] = run_task(stage, 0, SparkTask(7, 0), rows)
    [said] = said_in(last["data"][-1].as_py())
    assert isinstance(said.failure, StorageFailed) and "s3://bucket" in said.failure.where


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


def test_readers_of_one_step_may_have_another_parallelism() -> None:
    def program(env: StreamExecutionEnvironment) -> DataStream[Any]:
        numbers = env.from_sequence(1, 300)
        one = numbers.rebalance().map(lambda n: n).set_parallelism(1)
        return one.union(numbers.shuffle().map(lambda n: -n).set_parallelism(2))

    found, _ = run_by_hand(graph_of(program))
    assert sorted(found) == [*range(-300, 0), *range(1, 301)]


def keyed_stage() -> tuple[Stage, list[pa.RecordBatch]]:
    """A step behind a shuffle, and the rows of one of its tasks."""
    graph = graph_of(lambda env: env.from_sequence(1, 9_000).key_by(lambda n: n % 7).map(str))
    coordinators = Coordinators(graph, {}, goes_on=False)
    coordinators.start()
    first, keyed = (stage_of(graph, each.id, coordinators) for each in graph.topology.vertices)
    rows: list[pa.RecordBatch] = []
    for index in range(first.parallelism):
        rows += run_task(first, index, SparkTask(index, 0), rows_for(first, index, {}))
    return keyed, list(rows_for(keyed, 0, {first.vertex: pa.Table.from_batches(rows)}))


def test_of_a_subtasks_attempts_the_newest_is_heard_and_a_failure_stays() -> None:
    def said(index: int, attempt: int, failure: TidegateError | None = None) -> Said:
        subtask = SubtaskId(VertexId(bytes(16)), index)
        return Said(ExecutionId(subtask, Attempt(attempt), Epoch(1)), (), None, failure)

    failed, heard = said(1, 4, UserCodeFailed("no")), dict[SubtaskId, Said]()
    newest = said(0, 8)
    hear(heard, [said(0, 3), failed, newest])
    hear(heard, [said(0, 5), said(1, 9)])
    assert list(heard.values()) == [newest, failed]


@pytest.mark.parametrize("missing", [1, 2_000])
def test_a_task_whose_input_stops_early_neither_ends_nor_fails(missing: int) -> None:
    """Spark closes the input of tasks that it ends, and Arrow takes that for the end of it."""
    stage, batches = keyed_stage()
    rows = pa.Table.from_batches(batches)
    cut = rows.slice(0, len(rows) - missing).to_batches(max_chunksize=ROWS_AT_ONCE)
    with pytest.raises(Exception, match="not given the task all of its rows"):
        list(run_task(stage, 0, SparkTask(7, 0), iter(cut)))


def test_an_error_of_the_input_is_for_spark_and_no_failure_of_the_job() -> None:
    stage, batches = keyed_stage()

    def breaks() -> Iterator[pa.RecordBatch]:
        yield batches[0]
        raise ConnectionResetError("the executor has gone")

    with pytest.raises(ConnectionResetError, match="the executor has gone"):
        list(run_task(stage, 0, SparkTask(7, 0), breaks()))


def test_a_sink_that_cannot_write_its_last_file_fails_its_task(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("no folder")
    env = StreamExecutionEnvironment.local(1).set_runtime_mode(RuntimeExecutionMode.BATCH)
    rows = env.from_collection([{"word": "a"}, {"word": "b"}])
    rows.sink_to(FileSink.json_lines(str(tmp_path / "occupied" / "out")))
    graph = env.get_job_graph("by hand")
    coordinators = Coordinators(graph, {}, goes_on=False)
    coordinators.start()
    [vertex] = graph.topology.vertices
    stage = stage_of(graph, vertex.id, coordinators)
    [*_, last] = run_task(stage, 0, SparkTask(7, 0), rows_for(stage, 0, {}))
    [said] = said_in(last["data"][-1].as_py())
    assert said.failure is not None and "occupied" in str(said.failure)


def test_a_partition_that_nobody_planned_is_no_subtask() -> None:
    places = FramePartitions(pa.schema([]), first=3, count=2)
    assert [places.subtask(partition) for partition in (3, 4)] == [0, 1]
    for partition in (2, 5):
        with pytest.raises(ValueError, match="had 2 partitions when the batch was planned"):
            places.subtask(partition)


def test_results_end_for_whoever_asks_after_the_job() -> None:
    graph = graph_of(lambda env: env.from_sequence(1, 3))
    coordinators = Coordinators(graph, {}, goes_on=False)
    early = coordinators.results.of("found")
    coordinators.results.end(JobFailed("it was not to be"))
    for results in (early, coordinators.results.of("found"), coordinators.results.of("late")):
        with pytest.raises(JobFailed, match="it was not to be"):
            results.take()


def test_a_task_that_only_commits_reads_nothing() -> None:
    graph = graph_of(lambda env: env.from_sequence(1, 9_000).key_by(lambda n: n % 7).map(str))
    coordinators = Coordinators(graph, {}, goes_on=True)
    coordinators.start()
    made: dict[VertexId, pa.Table] = {}
    for vertex in graph.topology.vertices:
        stage = replace(stage_of(graph, vertex.id, coordinators), only_commits=True)
        place, rows = SparkTask(7, 0), rows_for(stage, 0, made)
        made[vertex.id] = pa.Table.from_batches(list(run_task(stage, 0, place, rows)))
    source, keyed = (set(rows["edge"].to_pylist()) for rows in made.values())
    assert source == {WORDS, END} and keyed == {WORDS}

"""Whole programs through the surface, on the local runtime; most in one loop, some in processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.house.source import ROOT
from tidegate import (
    ColumnStateDescriptor,
    Configuration,
    ExternalizedCheckpointRetention,
    FilterFunction,
    FlatMapFunction,
    GraphError,
    JobCanceled,
    JobFailed,
    JobStatus,
    KeyedBatchFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    ProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tidegate import BatchContext, DataStream, RuntimeContext

WORDS = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question", "to", "be"]


def local(parallelism: int = 1, settings: dict[str, str] | None = None) -> Any:
    configuration = Configuration.from_dict(settings or {})
    return StreamExecutionEnvironment.local(parallelism, configuration=configuration)


def collected(stream: DataStream[Any]) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return list(rows)


class Count(KeyedProcessFunction[str, tuple[str, int]]):
    """The running count of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(
        self, value: str, ctx: KeyedProcessFunction.Context
    ) -> Iterable[tuple[str, int]]:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield str(ctx.get_current_key()), count


class Numbered(MapFunction[str, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map(self, value: str) -> str:
        self.seen.update((self.seen.value() or 0) + 1)
        return f"{value}{self.seen.value()}"


class FirstOnly(FilterFunction[str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("seen", Types.STRING(), value_type_info=Types.BOOLEAN())
        self.seen = runtime_context.get_map_state(descriptor)

    def filter(self, value: str) -> bool:
        first = not self.seen.contains(value)
        self.seen.put(value, True)
        return first


class Letters(FlatMapFunction[str, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.suffix = runtime_context.get_job_parameter("suffix", "?")

    def flat_map(self, value: str) -> Iterable[str]:
        return [letter + str(self.suffix) for letter in value]


class Where(ProcessFunction[int, tuple[int, int]]):
    """Each value with the subtask that it came to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def process_element(
        self, value: int, ctx: ProcessFunction.Context
    ) -> Iterable[tuple[int, int]]:
        yield value, self.index


class RunningSum(KeyedBatchFunction):
    """Each row's key with the sum of its key's numbers so far."""

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> pa.RecordBatch:
        sums = ctx.column_state(ColumnStateDescriptor("sum", pa.int64()))
        numbers = batch.column("n").to_numpy()
        out = np.empty(len(numbers), np.int64)
        for row, index in enumerate(ctx.key_index):
            one = np.array([index])
            total = sums.get(one) + numbers[row]
            sums.put(one, total)
            out[row] = total[0]
        return pa.RecordBatch.from_arrays([batch.column("k"), pa.array(out)], ["k", "sum"])


def running_counts(words: list[str]) -> list[tuple[str, int]]:
    seen: Counter[str] = Counter()
    counts: list[tuple[str, int]] = []
    for word in words:
        seen[word] += 1
        counts.append((word, seen[word]))
    return counts


def test_element_wise_steps_keep_the_order() -> None:
    stream = local().from_collection(range(6)).filter(lambda n: n != 3).map(lambda n: n * 10)
    assert collected(stream.flat_map(lambda n: [n, n + 1])) == [
        0, 1, 10, 11, 20, 21, 40, 41, 50, 51,
    ]  # fmt: skip


def test_a_flat_map_may_give_nothing() -> None:
    stream = local().from_collection(range(4))
    assert collected(stream.flat_map(lambda n: None if n % 2 else [n])) == [0, 2]


@pytest.mark.parametrize("parallelism", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_keyed_state_counts_the_words(parallelism: int) -> None:
    stream = local(parallelism).from_collection(WORDS).rebalance().map(str.upper)
    counts = stream.key_by(lambda word: word, Types.STRING()).process(Count())
    expected = running_counts([word.upper() for word in WORDS])
    assert sorted(collected(counts)) == sorted(expected)


def test_functions_of_records_may_have_state_of_the_key() -> None:
    keyed = local().from_collection(WORDS).key_by(lambda word: word[0])
    expected = [
        f"{word}{n}"
        for word, (_, n) in zip(WORDS, running_counts([w[0] for w in WORDS]), strict=True)
    ]
    assert collected(keyed.map(Numbered())) == expected
    assert collected(keyed.filter(FirstOnly())) == list(dict.fromkeys(WORDS))


def test_a_function_reads_the_parameters_of_the_job() -> None:
    env = local()
    env.get_config().set_global_job_parameters({"suffix": "!"})
    assert collected(env.from_collection(["ab"]).key_by(len).flat_map(Letters())) == ["a!", "b!"]


def test_reduce_gives_a_result_for_each_record() -> None:
    pairs = local().from_collection([("a", 1), ("b", 5), ("a", 2), ("a", 4), ("b", 1)])
    sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda x, y: (x[0], x[1] + y[1]))
    assert collected(sums) == [("a", 1), ("b", 5), ("a", 3), ("a", 7), ("b", 6)]


def test_a_stream_united_with_itself_has_each_record_twice() -> None:
    stream = local().from_collection(range(5)).map(lambda n: n)
    assert sorted(collected(stream.union(stream))) == sorted([*range(5), *range(5)])


def test_branches_get_values_of_their_own() -> None:
    env = local()
    lists = env.from_collection([[1], [2]])
    changed = lists.map(lambda value: value.append(0) or value)
    kept = lists.map(lambda value: value)
    assert sorted(collected(changed.union(kept))) == [[1], [1, 0], [2], [2, 0]]


@pytest.mark.slow
def test_exchanges_reach_the_subtasks_they_say() -> None:
    env = local(2)
    numbers = env.from_sequence(0, 99).map(lambda n: n)
    streams = {
        "broadcast": numbers.broadcast(),
        "rebalance": numbers.rebalance(),
        "shuffle": numbers.shuffle(),
        "global": numbers.global_(),
        "custom": numbers.partition_custom(lambda key, count: key % count, lambda n: n),
        "forward": numbers.forward(),
    }
    tagged = [
        stream.process(Where()).map(lambda found, name=name: (name, *found))
        for name, stream in streams.items()
    ]
    found = collected(tagged[0].union(*tagged[1:]))
    subtasks = {name: Counter(row[2] for row in found if row[0] == name) for name in streams}
    values = {name: Counter(row[1] for row in found if row[0] == name) for name in streams}
    assert subtasks["broadcast"] == {0: 100, 1: 100}
    assert subtasks["rebalance"] == {0: 50, 1: 50}
    assert set(subtasks["shuffle"]) == {0, 1}
    assert subtasks["global"] == {0: 100}
    assert subtasks["custom"] == {0: 50, 1: 50}
    assert all(value % 2 == index for name, value, index in found if name == "custom")
    once = Counter(range(100))
    assert all(values[name] == once for name in streams if name != "broadcast")
    assert values["broadcast"] == once + once


@pytest.mark.parametrize("parallelism", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_arrow_batches_and_records_mix_and_agree(parallelism: int) -> None:
    rows = [{"k": f"key-{n % 7}", "n": n} for n in range(500)]
    stream = local(parallelism).from_collection(rows).rebalance()
    doubled = stream.map_batches(
        lambda batch: batch.set_column(1, "n", pc.multiply(batch.column("n"), 2))
    )
    kept = doubled.filter_batches(lambda batch: pc.not_equal(batch.column("n"), 8))
    sums = kept.key_by("k").process_batches(
        RunningSum(), pa.schema([("k", pa.string()), ("sum", pa.int64())])
    )
    last: dict[str, int] = {}
    for row in collected(sums.map(lambda row: (row["k"], row["sum"]))):
        last[row[0]] = max(row[1], last.get(row[0], 0))
    expected: Counter[str] = Counter()
    for row in rows:
        expected[str(row["k"])] += 2 * int(row["n"]) if row["n"] != 4 else 0
    assert last == expected


def test_a_column_keys_records_too() -> None:
    rows = [{"k": "a"}, {"k": "b"}, {"k": "a"}]
    counts = local().from_collection(rows).key_by("k").process(Count())
    assert collected(counts) == [("a", 1), ("b", 1), ("a", 2)]


def test_records_are_printed_a_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    env = local()
    env.from_collection([1, "two", (3, 4)]).print()
    env.from_collection(["x"]).print("named")
    env.execute()
    assert sorted(capfd.readouterr().out.splitlines()) == ["(3, 4)", "1", "named> x", "two"]


def test_a_limit_ends_an_endless_job() -> None:
    taken = local().generate(lambda n: n).execute_and_collect(limit=4)
    assert len(set(taken)) == 4


def test_leaving_the_results_cancels_the_job() -> None:
    with local().generate(lambda n: n).execute_and_collect() as rows:
        client = rows.get_job_client()
        assert next(rows) == 0
    with pytest.raises(JobCanceled):
        client.get_job_execution_result().result(100)
    assert client.get_job_status().result(100) is JobStatus.CANCELED


def test_an_exception_of_a_function_arrives_with_its_traceback() -> None:
    env = local()
    env.from_collection([2, 1, 0]).map(lambda n: 2 // n).name("Halve").print()
    with pytest.raises(JobFailed) as raised:
        env.execute("halves")
    text = str(raised.value)
    assert "ZeroDivisionError" in text
    assert "Halve" in text
    assert "test_local_jobs.py" in text


def test_what_cannot_be_sent_is_refused_before_anything_starts() -> None:
    env = local()
    out = sys.stdout
    env.from_collection([1]).map(lambda n: out.write(str(n)) or (n for n in [1]).gi_frame).print()
    with pytest.raises(GraphError, match="operator 'Map' cannot be sent to the slots"):
        env.execute()


@pytest.mark.feature("F004")
def test_execute_gives_the_id_of_the_job_that_ran() -> None:
    env = local()
    env.from_collection([1]).map(str)
    client: Any = env.execute_async("one")
    with pytest.raises(AttributeError, match="count with get_metrics_group"):
        client.get_accumulators()
    result = client.get_job_execution_result().result(100)
    assert len(bytes.fromhex(result.get_job_id())) == 16
    assert client.view().job == client.get_job_id() == result.get_job_id()
    env.from_collection([1]).map(str)
    assert env.execute("other").get_job_id() != result.get_job_id()


@pytest.mark.slow
@pytest.mark.feature("F005", "F009")
def test_the_plan_shows_the_vertices_that_run() -> None:
    env = local(2).enable_checkpointing(100)
    words = env.from_collection(WORDS).flat_map(list).set_parallelism(1)
    words.key_by(lambda letter: letter).process(Count()).map(str)
    plan = json.loads(env.get_execution_plan())
    client = env.execute_async()
    client.get_job_execution_result().result(100)
    running = {
        vertex.id.hex(): (vertex.name, vertex.parallelism, len(vertex.subtasks))
        for vertex in client.view().vertices
    }
    assert running == {
        vertex["id"]: (
            vertex["description"].replace("&gt;", ">").removesuffix("<br/>"),
            vertex["parallelism"],
            vertex["parallelism"],
        )
        for vertex in plan["vertices"]
    }
    assert sorted(running.values()) == [
        ("KeyedProcess -> Map", 2, 2),
        ("Source: Collection Source -> FlatMap", 1, 1),
    ]


@pytest.mark.slow
@pytest.mark.feature("F002")
def test_one_call_turns_checkpoints_on() -> None:
    env = local().enable_checkpointing(500)
    env.generate(lambda n: n, rate=1_000.0).key_by(lambda n: n % 10, Types.LONG()).process(Count())
    client = env.execute_async("checkpointed")
    taken = client.view().checkpoints
    with pytest.raises(TimeoutError):
        client.get_job_execution_result().result(3.0)
    taken = client.view().checkpoints
    client.cancel().result(100)
    assert taken.counts.completed >= 3
    assert taken.counts.failed == 0


@pytest.mark.feature("F003")
def test_the_checkpoint_config_is_what_the_job_runs_with(tmp_path: Path) -> None:
    folder = tmp_path.as_uri()
    env = local(settings={"execution.checkpointing.dir": folder})
    config = env.get_checkpoint_config()
    config.set_checkpoint_interval(700).set_checkpoint_timeout(9_000)
    config.set_min_pause_between_checkpoints(50).set_max_concurrent_checkpoints(2)
    config.set_tolerable_checkpoint_failure_number(3)
    retained = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    config.set_externalized_checkpoint_retention(retained)
    config.set_aligned_checkpoint_timeout(250)
    env.from_collection([1]).map(str)
    client = env.execute_async("configured")
    settings = client.view().settings.checkpoints
    client.get_job_execution_result().result(100)
    assert settings.mode is config.get_checkpointing_mode()
    assert settings.interval_ms == config.get_checkpoint_interval() == 700
    assert settings.timeout_ms == config.get_checkpoint_timeout() == 9_000
    assert settings.min_pause_ms == config.get_min_pause_between_checkpoints() == 50
    assert settings.max_concurrent == config.get_max_concurrent_checkpoints() == 2
    assert settings.tolerable_failures == config.get_tolerable_checkpoint_failure_number() == 3
    assert settings.retention is config.get_externalized_checkpoint_retention() is retained
    assert settings.aligned_timeout_ms == config.get_aligned_checkpoint_timeout().to_millis() == 250
    assert settings.unaligned is config.is_unaligned_checkpoints_enabled() is False
    assert settings.directory == folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("first_program.py", ["be 1", "be 2", "not 1", "or 1", "to 1", "to 2"]),
        (
            "word_count.py",
            ["(be,1)", "(be,2)", "(do,1)", "(not,1)", "(or,1)", "(to,1)", "(to,2)", "(to,3)"],
        ),
    ],
)
def test_the_examples_run_without_a_main_guard_or_spark(script: str, expected: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)],
        env={"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    assert sorted(run.stdout.splitlines()) == expected

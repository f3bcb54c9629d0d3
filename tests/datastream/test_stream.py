from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from tests.datastream.fakes import Nowhere, Numbers, environment, exchanges, numbers, vertices
from tests.datastream.functions import (
    Add,
    BatchPass,
    Counting,
    Double,
    KeyedPass,
    LastDigit,
    Modulo,
    Odd,
    OpenedKey,
    Pass,
    Twice,
)
from tidegate.api.functions import SnapshotContext
from tidegate.api.watermarks import WatermarkStrategy
from tidegate.datastream.steps.functions import KeyedFilter, KeyedFlatMap, KeyedMap
from tidegate.errors import ConfigError, GraphError, UnsupportedKey
from tidegate.model.duration import Duration
from tidegate.model.ids import CheckpointId
from tidegate.operators.process.process_functions import KeyedProcessOperator
from tidegate.typeinfo.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.operator import OutputPlan
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.stream import DataStream

    Call = Callable[[DataStream[Any]], object]


def output_plans(env: StreamExecutionEnvironment) -> list[OutputPlan]:
    graph = env.get_job_graph()
    return [
        output for vertex in graph.topology.vertices for output in graph.plan(vertex.id).outputs
    ]


def test_operators_are_named_after_the_call() -> None:
    env = environment()
    stream = numbers(env).map(str).flat_map(list).filter(bool).map(int).process(Pass())
    keyed = stream.key_by(lambda n: n).process(KeyedPass()).key_by(LastDigit()).reduce(Add())
    keyed.sink_to(Nowhere())
    assert vertices(env) == [
        "Source: numbers -> Map -> FlatMap -> Filter -> Map -> Process",
        "KeyedProcess",
        "Reduce -> Sink: Nowhere",
    ]


def test_batch_operators_chain_like_any_other() -> None:
    env = environment()
    batches = numbers(env).map_batches(lambda batch: batch).filter_batches(lambda batch: [True])
    batches.flat_map_batches(lambda batch: [batch]).key_by("carrier").process_batches(BatchPass())
    assert vertices(env) == [
        "Source: numbers -> MapBatches -> FilterBatches -> FlatMapBatches",
        "ProcessBatches",
    ]


def test_setters_change_the_step_and_give_the_stream() -> None:
    env = environment()
    stream = numbers(env, "in").map(str)
    same = (
        stream.name("texts")
        .uid("to-text")
        .set_parallelism(3)
        .set_max_parallelism(30)
        .set_description("numbers as texts")
        .set_uid_hash("0a" * 16)
        .disable_chaining()
        .set_buffer_timeout(5)
    )
    assert same is stream
    assert stream.get_name() == "texts"
    vertex = env.get_job_graph().topology.vertices[1]
    (operator,) = vertex.operators
    assert (vertex.parallelism, vertex.max_parallelism, vertex.max_parallelism_set) == (3, 30, True)
    assert (operator.name, operator.uid, operator.uid_hash) == ("texts", "to-text", b"\x0a" * 16)
    assert '"contents": "numbers as texts"' in env.get_execution_plan()


def test_a_sink_has_a_name_a_uid_and_a_parallelism() -> None:
    env = environment()
    sink = numbers(env).sink_to(Nowhere())
    sink.name("out").uid("out-1").set_parallelism(2).set_max_parallelism(4).set_description("all")
    sink.set_uid_hash("ff" * 16).disable_chaining()
    vertex = env.get_job_graph().topology.vertices[1]
    assert (vertex.name, vertex.parallelism, vertex.max_parallelism) == ("Sink: out", 2, 4)
    assert vertex.operators[0].uid == "out-1"


def test_a_new_chain_begins_where_asked() -> None:
    env = environment()
    numbers(env).map(str).start_new_chain().map(int)
    assert vertices(env) == ["Source: numbers", "Map -> Map"]


def test_a_step_that_cannot_be_parallel_says_so() -> None:
    env = environment()
    stream = numbers(env).force_non_parallel()
    with pytest.raises(GraphError, match="parallelism of non parallel operator must be 1, not 2"):
        stream.set_parallelism(2)


@pytest.mark.parametrize("parallelism", [0, -1, 32_769])
def test_a_parallelism_out_of_bounds_is_refused(parallelism: int) -> None:
    with pytest.raises(ConfigError, match="parallelism not within bounds"):
        numbers(environment()).set_parallelism(parallelism)


@pytest.mark.parametrize("uid_hash", ["", "0a", "g" * 32, "0" * 33])
def test_a_uid_hash_is_32_hexadecimal_digits(uid_hash: str) -> None:
    with pytest.raises(GraphError, match="Node hash must be a 32 character String"):
        numbers(environment()).set_uid_hash(uid_hash)


@pytest.mark.parametrize("call", ["rebalance", "rescale", "shuffle", "broadcast", "forward"])
def test_a_partitioning_holds_for_the_next_step(call: str) -> None:
    env = environment().set_parallelism(2)
    stream = numbers(env)
    getattr(stream, call)().map(str).disable_chaining()
    assert exchanges(env) == [call.upper()]


def test_global_sends_all_to_the_first_subtask() -> None:
    env = environment().set_parallelism(2)
    numbers(env).global_().map(str)
    assert exchanges(env) == ["GLOBAL"]


def test_a_custom_partitioner_gets_the_key() -> None:
    env = environment().set_parallelism(2)
    numbers(env).partition_custom(Modulo(), LastDigit()).map(str)
    numbers(env).partition_custom(lambda key, count: (key + 1) % count, "column").map(str)
    assert exchanges(env) == ["CUSTOM", "CUSTOM"]
    first, second = output_plans(env)
    assert first.key is not None
    assert first.key.selector is not None
    assert first.key.selector(17) == 7
    assert first.partition is not None
    assert first.partition(7, 2) == 1
    assert second.key is not None
    assert second.key.column == "column"
    assert second.partition is not None
    assert second.partition(2, 3) == 0


def test_a_key_is_a_function_a_selector_or_a_column() -> None:
    env = environment()
    stream = numbers(env)
    stream.key_by(lambda n: n % 3, Types.LONG()).process(KeyedPass())
    stream.key_by(LastDigit()).process(KeyedPass())
    stream.key_by("carrier").process(KeyedPass())
    by_function, by_selector, by_column = (output.key for output in output_plans(env))
    assert by_function is not None
    assert by_function.selector is not None
    assert (by_function.selector(8), by_function.key_type) == (2, Types.LONG())
    assert by_selector is not None
    assert by_selector.selector is not None
    assert by_selector.selector(38) == 8
    assert by_column is not None
    assert (by_column.selector, by_column.column) == (None, "carrier")


def test_a_declared_key_type_without_a_stable_hash_is_refused_at_once() -> None:
    stream = numbers(environment())
    with pytest.raises(UnsupportedKey):
        stream.key_by(lambda n: {n: n}, Types.MAP(Types.LONG(), Types.LONG()))


def test_a_stream_can_be_keyed_anew() -> None:
    env = environment()
    numbers(env).key_by("a").key_by("b").process(KeyedPass())
    (plan,) = output_plans(env)
    assert plan.key is not None
    assert plan.key.column == "b"


def test_function_objects_on_a_keyed_stream_have_state_of_the_key() -> None:
    env = environment()
    keyed = numbers(env).key_by("key")
    keyed.map(Double())
    keyed.flat_map(Twice())
    keyed.filter(Odd())
    graph = env.get_job_graph()
    plans = [graph.plan(vertex.id).operators[0] for vertex in graph.topology.vertices[1:]]
    assert [type(operator) for operator in plans] == [KeyedProcessOperator] * 3
    assert vertices(env)[1:] == ["Map", "FlatMap", "Filter"]


def test_plain_functions_on_a_keyed_stream_need_no_state() -> None:
    env = environment()
    keyed = numbers(env).key_by("key")
    keyed.map(str).flat_map(list).filter(bool)
    keyed.flat_map(lambda n: [n])
    keyed.filter(bool)
    assert exchanges(env) == ["HASH"] * 3
    assert vertices(env)[1:] == ["Map -> FlatMap -> Filter", "FlatMap", "Filter"]


def test_the_adapters_do_what_the_functions_do() -> None:
    context = cast("Any", None)
    assert list(KeyedMap(Double()).process_element(4, context)) == [8]
    assert list(KeyedFlatMap(Twice()).process_element(4, context) or ()) == [4, 4]
    odd = KeyedFilter(Odd())
    assert [list(odd.process_element(n, context)) for n in (3, 4)] == [[3], []]


def test_an_adapted_function_takes_part_in_checkpoints() -> None:
    counting = Counting()
    KeyedMap(counting).snapshot_state(SnapshotContext(CheckpointId(3), 0))
    KeyedMap(Double()).snapshot_state(SnapshotContext(CheckpointId(3), 0))
    assert counting.snapshots == [3]


def test_a_union_reads_each_of_its_streams() -> None:
    env = environment()
    a, b, c = (numbers(env, name) for name in "abc")
    a.union(b, c, a).map(str)
    assert vertices(env) == ["Source: a", "Source: b", "Source: c", "Map"]
    assert len(exchanges(env)) == 4
    assert a.union().get_name() == "a"


def test_streams_of_two_environments_are_not_united() -> None:
    with pytest.raises(GraphError, match="two environments"):
        numbers(environment()).union(numbers(environment()))


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda s: s.map(Double), "map takes a MapFunction or a plain function, and Double is"),
        (lambda s: s.map(Odd()), "map takes a MapFunction or a plain function, not Odd"),
        (lambda s: s.map(3), "map takes a MapFunction or a plain function, not int"),
        (lambda s: s.flat_map(Double()), "flat_map takes a FlatMapFunction"),
        (lambda s: s.filter(None), "filter takes a FilterFunction"),
        (lambda s: s.process(str), "process takes a ProcessFunction, not type"),
        (lambda s: s.process(Pass), "process takes a ProcessFunction, and Pass is a class"),
        (lambda s: s.process(KeyedPass()), "process takes a ProcessFunction, not KeyedPass"),
        (lambda s: s.key_by(3), "key_by takes a KeySelector or a plain function, not int"),
        (lambda s: s.key_by(OpenedKey()), "OpenedKey.open is never called in key_by"),
        (lambda s: s.key_by("k").process(Pass()), "process takes a KeyedProcessFunction"),
        (lambda s: s.key_by("k").process_batches(str), "process_batches takes a KeyedBatch"),
        (lambda s: s.key_by(str).process_batches(BatchPass()), "needs the key as a column"),
        (lambda s: s.key_by("k").reduce(Double()), "reduce takes a ReduceFunction"),
        (lambda s: s.key_by("k").rebalance(), "rebalance cannot follow key_by"),
        (lambda s: s.key_by("k").broadcast(), "broadcast cannot follow key_by"),
        (lambda s: s.key_by("k").partition_custom(Modulo(), str), "partition_custom cannot follow"),
        (lambda s: s.key_by("k").name("x"), "name has nothing to apply to: key_by does not"),
        (lambda s: s.key_by("k").uid("x"), "uid has nothing to apply to"),
        (lambda s: s.key_by("k").set_parallelism(2), "set_parallelism has nothing to apply to"),
        (lambda s: s.rebalance().name("x"), "name has nothing to apply to: a union or a"),
        (lambda s: s.union(s).uid("x"), "uid has nothing to apply to"),
        (lambda s: s.execute_and_collect(limit=0), "a whole number, 1 or more, not 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_the_call(call: Call, what: str) -> None:
    stream = numbers(environment())
    with pytest.raises(GraphError) as raised:
        call(stream)
    assert what in raised.value.what
    assert raised.value.where
    assert raised.value.remedy


def test_the_type_of_a_stream_is_what_was_declared() -> None:
    env = environment()
    stream = env.from_source(Numbers(), None, "n", Types.LONG())
    assert stream.get_type() == Types.LONG()
    assert stream.filter(bool).rebalance().union(stream).get_type() == Types.LONG()
    assert stream.key_by(str).reduce(Add()).get_type() == Types.LONG()
    assert stream.map(str).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert stream.map(str, Types.STRING()).get_type() == Types.STRING()
    assert stream.get_execution_environment() is env


def test_a_schema_is_passed_on_to_the_batch_operators() -> None:
    env = environment()
    schema = pa.schema([("n", pa.int64())])
    numbers(env).map_batches(lambda batch: batch, schema)
    (vertex,) = env.get_job_graph().topology.vertices
    operator = env.get_job_graph().plan(vertex.id).operators[1]
    assert vars(operator)["_output_schema"] == schema


def test_event_time_is_given_by_a_step_that_keeps_the_type() -> None:
    env = environment()
    stream = numbers(env).map(int, Types.LONG())
    timed = stream.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks())
    assert timed.get_name() == "Timestamps/Watermarks"
    assert timed.get_type() == Types.LONG()


@pytest.mark.parametrize("given", [None, WatermarkStrategy, "monotonous"])
def test_what_is_no_watermark_strategy_is_refused(given: Any) -> None:
    env = environment()
    with pytest.raises(GraphError, match="takes a WatermarkStrategy, not"):
        numbers(env).assign_timestamps_and_watermarks(given)
    with pytest.raises(GraphError, match="takes a WatermarkStrategy, not"):
        env.from_source(Numbers(), given or 5)


def test_only_a_source_can_be_aligned() -> None:
    aligned = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "near", Duration.of_seconds(1)
    )
    env = environment()
    assert env.from_source(Numbers(), aligned).get_name() == "Source"
    with pytest.raises(GraphError, match="cannot hold back its input") as caught:
        numbers(env).assign_timestamps_and_watermarks(aligned)
    assert caught.value.where == "assign_timestamps_and_watermarks, group 'near'"

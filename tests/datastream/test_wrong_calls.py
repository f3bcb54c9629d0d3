"""A call that cannot work is refused where it is made, with what to write instead."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.datastream.fakes import Nowhere, environment, numbers
from tidegate import (
    AggregateFunction,
    AsyncDataStream,
    ConfigError,
    FilterFunction,
    FlatMapFunction,
    GraphError,
    JobExecutionResult,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Time,
    Types,
    UserCodeFailed,
)
from tidegate.connectors import NumberSequenceSource, PrintSink
from tidegate.testing import OperatorHarness

NUMBERS = NumberSequenceSource(1, 5)
Call = Callable[[StreamExecutionEnvironment, Any], object]


def generator(value: int) -> Iterator[int]:
    yield value


async def coroutine(value: int) -> list[int]:
    return [value]


class Passing(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[int]:
        yield value


class Generating(MapFunction[int, Any]):
    def map(self, value: int) -> Any:
        yield value


def forgetful(value: int) -> None:
    value > 3  # noqa: B015  # pyright: ignore[reportUnusedExpression]


class Forgetful(FilterFunction[int]):
    def filter(self, value: int) -> Any:
        with contextlib.suppress(KeyError):
            value > 3  # noqa: B015  # pyright: ignore[reportUnusedExpression]


def sometimes(value: int) -> bool | None:
    if value > 3:
        return True
    return None


class Awaited(FlatMapFunction[int, Any]):
    async def flat_map(self, value: int) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return [value]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda env, s: s.sink_to(print), "sink_to takes a sink, not <built-in function print>"),
        (lambda env, s: s.sink_to("out"), "sink_to takes a sink, not 'out'"),
        (lambda env, s: s.sink_to(PrintSink), "sink_to takes a sink, not <class"),
        (lambda env, s: env.from_source("x.csv"), "from_source takes a source, not 'x.csv'"),
        (lambda env, s: s.connect(5), "connect takes a stream, not 5"),
        (lambda env, s: s.union(5), "union takes a stream, not 5"),
        (lambda env, s: s.key_by(abs).interval_join(5), "interval_join takes a stream, not 5"),
        (lambda env, s: s.key_by(abs).interval_join(s), "Call key_by on it first"),
        (lambda env, s: s.key_by(abs).as_of_join(s), "Call key_by on it first"),
        (lambda env, s: s.join([1]), r"join takes a stream, not \[1\]"),
        (lambda env, s: s.co_group(None), "co_group takes a stream, not None"),
        (lambda env, s: s.uid(7), "uid takes a text, not 7"),
        (lambda env, s: s.name(5), "name takes a text, not 5"),
        (lambda env, s: s.sink_to(Nowhere()).uid(""), "uid takes a text, not ''"),
        (lambda env, s: s.sink_to(Nowhere()).name(5), "name takes a text, not 5"),
        (lambda env, s: s.execute_and_collect(2), "takes the name of the job, a text, not 2"),
        (lambda env, s: env.execute(2), "execute takes a text, not 2"),
        (lambda env, s: s.collect(2), "collect takes the name of the job, a text, not 2"),
        (lambda env, s: s.execute_and_collect(limit="2"), "a whole number, 1 or more, not '2'"),
        (lambda env, s: s.set_description(5), "set_description takes a text, not 5"),
        (lambda env, s: s.slot_sharing_group(5), "a text or a SlotSharingGroup, not 5"),
        (lambda env, s: s.print(5), "print takes a text, not 5"),
        (lambda env, s: env.from_source(NUMBERS, None, None), "source_name takes a text, not None"),
        (lambda env, s: env.from_source(NUMBERS, source_name=5), "source_name takes a text, not 5"),
        (lambda env, s: env.generate(5), "generate takes a plain function, not int"),
        (lambda env, s: env.generate(generator), "generator is a generator function"),
        (lambda env, s: env.generate(coroutine), "coroutine is an `async def`"),
        (lambda env, s: env.generate(abs, 2.5), "a whole number, 0 or more, not 2.5"),
        (lambda env, s: env.from_sequence("a", 5), "from_sequence takes a whole number, not 'a'"),
    ],
)
def test_what_a_call_cannot_use_is_refused(call: Call, told: str) -> None:
    env = environment()
    with pytest.raises(GraphError, match=told):
        call(env, numbers(env))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda env, s: s.set_parallelism("2"), "The parallelism is '2', which is not a whole"),
        (lambda env, s: s.set_parallelism(True), "The parallelism is True, which is not a whole"),
        (lambda env, s: s.set_max_parallelism(2.0), "The max parallelism is 2.0, which is not a"),
        (lambda env, s: env.generate(abs, None, "fast"), "The rate is 'fast' rows a second"),
        (lambda env, s: env.configure({1: 2}), "The key of a setting is 1, which is not text"),
        (
            lambda env, s: StreamExecutionEnvironment.local({"parallelism.default": 2}),
            "Settings were passed as the parallelism",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused(call: Call, told: str) -> None:
    env = environment()
    with pytest.raises(ConfigError, match=told):
        call(env, numbers(env))


class AwaitedProcess(ProcessFunction):
    async def process_element(self, value: Any, ctx: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return [value]


class AwaitedOpen(MapFunction[int, int]):
    async def open(self, runtime_context: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        pass

    def map(self, value: int) -> int:
        return value


class AwaitedSum(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    async def add(self, value: int, accumulator: int) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return value + accumulator

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.process(AwaitedProcess()), "process .*AwaitedProcess.process_element is an"),
        (lambda s: s.map(AwaitedOpen()), "map .*AwaitedOpen.open is an `async def`"),
        (
            lambda s: s.key_by(abs).count_window(2).aggregate(AwaitedSum()),
            "aggregate .*AwaitedSum.add is an `async def`",
        ),
    ],
)
def test_a_method_that_nobody_awaits_is_refused(call: Callable[[Any], object], told: str) -> None:
    with pytest.raises(GraphError, match=told):
        call(numbers(environment()))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.aggregate, "works on a windowed stream: call key_by and window first"),
        (lambda s: s.key_by(abs).trigger, "works on a windowed stream: call window first"),
        (lambda s: s.groupBy, "did you mean 'key_by'"),
        (lambda s: s.group_by, "did you mean 'key_by'"),
        (lambda s: s.foreach, "did you mean 'add_sink'"),
        (lambda s: s.key_by(abs).interval_join(s.key_by(abs)).process, "call between first"),
        (lambda s: s.join(s).window, "call where first"),
        (lambda s: s.join(s).where(abs).window, "call equal_to first"),
        (lambda s: s.co_group(s).where(abs).equal_to(abs).apply, "call window first"),
    ],
)
def test_a_method_of_elsewhere_is_told_with_ours(call: Callable[[Any], object], told: str) -> None:
    with pytest.raises(AttributeError, match=told):
        call(numbers(environment()))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda env: env.add_source, "give from_source a Source in Python"),
        (lambda env: env.create_input, "give from_source a Source in Python"),
        (lambda env: env.register_cached_file, "read the file in a function's open"),
        (lambda env: env.from_colection, "did you mean 'from_collection'"),
        (lambda env: numbers(env).cache, "write its records to files"),
        (lambda env: env.get_config().set_paralelism, "did you mean 'set_parallelism'"),
        (
            lambda env: env.get_checkpoint_config().set_checkpoint_intervall,
            "set_checkpoint_interval",
        ),
        (lambda env: RuntimeContext(*[None] * 3).add_accumulator, r"get_metrics_group\(\).count"),
        (lambda env: JobExecutionResult("1", 2).get_accumulator_result, "a side output"),
    ],
)
def test_a_call_of_pyflink_that_is_missing_is_told_with_what_there_is(
    call: Callable[[Any], object], told: str
) -> None:
    with pytest.raises(AttributeError, match=told):
        call(environment())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.map(generator), "generator is a generator function"),
        (lambda s: s.map(Generating()), r"Generating\.map is a generator function"),
        (lambda s: s.filter(generator), "generator is a generator function"),
        (lambda s: s.key_by(generator), "generator is a generator function"),
        (lambda s: s.key_by(abs).reduce(generator), "generator is a generator function"),
        (lambda s: s.map(coroutine), "coroutine is an `async def`"),
        (lambda s: s.flat_map(coroutine), "coroutine is an `async def`"),
        (lambda s: s.flat_map(Awaited()), r"Awaited\.flat_map is an `async def`"),
        (lambda s: s.key_by(coroutine), "coroutine is an `async def`"),
    ],
)
def test_a_function_that_returns_no_record_at_once_is_refused(
    call: Callable[[Any], object], told: str
) -> None:
    with pytest.raises(GraphError, match=told) as refused:
        call(numbers(environment()))
    wanted = "AsyncDataStream" if "async" in told else "flat_map"
    assert wanted in refused.value.remedy


def test_generators_in_flat_map_and_coroutines_in_async_steps_are_fine() -> None:
    stream = numbers(environment())
    assert stream.flat_map(generator).get_name() == "FlatMap"
    assert AsyncDataStream.unordered_wait(stream, coroutine, Time.seconds(1)).get_name()


class Closed:
    """A coroutine that nobody awaits is closed, or Python warns of it."""

    last: Any = None


def lazily(value: int) -> Any:
    Closed.last = coroutine(value) if value == 8 else generator(value)
    return Closed.last


@pytest.mark.parametrize(("row", "kind"), [(7, "generator"), (8, "coroutine")])
def test_a_function_that_passes_one_on_is_told_with_its_row(row: int, kind: str) -> None:
    with (
        OperatorHarness(lambda stream: stream.map(lazily).name("bad")) as harness,
        pytest.raises(UserCodeFailed) as failed,
    ):
        harness.process(row)
    Closed.last.close()
    assert f"'bad' returned a {kind} where a record is due" in str(failed.value)
    assert f"at the row {row}" in str(failed.value)


def test_a_method_of_keyed_streams_is_told_without_a_key() -> None:
    stream: Any = numbers(environment())
    for name in ("reduce", "window", "count_window", "aggregate_batches", "running"):
        with pytest.raises(AttributeError, match=f"{name} works on a keyed stream: call key_by"):
            getattr(stream, name)
        assert not hasattr(stream, name)


def test_a_misspelt_method_is_told_with_the_nearest() -> None:
    stream: Any = numbers(environment())
    with pytest.raises(AttributeError, match="no attribute 'flatmap'; did you mean 'flat_map'"):
        stream.flatmap(str)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.filter(forgetful),
        lambda s: s.filter(Forgetful()),
        lambda s: s.key_by(str).filter(Forgetful()),
        lambda s: s.filter(lambda value: None),
    ],
)
def test_a_filter_that_returns_nothing_is_refused(call: Callable[[Any], object]) -> None:
    with pytest.raises(GraphError, match=r"returns nothing[^$]*Return the condition"):
        call(numbers(environment()))


@pytest.mark.parametrize(
    "function", [sometimes, lambda n: n or None, lambda n: None if n else n, bool, "x".count]
)
def test_a_filter_that_may_return_something_is_taken(function: Callable[[Any], object]) -> None:
    assert numbers(environment()).filter(function).get_name() == "Filter"


def test_side_outputs_of_one_id_have_one_type() -> None:
    step = numbers(environment()).process(Passing())
    step.get_side_output(OutputTag("odd", Types.LONG()))
    step.get_side_output(OutputTag("odd"))
    step.get_side_output(OutputTag("odd", Types.LONG()))
    with pytest.raises(GraphError, match="id 'odd' was asked for before as Long, and now as S"):
        step.get_side_output(OutputTag("odd", Types.STRING()))

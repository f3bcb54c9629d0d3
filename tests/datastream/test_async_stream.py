"""Asynchronous calls through the surface: whole programs, and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.datastream.fakes import environment, numbers, vertices
from tidegate import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    GraphError,
    JobFailed,
    StreamExecutionEnvironment,
    Time,
)
from tidegate.api.operator import VertexPlan
from tidegate.operators.async_calls.async_wait import AsyncWaitOperator
from tidegate.testing import OperatorHarness

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tidegate import DataStream, RuntimeContext

LONG = Time.minutes(1)


def local(parallelism: int = 1) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.local(parallelism)


def collected(stream: DataStream[Any]) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return list(rows)


async def backwards(n: int) -> int:
    """The later ones first, if they are called together."""
    await asyncio.sleep((10 - n) / 1000)
    return n


def several(n: int) -> Iterator[int]:
    yield n


class Yielding(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> Any:
        yield value


class Named(NamedTuple):
    id: int
    name: str


class Names(AsyncFunction[int, tuple[int, str]]):
    """Looks names up: id 7 fails once, id 13 is never answered."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.in_flight = 0
        self.failed = False

    async def async_invoke(self, value: int) -> list[tuple[int, str]]:
        self.in_flight += 1
        assert self.in_flight <= 4, f"{self.in_flight} calls in flight"
        try:
            return [(value, await self.ask(value))]
        finally:
            self.in_flight -= 1

    async def ask(self, number: int) -> str:
        await asyncio.sleep((5 + number * 7 % 46) / 1000)
        if number == 7 and not self.failed:
            self.failed = True
            raise ConnectionError("no route")
        if number == 13:
            await asyncio.Event().wait()
        return f"name {number}"

    def timeout(self, value: int) -> list[tuple[int, str]]:
        return [(value, "unknown")]


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("chained", [True, False])
def test_ids_are_enriched_whatever_the_service_does(ordered: bool, chained: bool) -> None:
    retry = AsyncRetryStrategy.fixed_delay(2, 10, exception_predicate=lambda error: True)
    ids = local().from_collection(range(20))
    wait = (
        AsyncDataStream.ordered_wait_with_retry
        if ordered
        else AsyncDataStream.unordered_wait_with_retry
    )
    names = wait(ids, Names(), Time.milliseconds(1_500), retry, capacity=4)
    found = collected(names if chained else names.disable_chaining())
    expected = [(n, "unknown" if n == 13 else f"name {n}") for n in range(20)]
    assert (found if ordered else sorted(found)) == expected


@pytest.mark.parametrize("ordered", [True, False])
def test_order_is_that_of_the_input_or_of_the_answers(ordered: bool) -> None:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    found = collected(wait(local().from_collection(range(10)), backwards, LONG))
    assert sorted(found) == list(range(10))
    assert (found == sorted(found)) is ordered


def test_answers_are_of_the_type_that_a_hint_declares() -> None:
    async def ask(n: int) -> Any:
        return {"id": n, "name": f"name {n}"}

    named = AsyncDataStream.ordered_wait(local().from_sequence(1, 9), ask, LONG, output_type=Named)
    found = sorted(collected(named))
    assert found == [Named(n, f"name {n}") for n in range(1, 10)]
    assert {type(each) for each in found} == {Named}


def test_a_keyed_stream_is_asked_where_its_keys_are() -> None:
    async def ask(row: tuple[str, int]) -> tuple[str, int]:
        await asyncio.sleep(0.001)
        return row[0], 10 * row[1]

    keyed = local().from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(lambda row: row[0])
    tens = AsyncDataStream.ordered_wait(keyed, ask, LONG)
    sums = tens.key_by(lambda row: row[0]).reduce(lambda x, y: (x[0], x[1] + y[1]))
    assert sorted(collected(sums)) == [("a", 10), ("a", 40), ("b", 20)]


def test_arrow_batches_come_row_by_row() -> None:
    async def ask(row: dict[str, int]) -> int:
        return row["n"]

    def in_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    rows = local().from_collection([{"n": 1}, {"n": 2}]).map_batches(in_columns)
    assert collected(AsyncDataStream.ordered_wait(rows, ask, LONG)) == [1, 2]


def test_more_input_than_capacity_passes_through_a_chain() -> None:
    source = local().from_collection(range(100)).flat_map(lambda n: [n] * 10)
    first = AsyncDataStream.ordered_wait(source, backwards_of_ten, LONG, capacity=7)
    second = AsyncDataStream.ordered_wait(first, backwards_of_ten, LONG, capacity=3)
    assert collected(second) == [n for n in range(100) for _ in range(10)]


async def backwards_of_ten(n: int) -> int:
    for _ in range(9 - n % 10):
        await asyncio.sleep(0)
    return n


def test_a_job_fails_with_the_calls_exception_and_the_row() -> None:
    async def broken(n: int) -> int:
        return 10 // n

    stream = AsyncDataStream.unordered_wait(local().from_collection([5, 0]), broken, LONG)
    with pytest.raises(JobFailed, match="raised ZeroDivisionError") as caught:
        collected(stream.name("tenths"))
    assert "operator 'tenths', at the row 0" in str(caught.value)
    assert "return 10 // n" in str(caught.value)


def test_a_job_fails_at_a_timeout() -> None:
    async def silent(n: int) -> int:
        await asyncio.Event().wait()
        return n

    ids = local().from_collection([5])
    stream = AsyncDataStream.ordered_wait(ids, silent, Time.milliseconds(20))
    with pytest.raises(JobFailed, match="took longer than 20 ms"):
        collected(stream)


# --- what is refused ------------------------------------------------------------------------------


class Nothing(AsyncFunction[int, int]):
    """Has neither method."""


class Calling:
    """Can be called, and gives a coroutine."""

    async def __call__(self, n: int) -> int:
        return n


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        (3, "3 is not a type"),
        (str, "backwards is annotated to return Long, which cannot be String"),
    ],
)
def test_a_type_that_the_answers_cannot_have_is_refused(declared: Any, what: str) -> None:
    with pytest.raises(GraphError, match=what):
        AsyncDataStream.ordered_wait(numbers(environment()), backwards, LONG, output_type=declared)


@pytest.mark.parametrize(
    ("wait", "what"),
    [
        (lambda s: AsyncDataStream.ordered_wait(s, Nothing(), LONG), "Nothing has neither async_"),
        (
            lambda s: AsyncDataStream.ordered_wait(s, str, LONG, executor="gpu"),
            "The executor is 'gpu'",
        ),
        (
            lambda s: AsyncDataStream.ordered_wait(s, str, LONG, workers=0),
            "The workers is 0",
        ),
        (
            lambda s: AsyncDataStream.ordered_wait(s, backwards, LONG, workers=2),
            "workers is 2, and an 'async def' has neither",
        ),
        (
            lambda s: AsyncDataStream.ordered_wait(s, str, LONG, batch_size=0),
            "The batch_size is 0",
        ),
        (
            lambda s: AsyncDataStream.ordered_wait(s, str, LONG, batch_wait=-5),
            "batch_wait is -5",
        ),
        (lambda s: AsyncDataStream.ordered_wait(s, several, LONG), "several is a generator"),
        (lambda s: AsyncDataStream.ordered_wait(s, Yielding(), LONG), "Yielding.async_invoke is a"),
        (lambda s: AsyncDataStream.ordered_wait(s, Names, LONG), "Names is a class"),
        (lambda s: AsyncDataStream.ordered_wait(s, 7, LONG), "not int"),
        (lambda s: AsyncDataStream.ordered_wait(s, backwards, Time(0)), "The timeout is"),
        (lambda s: AsyncDataStream.ordered_wait(s, backwards, 5.5), "5.5 is not a length of time"),
        (lambda s: AsyncDataStream.unordered_wait(s, backwards, LONG, 0), "The capacity is 0"),
        (
            lambda s: AsyncDataStream.unordered_wait_with_retry(s, backwards, LONG, 3),
            "The retry strategy is 3",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_its_line(wait: Callable[..., object], what: str) -> None:
    with pytest.raises(GraphError, match=what) as caught:
        wait(numbers(environment()))
    assert caught.value.where == "AsyncDataStream" and caught.value.remedy


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: AsyncRetryStrategy.fixed_delay(0, -1), "max_attempts is 0 and backoff_time_mil"),
        (
            lambda: AsyncRetryStrategy.exponential_backoff(1, 1, 1, 0.5),
            "multiplier is 0.5",
        ),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(make: Callable[[], object], what: str) -> None:
    with pytest.raises(GraphError, match=what):
        make()


# --- what it becomes ------------------------------------------------------------------------------


def test_it_is_a_step_like_any_other_with_state() -> None:
    env = environment()
    waited = AsyncDataStream.ordered_wait(numbers(env), Calling(), Time.seconds(2), capacity=9)
    waited.map(str).print()
    assert vertices(env) == [
        "Source: numbers -> async wait operator -> Map -> Sink: Print to Std. Out"
    ]
    graph = env.get_job_graph()
    (vertex,) = graph.topology.vertices
    plan = graph.plan(vertex.id)
    assert isinstance(plan, VertexPlan) and isinstance(plan.operators[1], AsyncWaitOperator)


def test_a_strategy_that_names_no_reason_repeats_every_exception() -> None:
    calls: list[int] = []

    async def third_time(n: int) -> int:
        calls.append(n)
        if len(calls) < 3:
            raise ConnectionError("503")
        return n

    again = AsyncRetryStrategy.fixed_delay(3, 1)
    with OperatorHarness(
        lambda s: AsyncDataStream.ordered_wait_with_retry(s, third_time, LONG, again)
    ) as harness:
        harness.process(5)
        harness.advance_time(5)
        assert harness.take() == [5]
    only_results = AsyncRetryStrategy.fixed_delay(3, 1, lambda results: not results)
    assert only_results.get_retry_predicate().exception_predicate() is None


def test_strategies_count_attempts_and_pauses() -> None:
    none = AsyncRetryStrategy.no_restart()
    assert not none.can_retry(1)
    fixed = AsyncRetryStrategy.fixed_delay(3, 100)
    assert [fixed.can_retry(n) for n in (1, 2, 3)] == [True, True, False]
    assert [fixed.get_backoff_time_millis(n) for n in (1, 2)] == [100, 100]
    growing = AsyncRetryStrategy.exponential_backoff(9_999, 100, 1_000, 2.0)
    pauses = [growing.get_backoff_time_millis(n) for n in (1, 2, 3, 4, 5, 5_000)]
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]


def test_a_strategy_of_ones_own_is_asked() -> None:
    class Twice(AsyncRetryStrategy[int], AsyncRetryPredicate[int]):
        def can_retry(self, current_attempts: int) -> bool:
            return current_attempts < 2

        def get_backoff_time_millis(self, current_attempts: int) -> int:
            return 0

        def get_retry_predicate(self) -> AsyncRetryPredicate[int]:
            return self

        def result_predicate(self) -> Callable[[list[int]], bool]:
            return lambda results: not results

        def exception_predicate(self) -> None:
            return None

    class Second(AsyncFunction[int, int]):
        calls = 0

        async def async_invoke(self, value: int) -> list[int]:
            self.calls += 1
            return [value] if self.calls == 2 else []

    ids = local().from_collection([5])
    stream = AsyncDataStream.ordered_wait_with_retry(ids, Second(), LONG, Twice())
    assert collected(stream) == [5]

"""Sequences, generators and collections, killed and restored at any moment."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.kills import check_under_kills
from tests.operators.source_job import SourceJob
from tests.operators.world import Hosted, World
from tests.properties import examples
from tidegate.api import ship
from tidegate.api.operator import Polled, SourceOperator
from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.generator import (
    DataGeneratorSource,
    NumberReader,
    NumberSequenceSource,
    NumberSplit,
)
from tidegate.connectors.shares import RowRate
from tidegate.errors import ConfigError, UserCodeFailed
from tidegate.model.elements import RowBatch
from tidegate.model.settings import SlotSettings
from tidegate.operators.sources.source import SourceReaderOperator
from tidegate.testing.clock import ManualClock

SMALL = SlotSettings(rows=7, arrow_rows=7)


def sequence(start: int, end: int, *, arrow: bool = False) -> SourceOperator:
    return SourceReaderOperator(NumberSequenceSource(start, end, arrow=arrow), None, "numbers")


def test_a_sequence_gives_each_number_once_over_all_readers(world: World) -> None:
    job = SourceJob(world, lambda: sequence(-5, 94), 3, settings=SMALL)
    job.run_to_end()
    assert sorted(job.emitted) == list(range(-5, 95))


def test_a_sequence_at_parallelism_one_is_in_order(world: World) -> None:
    job = SourceJob(world, lambda: sequence(1, 100), 1, settings=SMALL)
    job.run_to_end()
    assert job.emitted == list(range(1, 101))


def test_an_empty_sequence_ends_at_once(world: World) -> None:
    job = SourceJob(world, lambda: sequence(5, 4), 2)
    job.run_to_end()
    assert job.emitted == []


def test_a_sequence_comes_as_arrow_batches_where_it_is_asked_to(world: World) -> None:
    job = SourceJob(world, lambda: sequence(0, 9, arrow=True), 2, settings=SMALL)
    job.run_to_end()
    assert sorted(row["value"] for row in job.emitted) == list(range(10))


def test_a_collection_is_read_in_order_by_one_reader(world: World) -> None:
    values = [object() for _ in range(20)]
    source = CollectionSource(values)
    job = SourceJob(world, lambda: SourceReaderOperator(source), 1, settings=SMALL)
    job.run_to_end()
    assert job.emitted == values


def test_a_generator_calls_its_function_with_each_number(world: World) -> None:
    source = DataGeneratorSource(lambda n: n * n, count=100)
    job = SourceJob(world, lambda: SourceReaderOperator(source), 3, settings=SMALL)
    job.run_to_end()
    assert sorted(job.emitted) == [n * n for n in range(100)]


@pytest.mark.parametrize("rows", [1, 3, 7, 1_000])
def test_a_generator_at_parallelism_one_is_in_order(world: World, rows: int) -> None:
    source = DataGeneratorSource(lambda n: n, count=50)
    settings = SlotSettings(rows=rows)
    job = SourceJob(world, lambda: SourceReaderOperator(source), 1, settings=settings)
    job.run_to_end()
    assert job.emitted == list(range(50))


@dataclass
class Rows:
    """All that a reader without a rate asks of its slot."""

    rows: int
    arrow_rows: int = 0
    monotonic_ms: Callable[[], int] = lambda: 0


@examples(100)
@given(
    nexts=st.lists(st.integers(0, 40), min_size=1, max_size=6, unique_by=lambda n: n % 8),
    end=st.integers(41, 60),
    rows=st.integers(1, 12),
)
def test_a_reader_gives_what_it_has_in_order(nexts: list[int], end: int, rows: int) -> None:
    reader = NumberReader(Rows(rows), lambda numbers: RowBatch(list(numbers)))
    reader.add_splits([NumberSplit(n, end, 8) for n in nexts])
    batches: list[list[object]] = []
    while (batch := reader.poll()) is not None:
        assert isinstance(batch, RowBatch)
        batches.append(list(batch.values))
    expected = sorted(number for n in nexts for number in range(n, end, 8))
    assert [number for batch in batches for number in batch] == expected
    assert all(1 <= len(batch) <= rows for batch in batches)


def test_a_generator_function_that_raises_is_named_with_its_own_frames(world: World) -> None:
    source = DataGeneratorSource(lambda n: 1 // (n - 5), count=10)
    job = SourceJob(world, lambda: SourceReaderOperator(source, None, "numbers"), 1)
    with pytest.raises(
        UserCodeFailed, match="operator 'numbers' raised ZeroDivisionError"
    ) as caught:
        job.run_to_end()
    assert "1 // (n - 5)" in caught.value.trace


def test_a_generator_function_may_change_and_give_again_what_it_has_given(world: World) -> None:
    row: dict[str, Any] = {"seen": []}

    def changed(n: int) -> dict[str, Any]:
        row["n"] = n
        row["seen"].append(n)
        return row

    source = DataGeneratorSource(changed, count=10)
    job = SourceJob(world, lambda: SourceReaderOperator(source), 1, settings=SMALL)
    job.run_to_end()
    assert job.emitted == [{"n": n, "seen": list(range(n + 1))} for n in range(10)]


def test_a_generator_function_that_raises_stop_iteration_fails(world: World) -> None:
    source = DataGeneratorSource(lambda n: next(iter([])), count=10)
    job = SourceJob(world, lambda: SourceReaderOperator(source, None, "numbers"), 1)
    with pytest.raises(UserCodeFailed, match="operator 'numbers' raised StopIteration"):
        job.run_to_end()


def test_an_endless_generator_deals_numbers_out_evenly(world: World) -> None:
    source = DataGeneratorSource(lambda n: n)
    assert not source.bounded
    job = SourceJob(world, lambda: SourceReaderOperator(source), 2, settings=SlotSettings(rows=1))
    for _ in range(40):
        job.step(0)
        job.step(1)
    assert set(range(60)) <= set(job.emitted)


def test_a_rate_holds_over_all_readers_together(world: World) -> None:
    source = DataGeneratorSource(lambda n: n, rate=1_000)
    job = SourceJob(world, lambda: SourceReaderOperator(source), 2)
    for _ in range(500):
        job.step(0)
        job.step(1)
        world.pass_time(4)
    seconds = world.monotonic_ms() / 1_000
    assert 0.9 * seconds * 1_000 <= len(job.emitted) <= 1.01 * seconds * 1_000 + 2


def test_a_source_held_back_does_not_catch_up_in_a_burst() -> None:
    rate = RowRate(1_000, now_ms=0)
    assert rate.allowed(10) == 10
    rate.used(10)
    assert rate.allowed(60_000) == 100


def test_a_slow_rate_says_when_to_come_again() -> None:
    rate = RowRate(2, now_ms=0)
    assert rate.allowed(0) == 0
    assert rate.next_ms() == 500
    assert rate.allowed(500) == 1


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="rows a second"):
        DataGeneratorSource(lambda n: n, rate=rate)


def test_the_position_in_the_checkpoint_is_what_was_emitted_before_the_barrier(
    world: World,
) -> None:
    job = SourceJob(world, lambda: sequence(0, 99), 1, settings=SMALL)
    job.step(0)
    job.step(0)
    job.step(0)
    splits = [
        ship.loads(data, name="split")
        for data in job.checkpoint(1).readers.lists[0]["SourceReaderState"]
    ]
    assert [split.next for split in splits] == [len(job.emitted)]
    assert len(job.emitted) > 0


@examples(50)
@given(data=st.data())
def test_no_number_is_lost_or_doubled_whatever_is_killed(data: st.DataObject) -> None:
    total = data.draw(st.integers(0, 60), "total")
    kinds = {
        "sequence": NumberSequenceSource(0, total - 1),
        "generator": DataGeneratorSource(lambda n: n, count=total),
    }
    source = kinds[data.draw(st.sampled_from(sorted(kinds)), "source")]
    with World() as world:
        check_under_kills(world, lambda: SourceReaderOperator(source), data, list(range(total)))


def test_an_open_source_says_when_it_has_nothing_yet(world: World) -> None:
    operator = sequence(0, 1)
    reader = Hosted(operator, world)
    assert reader.poll() is Polled.NOTHING
    assert len(reader.context.sent) == 1
    assert reader.poll() is Polled.NOTHING
    assert len(reader.context.sent) == 1


@pytest.mark.parametrize("call_ms", [0, 1, 50])
def test_a_generator_function_that_takes_long_is_called_a_few_times_at_once(call_ms: int) -> None:
    clock = ManualClock()

    def slow(number: int) -> int:
        clock.advance(call_ms)
        return number

    context = Rows(1_000, monotonic_ms=clock.monotonic_ms)
    reader = DataGeneratorSource(slow).reader(context)
    reader.add_splits([NumberSplit(0, 10_000)])
    sizes = [len(reader.poll() or []) for _ in range(6)]
    assert sizes == {0: [1, 8, 64, 512, 1_000, 1_000], 1: [1] + [5] * 5, 50: [1] * 6}[call_ms]

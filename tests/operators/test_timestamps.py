"""Event time given anew in a stream: timestamps, watermarks where they belong, idleness."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.world import Hosted, World, arrow, values_of
from tidegate import (
    Duration,
    GraphError,
    UserCodeFailed,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from tidegate.model.elements import (
    MAX_WATERMARK_MS,
    MIN_TIMESTAMP_MS,
    Batch,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from tidegate.model.settings import SlotSettings
from tidegate.operators.event_time.event_time import TimestampsOperator

BEAT_MS = 200
IDLE, ACTIVE = WatermarkStatus(idle=True), WatermarkStatus(idle=False)
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
    lambda value, before: value
)


class EachRecord(WatermarkGenerator[object]):
    """Says a watermark behind each record."""

    def on_event(self, value: object, timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(timestamp)


class Commanded(WatermarkGenerator[object]):
    """Does what the record says."""

    def on_event(self, value: object, timestamp: int, output: WatermarkOutput) -> None:
        if value == "idle":
            output.mark_idle()
        elif value == "active":
            output.mark_active()
        elif isinstance(value, int):
            output.emit_watermark(value)


def hosted(world: World, strategy: WatermarkStrategy, beat_ms: int = BEAT_MS) -> Hosted:
    settings = SlotSettings(watermark_ms=beat_ms)
    return Hosted(TimestampsOperator(strategy), world, settings=settings, name="times")


def beat(step: Hosted, ms: int = BEAT_MS) -> None:
    step.world.pass_time(ms)
    step.operator.on_ready(step.out)


def said(step: Hosted) -> list[object]:
    """Values and marks in the order in which they left."""
    out: list[object] = []
    for each in step.out.all:
        out.append(each if isinstance(each, Watermark | WatermarkStatus) else values_of(each))
    return out


# --- timestamps ---


def test_timestamps_are_replaced(world: World) -> None:
    step = hosted(world, MONOTONOUS.with_timestamp_assigner(lambda value, before: before + value))
    step.process(RowBatch([1, 2], [10, 20]))
    assert step.out.stamps == [11, 22]


def test_a_record_without_a_timestamp_had_the_smallest(world: World) -> None:
    before: list[int] = []
    step = hosted(world, MONOTONOUS.with_timestamp_assigner(lambda v, old: before.append(old) or v))
    step.rows(1)
    assert before == [MIN_TIMESTAMP_MS]


def test_without_an_assigner_timestamps_stay_and_count(world: World) -> None:
    step = hosted(world, WatermarkStrategy.for_monotonous_timestamps())
    step.process(RowBatch(["a"], [7]))
    beat(step)
    assert said(step) == [["a"], Watermark(6)]


def test_records_lose_the_key_that_they_were_dealt_out_by(world: World) -> None:
    step = hosted(world, WatermarkStrategy.no_watermarks())
    step.process(RowBatch([1], None, ["k"], [0]))
    step.process(arrow({"t": [1]}, key_column="t", key_groups=np.zeros(1)))
    rows, columns = step.out.batches
    assert isinstance(rows, RowBatch) and rows.keys is rows.key_groups is None
    assert columns.key_column is columns.key_groups is None


# --- watermarks ---


def test_of_the_watermarks_from_above_only_the_last_one_passes(world: World) -> None:
    step = hosted(world, MONOTONOUS)
    step.operator.on_watermark(Watermark(50), step.out)
    step.rows(3)
    beat(step)
    step.operator.on_watermark(Watermark(MAX_WATERMARK_MS), step.out)
    beat(step)
    assert said(step) == [[3], Watermark(2), Watermark(MAX_WATERMARK_MS)]


def test_periodic_watermarks_come_without_records_too(world: World) -> None:
    step = hosted(world, MONOTONOUS)
    assert step.context.wake_ms == BEAT_MS
    step.rows(5)
    beat(step, BEAT_MS - 1)
    assert step.out.watermarks == []
    beat(step, 1)
    assert step.out.watermarks == [Watermark(4)]
    assert step.context.wake_ms == 2 * BEAT_MS


def test_without_room_the_watermark_is_left_to_the_next_beat(world: World) -> None:
    step = hosted(world, MONOTONOUS)
    step.rows(5)
    step.out.has_room = False
    beat(step)
    assert step.out.watermarks == [] and step.context.wake_ms == 2 * BEAT_MS
    step.out.has_room = True
    beat(step)
    assert step.out.watermarks == [Watermark(4)]


def test_an_interval_of_nothing_switches_periodic_watermarks_off(world: World) -> None:
    step = hosted(world, MONOTONOUS, beat_ms=0)
    step.rows(5)
    beat(step, 10_000)
    assert step.out.watermarks == [] and step.context.wake_ms is None


def test_a_start_near_the_smallest_long_does_not_underflow(world: World) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_days(1))
    step = hosted(world, strategy.with_timestamp_assigner(lambda value, before: value))
    step.rows(MIN_TIMESTAMP_MS, MIN_TIMESTAMP_MS + 5)
    beat(step)
    assert step.out.watermarks == []
    step.rows(-10)
    beat(step)
    assert step.out.watermarks == [Watermark(-10 - 86_400_000 - 1)]


@given(
    lateness=st.integers(0, 50),
    batches=st.lists(st.lists(st.integers(-100, 100), min_size=1), max_size=8),
)
def test_watermarks_are_the_greatest_so_far_less_the_lateness(
    lateness: int, batches: list[list[int]]
) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(lateness))
    expected: list[int] = []
    seen: list[int] = []
    with World() as world:
        step = hosted(world, strategy.with_timestamp_assigner(lambda value, before: value))
        for batch in batches:
            step.rows(*batch)
            beat(step)
            seen += batch
            expected.append(max(seen) - lateness - 1)
        found = [mark.ms for mark in step.out.watermarks]
    assert found == sorted(set(expected))


# --- a generator of one's own ---


@pytest.mark.parametrize("make", [lambda ts: RowBatch(ts), lambda ts: arrow({"t": ts})])
def test_a_batch_is_cut_where_the_generator_says_something(
    world: World, make: Callable[[list[int]], Batch]
) -> None:
    strategy = WatermarkStrategy.for_generator(EachRecord).with_timestamp_assigner(
        lambda value, before: value["t"] if isinstance(value, dict) else value
    )
    step = hosted(world, strategy)
    step.process(make([1, 4, 2, 5]))
    pieces = [len(each) if not isinstance(each, Watermark) else each for each in step.out.all]
    assert pieces == [1, Watermark(1), 1, Watermark(4), 2, Watermark(5)]
    assert step.out.stamps == [1, 4, 2, 5]


def test_a_generator_speaks_of_idleness_where_it_does(world: World) -> None:
    step = hosted(world, WatermarkStrategy.for_generator(Commanded))
    step.rows("a", "idle", "idle", "b", 5, "idle", "active", "active", "c")
    assert said(step) == [
        ["a", "idle"],
        IDLE,
        ["idle", "b", 5],
        ACTIVE,
        Watermark(5),
        ["idle"],
        IDLE,
        ["active"],
        ACTIVE,
        ["active", "c"],
    ]


def test_each_subtask_has_a_generator_of_its_own(world: World) -> None:
    made: list[Commanded] = []

    def supplier() -> Commanded:
        made.append(Commanded())
        return made[-1]

    strategy = WatermarkStrategy.for_generator(supplier)
    first, second = hosted(world, strategy), hosted(world, strategy)
    first.rows(9)
    second.rows(3)
    assert len(made) == 2
    assert second.out.watermarks == [Watermark(3)]


def test_a_generator_is_called_once_in_an_interval(world: World) -> None:
    class Counting(WatermarkGenerator[object]):
        calls = 0

        def on_event(self, value: object, timestamp: int, output: WatermarkOutput) -> None:
            pass

        def on_periodic_emit(self, output: WatermarkOutput) -> None:
            self.calls += 1
            output.emit_watermark(self.calls)

    step = hosted(world, WatermarkStrategy.for_generator(Counting))
    beat(step)
    beat(step, 1)
    beat(step, BEAT_MS - 1)
    assert step.out.watermarks == [Watermark(1), Watermark(2)]


@given(events=st.lists(st.one_of(st.integers(-9, 9), st.sampled_from(["idle", "active", "x"]))))
def test_watermarks_only_advance_and_statuses_alternate(events: list[object]) -> None:
    with World() as world:
        step = hosted(world, WatermarkStrategy.for_generator(Commanded))
        step.rows(*events)
        marks = step.out.watermarks
        assert step.out.values == events
    times = [mark.ms for mark in marks if isinstance(mark, Watermark)]
    assert times == sorted(set(times))
    statuses = [mark.idle for mark in marks if isinstance(mark, WatermarkStatus)]
    assert statuses == [position % 2 == 0 for position in range(len(statuses))]
    idle = False
    for mark in marks:
        idle = mark.idle if isinstance(mark, WatermarkStatus) else idle
        assert not (idle and isinstance(mark, Watermark)), "an idle stream has no watermarks"


# --- idleness ---

IDLES = MONOTONOUS.with_idleness(Duration.of_millis(2 * BEAT_MS))


def test_an_input_that_rests_is_idle_until_its_next_record(world: World) -> None:
    step = hosted(world, IDLES)
    step.rows(5)
    beat(step)  # a record came within this interval
    beat(step)
    assert step.out.watermarks == [Watermark(4)]
    beat(step)
    beat(step)
    step.rows(3)
    assert said(step) == [[5], Watermark(4), IDLE, ACTIVE, [3]]


def test_an_input_that_never_gives_anything_is_idle(world: World) -> None:
    step = hosted(world, WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(50)))
    beat(step, 49)
    assert said(step) == []
    beat(step, 1)
    assert said(step) == [IDLE]


def test_time_without_room_does_not_count_as_rest(world: World) -> None:
    step = hosted(world, IDLES)
    step.rows(5)
    beat(step)
    step.out.has_room = False
    for _ in range(10):
        beat(step)
    step.out.has_room = True
    beat(step)
    assert IDLE not in step.out.watermarks
    beat(step)
    assert step.out.watermarks[-1] == IDLE


def test_time_in_which_another_operator_holds_the_input_back_does_not_count(world: World) -> None:
    step = hosted(world, IDLES)
    step.context.held = True
    for _ in range(10):
        beat(step)
    assert said(step) == []
    step.context.held = False
    beat(step)
    beat(step)
    assert said(step) == [IDLE]


def test_a_beat_that_comes_late_counts_as_one(world: World) -> None:
    """The subtask was busy with what it had read, and could not have read more."""
    step = hosted(world, IDLES)
    beat(step, 100 * BEAT_MS)
    assert said(step) == []


def test_behind_an_idle_input_the_stream_is_idle(world: World) -> None:
    step = hosted(world, MONOTONOUS)
    step.rows(5)
    beat(step)
    step.operator.on_watermark_status(IDLE, step.out)
    step.operator.on_watermark_status(ACTIVE, step.out)
    step.rows(6)
    beat(step)
    assert said(step) == [[5], Watermark(4), IDLE, ACTIVE, [6], Watermark(5)]


def test_event_time_ends_for_an_idle_stream_too_and_nothing_is_said_after_it(world: World) -> None:
    step = hosted(world, IDLES)
    beat(step)
    beat(step)
    step.operator.on_watermark(Watermark(MAX_WATERMARK_MS), step.out)
    for _ in range(5):
        beat(step)
    assert said(step) == [IDLE, ACTIVE, Watermark(MAX_WATERMARK_MS)]


# --- what can be wrong ---


@pytest.mark.parametrize("gives", [None, Commanded, 5])
def test_a_supplier_of_no_generator_is_named(world: World, gives: object) -> None:
    with pytest.raises(GraphError, match=r"gave .* which is not one") as caught:
        hosted(world, WatermarkStrategy.for_generator(lambda: gives))
    assert caught.value.where == "operator 'times'"


def test_a_supplier_that_raises_is_named(world: World) -> None:
    with pytest.raises(UserCodeFailed, match="ZeroDivisionError") as caught:
        hosted(world, WatermarkStrategy.for_generator(lambda: 1 // 0))
    assert "operator 'times', in its supplier of watermark generators" in caught.value.where


@pytest.mark.parametrize("watermark", [None, 1.5, "7", 2**63])
def test_a_watermark_that_is_none_is_told_with_its_row(world: World, watermark: object) -> None:
    class Wrong(WatermarkGenerator[object]):
        def on_event(self, value: object, timestamp: int, output: WatermarkOutput) -> None:
            if value == "bad":
                output.emit_watermark(watermark)

    step = hosted(world, WatermarkStrategy.for_generator(Wrong))
    with pytest.raises(UserCodeFailed, match="a watermark") as caught:
        step.rows("good", "bad")
    assert caught.value.where == "operator 'times', at the row 'bad'"


def test_a_periodic_call_that_raises_is_named(world: World) -> None:
    class Wrong(EachRecord):
        def on_periodic_emit(self, output: WatermarkOutput) -> None:
            raise ValueError("no")

    step = hosted(world, WatermarkStrategy.for_generator(Wrong))
    with pytest.raises(UserCodeFailed, match="ValueError: no") as caught:
        beat(step)
    assert caught.value.where == "operator 'times', in its on_periodic_emit"


def test_an_integer_of_numpy_is_a_watermark(world: World) -> None:
    class OfNumpy(WatermarkGenerator[object]):
        def on_event(self, value: object, timestamp: int, output: WatermarkOutput) -> None:
            output.emit_watermark(np.int64(timestamp))

    strategy = WatermarkStrategy.for_generator(OfNumpy)
    step = hosted(world, strategy.with_timestamp_assigner(lambda value, before: np.int64(value)))
    step.rows(4)
    assert step.out.stamps == [4] and type(step.out.batches[0].timestamps_ms[0]) is int
    assert step.out.watermarks == [Watermark(4)] and type(step.out.watermarks[0].ms) is int

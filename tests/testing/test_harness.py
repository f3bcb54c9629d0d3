"""The harness for users' functions: it does what the engine would, and nothing by itself."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tidegate import (
    AggregateFunction,
    AsyncDataStream,
    CheckpointListener,
    GraphError,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    RuntimeContext,
    Time,
    TumblingEventTimeWindows,
    Types,
    UserCodeFailed,
    ValueStateDescriptor,
)
from tidegate.datastream.stream import DataStream
from tidegate.testing import OperatorHarness

LATE = OutputTag[Any]("late")


class Count(KeyedProcessFunction[str, tuple[object, ...]]):
    """Counts each word, and says 50 ms and 10 ms of either time later that it did."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: str, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[object, ...]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        timers, stamp = ctx.timer_service(), ctx.timestamp()
        assert stamp is not None
        timers.register_event_time_timer(stamp + 10)
        timers.register_processing_time_timer(timers.current_processing_time() + 50)
        yield value, count

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[object, ...]]:
        yield ctx.get_current_key(), timestamp, ctx.time_domain().name


def counted(words: DataStream[str]) -> DataStream[Any]:
    return words.key_by(lambda word: word, key_type=Types.STRING()).process(Count())


def test_records_watermarks_and_the_clock_are_what_the_test_says() -> None:
    with OperatorHarness(counted, start_ms=1_000) as harness:
        harness.process("a", timestamp=5)
        harness.process_all(["a", "b"], timestamps=[6, 7])
        assert harness.take() == [("a", 1), ("a", 2), ("b", 1)]
        harness.watermark(16)
        assert harness.output == [(("a", 15, "EVENT_TIME"), 15), (("a", 16, "EVENT_TIME"), 16)]
        assert harness.watermarks == [16]
        harness.take()
        harness.advance_time(49)
        assert harness.take() == []
        harness.advance_time(1)
        assert sorted(harness.take()) == [
            ("a", 1_050, "PROCESSING_TIME"),
            ("b", 1_050, "PROCESSING_TIME"),
        ]


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 2)])
def test_a_snapshot_goes_on_at_any_parallelism(before: int, after: int) -> None:
    words = [f"word {number % 7}" for number in range(20)]
    with OperatorHarness(counted, parallelism=before) as harness:
        harness.process_all(words, timestamps=list(range(20)))
        snapshot = harness.snapshot()
        harness.process_all(words, timestamps=list(range(20)))  # no part of it
    with OperatorHarness(counted, parallelism=after, restore=snapshot) as harness:
        harness.process_all(sorted(set(words)), timestamps=[100] * 7)
        assert sorted(harness.take()) == [
            (f"word {number}", 4 if number < 6 else 3) for number in range(7)
        ]
        harness.watermark(99)
        assert len(harness.take()) == 20


def test_both_inputs_hold_back_event_time_unless_idle() -> None:
    def both(left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        return counted(left.union(right))

    with OperatorHarness(both, inputs=2) as harness:
        harness.process("a", timestamp=0)
        harness.watermark(50, source=0)
        assert harness.watermarks == []
        harness.watermark(20, source=1)
        assert harness.watermarks == [20]
        harness.idle(source=1)
        assert harness.watermarks == [20, 50]


class Total(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def test_windows_and_their_late_records() -> None:
    def windowed(numbers: DataStream[Any]) -> DataStream[Any]:
        windows = TumblingEventTimeWindows.of(Time.milliseconds(10))
        keyed = numbers.key_by(lambda _: "k").window(windows)
        return keyed.allowed_lateness(5).side_output_late_data(LATE).aggregate(Total())

    with OperatorHarness(windowed) as harness:
        for stamp in (1, 12, 2, 14, 3, 30):
            harness.process(stamp, timestamp=stamp)
            harness.watermark(stamp)
        harness.end()
        assert harness.output == [(1, 9), (3, 9), (26, 19), (30, 39)]
        assert harness.take_side_output(LATE) == [3]


def test_coroutines_run_on_the_manual_clock() -> None:
    async def looked_up(number: int) -> list[int]:
        await asyncio.sleep(number / 1_000)
        return [number]

    def asked(numbers: DataStream[int]) -> DataStream[int]:
        return AsyncDataStream.unordered_wait(numbers, looked_up, Time.seconds(1))

    with OperatorHarness(asked) as harness:
        harness.process_all([30, 10, 20])
        assert harness.take() == []
        harness.advance_time(20)
        assert harness.take() == [10, 20]
        harness.advance_time(10)
        assert harness.take() == [30]


class Told(MapFunction[int, int], CheckpointListener):
    def __init__(self, heard: list[object]) -> None:
        self._heard = heard

    def map(self, value: int) -> int:
        return 1 // value

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        raise RuntimeError(f"told of {checkpoint_id}")


def test_what_a_function_raises_reaches_the_test() -> None:
    with OperatorHarness(lambda numbers: numbers.map(Told([])).name("dividing")) as harness:
        with pytest.raises(UserCodeFailed, match=r"(?s)ZeroDivisionError.*dividing"):
            harness.process(0)
        snapshot = harness.snapshot()
        with pytest.raises(UserCodeFailed, match="told of 1"):
            harness.complete(snapshot)


def test_two_steps_are_refused_by_name() -> None:
    with pytest.raises(GraphError, match=r"these are 2: Map, Filter"):
        OperatorHarness(lambda numbers: numbers.map(str).filter(bool))


def test_an_input_that_is_not_there_is_refused() -> None:
    with (
        OperatorHarness(counted) as harness,
        pytest.raises(GraphError, match="no input 1"),
    ):
        harness.process("a", source=1)

"""The harness for users' functions: it does what the engine would, and nothing by itself."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tidegate import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    CheckpointListener,
    GraphError,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    Row,
    RuntimeContext,
    Time,
    TumblingEventTimeWindows,
    Types,
    UserCodeFailed,
    ValueStateDescriptor,
)
from tidegate.api.operator import Operator, OperatorContext, Output, Steps
from tidegate.datastream.stream import DataStream
from tidegate.model.elements import RowBatch, Watermark, WatermarkStatus
from tidegate.testing import ManualClock, OperatorHarness

LATE = OutputTag[Any]("late")


@pytest.mark.parametrize(
    ("build", "inputs"), [(lambda a, b: a.union(b).map(str), 1), (lambda a: a.map(str), 2)]
)
def test_a_step_of_another_number_of_streams_is_told_to_name_it(build: Any, inputs: int) -> None:
    with pytest.raises(GraphError, match=f"The step does not take {inputs} stream") as refused:
        OperatorHarness(build, inputs=inputs)
    assert "inputs=2" in refused.value.remedy


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


class SlowReminders(KeyedProcessFunction[int, int]):
    """Reminds after so many milliseconds, and is busy for six with each reminder."""

    clock: ClassVar[ManualClock]

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + value)
        return iter(())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[int]:
        self.clock.advance(6)
        yield timestamp


def test_timers_behind_slow_ones_come_as_well() -> None:
    with OperatorHarness(lambda rows: rows.key_by(abs).process(SlowReminders())) as harness:
        SlowReminders.clock = harness.clock
        harness.process_all([20, 50, 80])
        harness.advance_time(100)
        assert harness.take() == [20, 50, 80]


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
    async def looked_up(number: int) -> int:
        await asyncio.sleep(number / 1_000)
        return number

    def asked(numbers: DataStream[int]) -> DataStream[int]:
        return AsyncDataStream.unordered_wait(numbers, looked_up, Time.seconds(1))

    with OperatorHarness(asked) as harness:
        harness.process_all([30, 10, 20])
        assert harness.take() == []
        harness.advance_time(20)
        assert harness.take() == [10, 20]
        harness.advance_time(10)
        assert harness.take() == [30]


class Batched(AsyncFunction[int, int]):
    """Tens, by batches on a thread."""

    async def open(self, runtime_context: RuntimeContext) -> None:
        self._base = 10

    def async_invoke_batch(self, values: list[int]) -> list[list[int]]:
        return [[self._base * value] for value in values]

    async def close(self) -> None:
        raise RuntimeError("close is awaited")


def test_plain_functions_are_called_at_once_and_nothing_goes_on_by_itself() -> None:
    def asked(numbers: DataStream[int]) -> DataStream[int]:
        return AsyncDataStream.ordered_wait(numbers, Batched(), Time.seconds(1))

    harness = OperatorHarness(asked)
    harness.process_all([1, 2, 3])
    harness.end()
    assert harness.take() == [10, 20, 30]
    with pytest.raises(UserCodeFailed, match="close is awaited"):
        harness.close()


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


NAMED = Types.ROW_NAMED(["number", "text"], [Types.LONG(), Types.STRING()])
ODD = OutputTag[Any]("odd", NAMED)


class Sorted(ProcessFunction[int, object]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[object]:
        found = {"number": value, "text": str(value)}
        yield (ODD, found) if value in (1, 3) else found


def test_results_are_of_the_types_that_are_declared_for_them() -> None:
    def sorted_out(numbers: DataStream[int]) -> DataStream[Any]:
        return numbers.process(Sorted(), output_type=NAMED).name("sorted")

    with OperatorHarness(sorted_out) as harness:
        harness.process_all([1, 2])
        assert harness.take() == [Row(number=2, text="2")]
        assert harness.take_side_output(ODD) == [Row(number=1, text="1")]
        unfit = r"operator 'sorted' gave what is not of its declared type, field 'number': 'four'"
        with pytest.raises(UserCodeFailed, match=unfit):
            harness.process("four")
        harness.process(3)
        with pytest.raises(UserCodeFailed, match="is not of type Long"):
            harness.take_side_output(OutputTag("odd", Types.LONG()))


class Blocking(Operator):
    """Has a file's or service's answer come in the middle of its steps."""

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def process(self, batch: RowBatch, port: int, out: Output) -> Steps:
        answers: list[object] = []
        yield self._context.tasks.run_blocking(lambda: answers.extend(map(str, batch.values)))
        out.emit(RowBatch(answers))


def test_a_step_may_ask_for_blocking_calls() -> None:
    with OperatorHarness(lambda numbers: numbers.transform("asking", Blocking())) as harness:
        harness.process_all([1, 2])
        assert harness.take() == ["1", "2"]


class Slow(Operator):
    """Takes 10 ms over each watermark."""

    def on_watermark(self, watermark: Watermark, out: Output) -> Steps:
        yield asyncio.sleep(0.01)
        out.emit(RowBatch([watermark.ms]))

    def on_watermark_status(self, status: WatermarkStatus, out: Output) -> None:
        out.emit(RowBatch(["idle" if status.idle else "active"]))


def slow(left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
    return left.union(right).transform("slow", Slow())


def test_what_the_inputs_say_at_once_is_taken_in_its_order() -> None:
    with OperatorHarness(slow, inputs=2) as harness:
        harness.watermark(50, source=0)
        harness.watermark(20, source=1)
        harness.advance_time(10)
        harness.idle()  # the last watermark of all inputs, and that they are idle
        assert harness.take() == [20]
        harness.advance_time(10)
        assert harness.take() == [50, "idle"]


def test_no_checkpoint_is_taken_in_the_middle_of_what_a_step_waits_for() -> None:
    with OperatorHarness(slow, inputs=2) as harness:
        harness.watermark(20)
        with pytest.raises(GraphError, match=r"'slow' waits in the middle(?s:.*)advance_time"):
            harness.snapshot()
        harness.advance_time(10)
        assert harness.snapshot().states


class Waits(AsyncFunction[int, int]):
    """Answers after 10 ms."""

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0.01)
        return [value + 1]


def waits(stream: DataStream[int]) -> DataStream[int]:
    return AsyncDataStream.unordered_wait(stream, Waits(), Time.seconds(1))


def test_a_harness_works_beside_a_running_loop() -> None:
    """As in a cell of a notebook."""

    async def cell() -> list[int]:
        with OperatorHarness(waits) as harness:
            harness.process(1)
            assert harness.take() == []
            harness.advance_time(10)
            return harness.take()

    assert asyncio.run(cell()) == [2]


class OfItsThread(MapFunction[int, int]):
    """Sums records in what only the thread that opened it has, as a database of SQLite."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.of_thread = threading.local()
        self.of_thread.sum = 0

    def map(self, value: int) -> int:
        self.of_thread.sum += value + ADDED.get()
        return self.of_thread.sum


ADDED = ContextVar("ADDED", default=0)


def test_all_calls_beside_a_running_loop_come_on_one_thread_in_the_callers_context() -> None:
    async def cell() -> list[int]:
        with OperatorHarness(lambda stream: stream.map(OfItsThread())) as harness:
            harness.process(1)
            ADDED.set(10)
            harness.process(2)
            return harness.take()

    assert asyncio.run(cell()) == [1, 13]


def test_a_harness_is_closed_once_and_says_that_it_is() -> None:
    with OperatorHarness(lambda stream: stream.map(str)) as harness:
        harness.close()
    harness.close()
    for call in (lambda: harness.process(1), harness.snapshot, harness.end):
        with pytest.raises(GraphError, match="The harness is closed"):
            call()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda harness: harness.process_all([1, 2], [5]), "2 records and 1 timestamps"),
        (lambda harness: harness.process(1, 1.5), r"A timestamp is 1\.5"),
        (lambda harness: harness.process(1, "5"), "A timestamp is '5'"),
        (lambda harness: harness.watermark(0.5), r"The watermark is 0\.5"),
        (lambda harness: harness.advance_time(-5_000), "cannot go back by 5000 ms"),
    ],
)
def test_times_that_cannot_be_are_refused_before_anything_happens(
    call: Callable[[OperatorHarness], None], told: str
) -> None:
    with OperatorHarness(lambda stream: stream.map(str)) as harness:
        with pytest.raises(GraphError, match=told):
            call(harness)
        assert harness.take() == [] and harness.clock.wall_ms() == 0


TIMES = [datetime(1970, 1, 1, 0, 0, 0, ms * 1000 + 999) for ms in (5, 6)]  # noqa: DTZ001


@pytest.mark.parametrize(
    "column",
    [
        np.array([5, 6], "datetime64[ms]"),
        np.array(TIMES, "datetime64[us]"),
        np.array(TIMES, "datetime64[ns]"),
        np.array([5.0, 6.0]),
        np.array([5, 6], np.int16),
        pa.array([5, 6]),
        pa.array(TIMES, pa.timestamp("us")),
        pd.Series(TIMES),
    ],
    ids=lambda column: str(getattr(column, "dtype", None) or column.type),
)
def test_times_may_be_columns_of_any_unit(column: Any) -> None:
    with OperatorHarness(lambda stream: stream.map(lambda row: row["n"])) as harness:
        harness.process_batch(pa.record_batch({"n": [1, 2]}), column)
        assert harness.output == [(1, 5), (2, 6)]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (np.array([5.0, 6.5]), "6.5"),
        (np.array([5.0, np.nan]), "nan"),
        (np.array([5, np.inf]), "inf"),
        (np.array(["1970-01-01", "NaT"], "datetime64[ms]"), "NaT"),
        (pa.array([5, None]), "nan"),
        (np.array(["a", "b"]), "a"),
    ],
)
def test_columns_that_are_no_times_are_refused(column: Any, told: str) -> None:
    with OperatorHarness(lambda stream: stream.map(lambda row: row["n"])) as harness:
        with pytest.raises(GraphError, match=f"A timestamp is .*{told}"):
            harness.process_batch(pa.record_batch({"n": [1, 2]}), column)
        assert harness.output == []


def test_an_arrow_batch_takes_times_that_are_columns() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    with OperatorHarness(lambda stream: stream.map(lambda row: row["n"])) as harness:
        harness.process_batch(batch, np.array([5, 6]))
        harness.process_batch(batch.slice(0, 0), [])
        with pytest.raises(GraphError, match="2 records and 3 timestamps"):
            harness.process_batch(batch, [5, 6, 7])
        assert harness.output == [(1, 5), (2, 6)]

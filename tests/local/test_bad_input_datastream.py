"""Wrong use of streams is one clear error that names the step, and what of it is wrong."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate import (
    BatchContext,
    ColumnStateDescriptor,
    Count,
    CountTrigger,
    DataStream,
    GraphError,
    JobFailed,
    KeyedBatchFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Sum,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

pytestmark = pytest.mark.slow

SALES = [{"shop": "x", "amount": 3}, {"shop": "y", "amount": 4}]
SECOND = Time.seconds(1)
TWO_BATCHES = 10_000
"""Rows that come in more batches than one."""

Build = Callable[[StreamExecutionEnvironment], DataStream[Any]]
NOTHING: Any = None
NO_GENERATOR: Any = lambda: None  # noqa: E731
ANY: Any = WatermarkStrategy.for_monotonous_timestamps()


class Keyed(KeyedProcessFunction[int, int]):
    """Does what it is told: in its ``open``, and with the first record."""

    def __init__(
        self,
        opening: Callable[[Any], object] = lambda context: None,
        handling: Callable[[Any], object] = lambda ctx: None,
    ) -> None:
        self._opening = opening
        self._handling = handling

    def open(self, runtime_context: RuntimeContext) -> None:
        self._opening(runtime_context)

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        self._handling(ctx)


class TimerWithoutKeys(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[int]:
        ctx.timer_service().register_event_time_timer(value)
        yield value


class StateWithoutKeys(MapFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def map(self, value: int) -> int:
        self._state.update(value)
        return value


class NoWatermark(WatermarkGenerator[int]):
    def on_event(self, value: int, timestamp: int, output: WatermarkOutput) -> None:
        nothing: Any = None
        output.emit_watermark(nothing)


class Batches(KeyedBatchFunction):
    def __init__(self, call: Callable[[pa.RecordBatch, BatchContext], object]) -> None:
        self._call = call

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> object:
        return self._call(batch, ctx)


def ask_for_two_types(context: Any) -> None:
    context.get_state(ValueStateDescriptor("last", Types.LONG()))
    context.get_state(ValueStateDescriptor("last", Types.STRING()))


def ask_for_two_kinds(context: Any) -> None:
    context.get_state(ValueStateDescriptor("last", Types.LONG()))
    context.get_list_state(ListStateDescriptor("last", Types.LONG()))


def ask_for_two_columns(batch: pa.RecordBatch, ctx: BatchContext) -> pa.RecordBatch:
    ctx.column_state(ColumnStateDescriptor("total", pa.int64()))
    ctx.column_state(ColumnStateDescriptor("total", pa.string()))
    return batch


def keyed(function: Keyed) -> Build:
    return lambda env: env.from_collection([1]).key_by(lambda n: n).process(function).name("bad")


def sales(step: Callable[[DataStream[Any]], DataStream[Any]], rows: list[Any] = SALES) -> Build:
    return lambda env: step(env.from_collection(rows)).name("bad")


def timed(strategy: WatermarkStrategy) -> Build:
    return sales(lambda stream: stream.assign_timestamps_and_watermarks(strategy), [1])


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def windowed(stream: DataStream[Any], size: Any = SECOND) -> Any:
    return stream.key_by("shop").window(TumblingEventTimeWindows.of(size))


def renamed_later() -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    seen: list[int] = []

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return batch if len(seen) == 1 else batch.rename_columns(["shop", "paid"])

    return call


CENTS = pa.schema([("shop", pa.string()), ("cents", pa.int64())])
TEXTS = pa.schema([("shop", pa.string()), ("amount", pa.string())])


def timer_at(value: object) -> Build:
    return keyed(Keyed(handling=lambda ctx: ctx.timer_service().register_event_time_timer(value)))


FAILING: dict[str, tuple[Build, list[str]]] = {
    "a state asked for with two types": (
        keyed(Keyed(ask_for_two_types)),
        ["'last'", "String", "Long", "Use one descriptor, or two names"],
    ),
    "a state asked for as two kinds": (
        keyed(Keyed(ask_for_two_kinds)),
        ["'last'", "ListStateDescriptor", "ValueStateDescriptor"],
    ),
    "a descriptor given to the call of another kind": (
        keyed(Keyed(lambda context: context.get_state(ListStateDescriptor("last")))),
        ["get_state takes a ValueStateDescriptor, not ListStateDescriptor(name='last'"],
    ),
    "a name in place of a descriptor": (
        keyed(Keyed(lambda context: context.get_map_state("last"))),
        ["get_map_state takes a MapStateDescriptor, not 'last'"],
    ),
    "a column of state asked for with two types": (
        sales(lambda stream: stream.key_by("shop").process_batches(Batches(ask_for_two_columns))),
        ["'total'", "int64", "string", "Use one descriptor, or two names"],
    ),
    "a timer without keys": (
        sales(lambda stream: stream.process(TimerWithoutKeys()), [1]),
        ["Setting timers is only supported on a keyed stream", "Call key_by before"],
    ),
    "state of keys without keys": (
        sales(lambda stream: stream.map(StateWithoutKeys()), [1]),
        ["get_state asks for keyed state on a stream without keys", "'last'", "key_by"],
    ),
    "a timer for no time": (timer_at(None), ["A timer cannot be set for None", "milliseconds"]),
    "a key of a column that is not there": (
        sales(lambda stream: stream.key_by("shopp").reduce(lambda one, two: two)),
        ["there is no column 'shopp'", "it has shop, amount"],
    ),
    "batches keyed by a column that is not there": (
        sales(lambda stream: stream.map_batches(same).key_by("shopp").aggregate_batches(Count())),
        ["there is no column 'shopp'; there are shop, amount"],
    ),
    "an aggregate of a column that is not there": (
        sales(lambda stream: stream.key_by("shop").aggregate_batches(Sum("price"))),
        ["there is no column 'price'; there are shop, amount"],
    ),
    "a column of times that is not there": (
        sales(
            lambda stream: stream.assign_timestamps_and_watermarks(
                ANY.with_timestamp_assigner("time")
            )
        ),
        ["there is no column 'time'", "there are shop, amount"],
    ),
    "a schema that a function changes": (
        sales(lambda stream: stream.map_batches(renamed_later()), SALES * TWO_BATCHES),
        ["changed the schema in the middle of the stream: field 'amount' is missing"],
    ),
    "a column that later holds another type": (
        sales(
            lambda stream: stream.map_batches(same),
            SALES * TWO_BATCHES + [{"shop": "z", "amount": "five"}] * TWO_BATCHES,
        ),
        ["column 'amount' holds 'five', which does not fit the values before it"],
    ),
    "a timestamp that is None": (
        timed(ANY.with_timestamp_assigner(lambda value, before: None)),
        ["gave None, which is not a number of milliseconds", "at the row 1"],
    ),
    "a supplier that gives no generator": (
        timed(WatermarkStrategy.for_generator(NO_GENERATOR)),
        ["the supplier of watermark generators gave None"],
    ),
    "a watermark that is None": (
        timed(WatermarkStrategy.for_generator(NoWatermark)),
        ["a watermark is an int of milliseconds, not NoneType", "in on_event"],
    ),
    "fewer rows than were given": (
        sales(lambda stream: stream.map_batches(lambda batch: batch.slice(1))),
        ["returned 0 rows for 1", "flat_map_batches may change their number"],
    ),
    "fewer booleans than rows": (
        sales(lambda stream: stream.filter_batches(lambda batch: np.array([], bool))),
        ["returned 0 values of type bool for 1 rows"],
    ),
    "no batch": (
        sales(lambda stream: stream.map_batches(lambda batch: None)),
        ["returned None, not a batch"],
    ),
    "another field than was declared": (
        sales(lambda stream: stream.map_batches(same, CENTS)),
        ["is not of its declared schema: field 'cents' is missing"],
    ),
    "another type than was declared": (
        sales(lambda stream: stream.flat_map_batches(same, TEXTS)),
        ["field 'amount' is int64, declared as string"],
    ),
    "a keyed function's field that was not declared": (
        sales(
            lambda stream: stream.key_by("shop").process_batches(
                Batches(lambda batch, ctx: batch), CENTS
            )
        ),
        ["is not of its declared schema: field 'cents' is missing"],
    ),
    "windows of event time without any": (
        sales(lambda stream: windowed(stream).reduce(lambda one, two: two)),
        ["Records have no event time", "Give the source a WatermarkStrategy"],
    ),
}


@pytest.mark.parametrize(("build", "told"), FAILING.values(), ids=FAILING)
def test_the_job_fails_and_says_where_and_why(build: Build, told: list[str]) -> None:
    stream = build(StreamExecutionEnvironment.local())
    with pytest.raises(JobFailed) as failed:
        stream.execute_and_collect(limit=10 * TWO_BATCHES)
    message = str(failed.value)
    for part in ["bad", "where:", *told]:
        assert part in message


NAME: Any = "late"
CLASS: Any = CountTrigger
KEYED: Any = Keyed()

REFUSED: dict[str, tuple[Build, list[str]]] = {
    "no strategy": (
        timed(NOTHING),
        ["assign_timestamps_and_watermarks takes a WatermarkStrategy, not NoneType"],
    ),
    "a column that the declared type has not": (
        lambda env: env.from_collection(
            [("x", 3)], Types.ROW_NAMED(["shop", "amount"], [Types.STRING(), Types.LONG()])
        ).key_by("shopp"),
        ["there is no column 'shopp'", "Name one of shop, amount"],
    ),
    "a keyed function without keys": (
        sales(lambda stream: stream.process(KEYED)),
        ["process takes a ProcessFunction, not Keyed", "Call key_by first"],
    ),
    "windows of no length of time": (
        sales(lambda stream: windowed(stream, 0.5)),
        ["0.5 is not a length of time", "TumblingEventTimeWindows", "Give a timedelta, a Time"],
    ),
    "an allowed lateness that is no number": (
        sales(lambda stream: windowed(stream).allowed_lateness("soon")),
        ["'soon' is not a length of time", "Give a timedelta, a Time"],
    ),
    "a trigger's class": (
        sales(lambda stream: windowed(stream).trigger(CLASS)),
        ["trigger takes a Trigger, not the class CountTrigger"],
    ),
    "late records to a name": (
        sales(lambda stream: windowed(stream).side_output_late_data(NAME)),
        ["side_output_late_data takes an OutputTag, not 'late'"],
    ),
    "a side output by a name": (
        sales(lambda stream: stream.map(lambda row: row).get_side_output(NAME)),
        ["get_side_output takes an OutputTag, not 'late'"],
    ),
}


@pytest.mark.parametrize(("build", "told"), REFUSED.values(), ids=REFUSED)
def test_the_call_that_is_wrong_is_refused(build: Build, told: list[str]) -> None:
    with pytest.raises(GraphError) as refused:
        build(StreamExecutionEnvironment.local())
    for part in ["where:", *told]:
        assert part in str(refused.value)

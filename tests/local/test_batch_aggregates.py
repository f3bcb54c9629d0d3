"""Declarative aggregates of Arrow batches in jobs, beside row functions and plain Python."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.e2e import kills
from tests.e2e.runtimes import Jobs
from tidegate import (
    Collect,
    Count,
    CountTrigger,
    DataStream,
    Duration,
    GlobalWindows,
    GraphError,
    JobFailed,
    KeyedProcessFunction,
    Max,
    Mean,
    OutputTag,
    ProcessWindowFunction,
    Row,
    RuntimeContext,
    SlidingEventTimeWindows,
    Sum,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkGenerator,
    WatermarkStrategy,
    WindowedStream,
)
from tidegate.connectors import NumberSequenceSource

pytestmark = pytest.mark.slow

TRANSACTIONS, USERS = 10_000, 100
FEATURES = (Count(), Sum("amount"), Mean("amount"), Max("amount"))
NAMES = ("count", "amount_sum", "amount_mean", "amount_max")
LAST_MINUTE = SlidingEventTimeWindows.of(Time.seconds(60), Time.seconds(10))
SCHEMA = pa.schema([("user", pa.int64()), ("amount", pa.int64()), ("time", pa.int64())])


def transaction(number: int) -> dict[str, int]:
    return {"user": number % USERS, "amount": number % 17, "time": 10 * number}


def transactions(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = batch["value"].to_numpy()
    columns = (numbers % USERS, numbers % 17, 10 * numbers)
    return pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=SCHEMA)


def collected(stream: DataStream[Any]) -> list[Any]:
    with stream.execute_and_collect() as rows:
        return list(rows)


class Features(KeyedProcessFunction[dict[str, int], dict[str, object]]):
    """Count, sum, mean and maximum of the user's amounts so far, row by row."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(
        self, value: dict[str, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[dict[str, object]]:
        count, total, greatest = self.seen.value() or (0, 0, 0)
        amount = value["amount"]
        count, total, greatest = count + 1, total + amount, max(greatest, amount)
        self.seen.update((count, total, greatest))
        yield value | dict(zip(NAMES, (count, total, total / count, greatest), strict=True))


@pytest.mark.slow
def test_features_of_a_model_are_those_of_row_functions_and_of_a_loop(jobs: Jobs) -> None:
    numbers = NumberSequenceSource(0, TRANSACTIONS - 1, arrow=True)
    batches = jobs.env(2).from_source(numbers, source_name="numbers").set_parallelism(1)
    batches = batches.map_batches(transactions).set_parallelism(1)  # which keeps the order
    found = collected(batches.key_by("user").aggregate_batches(*FEATURES))
    rows = jobs.env(2).from_collection(list(map(transaction, range(TRANSACTIONS))))
    by_row = collected(rows.key_by("user").process(Features()))
    assert in_time(found) == in_time(by_row) == since_ever()


@pytest.mark.slow
def test_running_aggregates_of_declared_rows_are_those_of_batches_and_of_row_functions(
    jobs: Jobs,
) -> None:
    fields = ["user", "amount", "time"]
    row_type = Types.ROW_NAMED(fields, [Types.LONG()] * 3)
    numbers = jobs.env(2).from_sequence(0, TRANSACTIONS - 1).set_parallelism(1)
    pair_type = Types.TUPLE([Types.LONG()] * 3)
    # A traced function: columns up to the exchange and behind it.
    pairs = numbers.map(lambda n: (n % 100, n % 17, 10 * n), pair_type).set_parallelism(1)
    keyed = pairs.key_by(lambda pair: pair[0], Types.LONG())
    of_pairs = [type(each)() if each.column is None else type(each)("f1") for each in FEATURES]
    found = collected(keyed.running(*of_pairs))
    names = [*fields, *NAMES]
    assert in_time([dict(zip(names, row, strict=True)) for row in found]) == since_ever()
    rows = jobs.env(2).from_collection(
        [Row(**transaction(number)) for number in range(TRANSACTIONS)], row_type
    )
    found = collected(rows.key_by("user").running(*FEATURES))
    assert in_time([row.as_dict() for row in found]) == since_ever()


def in_time(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: row["time"])


def since_ever() -> list[dict[str, object]]:
    amounts: dict[int, list[int]] = defaultdict(list)
    rows = []
    for number in range(TRANSACTIONS):
        row = transaction(number)
        seen = amounts[row["user"]]
        seen.append(row["amount"])
        rows.append(row | features(seen))
    return rows


def features(amounts: list[int]) -> dict[str, object]:
    total = sum(amounts)
    values = (len(amounts), total, total / len(amounts), max(amounts))
    return dict(zip(NAMES, values, strict=True))


class MinuteFeatures(ProcessWindowFunction[dict[str, int], dict[str, object], int, TimeWindow]):
    """Count, sum, mean and maximum of a window's amounts, row by row."""

    def process(
        self, key: int, context: Any, elements: Iterable[dict[str, int]]
    ) -> Iterator[dict[str, object]]:
        window = context.window()
        times = {"window_start": window.start, "window_end": window.end}
        yield {"user": key, **times, **features([each["amount"] for each in elements])}


@pytest.mark.slow
def test_features_of_the_last_minute_are_those_of_a_loop_and_of_row_functions(jobs: Jobs) -> None:
    amounts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in map(transaction, range(TRANSACTIONS)):
        last = row["time"] // 10_000 * 10_000
        for start in range(last, last - 60_000, -10_000):
            amounts[start, row["user"]].append(row["amount"])
    found = collected(last_minute(in_batches(jobs)).aggregate_batches(*FEATURES))
    assert by_window(found) == [
        {"user": user, "window_start": start, "window_end": start + 60_000, **features(values)}
        for (start, user), values in sorted(amounts.items())
    ]
    rows = jobs.env(2).from_collection(list(map(transaction, range(TRANSACTIONS))))
    by_row = collected(last_minute(rows).process(MinuteFeatures()))
    assert by_window(found) == by_window(by_row)


def in_batches(jobs: Jobs) -> DataStream[Any]:
    numbers = NumberSequenceSource(0, TRANSACTIONS - 1, arrow=True)
    return jobs.env(2).from_source(numbers, source_name="numbers").map_batches(transactions)


def last_minute(stream: DataStream[Any]) -> WindowedStream[Any]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner("time"))
    return timed.key_by("user").window(LAST_MINUTE)


def by_window(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (row["window_start"], row["user"]))


def test_rows_become_columns_and_late_ones_go_aside(jobs: Jobs) -> None:
    late = OutputTag[Any]("late")
    rows = [{"k": "a", "t": 5}, {"k": "a", "t": 25}, {"k": "b", "t": 4}, {"k": "a", "t": 29}]
    strategy = WatermarkStrategy.for_generator(EachRow).with_timestamp_assigner("t")
    timed = jobs.env().from_collection(rows).assign_timestamps_and_watermarks(strategy)
    windows = (
        timed.key_by("k")
        .window(TumblingEventTimeWindows(10))
        .side_output_late_data(late)
        .aggregate_batches(Count(), Collect("t").alias("times"))
    )
    in_windows = windows.map(lambda row: (row["k"], row["window_start"], row["times"]))
    aside = windows.get_side_output(late).map(lambda row: ("late", row["k"], row["t"]))
    assert sorted(collected(in_windows.union(aside)), key=str) == [
        ("a", 0, [5]),
        ("a", 20, [25, 29]),
        ("late", "b", 4),
    ]


class EachRow(WatermarkGenerator[Any]):
    """The watermark follows each row at once."""

    def on_event(self, value: Any, timestamp: int, output: Any) -> None:
        output.emit_watermark(timestamp - 1)

    def on_periodic_emit(self, output: Any) -> None:
        pass


@pytest.mark.slow
def test_a_killed_slot_fires_each_window_once(jobs: Jobs) -> None:
    kills.check_kill_over_windows(jobs)


def test_a_wrong_column_fails_the_job_by_operator_and_column(jobs: Jobs) -> None:
    rows = jobs.env().from_collection([{"k": 1, "x": 2}])
    with pytest.raises(JobFailed, match="there is no column 'y'; there are k, x"):
        collected(rows.key_by("k").aggregate_batches(Sum("y")))
    with pytest.raises(JobFailed, match="operator 'WindowAggregateBatches'"):
        collected(rows.key_by("k").window(TumblingEventTimeWindows(10)).aggregate_batches(Count()))


def pairs(stream: DataStream[Any], key_type: Any = None) -> Any:
    """Keyed tuples of a declared type."""
    made = stream.map(lambda row: (row["k"], "text"), Types.TUPLE([Types.LONG(), Types.STRING()]))
    return made.key_by(lambda pair: pair[0], key_type)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda s: s.key_by(len).aggregate_batches(Count()), "needs the key as a column"),
        (lambda s: s.key_by("k").running(), "running has nothing to compute"),
        (lambda s: s.key_by("k").running(Sum), "running takes aggregates, not Sum"),
        (lambda s: pairs(s).running(Sum("f2")), "there is no field 'f2'"),
        (lambda s: pairs(s).running(Sum("f1")), "has no meaning for a column of type string"),
        (
            lambda s: pairs(s, Types.TUPLE([Types.LONG()])).running(Count()),
            "running keeps its state in columns, and TupleTypeInfo.Long. is not a type of keys",
        ),
        (lambda s: s.key_by("k").aggregate_batches(), "has nothing to compute"),
        (lambda s: s.key_by("k").aggregate_batches(Count), "takes aggregates, not Count"),
        (
            lambda s: s.key_by("k").aggregate_batches(Sum("x"), Mean("x").alias("x_sum")),
            "two columns named 'x_sum', the second by Mean",
        ),
        (
            lambda s: s.key_by("k").window(GlobalWindows.create()).aggregate_batches(Count()),
            "has no windows like",
        ),
        (
            lambda s: (
                s.key_by("k")
                .window(TumblingEventTimeWindows(10))
                .aggregate_batches(Count().alias("window_end"))
            ),
            "two columns named 'window_end'",
        ),
        (
            lambda s: (
                s.key_by("k")
                .window(TumblingEventTimeWindows(10))
                .trigger(CountTrigger.of(3))
                .aggregate_batches(Count())
            ),
            "own trigger",
        ),
    ],
)
def test_aggregates_that_make_no_sense_are_refused_where_they_are_written(
    jobs: Jobs, call: Any, what: str
) -> None:
    with pytest.raises(GraphError, match=what):
        call(jobs.env().from_collection([{"k": 1, "x": 2}]))

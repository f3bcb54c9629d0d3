"""Functions as programs for PyFlink write them: generic contexts, rich functions, assigners."""

import pytest

import tidegate
from tests.pyflink.surface import SURFACE, WANTED
from tidegate import (
    AggregateFunction,
    EventTimeSessionWindows,
    EventTimeTrigger,
    MergingWindowAssigner,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

CONTEXTS = [line for line in SURFACE if line["name"].partition(".")[0] in WANTED]


def test_classes_and_their_contexts_take_the_type_parameters_that_they_take_in_pyflink() -> None:
    wanted = [line for line in CONTEXTS if line["parameters"] != "0" and not is_ready(line)]
    wrong: list[str] = []
    for line in wanted:
        found: object = tidegate
        for part in line["name"].split("."):
            found = getattr(found, part, None)
        try:
            found[(object,) * int(line["parameters"])]  # type: ignore[index]
        except TypeError as error:
            wrong.append(f"{line['name']}: {error}")
    assert len(wanted) > 30 and wrong == []


def is_ready(line: dict[str, str]) -> bool:
    """True for a trigger or an assigner that is made by a call, and whose records are anything."""
    return (
        line["module"].endswith("window") and line["parameters"] == "1" and "." not in line["name"]
    )


class Spans(ProcessWindowFunction[int, str, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: list[int]
    ) -> list[str]:
        window = context.window()
        return [f"{key} {window.start}-{window.end}: {len(list(elements))}"]


def test_a_context_may_be_annotated_with_its_window() -> None:
    stream = timed([("a", 1, 5), ("a", 2, 1_005)])
    windows = stream.key_by(lambda row: row[0]).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    results = windows.process(Spans()).execute_and_collect()
    assert list(results) == ["a 0-1000: 1", "a 1000-2000: 1"]
    assert ProcessAllWindowFunction.Context[TimeWindow]


class NumberedSum(ReduceFunction):
    """The sum, and how many there were of the key before, which only keyed state can tell."""

    def open(self, runtime_context: tidegate.RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def reduce(self, value1: tuple, value2: tuple) -> tuple:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        return value1[0], value1[1] + value2[1], seen


ROWS = [("a", 1, 0), ("b", 2, 0), ("a", 3, 0), ("a", 4, 0), ("b", 5, 0)]


def test_a_reduce_function_has_state_of_the_current_key() -> None:
    env = StreamExecutionEnvironment.local(1)
    reduced = env.from_collection(ROWS).key_by(lambda row: row[0]).reduce(NumberedSum())
    assert list(reduced.execute_and_collect()) == [
        ("a", 1, 0),
        ("b", 2, 0),
        ("a", 4, 1),
        ("a", 8, 2),
        ("b", 7, 1),
    ]


class NumberedAggregate(AggregateFunction):
    def open(self, runtime_context: tidegate.RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def create_accumulator(self) -> tuple:
        return 0, 0

    def add(self, value: tuple, accumulator: tuple) -> tuple:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        return accumulator[0] + value[1], seen

    def get_result(self, accumulator: tuple) -> tuple:
        return accumulator

    def merge(self, acc_a: tuple, acc_b: tuple) -> tuple:
        return acc_a[0] + acc_b[0], max(acc_a[1], acc_b[1])


@pytest.mark.parametrize(
    "windows",
    [
        TumblingEventTimeWindows.of(Time.seconds(1)),
        EventTimeSessionWindows.with_gap(Time.seconds(1)),
    ],
    ids=["tumbling", "sessions"],
)
def test_functions_of_a_window_have_state_of_the_current_key(windows: object) -> None:
    by_key = timed(ROWS).key_by(lambda row: row[0])
    results = by_key.window(windows).aggregate(NumberedAggregate()).execute_and_collect()
    assert sorted(results) == [(7, 2), (8, 3)]


def test_a_windows_reduce_function_has_state_of_the_current_key() -> None:
    windows = TumblingEventTimeWindows.of(Time.seconds(1))
    by_key = timed(ROWS).key_by(lambda row: row[0])
    results = by_key.window(windows).reduce(NumberedSum()).execute_and_collect()
    assert sorted(results) == [("a", 8, 2), ("b", 7, 1)]


class Whole(MergingWindowAssigner):
    """As PyFlink has them: the trigger for an environment, merges by the callback's method."""

    def assign_windows(self, element: tuple, timestamp: int, context: object) -> list:
        return [TimeWindow(timestamp, timestamp + 1_000)]

    def get_default_trigger(self, env: StreamExecutionEnvironment) -> EventTimeTrigger:
        assert isinstance(env, StreamExecutionEnvironment)
        return EventTimeTrigger.create()

    def get_window_serializer(self) -> None:
        raise AssertionError("windows are kept by their type")

    def is_event_time(self) -> bool:
        return True

    def merge_windows(self, windows: list, callback: MergingWindowAssigner.MergeCallback) -> None:
        ordered = sorted(windows)
        if len(ordered) > 1 and ordered[0].intersects(ordered[-1]):
            callback.merge(ordered, ordered[0].cover(ordered[-1]))


def test_an_assigner_for_pyflink_is_used_as_it_is() -> None:
    stream = timed([("a", 1, 0), ("a", 2, 500), ("a", 3, 5_000)])
    results = stream.key_by(lambda row: row[0]).window(Whole()).process(Spans())
    assert list(results.execute_and_collect()) == ["a 0-1500: 2", "a 5000-6000: 1"]
    assert TumblingEventTimeWindows.of(Time.seconds(1)).get_default_trigger(None)


def timed(rows: list[tuple]) -> tidegate.DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    env = StreamExecutionEnvironment.local(1)
    return env.from_collection(rows).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda row, _: row[2])
    )

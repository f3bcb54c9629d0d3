"""What is refused of windows, and when: at the call, by the operator's name, at a restore."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.datastream.windows import TEN, Full, Kept, Longest, Whole, keyed, listed, stamped
from tidegate import (
    AggregateFunction,
    CountTrigger,
    DataStream,
    Duration,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GraphError,
    ProcessWindowFunction,
    PurgingTrigger,
    StreamExecutionEnvironment,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
)
from tidegate.errors import SerializerIncompatible, UserCodeFailed, UserError
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.testing import OperatorHarness


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.window(TumblingEventTimeWindows), "takes a WindowAssigner, not the class"),
        (lambda s: s.window(TEN).trigger(CountTrigger), "takes a Trigger, not the class Count"),
        (lambda s: s.window(TEN).evictor(CountTrigger(1)), "evictor takes an? Evictor"),
        (lambda s: s.window(TEN).side_output_late_data("late"), "takes an? OutputTag, not .late"),
        (lambda s: s.window(TEN).allowed_lateness(-1), "allowed lateness is -1"),
        (lambda s: s.window(TEN).allowed_lateness(1.5), "1.5 is not a length of time"),
        (lambda s: s.window(TEN).apply(Kept()), "apply takes a WindowFunction"),
        (lambda s: s.window(TEN).process(Whole()), "process takes a ProcessWindowFunction"),
        (lambda s: s.window(TEN).aggregate(max), "aggregate takes an? AggregateFunction"),
        (lambda s: s.window(EventTimeSessionWindows(1)).trigger(Fixed()), "cannot be used with"),
        (lambda s: EventTimeSessionWindows.with_gap(Duration.of_nanos(1)), "gap of 0 ms can't be"),
        (lambda s: EventTimeSessionWindows.with_dynamic_gap(3), "3 extracts no gap"),
        (lambda s: s.count_window(0), "can't be"),
        (lambda s: s.window(TEN).apply(listed, 3), "3 is not a type"),
        (lambda s: s.window(TEN).aggregate(Longest(), None, 3), "3 is not a type"),
        (lambda s: s.window(TEN).apply(named, int), "named is annotated to return String"),
        (lambda s: s.window(TEN).reduce(joined, output_type=int), "joined is annotated to return"),
        (lambda s: s.window(TEN).aggregate(Longest(), None, int, str), "Longest.get_result is"),
        (lambda s: s.window(TEN).process(Named(), int), "Named.process is annotated to return"),
    ],
)
def test_what_is_wrong_with_a_window_is_said_at_the_call(
    call: Callable[[Any], object], message: str
) -> None:
    stream = StreamExecutionEnvironment.local().from_collection([("a", 1)])
    with pytest.raises(GraphError, match=message):
        call(keyed(stream))


def named(key: str, window: TimeWindow, elements: Iterable[Any]) -> list[str]:
    return [key]


def mixed(key: str, window: TimeWindow, elements: Iterable[Any]) -> Any:
    yield key
    return ["b"]


def joined(left: str, right: str) -> str:
    return left + right


class Named(ProcessWindowFunction[Any, str, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[str]:
        return [key]


class Fixed(Full):
    def can_merge(self) -> bool:
        return False


class Forgets(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> Any:
        accumulator.append(value)

    def get_result(self, accumulator: list[Any]) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class PerWindow(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]:
        yield context.window_state().get_state(ValueStateDescriptor("any")).value()


class Undecided(Full):
    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> Any:
        return None


FIVE = EventTimeSessionWindows(5)
ANY = PurgingTrigger(EventTimeTrigger())


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s.window(TEN).apply(lambda k, w, e: 5), "has returned 5"),
        (lambda s: s.window(FIVE).apply(lambda k, w, e: "ab"), "has returned 'ab'"),
        (lambda s: s.window(TEN).apply(mixed), r"also returned \['b'\], which would be lost"),
        (lambda s: s.window(FIVE).apply(mixed), r"also returned \['b'\], which would be lost"),
        (lambda s: s.window(TEN).aggregate(Forgets()), "AggregateFunction.add has returned None"),
        (lambda s: s.window(FIVE).aggregate(Forgets()), "AggregateFunction.add has returned None"),
        (lambda s: s.count_window(9).aggregate(Forgets()), "AggregateFunction.add has returned"),
        (lambda s: s.window(TEN).reduce(lambda x, y: None), "reduce function has returned None"),
        (lambda s: s.window(FIVE).reduce(lambda x, y: None), "reduce function has returned None"),
        (
            lambda s: s.window(TEN).trigger(ANY).reduce(lambda x, y: None),
            "reduce function has returned None",
        ),
        (lambda s: s.window(FIVE).process(PerWindow()), "Per-window state is not allowed"),
        (lambda s: s.window(FIVE).trigger(ANY).process(PerWindow()), "Per-window state is not"),
        (lambda s: s.window(TEN).trigger(Undecided()).apply(listed), "not a TriggerResult"),
        (
            lambda s: s.window(EventTimeSessionWindows.with_dynamic_gap(lambda e: 0)).apply(listed),
            "a session gap has to be an int of 1 ms or more, not 0",
        ),
        (
            lambda s: (
                s.window(EventTimeSessionWindows.with_dynamic_gap(lambda e: 1.5))
                .trigger(ANY)
                .apply(listed)
            ),
            "not 1.5",
        ),
    ],
)
def test_what_is_wrong_with_a_function_is_said_with_the_operators_name(
    step: Callable[[Any], DataStream[Any]], message: str
) -> None:
    with OperatorHarness(lambda s: step(keyed(s)).name("my windows")) as harness:
        with pytest.raises((UserError, UserCodeFailed), match=message) as caught:
            for _ in range(3):
                harness.process(("a", 1), timestamp=1)
            harness.end()
        assert "my windows" in str(caught.value)


@pytest.mark.parametrize("trigger", [EventTimeTrigger(), ANY])
@pytest.mark.parametrize("windows", [TEN, FIVE])
@pytest.mark.parametrize(
    ("timestamp", "message"),
    [
        (None, "have no event time"),
        (MIN_TIMESTAMP_MS, "have no event time"),
        (2**63 - 1, "end of all time"),
    ],
)
def test_windows_of_event_time_refuse_records_without_one(
    trigger: Trigger[Any, Any], windows: Any, timestamp: int | None, message: str
) -> None:
    with (
        OperatorHarness(
            lambda s: keyed(s).window(windows).trigger(trigger).apply(listed).name("timeless")
        ) as harness,
        pytest.raises(UserError, match=rf"(?s){message}.*'timeless'"),
    ):
        harness.process(("a", 1), timestamp)


def test_contents_of_other_windows_are_refused_at_a_restore() -> None:
    with OperatorHarness(lambda s: keyed(s).window(TEN).apply(stamped)) as harness:
        harness.process(("a", 1), timestamp=1)
        snapshot = harness.snapshot()
    for changed in (
        lambda s: keyed(s).window(TEN).trigger(ANY).apply(stamped),
        lambda s: keyed(s).window(FIVE).apply(stamped),
        lambda s: keyed(s).count_window(2).apply(stamped),
    ):
        with pytest.raises(SerializerIncompatible, match="window-contents"):
            OperatorHarness(changed, restore=snapshot)

"""Windowed streams as their user sees them: what they are given, what they refuse."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import pytest

from tests.datastream.windows import TEN, Full, Kept, Whole, keyed, listed, stamped
from tidegate import (
    AggregateFunction,
    CountTrigger,
    DataStream,
    DeltaEvictor,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindow,
    GlobalWindows,
    GraphError,
    KeyedStream,
    ListStateDescriptor,
    MergingWindowAssigner,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    PurgingTrigger,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    Window,
    WindowAssigner,
)
from tidegate.errors import UserError
from tidegate.testing import OperatorHarness
from tidegate.typeinfo.hints import type_of_hint

LATE = OutputTag[Any]("late")


# --- what functions are given ---


@pytest.mark.parametrize("windows", [TEN, SlidingEventTimeWindows(10, 10)])
@pytest.mark.parametrize("trigger", [EventTimeTrigger(), PurgingTrigger(EventTimeTrigger())])
def test_a_process_window_function_has_time_and_state(
    windows: WindowAssigner[Any, Any], trigger: Trigger[Any, Any]
) -> None:
    purges = isinstance(trigger, PurgingTrigger)
    with OperatorHarness(
        lambda s: keyed(s).window(windows).trigger(trigger).allowed_lateness(5).process(Kept()),
        start_ms=77,
    ) as harness:
        harness.process(("a", 0), timestamp=1)
        harness.process(("a", 0), timestamp=11)
        harness.watermark(10)
        harness.process(("a", 0), timestamp=2)
        harness.watermark(30)
        assert harness.take() == [
            (0, 1, 1, 1, 10, 77),
            (0, 1 if purges else 2, 2, 2, 10, 77),
            (10, 1, 1, 3, 30, 77),
        ]
        assert [stamp for _, stamp in harness.output] == []


class Spent(NamedTuple):
    who: str
    amount: int


class Spending(AggregateFunction[Any, tuple[str, int], tuple[str, int]]):
    def create_accumulator(self) -> tuple[str, int]:
        return "", 0

    def add(self, value: Any, accumulator: tuple[str, int]) -> tuple[str, int]:
        return value[0], accumulator[1] + value[1]

    def get_result(self, accumulator: tuple[str, int]) -> tuple[str, int]:
        return accumulator

    def merge(self, acc_a: tuple[str, int], acc_b: tuple[str, int]) -> tuple[str, int]:
        return acc_a[0], acc_a[1] + acc_b[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda w: w.apply(lambda key, _, rows: [(key, sum(n for _, n in rows))], Spent),
        lambda w: w.reduce(lambda x, y: (x[0], x[1] + y[1]), output_type=Spent),
        lambda w: w.aggregate(Spending(), None, tuple[str, int], Spent),
    ],
)
def test_results_are_of_the_type_that_a_hint_declares(
    call: Callable[[Any], DataStream[Spent]],
) -> None:
    with OperatorHarness(lambda s: call(keyed(s).window(TEN))) as harness:
        harness.process_all([("a", 1), ("a", 2)], timestamps=[1, 2])
        snapshot = harness.snapshot()
    with OperatorHarness(lambda s: call(keyed(s).window(TEN)), restore=snapshot) as harness:
        harness.end()
        (result,) = harness.take()
        assert isinstance(result, Spent) and result == Spent("a", 3)


def test_results_have_the_last_event_time_of_their_window() -> None:
    with OperatorHarness(lambda s: keyed(s).window(TEN).apply(listed)) as harness:
        harness.process(("a", 0), timestamp=3)
        harness.end()
        assert harness.output == [(("a", TimeWindow(0, 10), [("a", 0)]), 9)]


class Cleared(ProcessWindowFunction[Any, Any, str, Window]):
    """Notes in its own list which windows have gone; the harness runs a copy."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]:
        gone = context.global_state().get_list_state(ListStateDescriptor("gone"))
        yield list(gone.get())

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        gone = context.global_state().get_list_state(ListStateDescriptor("gone"))
        gone.add(context.window())


@pytest.mark.parametrize(
    ("windows", "gone"),
    [
        (lambda s: s.window(TEN), [TimeWindow(0, 10)]),
        (lambda s: s.window(TEN).evictor(Evictor()), [TimeWindow(0, 10)]),
        (lambda s: s.window(EventTimeSessionWindows(3)), [TimeWindow(1, 4)]),
        (
            lambda s: s.window(SlidingEventTimeWindows(10, 5)),
            [TimeWindow(-5, 5), TimeWindow(0, 10)],
        ),
    ],
)
def test_a_function_is_told_of_each_window_that_goes(
    windows: Callable[[KeyedStream[Any]], Any], gone: list[Window]
) -> None:
    with OperatorHarness(lambda s: windows(keyed(s)).process(Cleared())) as harness:
        harness.process(("a", 0), timestamp=1)
        harness.watermark(20)
        harness.take()
        harness.process(("a", 0), timestamp=31)
        harness.watermark(40)
        assert harness.take()[0] == gone


def test_a_count_window_that_was_full_goes() -> None:
    with OperatorHarness(lambda s: keyed(s).count_window(2).process(Cleared())) as harness:
        harness.process_all([("a", 0)] * 4)
        assert [len(gone) for gone in harness.take()] == [0, 1]


def test_a_window_function_may_change_what_it_is_given() -> None:
    def emptied(key: object, window: TimeWindow, elements: Any) -> list[Any]:
        taken = [elements.pop() for _ in range(len(elements))]
        return [len(taken)]

    with OperatorHarness(
        lambda s: keyed(s).window(TEN).allowed_lateness(10).apply(emptied)
    ) as harness:
        harness.process(("a", 0), timestamp=1)
        harness.watermark(9)
        harness.process(("a", 0), timestamp=1)
        assert harness.take() == [1, 2]


def test_a_result_is_not_changed_by_what_comes_after_it() -> None:
    class Gathered(AggregateFunction[Any, list[Any], list[Any]]):
        def create_accumulator(self) -> list[Any]:
            return []

        def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
            accumulator.append(value[1])
            return accumulator

        def get_result(self, accumulator: list[Any]) -> list[Any]:
            return accumulator

        def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
            acc_a.extend(acc_b)
            return acc_a

    for windows in (TEN, SlidingEventTimeWindows(10, 5), EventTimeSessionWindows(20)):
        with OperatorHarness(
            lambda s, windows=windows: (
                keyed(s).window(windows).allowed_lateness(100).aggregate(Gathered())
            )
        ) as harness:
            harness.process(("a", 1), timestamp=5)
            harness.watermark(40)
            harness.process(("a", 2), timestamp=6)
            assert [1] in harness.take()


class WholeWithState(ProcessAllWindowFunction[Any, Any, Window]):
    def process(
        self, context: ProcessAllWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]:
        yield context.window(), sum(elements)


def test_windows_of_a_whole_stream_run_in_one_subtask() -> None:
    env = StreamExecutionEnvironment.local(2)
    numbers = env.from_collection([1, 2, 3, 4, 5])
    full = numbers.count_window_all(2).process(WholeWithState())
    assert [each for _, each in full.execute_and_collect()] == [3, 7]
    with pytest.raises(GraphError, match="must be 1, not 2"):
        full.set_parallelism(2)
    with OperatorHarness(lambda s: s.window_all(TEN).apply(Whole())) as harness:
        harness.process(2, timestamp=1)
        harness.process(1, timestamp=2)
        harness.end()
        assert harness.take() == [(TimeWindow(0, 10), [1, 2])]


def test_windows_of_a_whole_stream_apply_a_plain_function() -> None:
    def listed(window: Any, rows: Iterable[Any]) -> list[Any]:
        return [(window.start, list(rows))]

    with OperatorHarness(lambda s: s.window_all(TEN).apply(listed)) as harness:
        harness.process(2, timestamp=1)
        harness.process(1, timestamp=2)
        harness.end()
        assert harness.take() == [(0, [2, 1])]
    with pytest.raises(GraphError, match="an AllWindowFunction or a plain function"):
        StreamExecutionEnvironment.local(1).from_sequence(1, 2).window_all(TEN).apply(3)  # type: ignore[arg-type]


def test_late_records_go_aside_or_are_counted() -> None:
    def windows(stream: DataStream[Any]) -> DataStream[Any]:
        return keyed(stream).window(TEN).side_output_late_data(LATE).apply(stamped)

    with OperatorHarness(windows) as harness:
        harness.watermark(9)
        harness.process(("a", 1), timestamp=9)
        harness.process(("a", 2), timestamp=10)
        harness.end()
        assert harness.take() == [("a", 10, 20, [2])]
        assert harness.take_side_output(LATE) == [("a", 1)]


def test_results_for_side_outputs_go_there() -> None:
    even = OutputTag[int]("even")

    def split(key: object, window: Window, elements: Iterable[Any]) -> Iterable[Any]:
        for _, number in elements:
            yield (even, number) if number % 2 == 0 else number

    with OperatorHarness(lambda s: keyed(s).count_window(4).apply(split)) as harness:
        harness.process_all([("a", n) for n in range(4)])
        assert harness.take() == [1, 3]
        assert harness.take_side_output(even) == [0, 2]


def test_a_reduce_keeps_the_type_of_its_records() -> None:
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    env = StreamExecutionEnvironment.local()
    records = env.from_collection([("a", 1), ("a", 2)], pair)
    sums = keyed(records).count_window(2).reduce(lambda x, y: [x[0], x[1] + y[1]])
    assert sums.get_type() == pair
    assert list(sums.execute_and_collect()) == [("a", 3)]


# --- by the clock ---


def test_a_window_by_the_clock_ends_when_its_last_millisecond_is_over() -> None:
    for windows in (TumblingProcessingTimeWindows(10), ProcessingTimeSessionWindows(10)):
        for trigger in (
            windows.get_default_trigger(),
            PurgingTrigger(windows.get_default_trigger()),
        ):
            with OperatorHarness(
                lambda s, w=windows, t=trigger: (
                    keyed(s).window(w).trigger(t).allowed_lateness(1_000).apply(stamped)
                ),
                start_ms=100,
            ) as harness:
                harness.process(("a", 1))
                harness.advance_time(9)
                assert harness.take() == []
                harness.advance_time(1)
                assert harness.take() == [("a", 100, 110, [1])]
                snapshot = harness.snapshot()
            with OperatorHarness(
                lambda s, w=windows, t=trigger: keyed(s).window(w).trigger(t).apply(stamped),
                start_ms=500,
                restore=snapshot,
            ) as harness:
                harness.advance_time(100)
                assert harness.take() == []


def test_windows_that_ended_while_nothing_ran_fire_after_a_restore() -> None:
    def windows(stream: DataStream[Any]) -> DataStream[Any]:
        return keyed(stream).window(TumblingProcessingTimeWindows(10)).apply(stamped)

    with OperatorHarness(windows, start_ms=100) as harness:
        harness.process(("a", 1))
        snapshot = harness.snapshot()
    with OperatorHarness(windows, start_ms=5_000, restore=snapshot) as harness:
        harness.advance_time(1)
        assert harness.take() == [("a", 100, 110, [1])]


# --- assigners, triggers, evictors of one's own ---


class Day(NamedTuple):
    """A window that is no tuple of ours."""

    name: str

    def max_timestamp(self) -> int:
        return 7 if self.name == "early" else 15


class ByName(WindowAssigner[Any, Any]):
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Collection[Any]:
        return [Day("early")] if timestamp < 8 else [Day("early"), Day("late")]

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class Typed(ByName):
    """Says of which type its windows are, so that they are not pickled."""

    window_type = type_of_hint(Day)


@pytest.mark.parametrize("assigner", [ByName(), Typed()])
def test_an_assigner_and_windows_of_ones_own(assigner: ByName) -> None:
    def windows(stream: DataStream[Any]) -> DataStream[Any]:
        return keyed(stream).window(assigner).apply(listed)

    with OperatorHarness(windows, parallelism=2) as harness:
        harness.process(("a", 1), timestamp=1)
        harness.process(("b", 2), timestamp=9)
        harness.watermark(7)
        assert sorted(harness.take()) == [
            ("a", Day("early"), [("a", 1)]),
            ("b", Day("early"), [("b", 2)]),
        ]
        snapshot = harness.snapshot()
    with OperatorHarness(windows, restore=snapshot) as harness:
        harness.end()
        assert harness.take() == [("b", Day("late"), [("b", 2)])]


class Derived(TumblingEventTimeWindows):
    """Shifts all windows by their key's length; quicker operators must not pass over that."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        by = len(element[0])
        return [TimeWindow(each.start + by, each.end + by) for each in self.windows_of(timestamp)]


def test_what_is_derived_from_an_assigner_assigns_its_own_windows() -> None:
    with OperatorHarness(lambda s: keyed(s).window(Derived(10)).apply(stamped)) as harness:
        harness.process(("abc", 1), timestamp=5)
        harness.end()
        assert harness.take() == [("abc", 3, 13, [1])]


class Pairs(MergingWindowAssigner[Any, GlobalWindow]):
    """One window each, which merge with nothing."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + 2)]

    def merge_windows(self, windows: Iterable[Any], callback: Any) -> None:
        TimeWindow.merge_windows(windows, lambda parts, _: callback(parts, TimeWindow(0, 1)))

    def get_default_trigger(self) -> Trigger[Any, Any]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


def test_windows_may_not_be_merged_into_one_that_is_over() -> None:
    with OperatorHarness(lambda s: keyed(s).window(Pairs()).apply(stamped)) as harness:
        harness.watermark(5)
        harness.process(("a", 1), timestamp=7)
        with pytest.raises(UserError, match=r"merged into TimeWindow.*over"):
            harness.process(("a", 1), timestamp=8)


def test_a_trigger_of_ones_own_keeps_its_state_where_windows_merge() -> None:
    with OperatorHarness(
        lambda s: keyed(s).window(EventTimeSessionWindows(5)).trigger(Full()).apply(stamped)
    ) as harness:
        harness.process(("a", 1), timestamp=0)
        harness.process(("a", 1), timestamp=10)
        assert harness.take() == []
        harness.process(("a", 2), timestamp=5)
        assert harness.take() == [("a", 0, 15, [1, 1, 2])]
        harness.watermark(20)
        harness.process(("a", 1), timestamp=22)
        harness.process(("a", 2), timestamp=23)
        harness.end()
        assert harness.take() == []


def test_what_differs_too_much_from_the_newest_is_evicted() -> None:
    evictor = DeltaEvictor.of(5, lambda old, new: abs(old[1] - new[1]))
    with OperatorHarness(
        lambda s: (
            keyed(s)
            .window(GlobalWindows.create())
            .trigger(CountTrigger.of(2))
            .evictor(evictor)
            .reduce(lambda x, y: (x[0], x[1] + y[1]))
        )
    ) as harness:
        harness.process_all([("a", n) for n in (1, 4, 20, 3)])
        assert harness.take() == [("a", 5), ("a", 8)]


class Opened(ProcessWindowFunction[Any, Any, str, Window]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]:
        yield self.index


def test_a_window_function_is_opened() -> None:
    with OperatorHarness(lambda s: keyed(s).count_window(1).process(Opened())) as harness:
        harness.process(("a", 1))
        assert harness.take() == [0]

"""Windowed streams as their user sees them: what they are given, what they refuse."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import pytest

from tidegate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    AllWindowFunction,
    CountTrigger,
    DataStream,
    DeltaEvictor,
    Duration,
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
    ReducingStateDescriptor,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    Window,
    WindowAssigner,
)
from tidegate.errors import SerializerIncompatible, UserCodeFailed, UserError
from tidegate.testing import OperatorHarness

TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))
LATE = OutputTag[Any]("late")


def keyed(stream: DataStream[Any]) -> KeyedStream[Any]:
    return stream.key_by(lambda event: event[0], Types.STRING())


def listed(key: object, window: Window, elements: Iterable[Any]) -> list[Any]:
    return [(key, window, list(elements))]


def stamped(key: object, window: TimeWindow, elements: Iterable[Any]) -> list[Any]:
    return [(key, window.start, window.end, [n for _, n in elements])]


# --- what functions are given ---


class Kept(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    """Counts its firings, for the window and for the key."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]:
        per_window = context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        per_key = context.global_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        for state in (per_window, per_key):
            state.update((state.value() or 0) + 1)
        yield (
            context.window().start,
            len(list(elements)),
            per_window.value(),
            per_key.value(),
            context.current_watermark(),
            context.current_processing_time(),
        )

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        state = context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        assert state.value() is not None
        state.clear()


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


class Whole(AllWindowFunction[Any, Any, Window]):
    def apply(self, window: Window, inputs: Iterable[Any]) -> Iterable[Any]:
        yield window, sorted(inputs)


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


def test_an_assigner_and_windows_of_ones_own() -> None:
    def windows(stream: DataStream[Any]) -> DataStream[Any]:
        return keyed(stream).window(ByName()).apply(listed)

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


class Longest(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return max(value, accumulator)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return max(acc_a, acc_b)


class Full(Trigger[Any, TimeWindow]):
    """Fires once a window has three records that are not all alike, whatever has merged."""

    seen = ListStateDescriptor("seen", Types.LONG())
    count = ReducingStateDescriptor("count", lambda x, y: x + y, Types.LONG())
    most = AggregatingStateDescriptor("most", Longest(), Types.LONG())

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Any
    ) -> TriggerResult:
        ctx.register_event_time_timer(timestamp)
        ctx.get_partitioned_state(self.seen).add(element[1])
        ctx.get_partitioned_state(self.count).add(1)
        ctx.get_partitioned_state(self.most).add(element[1])
        seen = sorted(ctx.get_partitioned_state(self.seen).get())
        assert len(seen) == ctx.get_partitioned_state(self.count).get()
        assert seen[-1] == ctx.get_partitioned_state(self.most).get()
        full = len(seen) >= 3 and seen[0] != seen[-1]
        return TriggerResult.FIRE_AND_PURGE if full else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        for state in (self.seen, self.count, self.most):
            ctx.merge_partitioned_state(state)

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        for state in (self.seen, self.count, self.most):
            ctx.get_partitioned_state(state).clear()


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


# --- what is refused ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.window(TumblingEventTimeWindows), "window takes a WindowAssigner, not Tumb"),
        (lambda s: s.window(TEN).trigger(CountTrigger), "trigger takes a Trigger, not CountTrig"),
        (lambda s: s.window(TEN).evictor(CountTrigger(1)), "evictor takes an? Evictor"),
        (lambda s: s.window(TEN).side_output_late_data("late"), "takes an? OutputTag, not str"),
        (lambda s: s.window(TEN).allowed_lateness(-1), "allowed lateness is -1"),
        (lambda s: s.window(TEN).allowed_lateness(Time.seconds(1)), "allowed lateness is Time"),
        (lambda s: s.window(TEN).apply(Kept()), "apply takes a WindowFunction"),
        (lambda s: s.window(TEN).process(Whole()), "process takes a ProcessWindowFunction"),
        (lambda s: s.window(TEN).aggregate(max), "aggregate takes an? AggregateFunction"),
        (lambda s: s.window(EventTimeSessionWindows(1)).trigger(Fixed()), "cannot be used with"),
        (lambda s: EventTimeSessionWindows.with_gap(Duration.of_nanos(1)), "gap of 0 ms can't be"),
        (lambda s: EventTimeSessionWindows.with_dynamic_gap(3), "3 extracts no gap"),
        (lambda s: s.count_window(0), "can't be"),
    ],
)
def test_what_is_wrong_with_a_window_is_said_at_the_call(
    call: Callable[[Any], object], message: str
) -> None:
    stream = StreamExecutionEnvironment.local().from_collection([("a", 1)])
    with pytest.raises(GraphError, match=message):
        call(keyed(stream))


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
        (lambda s: s.window(TEN).trigger(Undecided()).apply(listed), "no TriggerResult"),
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
    ("timestamp", "message"), [(None, "have no event time"), (2**63 - 1, "end of all time")]
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

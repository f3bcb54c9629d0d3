"""What PyFlink promises of time, timers and windows, step by step."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.datastream.windows import TEN, keyed, listed
from tidegate import (
    AllWindowFunction,
    ContinuousProcessingTimeTrigger,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    DataStream,
    Duration,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    KeyedProcessFunction,
    NeverTrigger,
    OnMergeContext,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingProcessingTimeWindows,
    Time,
    TimerService,
    TimeWindow,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    WindowAssigner,
)
from tidegate.testing import OperatorHarness

MIN = -(2**63)
LATE = OutputTag[Any]("late")


# Timers


class Alarms(KeyedProcessFunction[Any, Any]):
    """Does with the timers what each record says: a call and its times."""

    def process_element(
        self, value: tuple[str, str, int], ctx: KeyedProcessFunction.Context
    ) -> None:
        timers: TimerService = ctx.timer_service()
        call = getattr(timers, value[1])
        call(value[2])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        if timestamp == 50:
            ctx.timer_service().register_event_time_timer(40)
        yield ctx.get_current_key(), timestamp, ctx.time_domain().name, ctx.timestamp()


SET = "register_event_time_timer"
UNSET = "delete_event_time_timer"


def alarms(stream: DataStream[Any]) -> DataStream[Any]:
    return keyed(stream).process(Alarms())


def test_event_time_timers_fire_once_in_order_over_all_keys() -> None:
    with OperatorHarness(alarms) as harness:
        for key, at_ms in [("a", 30), ("b", 10), ("a", 20), ("b", 30), ("a", 20)]:
            harness.process((key, SET, at_ms), timestamp=0)
        harness.watermark(19)
        assert [(key, at_ms) for key, at_ms, *_ in harness.take()] == [("b", 10)]
        harness.watermark(30)
        fired = [(key, at_ms) for key, at_ms, *_ in harness.take()]
        assert fired[0] == ("a", 20)
        assert sorted(fired[1:]) == [("a", 30), ("b", 30)]
        harness.watermark(1_000)
        assert harness.take() == []


def test_a_deleted_timer_never_fires_and_can_be_set_anew() -> None:
    with OperatorHarness(alarms) as harness:
        harness.process(("a", SET, 10), timestamp=0)
        harness.process(("b", SET, 10), timestamp=0)
        harness.process(("a", UNSET, 10), timestamp=0)
        harness.process(("a", UNSET, 11), timestamp=0)
        harness.watermark(9)
        harness.process(("c", SET, 10), timestamp=0)
        harness.process(("c", UNSET, 10), timestamp=0)
        harness.process(("c", SET, 10), timestamp=0)
        harness.watermark(10)
        assert sorted(key for key, *_ in harness.take()) == ["b", "c"]


def test_a_timer_that_is_due_already_fires_at_the_next_advance() -> None:
    with OperatorHarness(alarms) as harness:
        harness.watermark(100)
        harness.process(("a", SET, 60), timestamp=100)
        assert harness.take() == []
        harness.watermark(101)
        assert harness.take() == [("a", 60, "EVENT_TIME", 60)]


def test_a_timer_that_a_timer_sets_at_or_below_the_watermark_fires_within_the_same_advance() -> (
    None
):
    with OperatorHarness(alarms) as harness:
        harness.process(("a", SET, 50), timestamp=0)
        harness.watermark(60)
        assert [at_ms for _, at_ms, *_ in harness.take()] == [50, 40]


def test_what_timers_give_carries_their_time_and_comes_before_the_watermark() -> None:
    with OperatorHarness(alarms) as harness:
        harness.process(("a", SET, 10), timestamp=3)
        harness.watermark(25)
        assert harness.output == [(("a", 10, "EVENT_TIME", 10), 10)]
        assert harness.watermarks == [25]


def test_processing_time_timers_fire_by_the_clock_and_not_at_the_end_of_input() -> None:
    wall = "register_processing_time_timer"
    with OperatorHarness(alarms, start_ms=1_000) as harness:
        for at_ms in (1_500, 400, 1_200, 1_200, 9_000, 1_300):
            harness.process(("a", wall, at_ms))
        harness.process(("a", "delete_processing_time_timer", 1_300))
        harness.advance_time(0)
        assert [at_ms for _, at_ms, *_ in harness.take()] == [400]
        harness.advance_time(500)
        assert [at_ms for _, at_ms, *_ in harness.take()] == [1_200, 1_500]
        snapshot = harness.snapshot()
        harness.end()
        assert harness.take() == []
    with OperatorHarness(alarms, start_ms=20_000, restore=snapshot) as harness:
        harness.advance_time(0)
        assert [at_ms for _, at_ms, *_ in harness.take()] == [9_000]


# Watermarks


class Told(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def test_the_watermark_is_the_least_of_active_inputs_and_never_goes_back() -> None:
    with OperatorHarness(lambda s, t: s.union(t).process(Told()), inputs=2) as harness:
        harness.process("x", timestamp=1)
        harness.watermark(10, source=0)
        assert harness.watermarks == []
        harness.watermark(4, source=1)
        harness.watermark(7, source=1)
        harness.idle(source=1)
        harness.process("y", timestamp=2)
        harness.active(source=1)
        harness.watermark(8, source=1)
        harness.process("z", source=1)
        harness.watermark(12, source=1)
        assert harness.watermarks == [4, 7, 10]
        assert harness.output == [
            (("x", 1, MIN), 1),
            (("y", 2, 10), 2),
            (("z", None, 10), None),
        ]


def test_the_union_of_unequal_inputs_goes_on_when_one_has_ended() -> None:
    with OperatorHarness(lambda s, t: s.union(t).process(Told()), inputs=2) as harness:
        harness.watermark(2**63 - 1, source=0)
        harness.watermark(5, source=1)
        harness.process("late to the party", timestamp=9, source=1)
        assert harness.watermarks == [5]
        assert harness.take() == [("late to the party", 9, 5)]


# Assigners by the wall clock


def counted(assigner: WindowAssigner[Any, Any]) -> Any:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = keyed(stream).window(assigner)
        assert windowed.get_input_type() == stream.get_type()
        assert windowed.get_execution_environment() is stream.get_execution_environment()
        return windowed.apply(listed)

    return step


def spans(harness: OperatorHarness) -> list[tuple[int, int, list[Any]]]:
    return [
        (window.start, window.end, [n for _, n in elements])
        for _, window, elements in harness.take()
    ]


def test_tumbling_windows_of_processing_time_end_by_the_clock() -> None:
    assigner = TumblingProcessingTimeWindows.of(Time.milliseconds(10), Time.milliseconds(3))
    with OperatorHarness(counted(assigner), start_ms=1_000) as harness:
        harness.process(("a", 1))
        harness.advance_time(4)
        harness.process(("a", 2))
        assert spans(harness) == [(993, 1_003, [1])]
        harness.advance_time(20)
        assert spans(harness) == [(1_003, 1_013, [2])]
        harness.process(("a", 3))
        harness.end()
        assert spans(harness) == []


def test_sliding_windows_of_processing_time_overlap() -> None:
    assigner = SlidingProcessingTimeWindows.of(Time.milliseconds(10), Time.milliseconds(5))
    with OperatorHarness(counted(assigner), start_ms=1_000) as harness:
        harness.process(("a", 1))
        harness.advance_time(5)
        harness.process(("a", 2))
        harness.advance_time(50)
        assert spans(harness) == [(995, 1_005, [1]), (1_000, 1_010, [1, 2]), (1_005, 1_015, [2])]


class ByNumber(SessionWindowTimeGapExtractor):
    def extract(self, element: tuple[str, int]) -> int:
        return element[1]


@pytest.mark.parametrize(
    "assigner",
    [
        ProcessingTimeSessionWindows.with_gap(Time.milliseconds(10)),
        ProcessingTimeSessionWindows.with_dynamic_gap(ByNumber()),
        DynamicProcessingTimeSessionWindows.with_dynamic_gap(ByNumber()),
    ],
)
def test_sessions_of_processing_time_end_after_their_gap(assigner: Any) -> None:
    with OperatorHarness(counted(assigner), start_ms=1_000) as harness:
        harness.process(("a", 10))
        harness.advance_time(9)
        harness.process(("a", 10))
        harness.advance_time(9)
        assert spans(harness) == []
        harness.advance_time(1)
        assert spans(harness) == [(1_000, 1_019, [10, 10])]


@pytest.mark.parametrize(
    "assigner",
    [
        EventTimeSessionWindows.with_dynamic_gap(ByNumber()),
        DynamicEventTimeSessionWindows.with_dynamic_gap(ByNumber()),
    ],
)
def test_each_record_of_a_session_brings_its_own_gap(assigner: Any) -> None:
    with OperatorHarness(counted(assigner)) as harness:
        harness.process(("a", 100), timestamp=0)
        harness.process(("a", 5), timestamp=50)
        harness.process(("a", 5), timestamp=200)
        harness.watermark(99)
        assert spans(harness) == [(0, 100, [100, 5])]
        harness.watermark(204)
        assert spans(harness) == [(200, 205, [5])]


@pytest.mark.parametrize("gap", [0, -1])
def test_a_gap_that_is_not_positive_fails_the_job(gap: int) -> None:
    step = counted(EventTimeSessionWindows.with_dynamic_gap(ByNumber()))
    with OperatorHarness(step) as harness, pytest.raises(Exception, match="gap"):
        harness.process(("a", gap), timestamp=0)


# Sessions and lateness


def late_sessions(stream: DataStream[Any]) -> DataStream[Any]:
    windows = keyed(stream).window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
    return windows.allowed_lateness(20).side_output_late_data(LATE).apply(listed)


def test_sessions_merge_across_late_data_and_lateness_is_judged_after_merging() -> None:
    with OperatorHarness(late_sessions) as harness:
        harness.process(("a", 0), timestamp=0)
        harness.process(("a", 15), timestamp=15)
        harness.watermark(24)
        assert spans(harness) == [(0, 10, [0]), (15, 25, [15])]
        # Late, and bridges the two: the whole session fires again.
        harness.process(("a", 8), timestamp=8)
        ((start, end, numbers),) = spans(harness)
        assert (start, end, sorted(numbers)) == (0, 25, [0, 8, 15])
        harness.watermark(40)
        # [5, 15) alone would be over since 34; merged with [0, 25) it lives until 44.
        harness.process(("a", 5), timestamp=5)
        assert sorted(spans(harness)[0][2]) == [0, 5, 8, 15]
        harness.watermark(44)
        harness.process(("a", 6), timestamp=6)
        assert spans(harness) == []
        assert harness.take_side_output(LATE) == [("a", 6)]


def with_lateness(purging: bool) -> Any:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        windows = keyed(stream).window(TEN).allowed_lateness(5).side_output_late_data(LATE)
        if purging:
            windows = windows.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
        return windows.apply(listed)

    return step


@pytest.mark.parametrize(("purging", "again"), [(False, [1, 2]), (True, [2])])
def test_a_late_record_fires_its_window_again_until_the_lateness_is_over(
    purging: bool, again: list[int]
) -> None:
    with OperatorHarness(with_lateness(purging)) as harness:
        harness.process(("a", 1), timestamp=3)
        harness.watermark(8)
        harness.process(("a", 0), timestamp=-4)  # its window [-10, 0) is over since 4
        assert harness.take_side_output(LATE) == [("a", 0)]
        harness.watermark(9)
        assert spans(harness) == [(0, 10, [1])]
        harness.watermark(13)
        harness.process(("a", 2), timestamp=4)
        assert spans(harness) == [(0, 10, again)]
        harness.watermark(14)
        harness.process(("a", 3), timestamp=5)
        assert spans(harness) == []
        assert harness.take_side_output(LATE) == [("a", 3)]


def test_windows_give_their_last_moment_and_fire_in_order_at_the_end_of_input() -> None:
    with OperatorHarness(counted(TEN)) as harness:
        for at_ms in (25, 3, 14, -1):
            harness.process(("a", at_ms), timestamp=at_ms)
        harness.end()
        assert [stamp for _, stamp in harness.output] == [-1, 9, 19, 29]
        assert spans(harness) == [(-10, 0, [-1]), (0, 10, [3]), (10, 20, [14]), (20, 30, [25])]


# Counts, triggers, windows of all


def test_count_windows_fire_when_full_and_what_is_left_is_dropped() -> None:
    with OperatorHarness(counted(CountTumblingWindowAssigner.of(2))) as harness:
        harness.process_all([("a", 1), ("b", 2), ("a", 3), ("a", 4)])
        assert [elements for _, _, elements in harness.take()] == [[("a", 1), ("a", 3)]]
        harness.end()
        assert harness.take() == []


def test_sliding_count_windows_fire_only_when_full() -> None:
    with OperatorHarness(counted(CountSlidingWindowAssigner.of(3, 2))) as harness:
        harness.process_all([("a", n) for n in range(6)])
        found = [[n for _, n in elements] for _, _, elements in harness.take()]
        assert found == [[0, 1, 2], [2, 3, 4]]
        harness.end()
        assert harness.take() == []


def test_a_window_by_count_is_known_by_its_number() -> None:
    assert CountWindow(3) == CountWindow(3) != CountWindow(4)
    assert CountWindow(3).max_timestamp() == GlobalWindow.get().max_timestamp() == 2**63 - 1
    assert GlobalWindow.get() == GlobalWindow.get()
    assert TimeWindow(0, 10).max_timestamp() == 9


def triggered(trigger: Trigger[Any, Any]) -> Any:
    return lambda stream: (
        keyed(stream).window(GlobalWindows.create()).trigger(trigger).apply(listed)
    )


@pytest.mark.feature("F311")
def test_global_windows_fire_at_the_end_of_the_input_where_they_are_told_to() -> None:
    windows = GlobalWindows.create_with_end_of_stream_trigger()
    with OperatorHarness(lambda stream: keyed(stream).window(windows).apply(listed)) as harness:
        harness.process(("a", 1), timestamp=0)
        harness.process(("b", 2))
        harness.process(("a", 3), timestamp=9)
        harness.watermark(1_000_000)
        assert harness.take() == []
        harness.end()
        found = sorted([n for _, n in elements] for _, _, elements in harness.take())
        assert found == [[1, 3], [2]]


def test_global_windows_fire_by_their_trigger_alone() -> None:
    trigger = ContinuousProcessingTimeTrigger.of(Time.milliseconds(10))
    with OperatorHarness(triggered(trigger), start_ms=1_000) as harness:
        harness.process(("a", 1))
        harness.advance_time(11)  # the clock has to have passed the time that is waited for
        harness.process(("a", 2))
        harness.advance_time(10)
        found = [[n for _, n in elements] for _, _, elements in harness.take()]
        assert found == [[1], [1, 2]]
    with OperatorHarness(triggered(NeverTrigger())) as harness:
        harness.process(("a", 1), timestamp=0)
        harness.end()
        assert harness.take() == []


def test_a_trigger_takes_the_place_of_the_assigners() -> None:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        return keyed(stream).window(TEN).trigger(ProcessingTimeTrigger.create()).apply(listed)

    with OperatorHarness(step, start_ms=-5) as harness:
        harness.process(("a", 1), timestamp=3)
        harness.watermark(8)
        harness.advance_time(14)
        assert spans(harness) == []
        harness.advance_time(1)
        assert spans(harness) == [(0, 10, [1])]


class Loud(Trigger[Any, TimeWindow]):
    """Fires at a record of 0, a second after each record, and 5 ms before the window ends."""

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        held = ctx.get_partitioned_state(ValueStateDescriptor("seen", Types.LONG()))
        held.update((held.value() or 0) + 1)  # type: ignore[attr-defined]
        ctx.register_event_time_timer(window.end - 5)
        ctx.register_event_time_timer(window.end - 7)
        ctx.delete_event_time_timer(window.end - 7)
        ctx.register_processing_time_timer(ctx.get_current_processing_time() + 1_000)
        ctx.get_metric_group().counter("elements").inc()
        return TriggerResult.FIRE if element[1] == 0 else TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        assert ctx.get_current_watermark() >= time
        # As in Flink it is also asked when the window is about to go.
        mine = time == window.end - 5
        return TriggerResult.FIRE_AND_PURGE if mine else TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        raise AssertionError("these windows do not merge")

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.end - 5)
        ctx.get_partitioned_state(ValueStateDescriptor("seen", Types.LONG())).clear()


def test_a_trigger_of_ones_own_is_asked_for_records_and_both_kinds_of_time() -> None:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        return keyed(stream).window(TEN).trigger(Loud()).apply(listed)

    with OperatorHarness(step) as harness:
        harness.process(("a", 1), timestamp=3)
        assert spans(harness) == []
        harness.process(("a", 0), timestamp=3)
        assert spans(harness) == [(0, 10, [1, 0])]
        harness.advance_time(1_001)
        assert spans(harness) == [(0, 10, [1, 0])]
        harness.watermark(4)
        assert spans(harness) == []
        harness.watermark(5)
        assert spans(harness) == [(0, 10, [1, 0])]
        harness.watermark(9)
        assert spans(harness) == []


class Cannot(Loud):
    def can_merge(self) -> bool:
        return False


def test_a_trigger_that_cannot_merge_is_refused_for_sessions() -> None:
    sessions = EventTimeSessionWindows.with_gap(Time.milliseconds(10))
    with pytest.raises(Exception, match="Cannot"):
        OperatorHarness(lambda s: keyed(s).window(sessions).trigger(Cannot()).apply(listed))


class Everything(ProcessAllWindowFunction[Any, Any, TimeWindow]):
    """Counts its firings, for each window and over all; says what it had when it is cleared."""

    cleared: list[tuple[int, int | None]]

    def process(
        self, context: ProcessAllWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]:
        fired = context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        all_fired = context.global_state().get_state(ValueStateDescriptor("all", Types.LONG()))
        for state in (fired, all_fired):
            state.update((state.value() or 0) + 1)
        yield context.window().start, list(elements), fired.value(), all_fired.value()

    def clear(self, context: ProcessAllWindowFunction.Context) -> None:
        fired = context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG()))
        CLEARED.append((context.window().start, fired.value()))
        fired.clear()


CLEARED: list[tuple[int, int | None]] = []


def test_windows_of_all_keep_state_for_a_window_and_over_all_and_clear_it() -> None:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        windowed = stream.window_all(TEN).allowed_lateness(5)
        assert windowed.get_input_type() == stream.get_type()
        return windowed.process(Everything())

    CLEARED.clear()
    with OperatorHarness(step) as harness:
        harness.process(1, timestamp=1)
        harness.process(2, timestamp=11)
        harness.watermark(9)
        harness.process(3, timestamp=2)
        harness.watermark(19)
        assert harness.take() == [(0, [1], 1, 1), (0, [1, 3], 2, 2), (10, [2], 1, 3)]
        assert CLEARED == [(0, 2)]
        harness.end()
        assert CLEARED == [(0, 2), (10, 1)]


class Span(AllWindowFunction[Any, Any, TimeWindow]):
    def apply(self, window: TimeWindow, inputs: Iterable[Any]) -> Iterable[Any]:
        yield window.start, window.end, sorted(inputs)


def test_windows_of_all_take_what_comes_in_one_subtask() -> None:
    windows = TumblingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(4))
    with OperatorHarness(lambda s: s.window_all(windows).apply(Span()), parallelism=1) as harness:
        for n in (3, 4, 13, 14):
            harness.process(n, timestamp=n)
        harness.end()
        assert harness.take() == [(-6, 4, [3]), (4, 14, [4, 13]), (14, 24, [14])]


@pytest.mark.parametrize(
    ("span", "ms"),
    [
        (Time.milliseconds(7), 7),
        (Time.seconds(2), 2_000),
        (Time.minutes(3), 180_000),
        (Time.hours(1), 3_600_000),
        (Time.days(2), 172_800_000),
    ],
)
def test_a_time_is_so_many_milliseconds(span: Time, ms: int) -> None:
    assert span.to_milliseconds() == ms
    assert Time(ms) == span


@pytest.mark.parametrize(
    ("span", "same"),
    [
        (Duration.of_nanos(5_000_000), Duration.of_millis(5)),
        (Duration.of_millis(1_000), Duration.of_seconds(1)),
        (Duration.of_minutes(60), Duration.of_hours(1)),
        (Duration.of_hours(24), Duration.of_days(1)),
    ],
)
def test_durations_are_equal_by_length(span: Duration, same: Duration) -> None:
    assert span == same
    assert hash(span) == hash(same)

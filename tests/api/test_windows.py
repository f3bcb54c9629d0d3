"""Windows as values."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import (
    CountWindow,
    Duration,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    GlobalWindow,
    GraphError,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)


def test_a_time_window_holds_its_start_and_not_its_end() -> None:
    window = TimeWindow(-10, 10)
    assert window.max_timestamp() == 9
    assert window.intersects(TimeWindow(10, 20)) and not window.intersects(TimeWindow(11, 20))
    assert window.cover(TimeWindow(30, 40)) == TimeWindow(-10, 40)
    assert sorted([TimeWindow(5, 6), TimeWindow(1, 9), TimeWindow(1, 2)])[0] == TimeWindow(1, 2)
    assert len({window, TimeWindow(-10, 10)}) == 1


@given(
    timestamp=st.integers(-(2**62), 2**62),
    size=st.integers(1, 10**9),
    offset=st.integers(-(10**9), 10**9),
)
def test_each_timestamp_lies_in_the_window_that_starts_for_it(
    timestamp: int, size: int, offset: int
) -> None:
    start = TimeWindow.get_window_start_with_offset(timestamp, offset, size)
    assert start <= timestamp < start + size
    assert (start - offset) % size == 0


def test_windows_without_an_end_last_as_long_as_time() -> None:
    assert CountWindow(3).max_timestamp() == GlobalWindow.get().max_timestamp() == 2**63 - 1
    assert GlobalWindow.get() == GlobalWindow.get()


def test_assigners_take_times_and_durations() -> None:
    tumbling = TumblingEventTimeWindows.of(Time.seconds(10), Duration.of_millis(-5))
    assert tumbling == TumblingEventTimeWindows(10_000, -5)
    assert tumbling.slide_ms == tumbling.size_ms
    sliding = SlidingEventTimeWindows.of(Time.minutes(1), Time.seconds(10))
    assert sliding == SlidingEventTimeWindows(60_000, 10_000, 0)


def test_arguments_have_pyflinks_names() -> None:
    assert Time(milliseconds=5) == Time.milliseconds(5)
    for tumbling in (TumblingEventTimeWindows, TumblingProcessingTimeWindows):
        assert tumbling(size=10, offset=-5) == tumbling(10, -5)
        assert tumbling(size=10) == tumbling.of(Time(10))
        assert pickle.loads(pickle.dumps(tumbling(10, 1))) == tumbling(10, 1)
    for sliding in (SlidingEventTimeWindows, SlidingProcessingTimeWindows):
        assert sliding(size=10, slide=5, offset=1) == sliding(10, 5, 1)
        assert sliding(size=10, slide=5) == sliding.of(Time(10), Time(5))
    for sessions in (DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows):
        assert sessions(session_window_time_gap_extractor=abs).gap_ms(-3) == 3


@pytest.mark.parametrize(("size", "slide", "offset"), [(0, 1, 0), (10, 0, 0), (10, 5, 5)])
def test_windows_that_cannot_be_are_refused(size: int, slide: int, offset: int) -> None:
    times = [Time.milliseconds(each) for each in (size, slide, offset)]
    with pytest.raises(GraphError, match="can't be"):
        SlidingEventTimeWindows.of(*times)
    with pytest.raises(GraphError, match=r"with an offset of -10 ms"):
        TumblingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(-10))

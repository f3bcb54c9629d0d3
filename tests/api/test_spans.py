"""Each call that takes a length of time takes it in every way that Python has."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.datastream.fakes import environment, numbers
from tidegate import (
    Duration,
    EventTimeSessionWindows,
    GraphError,
    SlidingEventTimeWindows,
    StateTtlConfig,
    Time,
    TimeEvictor,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tidegate.config.spans import span_ms
from tidegate.connectors import FileSource

SPANS = [timedelta(seconds=90), Time.seconds(90), Duration.of_seconds(90), "90 s", "PT1M30S"]


def lateness(span: Any) -> object:
    windows = TumblingEventTimeWindows.of(span)
    windowed = numbers(environment()).key_by(abs).window(windows).allowed_lateness(span)
    return vars(windowed)["_plan"].lateness_ms


TAKERS: dict[str, Callable[[Any], object]] = {
    "tumbling": lambda span: TumblingEventTimeWindows.of(span).size_ms,
    "sliding": lambda span: SlidingEventTimeWindows.of(span, span).slide_ms,
    "session": lambda span: EventTimeSessionWindows.with_gap(span).session_gap,
    "evictor": lambda span: TimeEvictor.of(span).window_size,
    "out of order": lambda span: WatermarkStrategy.for_bounded_out_of_orderness(span).lateness_ms,
    "idleness": lambda span: (
        WatermarkStrategy.for_monotonous_timestamps().with_idleness(span).idle_ms
    ),
    "time to live": lambda span: StateTtlConfig.new_builder(span).build().ttl.to_milliseconds(),
    "watching": lambda span: FileSource.text("/").monitor_continuously(span).interval_ms,
    "checkpoints": lambda span: environment().enable_checkpointing(span).get_checkpoint_interval(),
    "lateness": lateness,
}


@pytest.mark.parametrize("span", SPANS, ids=str)
@pytest.mark.parametrize("taker", TAKERS.values(), ids=TAKERS)
def test_every_way_to_write_it_is_taken(taker: Callable[[Any], object], span: object) -> None:
    assert taker(span) == 90_000


@pytest.mark.parametrize("text", ["-5 min", "-PT5M"])
def test_a_text_may_be_negative_where_a_bound_may(text: str) -> None:
    assert span_ms(text) == -300_000


@pytest.mark.parametrize("given", [None, 1.5, "soon", "5 fortnights", object()])
def test_what_is_no_length_of_time_is_refused(given: Any) -> None:
    with pytest.raises(GraphError, match=r"is no (length of time|duration)") as refused:
        TumblingEventTimeWindows.of(given)
    assert "timedelta" in refused.value.remedy

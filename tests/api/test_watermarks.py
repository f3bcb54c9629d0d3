"""Watermark strategies as they are written, and what is refused while they are."""

import pickle
from collections.abc import Callable

import pytest

from tidegate import (
    ConfigError,
    Duration,
    GraphError,
    Time,
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from tidegate.api.watermarks import WatermarkAlignment

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
SECOND = Duration.of_seconds(1)


class Never(WatermarkGenerator[object]):
    def on_event(self, value: object, timestamp: int, output: WatermarkOutput) -> None:
        pass


class Zero(TimestampAssigner[object]):
    def extract_timestamp(self, value: object, record_timestamp: int) -> int:
        return 0


def test_each_call_gives_a_new_strategy_and_keeps_what_was_said() -> None:
    made = (
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
        .with_watermark_alignment("near", Duration.of_seconds(2))
        .with_idleness(Time.seconds(3))
        .with_timestamp_assigner("time")
    )
    alignment = WatermarkAlignment("near", drift_ms=2_000, update_ms=1_000)
    assert made == WatermarkStrategy(5, None, "time", 3_000, alignment)
    assert MONOTONOUS.with_idleness(SECOND) != MONOTONOUS


def test_a_strategy_travels_with_the_job() -> None:
    made = WatermarkStrategy.for_generator(Never).with_timestamp_assigner(Zero())
    assert pickle.loads(pickle.dumps(made)).supplier is Never


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: WatermarkStrategy.for_bounded_out_of_orderness(0.5),
            "takes a Duration, not float",
        ),
        (
            lambda: WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1)),
            "was given -1 ms",
        ),
        (lambda: MONOTONOUS.with_idleness(None), "takes a Duration, not NoneType"),
        (lambda: MONOTONOUS.with_idleness(Duration.of_nanos(9)), "was given 0 ms"),
        (lambda: MONOTONOUS.with_watermark_alignment("", SECOND), "group is '', not a name"),
        (lambda: MONOTONOUS.with_watermark_alignment(7, SECOND), "group is 7, not a name"),
        (
            lambda: MONOTONOUS.with_watermark_alignment("g", Duration.of_millis(-5)),
            "was given -5 ms",
        ),
        (
            lambda: MONOTONOUS.with_watermark_alignment("g", SECOND, Duration.of_millis(0)),
            "was given 0 ms",
        ),
        (
            lambda: WatermarkStrategy.no_watermarks().with_watermark_alignment("g", SECOND),
            "without watermarks cannot be aligned",
        ),
    ],
)
def test_lengths_of_time_and_groups_that_cannot_be_are_refused(
    call: Callable[[], object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        call()
    assert caught.value.where.startswith("WatermarkStrategy.") and caught.value.remedy


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: WatermarkStrategy.for_generator(Never()), "makes a generator, not Never"),
        (lambda: MONOTONOUS.with_timestamp_assigner(Zero), "not the class Zero"),
        (lambda: MONOTONOUS.with_timestamp_assigner(None), "not NoneType"),
    ],
)
def test_functions_that_are_none_are_refused(call: Callable[[], object], told: str) -> None:
    with pytest.raises(GraphError, match=told) as caught:
        call()
    assert caught.value.where.startswith("WatermarkStrategy.") and caught.value.remedy

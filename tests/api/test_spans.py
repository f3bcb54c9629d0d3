"""Each call that takes a length of time takes it in every way that Python has."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.datastream.fakes import environment, numbers
from tidegate import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    Duration,
    EventTimeSessionWindows,
    GraphError,
    RestartStrategies,
    SlidingEventTimeWindows,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    TimeEvictor,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tidegate.config.recovery import FAILURE_RATE_DELAY, FAILURE_RATE_INTERVAL, FIXED_DELAY
from tidegate.config.spans import span_ms
from tidegate.connectors import FileSource, JdbcExecutionOptions, StreamFormat
from tidegate.graph.transformations import OperatorTransformation
from tidegate.operators.async_calls.call_settings import CallSettings

SPANS = [
    timedelta(seconds=90),
    Time.seconds(90),
    Duration.of_seconds(90),
    "90 s",
    "PT1M30S",
    90_000,
]


class Calls(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        return [value]


def calls(span: Any) -> CallSettings:
    made = AsyncDataStream.ordered_wait(numbers(environment()), Calls(), span, batch_wait=span)
    assert isinstance(made.transformation, OperatorTransformation)
    return vars(made.transformation.operator)["_settings"]


def buffered(span: Any) -> int | None:
    made = numbers(environment()).map(abs).set_buffer_timeout(span).transformation
    assert isinstance(made, OperatorTransformation)
    return made.notes.buffer_timeout_ms


def restarts(span: Any) -> int:
    env = environment()
    env.set_restart_strategy(RestartStrategies.failure_rate_restart(3, span, span))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, span))
    known = env.get_configuration()
    (delay, *others) = {
        known.get(FIXED_DELAY),
        known.get(FAILURE_RATE_DELAY),
        known.get(FAILURE_RATE_INTERVAL),
    }
    assert others == []
    return delay


def compacted(span: Any) -> int:
    made = StateTtlConfig.new_builder(span).cleanup_in_rocksdb_compact_filter(10, span).build()
    strategy = made.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()
    assert strategy is not None
    return strategy.get_periodic_compaction_time().to_millis()


def built(span: Any) -> int | None:
    lines = StreamFormat.text_line_format()
    builder = FileSource.for_record_stream_format(lines, "/").monitor_continuously(span)
    return builder.build().interval_ms


def paused(strategy: AsyncRetryStrategy[Any]) -> int:
    return strategy.get_backoff_time_millis(2)


def setting(name: str, config: Callable[[StreamExecutionEnvironment], Any]) -> Callable[[Any], Any]:
    """What a setter of a configuration takes, as its getter gives it."""

    def taken(span: Any) -> Any:
        made = config(environment())
        getattr(made, f"set_{name}")(span)
        return getattr(made, f"get_{name}")()

    return taken


CHECKPOINT = ["checkpoint_interval", "checkpoint_timeout", "min_pause_between_checkpoints"]
EXECUTION = [
    "auto_watermark_interval",
    "latency_tracking_interval",
    "task_cancellation_interval",
    "task_cancellation_timeout",
]


def lateness_of_join(span: Any) -> object:
    env = environment()
    pair = numbers(env).join(numbers(env)).where(abs).equal_to(abs)
    windows = pair.window(TumblingEventTimeWindows.of(span)).allowed_lateness(span)
    return vars(vars(windows)["_windows"])["_plan"].lateness_ms


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
    "watching, built": built,
    "compaction": compacted,
    "restarts": restarts,
    "calls": lambda span: calls(span).timeout_ms,
    "calls in batches": lambda span: calls(span).batch_wait_ms,
    "repeated calls": lambda span: paused(AsyncRetryStrategy.fixed_delay(3, span)),
    "calls with a growing pause": lambda span: paused(
        AsyncRetryStrategy.exponential_backoff(3, span, span, 2.0)
    ),
    "buffers": lambda span: environment().set_buffer_timeout(span).get_buffer_timeout(),
    "buffers of a step": buffered,
    "lateness of a join": lateness_of_join,
    "rows of a database": lambda span: (
        JdbcExecutionOptions.builder().with_batch_interval_ms(span).build().batch_interval_ms
    ),
    **{
        name: setting(name, StreamExecutionEnvironment.get_checkpoint_config) for name in CHECKPOINT
    },
    **{name: setting(name, StreamExecutionEnvironment.get_config) for name in EXECUTION},
}


@pytest.mark.parametrize("span", SPANS, ids=str)
@pytest.mark.parametrize("taker", TAKERS.values(), ids=TAKERS)
def test_every_way_to_write_it_is_taken(taker: Callable[[Any], object], span: object) -> None:
    assert taker(span) == 90_000


@pytest.mark.parametrize("text", ["-5 min", "-PT5M"])
def test_a_text_may_be_negative_where_a_bound_may(text: str) -> None:
    assert span_ms(text) == -300_000


@pytest.mark.parametrize("given", [None, 1.5, True, "soon", "5 fortnights", object()])
def test_what_is_no_length_of_time_is_refused(given: Any) -> None:
    with pytest.raises(GraphError, match=r"is not a (length of time|duration)") as refused:
        TumblingEventTimeWindows.of(given)
    assert "timedelta" in refused.value.remedy

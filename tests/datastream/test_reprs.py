"""What a program's objects say of themselves at a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.datastream.fakes import environment, numbers
from tests.rest.world import EMPTY
from tidegate import (
    AsyncRetryStrategy,
    CountTrigger,
    Duration,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    JobExecutionResult,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    Row,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tidegate.api.job import JobSummary
from tidegate.api.watermarks import WatermarkGenerator, WatermarkOutput
from tidegate.model.control import JobStatus, RowCounts
from tidegate.model.ids import JobId

if TYPE_CHECKING:
    from collections.abc import Iterator


class Same(KeyedProcessFunction[int, int]):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        yield value


class Late(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[int]:
        yield value


class Never(WatermarkGenerator[Any]):
    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        pass


def test_streams_say_what_they_are() -> None:
    env = environment()
    env.set_parallelism(2)
    source = numbers(env).name("numbers")
    tens = source.map(lambda n: n * 10, int).name("tens").uid("tens")
    assert repr(tens) == "<DataStream 'tens' of Long, parallelism 2, uid 'tens'>"
    keyed = tens.key_by(lambda n: n % 3)
    assert repr(keyed) == "<KeyedStream 'tens' of Long>"
    assert repr(tens.union(source)).startswith("<DataStream 'tens' and 'numbers'")
    minutes = TumblingEventTimeWindows.of(Time.minutes(1))
    windows = "in TumblingEventTimeWindows(size_ms=60000, offset_ms=0)>"
    assert repr(keyed.window(minutes)) == f"<WindowedStream of 'tens' {windows}"
    assert repr(tens.window_all(minutes)) == f"<AllWindowedStream of 'tens' {windows}"
    assert repr(keyed.connect(keyed)) == "<ConnectedStreams of 'tens' and 'tens', keyed>"
    rules = source.broadcast(MapStateDescriptor("rules"))
    shown = "<BroadcastConnectedStream of 'tens' and broadcast 'numbers'>"
    assert repr(tens.connect(rules)) == shown
    late = source.process(Late()).get_side_output(OutputTag("late"))
    assert repr(late) == "<DataStream side output 'late' of 'Process'>"
    assert "'tens'" in repr(tens.join(source)) and "object at" not in repr(tens.join(source))
    sink = keyed.process(Same()).print().name("out")
    assert repr(sink) == "<DataStreamSink 'out', parallelism 2>"
    assert repr(env).startswith("<StreamExecutionEnvironment, parallelism 2: 'tens'")


def test_a_notebook_draws_a_program_and_the_steps_up_to_a_stream() -> None:
    env = environment()
    assert env._repr_html_() is None
    stream = numbers(env)
    stream.print().name("out")
    drawing = env._repr_html_()
    assert drawing is not None and drawing.startswith("<svg") and "out" in drawing
    steps = stream._repr_html_()
    assert steps is not None and steps.startswith("<svg") and "out" not in steps


def test_steps_that_do_not_fit_together_are_not_drawn() -> None:
    env = environment()
    assert numbers(env).uid("same").map(str).uid("same")._repr_html_() is None


def test_settings_say_what_is_set() -> None:
    env = environment()
    assert repr(env.get_checkpoint_config()) == "<CheckpointConfig: no checkpoints>"
    env.enable_checkpointing(500)
    shown = "<CheckpointConfig: every 500 ms, EXACTLY_ONCE>"
    assert repr(env.get_checkpoint_config()) == shown
    env.set_parallelism(3)
    assert "parallelism.default=3" in repr(env.get_config())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (
            ValueStateDescriptor("total", Types.LONG()),
            "ValueStateDescriptor(name='total', type_info=Long, ttl=None)",
        ),
        (Row(shop="x", amount=1), "Row(shop='x', amount=1)"),
        (CountTrigger.of(3), "CountTrigger(window_size=3)"),
        (
            AsyncRetryStrategy.fixed_delay(3, "50 ms"),
            "AsyncRetryStrategy(max_attempts=3, delay_ms=50, delay_max_ms=50, multiplier=1.0)",
        ),
        (EmbeddedRocksDBStateBackend(True), "EmbeddedRocksDBStateBackend(True)"),
        (FileSystemCheckpointStorage("s3://b/ck/"), "FileSystemCheckpointStorage('s3://b/ck')"),
        (WatermarkStrategy.no_watermarks(), "WatermarkStrategy.no_watermarks()"),
        (
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time"),
            "WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner('time')",
        ),
        (
            WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
            .with_idleness("3 s")
            .with_watermark_alignment("all", "1 s"),
            "WatermarkStrategy.for_bounded_out_of_orderness('5000 ms').with_idleness('3000 ms')"
            ".with_watermark_alignment('all', '1000 ms', '1000 ms')",
        ),
        (WatermarkStrategy.for_generator(Never), "WatermarkStrategy.for_generator(Never)"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_values_say_how_they_are_made(value: object, shown: str) -> None:
    assert repr(value) == shown


def test_a_result_is_its_summary() -> None:
    summary = JobSummary("totals", JobStatus.FINISHED, 2_500, RowCounts(read=7, written=3))
    result = JobExecutionResult(JobId("ab" * 16), 2_500, summary)
    assert repr(result) == (
        "<JobExecutionResult: job 'totals' is FINISHED after 2.5 s: 7 rows read, 3 written>"
    )
    assert "ended after 2.5 s" in repr(JobExecutionResult(JobId("ab" * 16), 2_500))


def test_a_view_fits_a_line() -> None:
    assert repr(EMPTY).startswith(f"<JobView of job '{EMPTY.name}', {EMPTY.status.value}: ")
    assert len(repr(EMPTY)) < 200

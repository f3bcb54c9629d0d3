"""Jobs over bounded input whose final results alone count."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.jobs import same
from tests.e2e.runtimes import finished
from tests.e2e.watch import view, wait_completed, wait_running
from tidegate import (
    ConfigError,
    ContinuousProcessingTimeTrigger,
    GlobalWindows,
    GraphError,
    KeyedProcessFunction,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    Time,
    TumblingProcessingTimeWindows,
    Types,
    WatermarkStrategy,
)
from tidegate.checkpoint.coordinator.coordinator import CheckpointCoordinator

pytestmark = pytest.mark.slow

MODES = [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC]
LINES = ["to be or not to be", "to do"]


def environment(mode: RuntimeExecutionMode, parallelism: int = 1) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.local(parallelism).enable_checkpointing(10)
    return env.set_runtime_mode(mode)


def paired(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parallelism", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rolling_operations_give_the_last_value_of_each_key(
    mode: RuntimeExecutionMode, parallelism: int
) -> None:
    words = environment(mode, parallelism).from_collection(LINES).flat_map(paired)
    counts = words.key_by(lambda pair: pair[0], Types.STRING()).sum(1)
    expected = [("be", 2), ("do", 1), ("not", 1), ("or", 1), ("to", 3)]
    assert sorted(counts.execute_and_collect()) == expected


class Late(KeyedProcessFunction[int, tuple[int, int]]):
    """At each timer: how many elements the key has had by then."""

    def __init__(self) -> None:
        self._seen: dict[object, int] = {}

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        self._seen[ctx.get_current_key()] = self._seen.get(ctx.get_current_key(), 0) + 1
        ctx.timer_service().register_event_time_timer(value)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[int, int]]:
        yield timestamp, self._seen[ctx.get_current_key()]


@pytest.mark.parametrize("mode", MODES)
def test_no_timer_is_due_before_all_has_come(mode: RuntimeExecutionMode) -> None:
    numbers = environment(mode).from_collection(list(range(10_000)))
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    timed = numbers.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda number, _: number)
    )
    due = list(timed.key_by(lambda _: 0).process(Late()).execute_and_collect())
    assert due == [(number, 10_000) for number in range(10_000)]


def test_a_batch_without_an_end_is_refused_and_runs_as_a_stream_where_that_is_left_open() -> None:
    endless = environment(RuntimeExecutionMode.BATCH).generate(same, None, 1_000, Types.LONG())
    with pytest.raises(GraphError, match=r"(?s)BATCH mode.*Generator"):
        endless.execute_and_collect(limit=1)
    automatic = environment(RuntimeExecutionMode.AUTOMATIC).generate(same, None, 1_000)
    counts = automatic.map(lambda _: 1).key_by(lambda _: 0, Types.LONG()).reduce(lambda x, y: x + y)
    assert counts.execute_and_collect(limit=3) == [1, 2, 3]


SECOND = Time.seconds(1)
BY_CLOCK = {
    "tumbling": lambda keyed: keyed.window(TumblingProcessingTimeWindows.of(SECOND)),
    "sessions": lambda keyed: keyed.window(ProcessingTimeSessionWindows.with_gap(SECOND)),
    "now and then": lambda keyed: keyed.window(GlobalWindows.create()).trigger(
        PurgingTrigger.of(ContinuousProcessingTimeTrigger.of(SECOND))
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("windows", BY_CLOCK)
def test_windows_of_processing_time_are_refused(mode: RuntimeExecutionMode, windows: str) -> None:
    keyed = environment(mode).from_sequence(1, 10).key_by(lambda n: n % 2)
    BY_CLOCK[windows](keyed).reduce(max).name("by the clock").print()
    with pytest.raises(GraphError, match="processing time have no place in a batch") as refused:
        keyed.get_execution_environment().execute()
    assert refused.value.where == "operator 'by the clock'"


@pytest.mark.slow
@pytest.mark.feature("F008")
@pytest.mark.parametrize("mode", list(RuntimeExecutionMode))
def test_a_streaming_job_has_a_checkpoint_coordinator_and_one_in_batch_mode_has_none(
    mode: RuntimeExecutionMode, tmp_path: Path
) -> None:
    env = environment(mode)
    env.generate(same, 1_000, 1_000, Types.LONG()).filter(lambda _: False).print()
    client = env.execute_async("with a coordinator or without")
    asked = client.trigger_checkpoint, lambda: client.stop_with_savepoint(False, tmp_path)
    batch = mode is not RuntimeExecutionMode.STREAMING  # the input has an end
    wait_running(client)
    if batch:
        for ask in asked:
            with pytest.raises(ConfigError, match=r"batch mode.* no checkpoints") as refused:
                ask().result(timeout=100)
            assert refused.value.remedy
    else:
        wait_completed(client, 1)
    coordinator = client._job.inbox.machine._checkpoints
    assert isinstance(coordinator, CheckpointCoordinator) != batch
    assert (view(client).checkpoints.counts.total == 0) == batch
    finished(client)

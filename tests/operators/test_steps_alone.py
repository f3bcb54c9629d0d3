"""Steps that whole jobs show too, each alone in this process: dead letters, sinks, reduces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tidegate import (
    DeadLetter,
    JobFailed,
    MapFunction,
    OutputTag,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)
from tidegate.testing import OperatorHarness

if TYPE_CHECKING:
    from tidegate import DataStream

BAD = OutputTag[DeadLetter]("bad")


class Inverse(MapFunction[int, float]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._calls = runtime_context.get_metrics_group().counter("calls")

    def map(self, value: int) -> float:
        self._calls.inc()
        return 12 / value


def test_a_row_that_fails_leaves_by_the_side_and_the_others_go_on() -> None:
    with OperatorHarness(lambda s: s.map(Inverse()).name("inverse").dead_letters(BAD)) as harness:
        harness.process_all([1, 0, 2], [10, 20, 30])
        harness.watermark(25)
        harness.idle()
        harness.active()
        assert harness.output == [(12.0, 10), (6.0, 30)] and harness.watermarks == [25]
        [letter] = harness.take_side_output(BAD)
        assert letter.value == 0 and "ZeroDivisionError" in letter.why
        snapshot = harness.snapshot()
        harness.complete(snapshot)
        harness.abort(harness.snapshot())
        harness.process(3)
        assert harness.take() == [12.0, 6.0, 4.0]
        harness.end()
    with OperatorHarness(
        lambda s: s.map(Inverse()).name("inverse").dead_letters(BAD), restore=snapshot
    ) as harness:
        harness.process(6)
        assert harness.take() == [2.0]


class Kept(SinkFunction[int]):
    """Keeps what it is given, and when; the last is written at the end."""

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept

    def __reduce__(self) -> Any:
        return _the_one, ()

    def invoke(self, value: int, context: SinkFunction.Context) -> None:
        assert value >= 0, "a number that can be kept"
        now = context.current_processing_time()
        self._kept.append((value, context.timestamp(), context.current_watermark() > 0, now >= 0))

    def finish(self) -> None:
        self._kept.append("finished")


KEPT: list[Any] = []


def _the_one() -> Kept:
    return Kept(KEPT)


@pytest.fixture
def kept() -> list[Any]:
    KEPT.clear()
    return KEPT


def run(function: Any, rows: list[int]) -> None:
    """A job in this process, with a sink; each row's event time is five times the row."""
    env = StreamExecutionEnvironment.local(configuration={"tidegate.local.in-process": "true"})
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_time)
    env.from_collection(rows).assign_timestamps_and_watermarks(times).add_sink(function)
    env.execute("sink")


def _time(value: int, _: int) -> int:
    return 5 * value


def test_a_sink_function_is_given_rows_with_their_times_and_told_of_the_end(
    kept: list[Any],
) -> None:
    run(Kept(KEPT), [1, 2])
    assert [each[:2] for each in kept[:-1]] == [(1, 5), (2, 10)]
    assert all(knows_now for *_, knows_now in kept[:-1]) and kept[-1] == "finished"


def test_a_sink_function_that_raises_is_told_with_its_row(kept: list[Any]) -> None:
    with pytest.raises(JobFailed, match="can be kept") as failed:
        run(Kept(KEPT), [-1])
    assert "at the row -1" in failed.value.where and kept == []


def test_a_plain_function_is_a_sink_too(kept: list[Any]) -> None:
    run(_note, [3])
    assert kept == [3]


def _note(value: int) -> None:
    KEPT.append(value)


class Longer(ReduceFunction[str]):
    """Has a life, so that it is called row by row; fails for an empty text."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = True

    def reduce(self, value1: str, value2: str) -> str:
        assert value2, "an empty text"
        return max(value1, value2, key=len)


@pytest.mark.parametrize("function", [Longer(), Longer().reduce], ids=["with a life", "without"])
def test_a_reduce_gives_what_a_key_has_come_to_up_to_the_row_that_fails(function: Any) -> None:
    def step(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by(lambda text: text[:1]).reduce(function)

    with OperatorHarness(step) as harness:
        harness.process_all(["a", "abc", "b", "ab"], [1, 2, 3, 4])
        assert harness.output == [("a", 1), ("abc", 2), ("b", 3), ("abc", 4)]

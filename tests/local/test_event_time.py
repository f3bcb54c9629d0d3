"""Event time of a job, as its user sees it: timestamps, watermarks, idleness, alignment."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median

import pytest
import structlog

from tests.e2e.journal import Latch
from tests.e2e.runtimes import Jobs, finished
from tests.e2e.watch import until, view, wait_completed, wait_for
from tidegate import (
    DataStream,
    Duration,
    JobFailed,
    MapFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from tidegate.connectors.collect import CollectSink
from tidegate.connectors.generator import DataGeneratorSource, NumberSequenceSource
from tidegate.driver.telling import watching
from tidegate.jobmaster import standstill
from tidegate.model.elements import MAX_WATERMARK_MS, MIN_TIMESTAMP_MS

pytestmark = pytest.mark.slow

NAMED = "event-time-stands-still"
AUTO_INTERVAL = "pipeline.auto-watermark-interval"


class EachRecord(WatermarkGenerator[object]):
    """After each record a watermark equal to the greatest timestamp so far."""

    def on_event(self, value: object, timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(timestamp)


def number(value: int, before: int) -> int:
    return value


EACH = WatermarkStrategy.for_generator(EachRecord).with_timestamp_assigner(number)
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(number)


class Times(ProcessFunction[object, tuple[object, ...]]):
    """Each value with its timestamp and with the watermark before it."""

    def process_element(
        self, value: object, ctx: ProcessFunction.Context
    ) -> Iterator[tuple[object, ...]]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def collected(stream: DataStream[object], count: int | None = None) -> list[object]:
    with stream.execute_and_collect() as rows:
        return list(rows if count is None else islice(rows, count))


# --- watermarks where they are said ---


@pytest.mark.parametrize("chained", [True, False])
def test_a_record_sees_the_watermark_before_it(jobs: Jobs, chained: bool) -> None:
    env = jobs.env()
    if not chained:
        env.disable_operator_chaining()
    stream = env.from_collection([3, 1, 7, 5]).assign_timestamps_and_watermarks(EACH)
    assert collected(stream.process(Times())) == [
        (3, 3, MIN_TIMESTAMP_MS),
        (1, 1, 3),
        (7, 7, 3),
        (5, 5, 7),
    ]


def test_event_time_given_anew_replaces_what_was_there(jobs: Jobs) -> None:
    anew = EACH.with_timestamp_assigner(lambda value, before: before - 100)
    stream = jobs.env().from_collection([10, 20]).assign_timestamps_and_watermarks(EACH)
    stream = stream.assign_timestamps_and_watermarks(anew).process(Times())
    assert collected(stream) == [(10, -90, MIN_TIMESTAMP_MS), (20, -80, -90)]


def test_a_short_input_is_read_before_any_periodic_watermark(jobs: Jobs) -> None:
    stream = jobs.env().from_collection([1, 2]).assign_timestamps_and_watermarks(MONOTONOUS)
    assert collected(stream.process(Times())) == [
        (1, 1, MIN_TIMESTAMP_MS),
        (2, 2, MIN_TIMESTAMP_MS),
    ]


@pytest.mark.parametrize("at_source", [True, False])
def test_periodic_watermarks_come_while_records_do(jobs: Jobs, at_source: bool) -> None:
    env = jobs.env(**{AUTO_INTERVAL: 20})
    source = DataGeneratorSource(abs, rate=200)
    if at_source:
        stream = env.from_source(source, MONOTONOUS, "numbers")
    else:
        stream = env.from_source(source).assign_timestamps_and_watermarks(MONOTONOUS)
    rows = collected(stream.process(Times()), 100)
    marks = [mark for _, _, mark in rows]
    assert marks == sorted(marks)
    assert len(set(marks)) > 3


def test_a_column_gives_event_time_to_arrow_batches_and_to_records(jobs: Jobs) -> None:
    env = jobs.env()
    source = NumberSequenceSource(5, 7, arrow=True)
    column = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("value")
    columns = env.from_source(source, column, "numbers")
    records = env.from_collection([{"value": 9}]).assign_timestamps_and_watermarks(column)
    rows = collected(columns.union(records).process(Times()))
    assert sorted((row["value"], stamp) for row, stamp, _ in rows) == [(n, n) for n in (5, 6, 7, 9)]


# --- several inputs ---


class Silent(MapFunction[int, int]):
    def map(self, value: int) -> int:
        raise AssertionError("nothing reaches this")


def silent(env: StreamExecutionEnvironment) -> DataStream[int]:
    """A stream that is there and gives nothing, and never ends."""
    return env.generate(abs, rate=10).filter(lambda value: False).map(Silent())


def test_an_input_without_watermarks_holds_event_time_back(jobs: Jobs) -> None:
    env = jobs.env()
    busy = env.generate(abs, rate=500).assign_timestamps_and_watermarks(EACH)
    rows = collected(busy.union(silent(env)).process(Times()), 100)
    assert {mark for _, _, mark in rows} == {MIN_TIMESTAMP_MS}


def test_an_input_that_has_ended_holds_nothing_back(jobs: Jobs) -> None:
    env = jobs.env()
    busy = env.generate(abs, rate=500).assign_timestamps_and_watermarks(EACH)
    ended = env.from_collection([1]).assign_timestamps_and_watermarks(EACH)
    with busy.union(ended).process(Times()).execute_and_collect() as rows:
        assert next(mark for value, _, mark in rows if mark > 100) > 100


@pytest.mark.feature("F290")
def test_an_idle_input_holds_nothing_back_and_checkpoints_go_on(jobs: Jobs) -> None:
    env = jobs.checkpointed(1, 50, **{AUTO_INTERVAL: 20})
    busy = env.generate(abs, rate=500).assign_timestamps_and_watermarks(EACH)
    rests = WatermarkStrategy.no_watermarks().with_idleness(Duration.of_millis(60))
    idle = silent(env).assign_timestamps_and_watermarks(rests)
    busy.union(idle).process(Times()).sink_to(CollectSink("rows"))
    client = jobs.start(env, "idle")
    marks = (mark for _, _, mark in client.collected("rows"))
    assert next(mark for mark in marks if mark > MIN_TIMESTAMP_MS) >= 0
    done = view(client).checkpoints.counts.completed
    wait_completed(client, done + 2)
    assert next(mark for mark in marks if mark > 500) > 500


@dataclass
class BreakOnce(MapFunction[int, int]):
    """Breaks the job, once, when it is told to."""

    told: Latch

    def map(self, value: int) -> int:
        if self.told.take():
            raise RuntimeError("told to break")
        return value


def test_a_watermark_is_no_part_of_a_snapshot(jobs: Jobs) -> None:
    told = Latch(jobs.folder / "break")
    env = jobs.checkpointed(1, 30)
    numbers = env.generate(abs, rate=500).map(BreakOnce(told))
    stream = numbers.assign_timestamps_and_watermarks(EACH).process(Times())
    stream.sink_to(CollectSink("rows"))
    client = jobs.start(env, "restored")
    wait_completed(client, 2)
    told.set()
    wait_for(client, lambda seen: seen.restarts == 1, "the restart")
    rows = client.collected("rows")
    first, again = islice((value for value, _, mark in rows if mark == MIN_TIMESTAMP_MS), 2)
    assert first == 0 < again, "it goes on behind the checkpoint, without a watermark"


# --- figures ---


def test_the_figures_of_a_vertex_show_how_far_event_time_has_come(jobs: Jobs) -> None:
    env = jobs.env()
    stream = env.from_sequence(1, 10).assign_timestamps_and_watermarks(EACH).disable_chaining()
    stream.process(Times()).disable_chaining().print()
    client = jobs.start(env, "figures")
    finished(client)
    found = {
        vertex.name: vertex.subtasks[0].figures.watermark_ms for vertex in view(client).vertices
    }
    assert found["Process"] == MAX_WATERMARK_MS
    assert found["Source: Sequence Source"] is None


# --- alignment ---


def tagged(tag: str) -> object:
    return lambda value: (tag, value)


def second(value: tuple[str, int], before: int) -> int:
    return value[1]


@pytest.mark.slow
@pytest.mark.feature("F290")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_fast_source_waits_for_a_slow_one_of_its_group(jobs: Jobs, parallelism: int) -> None:
    env = jobs.checkpointed(parallelism, 100, **{"tidegate.batch.rows": 50})
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(second)
        .with_watermark_alignment("numbers", Duration.of_millis(200), Duration.of_millis(40))
    )
    slow = env.from_source(DataGeneratorSource(tagged("slow"), 600, rate=300), strategy, "slow")
    fast = env.from_source(DataGeneratorSource(tagged("fast"), 20_000, rate=6_000), strategy, "f")
    slow.union(fast).sink_to(CollectSink("rows"))
    client = jobs.start(env, "aligned")
    last = {"slow": -1, "fast": -1}
    leads: list[int] = []
    count = 0
    for tag, value in client.collected("rows"):
        last[tag] = max(last[tag], value)
        count += 1
        if 300 <= last["slow"] < 550:
            leads.append(last["fast"] - last["slow"])
    finished(client)
    assert count == 20_600
    # Unaligned it would be 20 times as far: 5 700 ahead and more all the time.
    assert median(leads) < 2_000
    assert view(client).checkpoints.counts.completed > 5


# --- what can be wrong ---


@pytest.mark.parametrize("at_source", [True, False])
def test_a_column_that_is_not_there_is_told_with_operator_and_columns(
    jobs: Jobs, at_source: bool
) -> None:
    env = jobs.env()
    column = MONOTONOUS.with_timestamp_assigner("time")
    source = NumberSequenceSource(5, 7, arrow=True)
    if at_source:
        stream = env.from_source(source, column, "numbers")
    else:
        stream = env.from_source(source).assign_timestamps_and_watermarks(column).name("numbers")
    with pytest.raises(JobFailed, match=r"(?s)no column 'time'.*there are value.*numbers'"):
        collected(stream)


def test_a_timestamp_that_is_none_is_told_with_operator_and_row(jobs: Jobs) -> None:
    nothing = MONOTONOUS.with_timestamp_assigner(lambda value, before: None)
    stream = jobs.env().from_collection([5]).assign_timestamps_and_watermarks(nothing).name("times")
    with pytest.raises(JobFailed, match=r"(?s)'times' gave None.*at the row 5"):
        collected(stream)


def test_an_input_that_rests_is_named_where_others_go_on(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "STANDSTILL_MS", 500)
    monkeypatch.setattr(watching, "_LOOK_S", 0.05)
    env = jobs.checkpointed(1, 100)
    going = env.generate(lambda n: n, rate=500).assign_timestamps_and_watermarks(MONOTONOUS)
    resting = env.generate(lambda n: n, rate=0.001).assign_timestamps_and_watermarks(MONOTONOUS)
    both = going.name("going").union(resting.name("resting"))
    both.key_by(lambda value: value % 2).reduce(max).name("waiting")
    with structlog.testing.capture_logs() as logs:
        client = jobs.start(env, "standstill")
        until(
            lambda: any(log.get("warning") == NAMED for log in logs), "the standstill is told", 90
        )
    client.cancel().result(60)
    told = next(log for log in logs if log.get("warning") == NAMED)
    assert "waiting" in told["waits"]
    assert "resting (1/1)" in told["for_input"] and "going" not in told["for_input"]

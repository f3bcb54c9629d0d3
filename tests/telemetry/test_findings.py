"""What is said of a job in trouble, and that nothing is said of one that is well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.rest.world import DONE, EMPTY, FAILED, VERTEX
from tidegate.checkpoint.coordinator.statistics import SubtaskStatistics
from tidegate.errors import UserCodeFailed
from tidegate.jobmaster.view import FailureView, JobView, SlotView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, JobStatus, LongCall, SubtaskFigures
from tidegate.model.elements import MIN_TIMESTAMP_MS
from tidegate.model.failure_reason import FailureReason
from tidegate.model.ids import ChannelId, CheckpointId, OperatorId, SlotId, VertexId
from tidegate.model.metrics import Metered, MetricKey, MetricKind, Metrics, Spread
from tidegate.model.topology import Edge, OperatorInfo, Partitioner
from tidegate.telemetry.findings import Finding, Subject, findings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

NOW_MS = 10_000_000
SOURCE, TOTALS = VertexId(b"s" * 16), VertexId(b"t" * 16)
SUM, SINK = OperatorId(b"a" * 16), OperatorId(b"b" * 16)
SLOT = SlotId("one")


def metrics(busy: float, held: float, rate: float, **of_operators: tuple[float, float]) -> Metrics:
    """of_operators: share of time and microseconds a row, by the letter of an operator's id."""
    made: Metrics = {
        MetricKey("busyTimeMsPerSecond", MetricKind.GAUGE): round(busy * 1_000),
        MetricKey("backPressuredTimeMsPerSecond", MetricKind.GAUGE): round(held * 1_000),
        MetricKey("numRecordsInPerSecond", MetricKind.METER): Metered(0, rate),
    }
    for letter, (share, micros) in of_operators.items():
        operator = OperatorId(letter.encode() * 16)
        busy_key = MetricKey("busyTimeMsPerSecond", MetricKind.GAUGE, operator)
        per_row = MetricKey("timePerRecordMicros", MetricKind.HISTOGRAM, operator)
        made = {**made, busy_key: round(share * 1_000), per_row: Spread(9, mean=micros)}
    return made


def task(index: int, of: Metrics, figures: SubtaskFigures | None = None) -> SubtaskView:
    running = ExecutionState.RUNNING
    return SubtaskView(index, 0, running, SLOT, {}, figures or SubtaskFigures(), metrics=of)


def job(source: Metrics, *totals: SubtaskView) -> JobView:
    keyed, sink = OperatorInfo(SUM, "sum", keyed=True), OperatorInfo(SINK, "database", sink=True)
    read = OperatorInfo(OperatorId(SOURCE), "orders")
    return replace(
        EMPTY,
        vertices=(
            VertexView(SOURCE, "orders", 1, 128, (task(0, source),), (read,)),
            VertexView(TOTALS, "sum -> database", len(totals), 128, totals, (keyed, sink)),
        ),
        edges=(Edge(SOURCE, TOTALS, Partitioner.HASH, 0),),
    )


WELL = metrics(0.3, 0.0, 100.0)
HELD = metrics(0.1, 0.8, 0.0)


def only(view: JobView) -> Finding:
    [found] = findings_of(view, NOW_MS)
    return found


@pytest.mark.parametrize(
    "view",
    [
        EMPTY,
        job(WELL, task(0, WELL), task(1, WELL)),
        job(HELD, task(0, metrics(0.3, 0.0, 9.0))),
        job(WELL, task(0, metrics(0.9, 0.0, 9.0))),
        job(WELL, task(0, metrics(0.9, 0.0, 9.0)), task(1, metrics(0.9, 0.0, 9.0))),
    ],
    ids=[
        "nothing there",
        "little to do",
        "held back by nothing busy",
        "busy and nobody waits",
        "equally busy",
    ],
)
def test_nothing_is_said_of_a_job_that_is_well(view: JobView) -> None:
    assert findings_of(view, NOW_MS) == []


def test_the_step_that_others_wait_for_is_named_with_its_operator() -> None:
    found = only(
        job(HELD, task(0, WELL), task(1, metrics(0.97, 0.0, 99.0, a=(0.1, 5), b=(0.8, 5_600))))
    )
    assert (found.subject, found.step) == (Subject.BOTTLENECK, "sum -> database")
    assert "97 % of the time" in found.what and "'orders' is backpressured 80 %" in found.what
    assert "Most of it goes to 'database', 5.6 ms a row." in found.what
    assert "sink is slow" in found.remedy


@pytest.mark.parametrize(("micros", "remedy"), [(20_000, "AsyncDataStream"), (50, "do less")])
def test_a_slow_function_is_told_what_helps_it(micros: float, remedy: str) -> None:
    found = only(job(HELD, task(0, metrics(0.9, 0.0, 50.0, a=(0.9, micros), b=(0.0, 1)))))
    assert "'sum'" in found.what and remedy in found.remedy


def test_a_step_in_between_is_held_back_itself_and_not_named() -> None:
    view = job(HELD, task(0, metrics(0.6, 0.9, 50.0)))
    assert findings_of(view, NOW_MS) == []


def between(view: JobView, of: Metrics) -> JobView:
    """The same job with a step between its two. of: figures of its task."""
    (source, totals), middle = view.vertices, VertexId(b"m" * 16)
    operator = OperatorInfo(OperatorId(middle), "clean")
    step = VertexView(middle, "clean", 1, 128, (task(0, of),), (operator,))
    first = Edge(SOURCE, middle, Partitioner.REBALANCE, 0)
    last = Edge(middle, TOTALS, Partitioner.HASH, 0)
    return replace(view, vertices=(source, step, totals), edges=(first, last))


def test_a_slow_step_is_found_behind_one_that_waits_for_its_turn() -> None:
    slow = job(HELD, task(0, metrics(0.9, 0.0, 30.0, a=(0.0, 1), b=(0.9, 30_000))))
    found = only(between(slow, metrics(0.02, 0.07, 30.0)))
    assert (found.subject, found.step) == (Subject.BOTTLENECK, "sum -> database")
    assert "'orders' is backpressured 80 %" in found.what
    assert "'database', 30 ms a row" in found.what
    works = findings_of(between(slow, metrics(0.9, 0.0, 30.0)), NOW_MS)
    assert [each.step for each in works] == ["clean"], (
        "what works itself is what the first waits for"
    )


def chained(busy: float, micros: float) -> JobView:
    """One step that reads and calls something for each row."""
    call = OperatorInfo(SUM, "to database")
    task_view = task(0, metrics(busy, 0.0, 30.0, s=(0.01, 0), a=(busy, micros)))
    read = OperatorInfo(OperatorId(SOURCE), "orders")
    return replace(EMPTY, vertices=(VertexView(SOURCE, "all", 1, 128, (task_view,), (read, call)),))


def test_a_source_in_one_step_with_a_slow_function_is_told() -> None:
    found = only(chained(0.98, 30_000))
    assert (found.subject, found.step) == (Subject.BOTTLENECK, "all")
    assert "can read no faster: its busiest task works 98 % of the time" in found.what
    assert "'to database', 30 ms a row" in found.what and "AsyncDataStream" in found.remedy
    assert findings_of(chained(0.7, 30_000), NOW_MS) == [], "it reads all that comes"
    assert findings_of(chained(0.98, 20), NOW_MS) == [], "it reads as fast as it can"


def test_a_hot_key_is_not_told_to_have_more_parallelism() -> None:
    busy, idle = metrics(0.95, 0.0, 880.0), metrics(0.02, 0.0, 40.0)
    found = only(job(HELD, task(0, idle), task(1, idle), task(2, busy), task(3, idle)))
    assert found.subject is Subject.SKEW
    assert "Task 3" in found.what and "88 % of all rows" in found.what
    assert "the others work at most 2 % of it" in found.what
    assert "parallelism" not in found.remedy and "Hottest keys" in found.remedy
    of_two = only(job(HELD, task(0, idle), task(1, busy)))
    assert "Task 2" in of_two.what and "the other works 2 % of it" in of_two.what


def giving(view: JobView, rate: float) -> JobView:
    """The same job with a source that gives so many rows a second."""
    source, totals = view.vertices
    gives = {**WELL, MetricKey("numRecordsOutPerSecond", MetricKind.METER): Metered(0, rate)}
    return replace(view, vertices=(replace(source, subtasks=(task(0, gives),)), totals))


def test_event_time_that_waits_for_an_input_names_it() -> None:
    held_by = (ChannelId(0, 0, 0),)
    behind = SubtaskFigures(watermark_ms=1_000, furthest_ms=301_000, held_by=held_by)
    found = only(giving(job(WELL, task(0, WELL, behind)), 40))
    assert found.subject is Subject.EVENT_TIME and found.step == "sum -> database"
    assert "event time of 'orders': this input is 5 min behind" in found.what
    assert "gives 40 rows a second" in found.what and "timestamps are wrong" in found.remedy
    near = replace(behind, furthest_ms=41_000)
    assert findings_of(giving(job(WELL, task(0, WELL, near)), 40), NOW_MS) == []


def test_event_time_that_waits_for_an_input_without_rows_is_told_sooner() -> None:
    held_by = (ChannelId(0, 0, 0),)
    behind = SubtaskFigures(watermark_ms=1_000, furthest_ms=41_000, held_by=held_by)
    found = only(job(WELL, task(0, WELL, behind)))
    assert "gives 0 rows a second" in found.what and "with_idleness" in found.remedy
    none = replace(behind, watermark_ms=MIN_TIMESTAMP_MS)
    assert "this input has given none yet" in only(job(WELL, task(0, WELL, none))).what
    near = replace(behind, furthest_ms=21_000)
    assert findings_of(job(WELL, task(0, WELL, near)), NOW_MS) == []
    nobody = replace(none, furthest_ms=MIN_TIMESTAMP_MS)
    assert findings_of(job(WELL, task(0, WELL, nobody)), NOW_MS) == []


def test_event_time_that_waits_for_some_tasks_of_a_step_names_them() -> None:
    held_by = (ChannelId(0, 2, 0), ChannelId(0, 0, 0))
    behind = SubtaskFigures(watermark_ms=1_000, furthest_ms=301_000, held_by=held_by)
    view = job(WELL, task(0, WELL, behind))
    source, totals = view.vertices
    readers = tuple(task(index, WELL) for index in range(3))
    view = replace(view, vertices=(replace(source, parallelism=3, subtasks=readers), totals))
    assert "event time of tasks 1, 3 of 'orders'" in only(view).what
    one = replace(behind, held_by=held_by[:1])
    totals = replace(totals, subtasks=(task(0, WELL, one),))
    view = replace(view, vertices=(view.vertices[0], totals))
    assert "event time of task 3 of 'orders'" in only(view).what


def test_failures_in_a_row_and_a_restart() -> None:
    failure = FailureView(NOW_MS - 1_000, "no route\nmore", "look up (1/2)", SLOT, "OSError")
    found = only(replace(EMPTY, failures=(failure,) * 3))
    assert (found.subject, found.step) == (Subject.FAILURE, "look up (1/2)")
    assert found.what.endswith("OSError: no route") and "3 times" in found.what
    old = replace(failure, wall_ms=NOW_MS - 700_000)
    assert findings_of(replace(EMPTY, failures=(failure, old, old)), NOW_MS) == []
    waits = only(replace(EMPTY, status=JobStatus.RESTARTING, slots_wanted=2))
    assert waits.what == "The job restarts." and "2 of 2 slots" in waits.remedy
    told = only(replace(EMPTY, status=JobStatus.RESTARTING, failures=(failure,)))
    assert told.what == "The job restarts after a failure in 'look up (1/2)': OSError: no route"


def test_an_error_of_a_user_function_is_told_without_our_class() -> None:
    error = "the function of operator 'check' raised OSError: no route"
    failure = FailureView(NOW_MS - 1_000, error, "check", SLOT, UserCodeFailed.__name__)
    found = only(replace(EMPTY, failures=(failure,) * 3))
    assert found.what.endswith(f"the last time in 'check': {error}")
    assert "same row" in found.remedy and "AsyncDataStream" in found.remedy


def test_a_call_that_lasts_is_named() -> None:
    slot = SlotView(SLOT, "host", 1, 5, 12_400, LongCall("lookup, line 4", ""), "look up (1/2)")
    found = only(replace(EMPTY, slots=(slot,)))
    assert found.what == "look up (1/2) has been in one call of lookup, line 4 for 12 s."


def test_a_slow_step_that_is_in_a_call_is_told_for_how_long() -> None:
    view = job(HELD, task(0, metrics(0.9, 0.0, 0.0, a=(0.0, 15))))
    slot = SlotView(SLOT, "host", 1, 5, 6_400, calling="sum -> database (1/1)")
    found = only(replace(view, slots=(slot,)))
    assert found.subject is Subject.BOTTLENECK and "same rows for 6 s" in found.what
    assert "a row" not in found.what and "time limit" in found.remedy
    named = replace(slot, batch_age_ms=11_000, long_call=LongCall("lookup, line 4", ""))
    assert only(replace(view, slots=(named,))).subject is Subject.CALL


def seen(view: JobView, *history: object, interval_ms: int = 1_000) -> JobView:
    checkpoints = replace(view.settings.checkpoints, interval_ms=interval_ms)
    settings = replace(view.settings, checkpoints=checkpoints)
    told = replace(view.checkpoints, history=history)
    return replace(view, settings=settings, checkpoints=told)


def test_checkpoints_that_fail_are_told_with_their_cause() -> None:
    reason = FailureReason.CHECKPOINT_EXPIRED
    failed = replace(FAILED, reason=reason, failure="no answer in 10 s", failed_at="sum (1/2)")
    again = replace(failed, checkpoint=CheckpointId(5))
    found = only(seen(EMPTY, again, failed))
    assert found.what == "The last 2 checkpoints have failed at sum (1/2): no answer in 10 s"
    assert found.remedy == reason.remedy
    assert findings_of(seen(EMPTY, DONE, failed), NOW_MS) == []


def test_checkpoints_that_fill_their_interval_are_told_with_whose_share_comes_last() -> None:
    view = job(WELL, task(0, WELL))
    share = replace(VERTEX, vertex=TOTALS)
    slow = replace(DONE, duration_ms=640, vertices=(share,))
    found = only(seen(view, slow))
    assert found.what.startswith("A checkpoint takes 640 ms, and there is one each 1 s.")
    assert "Last comes 'sum -> database' (2/1)." in found.what
    assert findings_of(seen(view, replace(slow, duration_ms=400)), NOW_MS) == []


def grown(*sizes: int) -> list[object]:
    """Checkpoints in which the step TOTALS has these sizes."""
    share = SubtaskStatistics(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, unaligned=False)
    return [
        replace(
            DONE,
            checkpoint=CheckpointId(number + 1),
            trigger_ms=number * 1_000,
            duration_ms=5,
            vertices=(replace(VERTEX, vertex=TOTALS, subtasks=(replace(share, state_size=size),)),),
        )
        for number, size in enumerate(sizes)
    ]


def test_state_that_keeps_growing_is_told() -> None:
    view = job(WELL, task(0, WELL))
    found = only(seen(view, *grown(*range(1_000_000, 3_000_000, 200_000))))
    assert found.subject is Subject.STATE and found.step == "sum -> database"
    assert "from 1 MB to 2.8 MB in 9 s. At this rate it doubles in 14 s." in found.what
    assert "StateTtlConfig" in found.remedy
    dips = (4_000_000, 4_100_000, 4_200_000, 4_150_000, 4_300_000, 4_400_000, 4_350_000, 4_800_000)
    since = replace(view, timestamps_ms={JobStatus.INITIALIZING: -60_000})
    assert only(seen(since, *grown(*dips))).subject is Subject.STATE


def test_a_leak_is_still_told_when_it_has_lasted_for_hours() -> None:
    view = job(WELL, task(0, WELL))
    old = replace(view, timestamps_ms={JobStatus.INITIALIZING: -10 * 3_600_000})
    leak = grown(*range(3_600_000_000, 3_601_000_000, 100_000))
    assert "doubles in 10 h" in only(seen(old, *leak)).what
    older = replace(view, timestamps_ms={JobStatus.INITIALIZING: -100 * 3_600_000})
    slower = grown(*range(36_000_000_000, 36_001_000_000, 100_000))
    assert findings_of(seen(older, *slower), NOW_MS) == []


@pytest.mark.parametrize(
    "sizes",
    [
        range(1_000, 3_000, 200),
        range(1_000_000, 8_000_000, 1_000_000),
        [1_000_000 * each for each in (1, 2, 4, 8, 7, 9, 10, 20)],
        range(5_000_000, 5_010_000, 1_000),
        [5_000_000] * 10,
    ],
    ids=["little", "few checkpoints", "goes down too", "nearly full", "stays"],
)
def test_state_that_grows_otherwise_is_not_told(sizes: Iterable[int]) -> None:
    assert findings_of(seen(job(WELL, task(0, WELL)), *grown(*sizes)), NOW_MS) == []


def test_nothing_is_said_of_a_job_that_is_over() -> None:
    failure = FailureView(NOW_MS, "x", "", SLOT)
    over = replace(EMPTY, status=JobStatus.FAILED, failures=(failure,) * 3)
    assert findings_of(over, NOW_MS) == []

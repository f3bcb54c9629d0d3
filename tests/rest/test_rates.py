"""Shares of time, from counters seen one after another."""

from dataclasses import replace

import pytest

from tests.rest.world import EMPTY
from tidegate.jobmaster.view import JobView, SubtaskView, VertexView
from tidegate.model.control import ExecutionState, SubtaskFigures
from tidegate.model.ids import VertexId
from tidegate.rest.shapes.metric_shapes import WINDOW_MS, Rates, Shares, backpressure

VERTEX = VertexId(bytes(16))


def subtask(at_ms: int, busy_ms: int, blocked_ms: int, *, attempt: int = 0) -> SubtaskView:
    figures = SubtaskFigures(busy_ms=busy_ms, blocked_ms=blocked_ms, at_ms=at_ms)
    return SubtaskView(0, attempt, ExecutionState.RUNNING, None, {}, figures)


def job(one: SubtaskView) -> JobView:
    return replace(EMPTY, vertices=(VertexView(VERTEX, "map", 1, 128, (one,)),))


def test_shares_are_of_the_time_between_two_sets_of_counters() -> None:
    rates = Rates()
    rates.saw(job(subtask(1_000, 100, 300)))
    assert rates.of(VERTEX, subtask(1_000, 100, 300)) is None
    rates.saw(job(subtask(1_000, 100, 300)))
    last = subtask(2_000, 350, 900)
    rates.saw(job(last))
    shares = rates.of(VERTEX, last)
    assert shares == Shares(blocked=0.6, busy=0.25) and shares.idle == pytest.approx(0.15)


def test_shares_look_back_for_a_while_only() -> None:
    rates, last = Rates(), subtask(0, 0, 0)
    for number in range(1, 11):
        blocked_ms = 1_000 * min(number, 4)
        last = subtask(number * 1_000, 0, blocked_ms)
        rates.saw(job(last))
    shares = rates.of(VERTEX, last)
    assert shares is not None and shares.blocked == 0
    assert WINDOW_MS == 5_000


def test_a_new_attempt_begins_anew_and_one_that_never_told_has_no_shares() -> None:
    rates = Rates()
    rates.saw(job(subtask(1_000, 0, 0)))
    rates.saw(job(subtask(2_000, 500, 0)))
    anew = subtask(3_000, 0, 0, attempt=1)
    rates.saw(job(anew))
    assert rates.of(VERTEX, anew) is None
    rates.saw(job(subtask(4_000, 100, 0, attempt=1)))
    assert rates.of(VERTEX, anew) == Shares(blocked=0, busy=0.1)
    silent = subtask(0, 0, 0, attempt=2)
    rates.saw(job(silent))
    rates.saw(job(silent))
    assert rates.of(VERTEX, silent) is None


@pytest.mark.parametrize(
    ("ratio", "level"), [(0.0, "ok"), (0.1, "ok"), (0.11, "low"), (0.5, "low"), (0.51, "high")]
)
def test_the_level_of_all_is_that_of_the_greatest_ratio(ratio: float, level: str) -> None:
    page = backpressure({0: Shares(0.0, 0.4), 1: Shares(ratio, 0.2)}, 77)
    assert page["backpressureLevel"] == page["backpressure-level"] == level
    assert page["status"] == "ok" and page["end-timestamp"] == 77
    assert backpressure({}, 77)["status"] == "deprecated"

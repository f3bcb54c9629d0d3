"""When the next periodic checkpoint is due: checkpoint coordination §2."""

from __future__ import annotations

from itertools import accumulate, count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.chance import FixedChance
from tidegate.checkpoint.coordinator.schedule import Schedule
from tidegate.model.ids import OperatorId
from tidegate.model.settings import CheckpointSettings

LEFT, RIGHT = OperatorId(b"l" * 16), OperatorId(b"r" * 16)


def schedule(
    interval_ms: int | None = 1_000, *, pause_ms: int = 0, backlog_ms: int | None = None
) -> Schedule:
    settings = CheckpointSettings(
        interval_ms=interval_ms, min_pause_ms=pause_ms, interval_during_backlog_ms=backlog_ms
    )
    return Schedule(settings, FixedChance(700))


@pytest.mark.feature("F057")
def test_the_first_start_is_delayed_by_chance_later_ones_by_the_pause() -> None:
    made = schedule(pause_ms=200)
    made.start(0)
    assert made.next_ms == 700
    made.stop()
    assert made.next_ms is None
    made.start(5_000)
    assert made.next_ms == 5_200


@pytest.mark.feature("F223")
def test_where_sources_wait_for_it_the_first_one_comes_early() -> None:
    chance = FixedChance(10_000)
    settings = CheckpointSettings(interval_ms=60_000, min_pause_ms=200, pause_sources=True)
    made = Schedule(settings, chance)
    made.start(0)
    assert chance.drawn == [(200, 400)] and made.next_ms == 400


def test_it_is_not_started_twice() -> None:
    made = schedule()
    made.start(0)
    with pytest.raises(AssertionError):
        made.start(0)


@pytest.mark.feature("F058")
@given(st.lists(st.integers(0, 2_500)))
def test_lateness_does_not_move_what_follows(gaps_ms: list[int]) -> None:
    """Whenever it is looked at, it was due once for all due times that have passed."""
    made = schedule()
    made.start(0)
    before_ms = 0
    for now_ms in accumulate(gaps_ms):
        passed = any(before_ms < due_ms <= now_ms for due_ms in range(700, now_ms + 1, 1_000))
        assert made.due(now_ms) == passed
        assert made.next_ms == next(each for each in count(700, 1_000) if each > now_ms)
        before_ms = now_ms


def test_without_an_interval_nothing_is_ever_due() -> None:
    made = schedule(None)
    made.start(0)
    assert made.running
    assert not made.due(10**9)
    made.report_backlog(LEFT, True, 0)
    assert made.next_ms is None


@pytest.mark.feature("F052")
def test_after_a_postponement_the_cadence_goes_on_from_there() -> None:
    made = schedule()
    made.start(0)
    made.postpone(1_234)
    assert made.due(1_234)
    assert made.next_ms == 2_234
    made.stop()
    made.postpone(9_999)
    assert made.next_ms is None


@pytest.mark.feature("F222")
def test_backlog_lengthens_the_interval_from_the_next_trigger_on() -> None:
    made = schedule(backlog_ms=5_000)
    made.start(0)
    made.report_backlog(LEFT, True, 100)
    assert made.next_ms == 700, "what is due sooner is left alone"
    made.due(700)
    assert made.next_ms == 5_700
    made.report_backlog(RIGHT, True, 800)
    assert set(made.backlog) == {LEFT, RIGHT}
    made.report_backlog(LEFT, False, 900)
    assert made.interval_ms == 5_000 and made.backlog == (RIGHT,)
    made.report_backlog(RIGHT, False, 1_000)
    assert made.next_ms == 2_000 and made.backlog == ()


def test_backlog_may_switch_checkpoints_off() -> None:
    made = schedule(backlog_ms=0)
    made.start(0)
    made.report_backlog(LEFT, True, 100)
    assert not made.due(700)
    assert made.next_ms is None
    made.report_backlog(LEFT, False, 3_000)
    assert made.next_ms == 4_000


def test_reports_before_the_start_count_from_the_start_on() -> None:
    made = schedule(backlog_ms=5_000)
    made.report_backlog(LEFT, True, 0)
    assert made.next_ms is None
    made.start(0)
    made.due(700)
    assert made.next_ms == 5_700

"""What the demonstration makes of its news, and what it shows of them."""

import io
from random import Random

import pytest
from rich.console import Console

from examples.demo.conduct import kill_moments
from examples.demo.news import (
    AllRunning,
    AnyNews,
    Broken,
    CheckpointBegun,
    CheckpointCompleted,
    CheckpointFailed,
    Ended,
    Failure,
    JobRestored,
    Progress,
    SlotGone,
    SlotUp,
    StatusChanged,
    from_lines,
    to_line,
)
from examples.demo.screen import LiveDisplay, PlainDisplay, display, print_days, print_ranking
from examples.demo.timeline import Kill, Timeline
from tidegate.errors import ConfigError

STORY: list[AnyNews] = [
    SlotUp(0, "a", "here", 11),
    SlotUp(10, "b", "here", 12),
    StatusChanged(50, "RUNNING"),
    AllRunning(100),
    Progress(600, 1_000, 1_357_100_000_000),
    CheckpointBegun(1_000, 1),
    CheckpointCompleted(1_050, 1, 40, 2_048, 4_096),
    Progress(1_100, 6_000),
    CheckpointBegun(2_000, 2),
]
AFTER_THE_KILL: list[AnyNews] = [
    Failure(2_015, "the slot is gone\nin full", "statistics (1/3)"),
    SlotGone(2_015, "b", 12),
    StatusChanged(2_015, "RESTARTING"),
    CheckpointFailed(2_016, 2, "the job is failing"),
    SlotUp(2_300, "c", "here", 13),
    JobRestored(2_400, 1),
    StatusChanged(2_016, "RUNNING"),
    AllRunning(2_510),
    Progress(2_600, 300),
]
KILL = Kill(2_010, "b", 12, 2)


def told(news: list[AnyNews], timeline: Timeline | None = None) -> Timeline:
    timeline = timeline or Timeline(10_000)
    for each in news:
        timeline.add(each)
    return timeline


def killed_and_back() -> Timeline:
    timeline = told(STORY)
    timeline.killed(KILL)
    return told(AFTER_THE_KILL, timeline)


def test_news_come_through_the_pipe_as_they_were() -> None:
    news = [
        *STORY,
        *AFTER_THE_KILL,
        Ended(9, "FINISHED"),
        Broken(9, "no Java", "here", "install it", "all of it", True),
    ]
    assert list(from_lines(io.BytesIO(b"".join(map(to_line, news))))) == news


def test_half_a_line_of_a_killed_driver_is_left_out() -> None:
    lines = to_line(STORY[0]) + to_line(STORY[1])[:-4]
    assert list(from_lines(io.BytesIO(lines))) == STORY[:1]


def test_slots_and_checkpoints_are_those_that_are_there() -> None:
    timeline = told(STORY)
    assert timeline.slots == {"a": 11, "b": 12}
    assert timeline.under_way == 2
    assert [done.checkpoint for done in timeline.completed] == [1]


def test_after_a_kill_the_job_is_not_taken_for_running_before_it_says_so() -> None:
    timeline = told(STORY)
    assert timeline.running
    timeline.killed(KILL)
    assert not timeline.running
    assert told(AFTER_THE_KILL, timeline).running


def test_the_return_is_measured_from_the_kill() -> None:
    timeline = killed_and_back()
    assert timeline.back_after_ms == [500]
    assert timeline.slots == {"a": 11, "c": 13}
    assert timeline.under_way is None


def test_what_is_read_again_after_a_restore_counts_once() -> None:
    assert told(STORY).read == 6_000
    # Checkpoint 1 began when 1,000 flights had been read.
    assert killed_and_back().read == 1_300


def test_the_rate_is_that_of_the_subtasks_that_run_now() -> None:
    assert told(STORY).rate == 10_000
    timeline = killed_and_back()
    assert timeline.rate == 0
    assert told([Progress(2_700, 800)], timeline).rate == 5_000


def test_event_time_stays_known_while_the_job_has_none() -> None:
    assert told(STORY[:4]).watermark_ms is None
    assert killed_and_back().watermark_ms == 1_357_100_000_000


def test_without_a_wish_kills_are_spread_over_the_replay() -> None:
    first, second = kill_moments(2, None, 20.0, Random(1))
    assert 2.5 <= first <= 7.5
    assert 12.5 <= second <= 17.5


def test_the_first_kill_is_when_it_is_wished_for() -> None:
    first, second = kill_moments(2, 3.0, 20.0, Random(1))
    assert first == 3.0
    assert 3.0 < second < 20.0


def test_the_same_seed_kills_at_the_same_moments() -> None:
    assert kill_moments(3, None, 20.0, Random(5)) == kill_moments(3, None, 20.0, Random(5))


def test_a_kill_after_the_end_is_refused_with_the_length_of_the_replay() -> None:
    with pytest.raises(ConfigError, match=r"after about 20\.0 s"):
        kill_moments(1, 20.0, 20.0, Random(1))


def shown(terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    screen = display(console, "the title")
    screen.stage("starting the driver")
    timeline = Timeline(10_000)
    for news in STORY:
        timeline.add(news)
        screen.told(news, timeline)
    timeline.killed(KILL)
    screen.killed(KILL, timeline)
    for news in AFTER_THE_KILL:
        timeline.add(news)
        screen.told(news, timeline)
    screen.close()
    return out.getvalue()


def test_without_a_terminal_there_are_plain_lines() -> None:
    lines = [line.strip() for line in shown(terminal=False).splitlines()]
    assert lines[0] == "the title"
    assert "slot up: pid 11 on here" in lines
    assert "0.95 s  checkpoint 1 complete: 40 ms, 2.0 KiB written" in lines
    assert "1.91 s  SIGKILL to a worker, pid 12, during checkpoint 2" in lines
    assert "1.92 s  failure in statistics (1/3): the slot is gone" in lines
    assert "2.30 s  restored from checkpoint 1" in lines
    assert "2.41 s  all running again 0.50 s after the kill" in lines
    assert "\x1b" not in "".join(lines)


def test_on_a_terminal_the_same_things_are_said_beside_the_live_figures() -> None:
    text = shown(terminal=True)
    assert "SIGKILL to a worker, pid 12" in text
    assert "all running again 0.50 s after the kill" in text
    assert "6,000 flights" in text
    assert "event time 2013-01-02" in text
    assert "2.0 KiB" in text


def test_the_console_decides_on_the_display() -> None:
    live = display(Console(file=io.StringIO(), force_terminal=True), "title")
    live.close()
    assert isinstance(live, LiveDisplay)
    assert isinstance(display(Console(file=io.StringIO()), "title"), PlainDisplay)


def test_the_ranking_is_a_table_with_places() -> None:
    out = io.StringIO()
    print_ranking(Console(file=out, width=80), [("United", 1_234, 12.345)])
    assert "1,234" in out.getvalue()
    assert "12.3" in out.getvalue()


def test_the_worst_days_are_a_table() -> None:
    out = io.StringIO()
    print_days(Console(file=out, width=80), [("JFK", "2013-07-10", 1_234, 56, 78.91)])
    row = out.getvalue().splitlines()[-1].split()
    assert row == ["JFK", "2013-07-10", "1,234", "56", "78.9"]

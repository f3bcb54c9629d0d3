"""Whether a failed job is restarted, and after which wait: §18.2, by numbers."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.chance import FixedChance
from tests.worlds.jobmaster import World
from tidegate.config import checkpointing
from tidegate.config.configuration import Configuration
from tidegate.config.settings import job_settings
from tidegate.errors import UserCodeFailed
from tidegate.jobmaster.commands import Restarting
from tidegate.jobmaster.failures import RestartStrategy, make_strategy
from tidegate.model.chance import SeededChance
from tidegate.model.control import ExecutionState, JobStatus
from tidegate.model.settings import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    JobSettings,
    NoRestart,
    RestartSettings,
)


def strategy(settings: RestartSettings, drawn_ms: int = 0) -> RestartStrategy:
    return make_strategy(settings, FixedChance(drawn_ms))


@pytest.mark.feature("F272")
def test_without_restarts_the_first_failure_ends_the_job() -> None:
    assert strategy(NoRestart()).failed(0) is None


@pytest.mark.feature("F272")
def test_fixed_delay_restarts_so_many_times_each_after_the_delay() -> None:
    fixed = strategy(FixedDelay(attempts=3, delay_ms=700))
    assert [fixed.failed(now) for now in (0, 10, 1_000_000, 1_000_001)] == [700, 700, 700, None]


@pytest.mark.feature("F272")
@given(
    times_ms=st.lists(st.integers(0, 40), min_size=1).map(sorted),
    failures_max=st.integers(0, 5),
    interval_ms=st.integers(1, 20),
)
def test_failure_rate_restarts_while_the_interval_holds_no_more_failures(
    times_ms: list[int], failures_max: int, interval_ms: int
) -> None:
    rate = strategy(FailureRate(failures_max, interval_ms, delay_ms=50))
    for now_ms, failed in zip(times_ms, accumulate([each] for each in times_ms), strict=True):
        # One as old as the interval still counts.
        held = len([each for each in failed if each >= now_ms - interval_ms])
        assert rate.failed(now_ms) == (50 if held <= failures_max else None)


@pytest.mark.feature("F272")
def test_exponential_delay_grows_to_its_most() -> None:
    exponential = strategy(ExponentialDelay(initial_ms=1_000, max_ms=4_000, multiplier=2.0))
    now, waits = 0, []
    for _ in range(5):
        wait = exponential.failed(now)
        assert wait is not None
        waits.append(wait)
        now += wait + 1
    assert waits == [1_000, 2_000, 4_000, 4_000, 4_000]


@pytest.mark.feature("F272")
def test_exponential_delay_outlasts_an_outage_of_days() -> None:
    exponential = strategy(ExponentialDelay(initial_ms=1, max_ms=2, multiplier=10.0))
    assert [exponential.failed(10 * n) for n in range(400)][1:] == [2] * 399


@pytest.mark.feature("F272")
def test_exponential_delay_begins_anew_after_a_time_without_failures() -> None:
    made = ExponentialDelay(initial_ms=1_000, multiplier=2.0, reset_threshold_ms=10_000)
    exponential = strategy(made)
    assert exponential.failed(0) == 1_000
    assert exponential.failed(1_000) == 2_000  # planned for 3000
    assert exponential.failed(12_999) == 4_000  # 9,999 after the plan: planned for 16,999
    assert exponential.failed(26_999) == 1_000


@pytest.mark.feature("F272")
def test_exponential_delay_can_be_given_a_number_of_attempts() -> None:
    exponential = strategy(ExponentialDelay(attempts_before_reset=2))
    assert exponential.failed(0) is not None
    assert exponential.failed(100_000) is not None
    assert exponential.failed(200_000) is None


@given(
    initial=st.integers(1, 5_000),
    multiplier=st.floats(1.01, 10),
    jitter=st.floats(0, 1),
    seed=st.integers(0, 2**32),
    failures=st.integers(1, 30),
)
def test_every_wait_is_the_formulas_give_or_take_the_jitter(
    initial: int, multiplier: float, jitter: float, seed: int, failures: int
) -> None:
    made = ExponentialDelay(initial_ms=initial, max_ms=60_000, multiplier=multiplier, jitter=jitter)
    exponential = make_strategy(made, SeededChance(seed))
    now = 0
    for attempt in range(failures):
        wait = exponential.failed(now)
        assert wait is not None
        plain = min(60_000.0, initial * multiplier**attempt)
        low, high = max(initial, plain * (1 - jitter)), min(60_000, plain * (1 + jitter))
        assert low - 1 <= wait <= high + 1
        now += wait


def test_a_very_long_row_of_failures_overflows_nothing() -> None:
    exponential = strategy(ExponentialDelay(initial_ms=1, max_ms=60_000, multiplier=1e9))
    now = 0
    for _ in range(3_000):
        wait = exponential.failed(now)
        assert wait is not None and wait <= 60_000
        now += wait + 1


def test_every_strategy_says_what_it_allows_and_by_which_option() -> None:
    for settings, allows, option in (
        (NoRestart(), "no restart strategy", "restart-strategy.type"),
        (FixedDelay(3, 7), "allows 3 restarts ", "restart-strategy.fixed-delay.attempts"),
        (
            FailureRate(1, 7, 9),
            "allows one restart within 7 ms",
            "restart-strategy.failure-rate.max-failures-per-interval",
        ),
        (
            ExponentialDelay(attempts_before_reset=5),
            "allows 5 restarts in a row",
            "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        ),
    ):
        said = strategy(settings).gave_up
        assert said.startswith("It was not restarted") and allows in said and option in said


@pytest.mark.feature("F273")
def test_by_default_a_job_with_checkpoints_waits_1_s_then_1_5_s_then_2_25_s() -> None:
    made = job_settings(Configuration().set(checkpointing.CHECKPOINT_INTERVAL, 1_000))
    for share, drawn in ((1.0, 0), (0.9, -(10**9)), (1.1, 10**9)):
        exponential = strategy(made.restart, drawn)
        now, waits = 0, []
        for _ in range(3):
            wait = exponential.failed(now)
            assert wait is not None
            waits.append(wait)
            now += wait
        expected = [max(1_000, 1_000 * share), 1_500 * share, 2_250 * share]
        assert waits == [pytest.approx(ms, abs=1) for ms in expected]


@pytest.mark.feature("F273")
def test_by_default_a_job_without_checkpoints_is_not_restarted() -> None:
    assert job_settings(Configuration()).restart == NoRestart()


@pytest.mark.feature("F272", "F274")
def test_two_failures_within_one_wait_are_one_restart() -> None:
    world = World(JobSettings(restart=ExponentialDelay())).running()
    first, second, *others = world.executions
    for slot in world.slots.values():
        slot.deaf = True  # their subtasks take their time to end
    world.change(first, ExecutionState.FAILED, UserCodeFailed("one"))
    world.now_ms = 400
    world.change(second, ExecutionState.FAILED, UserCodeFailed("two"))
    for execution in others:
        world.change(execution, ExecutionState.CANCELED)
    for slot in world.slots.values():
        slot.deaf = False
    world.beat()
    world.wake_up_to(999)
    assert world.status is JobStatus.RESTARTING
    world.wake_up_to(1_000)
    assert world.status is JobStatus.RUNNING
    assert [restart.restart for restart in world.of(Restarting)] == [1]
    assert world.machine.view(world.now_ms).restarts == 1


def test_a_failure_while_a_restart_waits_merges_into_it() -> None:
    exponential = strategy(ExponentialDelay())
    assert exponential.failed(0) == 1_000
    assert exponential.failed(300) == 700
    assert exponential.failed(1_000) == 1_500

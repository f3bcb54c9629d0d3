"""Slots killed with SIGKILL: nothing is lost, nothing doubled, the others stay."""

import pytest

from tests.e2e import kills
from tests.e2e.runtimes import Jobs


@pytest.mark.feature("F128", "F189", "F209")
def test_two_killed_slots_lose_and_double_nothing(jobs: Jobs) -> None:
    kills.check_two_kills(jobs)


def test_a_slot_killed_during_a_checkpoint_leaves_none_behind(jobs: Jobs) -> None:
    kills.check_kill_during_checkpoint(jobs)


@pytest.mark.feature("F205")
def test_a_failover_before_the_first_checkpoint_starts_empty(jobs: Jobs) -> None:
    kills.check_kill_before_first_checkpoint(jobs)

"""Slots killed with SIGKILL: nothing is lost, nothing doubled, the others stay."""

from pathlib import Path

import pytest

from tests.e2e import drivers, kills
from tests.e2e.runtimes import Jobs

pytestmark = pytest.mark.slow


@pytest.mark.feature("F095", "F128", "F189", "F209", "F211", "F287")
def test_two_killed_slots_lose_and_double_nothing(jobs: Jobs) -> None:
    kills.check_two_kills(jobs)


def test_slots_that_replace_killed_ones_come_in_over_encrypted_links(jobs: Jobs) -> None:
    kills.check_two_kills(jobs, **{"tidegate.security.internal": "on"})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"execution.checkpointing.unaligned.enabled": True},
        {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": True},
        {"state.backend.local-recovery": True, "state.backend.type": "rocksdb"},
    ],
    ids=["aligned", "unaligned", "on disk", "with local copies"],
)
def test_slots_that_live_host_the_subtasks_of_killed_ones(
    settings: dict[str, object], jobs: Jobs
) -> None:
    kills.check_kills_on_survivors(jobs, **settings)


@pytest.mark.feature("F026")
def test_a_slot_killed_during_a_checkpoint_leaves_none_behind(jobs: Jobs) -> None:
    kills.check_kill_during_checkpoint(jobs)


@pytest.mark.feature("F205")
def test_a_failover_before_the_first_checkpoint_starts_empty(jobs: Jobs) -> None:
    kills.check_kill_before_first_checkpoint(jobs)


@pytest.mark.feature("F282")
def test_a_killed_reader_of_columns_loses_and_doubles_nothing(jobs: Jobs) -> None:
    kills.check_kill_over_columns(jobs)


@pytest.mark.parametrize("unaligned", [False, True])
def test_a_killed_slot_of_running_aggregates_loses_and_doubles_nothing(
    jobs: Jobs, unaligned: bool
) -> None:
    setting = {"execution.checkpointing.unaligned.enabled": unaligned}
    kills.check_kill_over_running_aggregates(jobs, **setting)


@pytest.mark.feature("F188")
def test_a_killed_driver_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    drivers.check_killed_driver(tmp_path, spark=False)

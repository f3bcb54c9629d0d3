"""Whole jobs under kills, broken links and failing storage: always the right answer, and an end."""

import pytest

from tests.simulation.jobs import MODES
from tests.simulation.people import DAMAGES
from tests.simulation.seeds import (
    CALLS_AND_ENDS_FAILED,
    ENDS_FAILED,
    FAILED,
    SURVIVORS_FAILED,
    UNHEARD_FAILED,
)
from tests.simulation.simulation import simulate

SEEDS = [*FAILED, *range(1, 61)]
"""Those that failed once, and some more. `make test` runs 600 more; longer ones:
make simulate SEEDS=10000 KINDS="calls ends"."""


# The rooms' own tests take the branches; to count them here too more than doubles the time.
pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize("seed", SEEDS)
def test_the_job_ends_with_the_right_answer(seed: int) -> None:
    run = simulate(seed)
    assert not run.faults, "\n".join([f"seed {seed}", *run.faults, *run.story])


@pytest.mark.parametrize("mode", MODES)
def test_each_way_to_handle_barriers_gives_the_right_answer(mode: str) -> None:
    runs = [simulate(seed, mode=mode) for seed in range(100, 110)]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []


@pytest.mark.parametrize("lookup", ["ordered", "unordered"])
def test_calls_in_flight_are_lost_and_doubled_by_nothing(lookup: str) -> None:
    runs = [simulate(seed, lookup=lookup) for seed in range(200, 210)]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []


def test_a_stop_of_which_a_subtask_does_not_hear_loses_and_doubles_nothing() -> None:
    """A message is lost with its link alone, and then the job goes on from the savepoint."""
    seeds = [*UNHEARD_FAILED, *range(300, 340)]
    runs = [simulate(seed, unheard=True) for seed in seeds]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []
    assert sum("failed after its savepoint" in each for run in runs for each in run.story) >= 5


@pytest.mark.feature("F130", "F132")
def test_at_least_once_loses_nothing_and_doubles_some() -> None:
    runs = [simulate(seed, mode="at least once") for seed in range(1, 121)]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []
    assert sum(run.doubled > 0 for run in runs) >= 1


def test_committers_behind_the_writers_commit_nothing_before_it_is_durable() -> None:
    runs = [simulate(seed, parts=True) for seed in range(1, 31)]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []


def test_on_survivors_nothing_is_lost_or_doubled_and_guests_return() -> None:
    runs = [simulate(seed, survivors=True) for seed in range(700, 730)]
    seeds = [*SURVIVORS_FAILED, *range(730, 740)]
    runs += [simulate(seed, survivors=True, calls=True, ends=True) for seed in seeds]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []
    stories = ["\n".join(run.story) for run in runs]
    assert sum("run in others" in story for story in stories) >= 20
    assert sum("return to slots" in story for story in stories) >= 15


def test_a_seed_is_the_same_run_each_time() -> None:
    one, other = simulate(7), simulate(7)
    assert one == other


def test_however_people_end_the_job_they_can_go_on_with_it() -> None:
    runs = [simulate(seed, ends=True) for seed in [*ENDS_FAILED, *range(500, 580)]]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []
    story = "\n".join(line for run in runs for line in run.story)
    ways = ("was suspended: somebody", "was cancelled", "Suspend Savepoint", "' failed: ")
    starts = ("restore='latest'", "claim=True", "fall_back=True", "restore='memory:/savepoints/")
    damage = (*DAMAGES, "cannot be read", "cannot be restored")
    assert [each for each in (*ways, *starts, *damage) if each not in story] == []


def test_people_end_the_job_while_calls_take_their_time() -> None:
    seeds = [*CALLS_AND_ENDS_FAILED, *range(600, 620)]
    runs = [simulate(seed, calls=True, ends=True) for seed in seeds]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []
    assert sum(run.calls > 100 for run in runs) >= 5


def test_calls_that_take_time_lose_and_double_nothing_and_let_control_in_between() -> None:
    runs = [simulate(seed, calls=True) for seed in range(400, 440)]
    assert [(run.seed, run.faults) for run in runs if run.faults] == []
    assert sum(run.calls > 100 for run in runs) >= 10

"""Whole jobs under kills, broken links and failing storage: always the right answer, and an end."""

import pytest

from tests.simulation.simulation import simulate

FRESH = range(1, 121)
"""Longer ranges: make simulate SEEDS=10000."""


@pytest.mark.parametrize("seed", FRESH)
def test_the_job_ends_with_each_row_once(seed: int) -> None:
    run = simulate(seed)
    assert not run.faults, "\n".join([f"seed {seed}", *run.faults, *run.story])


@pytest.mark.feature("F130", "F132")
def test_at_least_once_loses_nothing_and_doubles_some() -> None:
    runs = [simulate(seed, exactly_once=False) for seed in range(1, 31)]
    assert [run.faults for run in runs if run.faults] == []
    assert sum(run.doubled > 0 for run in runs) >= 3


def test_a_seed_is_the_same_run_each_time() -> None:
    one, other = simulate(7), simulate(7)
    assert one == other

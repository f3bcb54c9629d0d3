"""Unaligned checkpoints on Spark: quick where aligned ones wait, and as exact."""

import pytest

from tests.e2e.backpressure import (
    ALIGNMENT_TIMEOUT,
    check_killed_under_backpressure,
    check_rescaled_under_backpressure,
    start_slow,
    wait_persisted,
)
from tests.e2e.runtimes import Jobs
from tests.e2e.slow_exchanges import check_few_rows_in_front_of_a_slow_function


@pytest.mark.feature("F237")
@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
def test_they_do_not_wait_for_what_is_in_flight(jobs: Jobs, unaligned: bool) -> None:
    check_few_rows_in_front_of_a_slow_function(jobs, "rebalance", unaligned, "sleeps")


@pytest.mark.feature("F238")
def test_alignment_that_takes_too_long_turns_unaligned(jobs: Jobs) -> None:
    client, _ = start_slow(jobs, 2, **{ALIGNMENT_TIMEOUT: "100 ms"})
    assert wait_persisted(client).duration_ms >= 100
    client.cancel().result(timeout=60)


@pytest.mark.feature("F237", "F152", "F153")
def test_killed_workers_lose_and_double_nothing(jobs: Jobs) -> None:
    check_killed_under_backpressure(jobs)


@pytest.mark.feature("F241")
def test_another_parallelism_goes_on_from_an_unaligned_checkpoint(jobs: Jobs) -> None:
    check_rescaled_under_backpressure(jobs, (2, 1))

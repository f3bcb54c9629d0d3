"""Unaligned checkpoints on Spark: quick where aligned ones wait, and as exact."""

import pytest

from tests.e2e.backpressure import (
    ALIGNMENT_TIMEOUT,
    check_killed_under_backpressure,
    check_rescaled_under_backpressure,
    durations_ms,
)
from tests.e2e.runtimes import Jobs

ALIGNED = {"execution.checkpointing.unaligned.enabled": "false"}
ROW_S = 1.0
"""A slow sink: so long for each row. Four wait in front of each of its subtasks, or more."""


@pytest.mark.feature("F237")
def test_under_backpressure_they_do_not_wait_for_what_is_in_flight(jobs: Jobs) -> None:
    unaligned_ms = durations_ms(jobs, 5, ROW_S)
    aligned_ms = durations_ms(jobs, 2, ROW_S, **ALIGNED)
    print(f"under backpressure on Spark: unaligned {unaligned_ms} ms, aligned {aligned_ms} ms")
    assert max(aligned_ms) > 4 * ROW_S * 1_000
    assert sorted(unaligned_ms)[2] * 2 < max(aligned_ms)


@pytest.mark.feature("F238")
def test_alignment_that_takes_too_long_turns_unaligned(jobs: Jobs) -> None:
    took_ms = durations_ms(jobs, 4, ROW_S, **{ALIGNMENT_TIMEOUT: "500 ms"})
    print(f"aligned for 500 ms at most, on Spark: {took_ms} ms")
    assert all(each >= 500 for each in took_ms[1:])
    assert min(took_ms[1:]) < 4 * ROW_S * 1_000


@pytest.mark.feature("F237", "F152", "F153")
def test_killed_workers_lose_and_double_nothing(jobs: Jobs) -> None:
    check_killed_under_backpressure(jobs)


@pytest.mark.feature("F241")
def test_another_parallelism_goes_on_from_an_unaligned_checkpoint(jobs: Jobs) -> None:
    check_rescaled_under_backpressure(jobs, (2, 1))
